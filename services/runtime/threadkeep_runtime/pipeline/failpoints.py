"""Failpoints for tests: the process kills itself at a named moment of a commit or delivery, if a setting says so.

`THREADKEEP_FAILPOINT=before_commit` kills at the first batch that gets there, `before_commit:5` lets five pass.
"""

from __future__ import annotations

import os
import signal

BEFORE_FIRST_STATEMENT = "before_first_statement"
BEFORE_COMMIT = "before_commit"
AFTER_COMMIT = "after_commit"
AFTER_DELIVERY = "after_delivery"
"""A message was delivered and is not marked so."""
NAMES = (BEFORE_FIRST_STATEMENT, BEFORE_COMMIT, AFTER_COMMIT, AFTER_DELIVERY)


class Failpoints:
    """The one failpoint that is set, if any."""

    def __init__(self, setting: str = "") -> None:
        """Raises ValueError for a name that no failpoint has."""
        name, _, passes = setting.partition(":")
        if name and name not in NAMES:
            raise ValueError(f"no failpoint is named {name}; there are {', '.join(NAMES)}")
        self._name = name
        self._passes = int(passes or 0)

    def reach(self, name: str) -> None:
        """Ends the process if this is the moment."""
        if name != self._name:
            return
        if self._passes:
            self._passes -= 1
            return
        os.kill(os.getpid(), signal.SIGKILL)
