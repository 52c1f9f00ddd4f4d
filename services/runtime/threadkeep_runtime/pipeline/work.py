"""What goes into the pipeline and what comes out."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from dataclasses import dataclass, field
from datetime import datetime
from typing import NamedTuple

import sqlalchemy as sa
from opentelemetry.trace import Span
from sqlalchemy.engine import Connection

from threadkeep_chassis.database import Database, database_now, recording_span
from threadkeep_chassis.errors import ThreadkeepError
from threadkeep_runtime.domain.commands import Command
from threadkeep_runtime.store.apply import Applied
from threadkeep_runtime.store.queue import Now

_NOW = sa.select(database_now())

Render = Callable[[Applied], bytes]
"""Makes the serialized response of a commit, from the state after it."""


class Request(NamedTuple):
    """What makes an effect happen once (X3)."""

    receipt_key: str
    """The scope's key; for a call under a grant alone, the grant's."""
    request_id: str
    method: str
    fingerprint: bytes


@dataclass(frozen=True, slots=True)
class Outcome:
    """What became of a piece of work."""

    response: bytes
    replayed: bool = False
    """True if the request was answered before: nothing happened now."""


def nothing_to_say(_: Applied) -> bytes:
    """The response of work that nobody asked for."""
    return b""


@dataclass(eq=False, slots=True)
class Work:
    """A command on its way through the pipeline."""

    command: Command
    render: Render = nothing_to_say
    request: Request | None = None
    """None for work of the server's own, which leaves no receipt."""
    size: int = 0
    """Bytes that it brings along, as a measure of how much a batch may hold."""
    span: Span | None = field(default_factory=recording_span)
    """The span of the call that it is done for, if that records."""
    done: asyncio.Future[Outcome | ThreadkeepError] = field(
        default_factory=lambda: asyncio.get_running_loop().create_future()
    )

    def settle(self, outcome: Outcome | ThreadkeepError) -> None:
        """Answers whoever waits. A refusal is a value here, so that nobody's absence makes it an unread exception."""
        if not self.done.done():
            self.done.set_result(outcome)


def clock_of(database: Database) -> Callable[[Connection], datetime]:
    """Where a transaction gets its time from (X10): the database, or the injected clock; SQLite's is the process's."""
    clock = database.clock
    if database.has_own_clock:

        def ask(connection: Connection) -> datetime:
            moment = connection.scalar(_NOW)
            assert isinstance(moment, datetime)
            return moment

        return ask
    return lambda _: clock.now()


def due_by(database: Database) -> Callable[[], Now]:
    """The time up to which something is due, to be said within a statement: by the same clock as `clock_of`."""
    if database.has_own_clock:
        return database_now
    return database.clock.now
