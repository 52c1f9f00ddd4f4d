"""Datagrams between the replicas of a service: bounded, best effort, in order, never stored.

A hint that something was committed is a signal's work (`signals`); a bus carries what nobody commits.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Protocol

from threadkeep_chassis.database import Database

Outgoing = tuple[str, bytes]
"""(the replica it is for, or "" for all; the message)"""


class Bus(Protocol):
    """One replica's end."""

    def wake(self) -> None:
        """There is something to send."""
        ...

    def forget(self, replica: str) -> None:
        """Forgets a replica that is gone: what it sent, and what it was sent."""
        ...

    async def start(self) -> None:
        """Connects in the background."""
        ...

    async def close(self) -> None:
        """Stops."""
        ...


def bus_for(
    database: Database,
    name: str,
    *,
    pull: Callable[[], Sequence[Outgoing]],
    received: Callable[[str, bytes], None],
    missed: Callable[[str], None],
    direct_url: str | None = None,
    heartbeat_seconds: float = 10.0,
) -> Bus | None:
    """The bus of this name among the servers of a database; None where a database has one server only.

    It is given callbacks, which must not block. `pull()` gives what is to be sent next, a little at a time, until there
    is nothing; it is asked after a `wake`, and every `heartbeat_seconds` anyway. `received(sender, message)` gets what
    came in. `missed(sender)` is told that something from there did not, with "" when nobody knows from whom.
    `direct_url` is as in `signals_for`.
    """
    if database.postgres is None:
        return None
    from threadkeep_chassis.postgres_bus import PostgresBus

    return PostgresBus(
        database,
        name,
        pull=pull,
        received=received,
        missed=missed,
        direct_url=direct_url,
        heartbeat_seconds=heartbeat_seconds,
    )
