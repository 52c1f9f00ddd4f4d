"""Database: reads, writes, replays, and a dedicated writer, the same on every backend (R22).

`async with db.read()` and `async with db.write()` give a Connection; leaving `write` commits. Collisions and lost
connections are told apart: `retrying` replays what is safe, and a caller learns COMMIT_UNKNOWN only when nobody knows.
"""

from __future__ import annotations

import asyncio
import random
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from typing import Any, TypeVar

from threadkeep_chassis.clock import Clock, SystemClock
from threadkeep_chassis.database import faults
from threadkeep_chassis.database.owner import OwnerLock
from threadkeep_chassis.database.pool import SessionPool
from threadkeep_chassis.database.postgres import PostgresBackend
from threadkeep_chassis.database.session import Connection, Session, finish, raise_translated, roll_back
from threadkeep_chassis.database.settings import DatabaseSettings
from threadkeep_chassis.database.spans import database_span
from threadkeep_chassis.database.sqlite import SqliteBackend
from threadkeep_chassis.database.url import DatabaseUrl
from threadkeep_chassis.errors import Contention, DatabaseUnavailable

T = TypeVar("T")


class Database:
    """One service's database."""

    def __init__(
        self, url: DatabaseUrl, schema: str, settings: DatabaseSettings, clock: Clock, owner: OwnerLock | None
    ) -> None:
        self.url = url
        self.schema = schema
        self.settings = settings
        self.clock = clock
        self._owner = owner
        injected = None if isinstance(clock, SystemClock) else clock
        self._backend: PostgresBackend | SqliteBackend
        if url.backend == "postgresql":
            postgres = PostgresBackend(url, schema, settings, injected)
            self._backend = postgres
            self._readers = self._writers = SessionPool(
                postgres.open_session, settings.pool_size, settings.pool_timeout_seconds
            )
        else:
            lite = SqliteBackend(url, settings, injected)
            self._backend = lite
            # SQLite has one writer at a time; waiting for a lock of our own is fair and cheap, SQLITE_BUSY is neither.
            # A waiting writer is bounded by its caller's deadline, not by the pool's.
            self._writers = SessionPool(lite.open_writer, 1, max(settings.pool_timeout_seconds, 60.0))
            self._readers = (
                self._writers
                if lite.in_memory
                else SessionPool(lite.open_session, settings.sqlite_readers, settings.pool_timeout_seconds)
            )
        self._dedicated: set[Writer] = set()
        self._holder: asyncio.Task[Any] | None = None
        """Who has SQLite's one writing session: asking for it again would be waiting for oneself."""

    @classmethod
    async def open(
        cls,
        url: str | DatabaseUrl,
        schema: str,
        *,
        settings: DatabaseSettings | None = None,
        clock: Clock | None = None,
        purpose: str = "",
    ) -> Database:
        """Opens `memory:`, `sqlite:///file` or `postgresql://...`; `schema` is the service's name.

        Time comes from the database on PostgreSQL, from the clock on SQLite, and everywhere from an injected clock
        that is not SystemClock. Raises DatabaseUrlInvalid, DataOwned (another server has the file),
        DatabaseUnavailable.
        """
        parsed = url if isinstance(url, DatabaseUrl) else DatabaseUrl.parse(url)
        owner = OwnerLock.acquire(parsed.path, purpose or f"threadkeep {schema}") if parsed.path is not None else None
        database = cls(parsed, schema, settings or DatabaseSettings(), clock or SystemClock(), owner)
        try:
            session = await database._writers.take()
            await database._writers.give_back(session)
        except BaseException:
            await database.close()
            raise
        return database

    @property
    def backend(self) -> str:
        """`memory`, `sqlite` or `postgresql`."""
        return self.url.backend

    @property
    def postgres(self) -> PostgresBackend | None:
        """The PostgreSQL side, for LISTEN; None elsewhere."""
        return self._backend if isinstance(self._backend, PostgresBackend) else None

    @property
    def has_own_clock(self) -> bool:
        """True if time comes from the database; else it comes from `clock` (X10)."""
        return self.postgres is not None and isinstance(self.clock, SystemClock)

    async def close(self) -> None:
        """Closes everything and gives up the owner lock."""
        for writer in list(self._dedicated):
            await writer.close()
        await self._readers.close()
        await self._writers.close()
        await self._backend.close()
        if self._owner is not None:
            self._owner.release()

    @asynccontextmanager
    async def read(self, *, snapshot: bool = False) -> AsyncIterator[Connection]:
        """Reads. With `snapshot` all statements see one state; without, each sees the newest.

        Without a snapshot a statement that finds its connection gone runs again on another one (B45).
        Raises DatabaseUnavailable.
        """
        async with database_span("read", self.backend), self._holding(self._readers) as hold:
            session = await self._begin(self._readers, hold, write=False, snapshot=snapshot)
            in_transaction = self._backend.has_transaction(write=False, snapshot=snapshot)
            connection: Connection
            if in_transaction:
                connection = Connection(session, self.backend, writable=False)
            else:
                connection = _Reading(self, self._readers, hold)
            try:
                yield connection
            except BaseException as error:
                if in_transaction:
                    await roll_back(hold.session)
                raise_translated(error)
            if in_transaction:
                await roll_back(hold.session)

    @asynccontextmanager
    async def write(self) -> AsyncIterator[Connection]:
        """A write transaction: commits on leaving, rolls back on an exception.

        On PostgreSQL READ COMMITTED, guarded by time-outs; on SQLite BEGIN IMMEDIATE. Raises TransactionLost (a
        DatabaseUnavailable) if the connection went away and nothing was committed, CommitUnknown if that is not known.
        """
        async with database_span("write", self.backend), self._holding(self._writers) as hold:
            session = await self._begin(self._writers, hold, write=True, snapshot=False)
            async with self._transaction(session) as connection:
                yield connection

    @asynccontextmanager
    async def _transaction(self, session: Session) -> AsyncIterator[Connection]:
        connection = Connection(session, self.backend, writable=True)
        try:
            yield connection
        except BaseException as error:
            await roll_back(session)
            raise_translated(error)
        # Once COMMIT is under way it is finished, and followed by what waits for it, whoever stopped waiting.
        await finish(self._commit(session, connection))

    async def _commit(self, session: Session, connection: Connection) -> None:
        try:
            await self._backend.commit(session, connection)
        except DatabaseUnavailable:
            raise
        except Exception as error:
            await roll_back(session)
            raise_translated(error)
        connection.committed()

    async def retrying(self, work: Callable[[Connection], Awaitable[T]]) -> T:
        """Runs `work` in a write transaction, and again after a collision or a loss that committed nothing.

        `work` must have no effect outside its connection. Raises Contention after `settings.retries` collisions,
        TransactionLost when the database stays away, CommitUnknown.
        """
        losses = 0
        for attempt in range(self.settings.retries + 1):
            try:
                async with self.write() as connection:
                    return await work(connection)
            except faults.TransactionLost:
                losses += 1
                if losses > 2:
                    raise
            except Exception as error:
                if not (faults.is_serialization(error) or faults.is_stale_plan(error)):
                    raise
                if attempt == self.settings.retries:
                    raise Contention() from error
            await asyncio.sleep(random.uniform(0, min(0.5, 0.005 * 2**attempt)))
        raise Contention()

    async def dedicated(self) -> Writer:
        """A writer with a session of its own, for a corridor that never stops writing. Close it."""
        writer = Writer(self)
        self._dedicated.add(writer)
        return writer

    # -- inside --------------------------------------------------------------------------------------------------------

    @asynccontextmanager
    async def _holding(self, pool: SessionPool) -> AsyncIterator[_Hold]:
        """Takes a session from the pool and brings it (or what replaced it) back."""
        serial = pool is self._writers and self.backend != "postgresql"
        if serial and self._holder is asyncio.current_task():
            raise RuntimeError("this task already holds the database's one session; pass the connection on instead")
        hold = _Hold(await pool.take())
        if serial:
            self._holder = asyncio.current_task()
        try:
            yield hold
        finally:
            if serial:
                self._holder = None
            await finish(pool.give_back(hold.session))

    async def _begin(self, pool: SessionPool, hold: _Hold, *, write: bool, snapshot: bool) -> Session:
        """Opens the transaction. BEGIN is also the proof that the connection lives; a dead one is replaced."""
        for _ in range(self.settings.pool_size + 2):
            session = hold.session
            try:
                if not self._backend.has_transaction(write=write, snapshot=snapshot):
                    await self._ping_if_idle(session)
                await self._backend.begin(session, write=write, snapshot=snapshot)
                return session
            except BaseException as error:
                if not (isinstance(error, Exception) and _is_gone(error)):
                    # Whether BEGIN arrived is not known (cancelled), or it failed.
                    await roll_back(session)
                    raise
            await session.close()
            hold.session = await pool.connect()
        raise DatabaseUnavailable()

    async def _ping_if_idle(self, session: Session) -> None:
        if self.backend != "postgresql":
            return
        idle = asyncio.get_running_loop().time() - session.last_used
        if session.last_used and idle > self.settings.ping_after_idle_seconds:
            await asyncio.wait_for(session.driver.execute("SELECT 1"), self.settings.connect_timeout_seconds)


def _is_gone(error: Exception) -> bool:
    """True if BEGIN failed in a way that another connection may cure."""
    return faults.is_connection_lost(error) or faults.is_standby(error)


class _Hold:
    """Which session a block uses now."""

    def __init__(self, session: Session) -> None:
        self.session = session


class _Reading(Connection):
    """A read without a transaction: each statement stands alone, and runs again if it finds its connection lost."""

    def __init__(self, database: Database, pool: SessionPool, hold: _Hold) -> None:
        super().__init__(hold.session, database.backend, writable=False)
        self._pool = pool
        self._hold = hold

    async def execute(self, statement, parameters=None):  # type: ignore[no-untyped-def]
        """See Connection."""
        return await self._again(lambda: Connection.execute(self, statement, parameters))

    async def run(self, work):  # type: ignore[no-untyped-def]
        """See Connection. The function may run twice if the connection is lost in between."""
        return await self._again(lambda: Connection.run(self, work))

    async def _again(self, work: Callable[[], Awaitable[T]]) -> T:
        for _ in range(2):
            try:
                return await work()
            except Exception as error:
                if faults.is_stale_plan(error):
                    continue
                if not faults.is_connection_lost(error):
                    raise
            await self._session.close()
            self._hold.session = self._session = await self._pool.connect()
        return await work()


class Writer:
    """A long-lived writing session. One task uses it at a time; a lost connection is replaced at the next transaction.

    On SQLite it shares the one writing connection, and takes its turn for each transaction.
    """

    def __init__(self, database: Database) -> None:
        self._database = database
        self.backend = database.backend
        self._session: Session | None = None

    @asynccontextmanager
    async def transaction(self) -> AsyncIterator[Connection]:
        """Like Database.write, without a checkout."""
        database = self._database
        postgres = database.postgres
        if postgres is None:
            async with database.write() as connection:
                yield connection
            return
        async with database_span("write", "postgresql"):
            session = await self._begun(postgres)
            async with database._transaction(session) as connection:
                yield connection

    async def _begun(self, postgres: PostgresBackend) -> Session:
        for _ in range(2):
            session = self._session
            try:
                if session is None or not session.is_usable:
                    if session is not None:
                        await session.close()
                    session = self._session = await postgres.open_session()
                await postgres.begin(session, write=True, snapshot=False)
                return session
            except BaseException as error:
                if session is not None:
                    session.broken = True
                if not (isinstance(error, Exception) and _is_gone(error)):
                    raise
        raise DatabaseUnavailable()

    async def close(self) -> None:
        """Closes the session."""
        self._database._dedicated.discard(self)
        if self._session is not None:
            await self._session.close()
            self._session = None
