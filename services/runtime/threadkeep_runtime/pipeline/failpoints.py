"""Failpoints for tests: the process ends itself with SIGKILL at a named moment, if a setting says so.

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
DURING_SWEEP = "during_sweep"
NAMES = (BEFORE_FIRST_STATEMENT, BEFORE_COMMIT, AFTER_COMMIT, AFTER_DELIVERY, DURING_SWEEP)


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
