"""The log's end as this replica knows it: one reader, whatever the number of those who want to know (C6).

It reads from its own position, woken by signals or by the poll interval, and hands each change to its listeners at once
and in order. Signals may be lost; positions can't.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from typing import Any, Protocol

from threadkeep_chassis.database import Database
from threadkeep_chassis.signals import Signals
from threadkeep_config.domain.values import Entity
from threadkeep_config.store import revisions
from threadkeep_config.store.rows import size_of

TOPIC = "config"
"""The signal after every write."""

READ_CHANGES = 500
READ_BYTES = 4 * 1024 * 1024


class Logged:
    """One change, shared by all that it concerns."""

    __slots__ = ("entity", "memo", "size")

    def __init__(self, entity: Entity) -> None:
        self.entity = entity
        self.size = size_of(entity)
        self.memo: dict[Any, Any] = {}
        """What listeners made of the change, so that the next one need not make it again."""


class Listener(Protocol):
    """Whom the tail tells. Neither call may block: the tail has one pace for all."""

    def changed(self, changes: Sequence[Logged]) -> None:
        """Takes the changes that follow on what was told before."""

    def gap(self, oldest: int) -> None:
        """Takes note that changes before `oldest` were compacted before this replica read them.

        What is told next may hold some of them.
        """


class Tail:
    """Reads the log's end."""

    def __init__(self, database: Database, signals: Signals) -> None:
        self._database = database
        self._signals = signals
        self._reading = asyncio.Lock()
        self._listeners: list[Listener] = []
        self._closed = False
        self._wake: Callable[[], None] | None = None
        self.position = 0
        """Every change up to this revision was told."""

    async def start(self) -> None:
        """Begins at the newest revision."""
        async with self._database.read() as connection:
            self.position, _ = await revisions.state(connection)

    def attach(self, listener: Listener) -> None:
        """Tells the listener what comes from now on."""
        self._listeners.append(listener)

    async def follow(self) -> None:
        """Reads on whenever there may be something, until `close`."""
        async with self._signals.subscribe(TOPIC) as changed:
            self._wake = changed.wake
            while not self._closed:
                await self.advance()
                await changed.wait()

    def close(self) -> None:
        """Ends `follow`."""
        self._closed = True
        if self._wake is not None:
            self._wake()

    async def advance(self, at_least: int | None = None) -> None:
        """Reads to the log's end, or just until `at_least` is reached."""
        async with self._reading:
            while at_least is None or self.position < at_least:
                async with self._database.read() as connection:
                    read = await revisions.after(connection, self.position, limit=READ_CHANGES, max_bytes=READ_BYTES)
                if not read:
                    return
                changes = [Logged(entity) for entity in read]
                self._tell(changes)
                if len(changes) < READ_CHANGES and sum(change.size for change in changes) < READ_BYTES:
                    return

    def _tell(self, changes: Sequence[Logged]) -> None:
        # Revisions are dense, so one that is missing was compacted.
        holes = [
            after.entity.revision
            for number, after in enumerate(changes)
            if after.entity.revision != (changes[number - 1].entity.revision if number else self.position) + 1
        ]
        if holes:
            for listener in self._listeners:
                listener.gap(holes[-1])
        self.position = changes[-1].entity.revision
        for listener in self._listeners:
            listener.changed(changes)
