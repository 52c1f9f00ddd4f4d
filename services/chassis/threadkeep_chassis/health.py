"""Health that follows the database: a service that has been without it for some time does not serve (X15).

Each service's database is asked on a connection of its own, so that a busy pool is no outage. What lies in a file or in
memory is as healthy as the process.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable

import asyncpg
import structlog
from prometheus_client import CollectorRegistry, Gauge

from threadkeep_chassis.database import Database
from threadkeep_chassis.database.postgres import PostgresBackend

_log = structlog.get_logger("threadkeep.health")

# Refused by a standby, and one statement of the simple protocol: it means the same behind a pooler.
_TAKES_WRITES = "BEGIN READ WRITE; ROLLBACK"

SetServing = Callable[[str, bool], Awaitable[None]]
"""(service, whether it serves)."""


class HealthWatch:
    """The databases of one host's services."""

    def __init__(
        self, set_serving: SetServing, registry: CollectorRegistry, *, every_seconds: float, after_seconds: float
    ) -> None:
        """Asks every so often; a service does not serve once its database has been away for `after_seconds`."""
        self._set_serving = set_serving
        self._every, self._after = every_seconds, after_seconds
        self._followed: dict[str, PostgresBackend] = {}
        self._tasks: list[asyncio.Task[None]] = []
        self._reachable = Gauge(
            "threadkeep_database_reachable", "1 while the service's database takes writes", ["service"],
            registry=registry,
        )  # fmt: skip

    def follow(self, service: str, database: Database) -> None:
        """Lets the service's health follow its database, from the host's start on."""
        self._reachable.labels(service).set(1)
        if database.postgres is not None:
            self._followed[service] = database.postgres

    def start(self) -> None:
        """Begins to ask."""
        for service, backend in self._followed.items():
            self._tasks.append(asyncio.create_task(self._watch(service, backend), name=f"health of {service}"))

    async def stop(self) -> None:
        """Stops asking; what was said last stays said."""
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)
        self._tasks.clear()

    async def _watch(self, service: str, backend: PostgresBackend) -> None:
        loop = asyncio.get_running_loop()
        connection: asyncpg.Connection | None = None
        serves, answered = True, loop.time()
        try:
            while True:
                try:
                    if connection is None:
                        connection = await backend.connect("health")
                    await connection.execute(_TAKES_WRITES, timeout=backend.settings.connect_timeout_seconds)
                    answered, reachable = loop.time(), True
                except Exception as error:
                    if connection is not None:
                        connection.terminate()
                    connection, reachable = None, False
                    _log.debug("database does not answer", service=service, error=type(error).__name__)
                self._reachable.labels(service).set(int(reachable))
                now_serves = reachable or (serves and loop.time() - answered < self._after)
                if now_serves != serves:
                    serves = now_serves
                    (_log.info if serves else _log.error)("health", service=service, serving=serves)
                    await self._set_serving(service, serves)
                await asyncio.sleep(self._every)
        finally:
            if connection is not None:
                connection.terminate()
