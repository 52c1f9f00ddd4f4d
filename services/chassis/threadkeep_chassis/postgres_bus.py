"""Datagrams between the replicas of a service, over NOTIFY: bounded, best effort, in order, never stored.

What is lost is known: messages are numbered, and whoever misses one is told so. A message longer than a notification
is sent in parts. Its two connections lead straight to PostgreSQL, as those of `postgres_signals` do, and NOTIFY goes
out in transactions of its own: no commit waits for it.
"""

from __future__ import annotations

import asyncio
import base64
import os
from collections.abc import Callable, Sequence
from typing import Any

import structlog

from threadkeep_chassis.bus import Outgoing
from threadkeep_chassis.database import Database, DatabaseUrl
from threadkeep_chassis.database.postgres import PostgresBackend

PART_BYTES = 5_700
"""Bytes of one part: in base64, with its head, less than the 8,000 that a notification takes."""
PARTS_AT_ONCE = 16
"""Parts in one statement."""
MAX_MESSAGE_BYTES = 4 * 1024 * 1024

_log = structlog.get_logger("threadkeep.bus")


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
        backend = database.postgres
        assert backend is not None
        if direct_url is not None:
            backend = PostgresBackend(DatabaseUrl.parse(direct_url), backend.schema, backend.settings, None)
        self._backend = backend
        self.replica_id = os.urandom(8).hex()
        self._all = f"threadkeep_{backend.schema}_{name}"
        self._pull = pull
        self._received = received
        self._missed = missed
        self._heartbeat_seconds = heartbeat_seconds
        self._heartbeat_timeout = heartbeat_timeout_seconds
        self._has_more = asyncio.Event()
        self._sent: dict[str, int] = {}
        """Number of the last message to each replica, "" for those to all."""
        self._senders: dict[tuple[str, bool], _Incoming] = {}
        self._tasks: list[asyncio.Task[None]] = []
        self.listening = asyncio.Event()
        """Set while messages can come in."""

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
        self._tasks = [
            asyncio.create_task(self._forever("listener", self._listen), name="bus listener"),
            asyncio.create_task(self._forever("sender", self._send), name="bus sender"),
        ]

    async def close(self) -> None:
        """See Bus."""
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)
        self._tasks = []

    async def _forever(self, name: str, work: Any) -> None:
        delay = 0.05
        while True:
            started = asyncio.get_running_loop().time()
            try:
                await work()
            except Exception as error:
                _log.warning("bus connection lost", connection=name, error=type(error).__name__)
            if asyncio.get_running_loop().time() - started > 30:
                delay = 0.05
            await asyncio.sleep(delay)
            delay = min(delay * 2, 2.0)

    async def _listen(self) -> None:
        connection = await self._backend.connect("bus listen")
        gone = asyncio.Event()
        try:
            connection.add_termination_listener(lambda _: gone.set())
            await connection.add_listener(self._all, self._heard)
            await connection.add_listener(f"{self._all}_{self.replica_id}", self._heard)
            # What was sent while nobody listened is gone.
            self._senders.clear()
            self._missed("")
            self.listening.set()
            while not gone.is_set():
                try:
                    async with asyncio.timeout(self._heartbeat_seconds):
                        await gone.wait()
                except TimeoutError:
                    await connection.fetchval("SELECT 1", timeout=self._heartbeat_timeout)
            raise ConnectionError("the listener's connection was closed")
        finally:
            self.listening.clear()
            connection.terminate()

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

    async def _send(self) -> None:
        connection = await self._backend.connect("bus send")
        try:
            while True:
                outgoing = self._pull()
                if not outgoing:
                    self._has_more.clear()
                    try:
                        async with asyncio.timeout(self._heartbeat_seconds):
                            await self._has_more.wait()
                    except TimeoutError:
                        await connection.fetchval("SELECT 1", timeout=self._heartbeat_timeout)
                    continue
                pairs = [pair for replica, message in outgoing for pair in self._parts(replica, message)]
                for start in range(0, len(pairs), PARTS_AT_ONCE):
                    some = pairs[start : start + PARTS_AT_ONCE]
                    await connection.execute(
                        "SELECT pg_notify(channel, part) FROM unnest($1::text[], $2::text[]) AS sent(channel, part)",
                        [channel for channel, _ in some],
                        [part for _, part in some],
                        timeout=self._heartbeat_timeout,
                    )
        finally:
            connection.terminate()

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
