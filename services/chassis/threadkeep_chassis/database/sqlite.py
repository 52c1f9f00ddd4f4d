"""SQLite sessions on aiosqlite: a file with one writer and several WAL readers, or one connection in memory."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from sqlalchemy import event
from sqlalchemy.ext.asyncio import AsyncEngine, create_async_engine
from sqlalchemy.pool import NullPool

from threadkeep_chassis.canonical import exact_text, parse_json
from threadkeep_chassis.clock import Clock, SystemClock
from threadkeep_chassis.database.json import register_functions
from threadkeep_chassis.database.plans import Parameters, Plan, Plans, Written
from threadkeep_chassis.database.session import Answer, Connection, Session
from threadkeep_chassis.database.settings import DatabaseSettings
from threadkeep_chassis.database.url import DatabaseUrl


async def run_plan(driver: Any, plan: Plan, parameters: Parameters | Sequence[Parameters]) -> Answer:
    """Executes a planned statement, with one hop to the driver's thread; one without rows once for each set."""
    if not isinstance(parameters, Mapping):
        await driver.executemany(plan.sql, [plan.arguments(each) for each in parameters])
        return Written(-1)
    if plan.returns_rows:
        return plan.result(await driver.execute_fetchall(plan.sql, plan.arguments(parameters)))
    return Written((await driver.execute(plan.sql, plan.arguments(parameters))).rowcount)


class SqliteBackend:
    """Opens sessions and transactions on a file, or in memory."""

    def __init__(self, url: DatabaseUrl, settings: DatabaseSettings, clock: Clock | None) -> None:
        self.name = url.backend
        self.settings = settings
        self._clock = clock or SystemClock()
        self.in_memory = url.backend == "memory"
        address = "sqlite+aiosqlite:///" + (":memory:" if self.in_memory else str(url.path))
        self._writer_engine = self._engine(address, read_only=False)
        self._reader_engine = self._engine(address, read_only=True)
        self._plans = Plans(self._writer_engine.dialect)

    def _engine(self, address: str, *, read_only: bool) -> AsyncEngine:
        engine = create_async_engine(
            address,
            poolclass=NullPool,
            isolation_level="AUTOCOMMIT",
            json_serializer=exact_text,
            json_deserializer=parse_json,
            connect_args={"timeout": self.settings.busy_timeout_seconds, "cached_statements": 500},
        )

        @event.listens_for(engine.sync_engine, "connect")
        def _prepare(connection: Any, _: Any) -> None:
            register_functions(connection)
            cursor = connection.cursor()
            if not self.in_memory:
                cursor.execute("PRAGMA journal_mode=WAL")
                # FULL: an acknowledged commit survives a power cut, in WAL mode too.
                cursor.execute("PRAGMA synchronous=FULL")
                cursor.execute("PRAGMA wal_autocheckpoint=4000")
            cursor.execute("PRAGMA foreign_keys=ON")
            cursor.execute("PRAGMA cache_size=-65536")
            if read_only:
                cursor.execute("PRAGMA query_only=ON")
            cursor.close()

        return engine

    async def open_session(self) -> Session:
        """Opens a reading connection."""
        return await Session.open(self._reader_engine, self._plans, run_plan, protect=True, clock=self._clock)

    async def open_writer(self) -> Session:
        """Opens the writing connection; in memory it is the only one."""
        return await Session.open(self._writer_engine, self._plans, run_plan, protect=True, clock=self._clock)

    async def begin(self, session: Session, *, write: bool, snapshot: bool) -> None:
        """BEGIN IMMEDIATE takes the write lock at once; a deferred read would fail when it turned into a write."""
        if write:
            await session.control("BEGIN IMMEDIATE")
        elif snapshot:
            await session.control("BEGIN")

    def has_transaction(self, *, write: bool, snapshot: bool) -> bool:
        """True if `begin` opened one."""
        return write or snapshot

    async def commit(self, session: Session, connection: Connection) -> None:
        """Commits."""
        await session.control("COMMIT")

    async def close(self) -> None:
        """Forgets the engines. Sessions are closed by their owners."""
        await self._writer_engine.dispose()
        await self._reader_engine.dispose()
