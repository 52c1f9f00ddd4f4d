"""Writes that travel together on PostgreSQL: the statements of several tables in one round trip.

Most of what a small transaction costs is its round trips. Writes of one row whose outcome nobody looks at wait in a
`Backlog` and are sent as one statement, each but the last in a WITH clause. PostgreSQL does not say in which order the
parts of such a statement run and shows none of them what another wrote, so no table is ever in it twice; foreign keys
are checked at its end.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from functools import lru_cache
from typing import Any, NamedTuple

from threadkeep_chassis.database.plans import Parameters, Plan

_MAX_TEXTS = 1024
_PLACE = re.compile(r"\$(\d+)")


class Call(NamedTuple):
    """A statement's text and its arguments."""

    sql: str
    arguments: Sequence[Any]


class Backlog:
    """The writes of a transaction that are still to be sent, in order."""

    def __init__(self) -> None:
        self._texts: list[str] = []
        self._arguments: list[Any] = []
        self._tables: set[str] = set()

    def __bool__(self) -> bool:
        return bool(self._texts)

    def takes(self, plan: Plan) -> bool:
        """True if the statement may join those that wait: none of them writes what it reads or writes."""
        return self._tables.isdisjoint(plan.tables)

    def add(self, plan: Plan, row: Parameters) -> None:
        """Appends a write; `takes` was asked."""
        self._texts.append(plan.sql)
        self._arguments += plan.arguments(row)
        self._tables |= plan.tables

    def take(self) -> Call:
        """Everything that waits, as one call; nothing waits afterwards."""
        call = Call(_joined(tuple(self._texts)), self._arguments)
        self._texts, self._arguments, self._tables = [], [], set()
        return call


@lru_cache(_MAX_TEXTS)
def _joined(texts: tuple[str, ...]) -> str:
    """The statements as one; each one's parameters follow those of the one before."""
    parts: list[str] = []
    before = 0
    for text in texts:
        parts.append(_PLACE.sub(lambda found, by=before: f"${int(found.group(1)) + by}", text))  # type: ignore[misc]
        before += max((int(number) for number in _PLACE.findall(text)), default=0)
    *first, last = parts
    return f"WITH {', '.join(f'w{place} AS ({part})' for place, part in enumerate(first))} {last}" if first else last
