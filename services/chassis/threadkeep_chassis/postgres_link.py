"""Two connections of a replica for LISTEN and NOTIFY, which come back by themselves.

They lead straight to PostgreSQL, past any pooler. A heartbeat finds half-open sockets (B53); a lost listener comes back
(B52) and then tells its owner that nobody knows what was missed.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Sequence

import asyncpg
import structlog
from prometheus_client import Counter

from threadkeep_chassis.database import Database, DatabaseUrl
from threadkeep_chassis.database.postgres import PostgresBackend

RECONNECTS = Counter(
    "threadkeep_signal_reconnects", "Connections of signals and the bus that were lost and made again", ["connection"]
)

Heard = Callable[[object, int, str, object], None]
"""(connection, server process, channel, payload)."""

_log = structlog.get_logger("threadkeep.link")


class PostgresLink:
    """Listener and sender of one replica."""

    def __init__(
        self,
        database: Database,
        purpose: str,
        *,
        direct_url: str | None,
        heartbeat_seconds: float,
        heartbeat_timeout_seconds: float,
    ) -> None:
        """`purpose` names the connections; `direct_url` is where PostgreSQL itself is, if not at the database's URL."""
        backend = database.postgres
        assert backend is not None
        if direct_url is not None:
            backend = PostgresBackend(DatabaseUrl.parse(direct_url), backend.schema, backend.settings, None)
        self._backend = backend
        self._purpose = purpose
        self._heartbeat_seconds = heartbeat_seconds
        self.timeout_seconds = heartbeat_timeout_seconds
        """After which a statement on the sender means that the connection is gone."""
        self._tasks: list[asyncio.Task[None]] = []
        self.listening = asyncio.Event()
        """Set while notifications can come in."""
        self.reconnects = 0
        """How often the listener was lost."""

    @property
    def schema(self) -> str:
        """The service's schema: channels are named after it."""
        return self._backend.schema

    async def start(
        self,
        channels: Sequence[str],
        heard: Heard,
        joined: Callable[[], None],
        has_work: asyncio.Event,
        send: Callable[[asyncpg.Connection], Awaitable[None]],
    ) -> None:
        """Connects in the background. `joined` is called whenever the listener has (again) begun to listen.

        `send` is called with the sender whenever `has_work` is set; it clears the event before it looks for work.
        """
        self._tasks = [
            asyncio.create_task(self._forever("listener", lambda: self._listen(channels, heard, joined))),
            asyncio.create_task(self._forever("sender", lambda: self._send(has_work, send))),
        ]

    async def close(self) -> None:
        """Stops both."""
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)
        self._tasks = []

    async def _forever(self, name: str, work: Callable[[], Awaitable[None]]) -> None:
        delay = 0.05
        while True:
            started = asyncio.get_running_loop().time()
            try:
                await work()
            except Exception as error:
                _log.warning("connection lost", purpose=self._purpose, connection=name, error=type(error).__name__)
            RECONNECTS.labels(f"{self._purpose} {name}").inc()
            if asyncio.get_running_loop().time() - started > 30:
                delay = 0.05
            await asyncio.sleep(delay)
            delay = min(delay * 2, 2.0)

    async def _listen(self, channels: Sequence[str], heard: Heard, joined: Callable[[], None]) -> None:
        connection = await self._backend.connect(f"{self._purpose} listen")
        gone = asyncio.Event()
        try:
            connection.add_termination_listener(lambda _: gone.set())
            for channel in channels:
                await connection.add_listener(channel, heard)
            joined()
            self.listening.set()
            while not gone.is_set():
                await self._wait(gone, connection)
            raise ConnectionError("the listener's connection was closed")
        finally:
            self.listening.clear()
            self.reconnects += 1
            connection.terminate()

    async def _send(self, has_work: asyncio.Event, send: Callable[[asyncpg.Connection], Awaitable[None]]) -> None:
        connection = await self._backend.connect(f"{self._purpose} notify", writes_nothing=True)
        try:
            # What was left when the connection before this one was lost.
            await send(connection)
            while True:
                await self._wait(has_work, connection)
                if has_work.is_set():
                    await send(connection)
        finally:
            connection.terminate()

    async def _wait(self, event: asyncio.Event, connection: asyncpg.Connection) -> None:
        """Waits for the event, or proves after a while that the connection still works."""
        try:
            async with asyncio.timeout(self._heartbeat_seconds):
                await event.wait()
        except TimeoutError:
            await connection.fetchval("SELECT 1", timeout=self.timeout_seconds)
