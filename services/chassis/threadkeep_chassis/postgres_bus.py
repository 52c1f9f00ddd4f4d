"""Datagrams between the replicas of a service, over NOTIFY: bounded, best effort, in order, never stored.

What is lost is known: messages are numbered, and whoever misses one is told so. A message longer than a notification
is sent in parts. NOTIFY goes out in transactions of its own: no commit waits for it.
"""

from __future__ import annotations

import asyncio
import base64
import os
from collections.abc import Callable, Sequence
from typing import Any

import asyncpg

from threadkeep_chassis.bus import Outgoing
from threadkeep_chassis.database import Database
from threadkeep_chassis.postgres_link import PostgresLink

PART_BYTES = 5_700
"""Bytes of one part: in base64, with its head, less than the 8,000 that a notification takes."""
PARTS_AT_ONCE = 16
"""Parts in one statement."""
MAX_MESSAGE_BYTES = 4 * 1024 * 1024


class PostgresBus:
    """One replica's end. See `bus.bus_for` for its callbacks."""

    def __init__(
        self,
        database: Database,
        name: str,
        *,
        pull: Callable[[], Sequence[Outgoing]],
        received: Callable[[str, bytes], None],
        missed: Callable[[str], None],
        direct_url: str | None = None,
        heartbeat_seconds: float = 10.0,
        heartbeat_timeout_seconds: float = 5.0,
    ) -> None:
        self._link = PostgresLink(
            database,
            "bus",
            direct_url=direct_url,
            heartbeat_seconds=heartbeat_seconds,
            heartbeat_timeout_seconds=heartbeat_timeout_seconds,
        )
        self.replica_id = os.urandom(8).hex()
        self._all = f"threadkeep_{self._link.schema}_{name}"
        self._pull = pull
        self._received = received
        self._missed = missed
        self._has_more = asyncio.Event()
        self._sent: dict[str, int] = {}
        """Number of the last message to each replica, "" for those to all."""
        self._senders: dict[tuple[str, bool], _Incoming] = {}

    @property
    def listening(self) -> asyncio.Event:
        """Set while messages can come in."""
        return self._link.listening

    def wake(self) -> None:
        """See Bus."""
        self._has_more.set()

    def forget(self, replica: str) -> None:
        """See Bus."""
        self._sent.pop(replica, None)
        for to_all in (False, True):
            self._senders.pop((replica, to_all), None)

    async def start(self) -> None:
        """See Bus."""
        channels = [self._all, f"{self._all}_{self.replica_id}"]
        await self._link.start(channels, self._heard, self._joined, self._has_more, self._send)

    async def close(self) -> None:
        """See Bus."""
        await self._link.close()

    def _joined(self) -> None:
        # What was sent while nobody listened is gone.
        self._senders.clear()
        self._missed("")

    def _heard(self, _connection: Any, _pid: int, channel: str, payload: object) -> None:
        sender, number, part, parts, text = str(payload).split("|", 4)
        if sender == self.replica_id:
            return
        key = (sender, channel == self._all)
        incoming = self._senders.get(key)
        if incoming is None:
            incoming = self._senders[key] = _Incoming(int(number) - (part == "0"))
        try:
            message, is_whole = incoming.add(int(number), int(part), int(parts), text)
        except ValueError:
            message, is_whole = None, False
        if not is_whole:
            self._missed(sender)
        if message is not None:
            self._received(sender, message)

    async def _send(self, connection: asyncpg.Connection) -> None:
        self._has_more.clear()
        while outgoing := self._pull():
            pairs = [pair for replica, message in outgoing for pair in self._parts(replica, message)]
            for start in range(0, len(pairs), PARTS_AT_ONCE):
                some = pairs[start : start + PARTS_AT_ONCE]
                await connection.execute(
                    "SELECT pg_notify(channel, part) FROM unnest($1::text[], $2::text[]) AS sent(channel, part)",
                    [channel for channel, _ in some],
                    [part for _, part in some],
                    timeout=self._link.timeout_seconds,
                )

    def _parts(self, replica: str, message: bytes) -> list[tuple[str, str]]:
        assert len(message) <= MAX_MESSAGE_BYTES
        number = self._sent[replica] = self._sent.get(replica, 0) + 1
        channel = f"{self._all}_{replica}" if replica else self._all
        count = max(1, -(-len(message) // PART_BYTES))
        return [
            (
                channel,
                f"{self.replica_id}|{number}|{index}|{count}|"
                + base64.b64encode(message[index * PART_BYTES : (index + 1) * PART_BYTES]).decode(),
            )
            for index in range(count)
        ]


class _Incoming:
    """What comes from one sender: the number of its last message, and the parts of the one that is coming."""

    def __init__(self, last: int) -> None:
        self._last = last
        self._parts: list[str] = []
        self._broken = -1
        """Number of a message whose beginning is lost; that was told."""

    def add(self, number: int, part: int, parts: int, text: str) -> tuple[bytes | None, bool]:
        """(the message, if this is its last part; False if something before it is missing)."""
        if parts > MAX_MESSAGE_BYTES // PART_BYTES + 1:
            raise ValueError("too long")
        if number == self._broken:
            return None, True
        is_whole = part == len(self._parts) and number == self._last + 1
        if not is_whole:
            self._parts = []
            if part != 0:
                self._broken = self._last = number
                return None, False
        self._parts.append(text)
        if len(self._parts) < parts:
            return None, is_whole
        self._last = number
        message = b"".join(base64.b64decode(one) for one in self._parts)
        self._parts = []
        return message, is_whole
