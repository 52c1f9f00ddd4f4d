"""PostgreSQL sessions on asyncpg: settings, BEGIN with its guards, and the truth about a lost COMMIT (X7)."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping, Sequence
from typing import Any

import asyncpg
from sqlalchemy.ext.asyncio import AsyncEngine, create_async_engine
from sqlalchemy.pool import NullPool

from threadkeep_chassis.canonical import exact_text, parse_json
from threadkeep_chassis.clock import Clock
from threadkeep_chassis.database import faults
from threadkeep_chassis.database.plans import Parameters, Plan, Plans, Written
from threadkeep_chassis.database.session import Answer, Connection, Session, finish
from threadkeep_chassis.database.settings import DatabaseSettings
from threadkeep_chassis.database.url import DatabaseUrl
from threadkeep_chassis.errors import CommitUnknown

# A server's uninterrupted life. After a crash PostgreSQL may hand out a transaction id again whose owner left no trace,
# so `committed` is the truth only within one life. The start time changes with the postmaster or a failover, the
# statistics' reset time with a crash that the postmaster survived.
_STATISTICS_RESET = "(SELECT stats_reset FROM pg_stat_bgwriter)"
_INCARNATION = f"SELECT pg_postmaster_start_time(), {_STATISTICS_RESET}"

_XID = "SELECT pg_current_xact_id_if_assigned()::text"
_SWALLOWED = "the transaction was aborted by an earlier error that was not raised"


async def run_plan(driver: Any, plan: Plan, parameters: Parameters | Sequence[Parameters]) -> Answer:
    """Executes a planned statement; one without rows once for each set of parameters."""
    if not isinstance(parameters, Mapping):
        await driver.executemany(plan.sql, [plan.arguments(each) for each in parameters])
        return Written(-1)
    if plan.returns_rows:
        return plan.result(await driver.fetch(plan.sql, *plan.arguments(parameters)))
    # `UPDATE 3`, `INSERT 0 3`: the last word is the number of rows.
    tag = (await driver.execute(plan.sql, *plan.arguments(parameters))).rpartition(" ")[2]
    return Written(int(tag) if tag.isdigit() else -1)


class PostgresBackend:
    """Opens sessions and transactions for one schema of one PostgreSQL database."""

    name = "postgresql"

    def __init__(self, url: DatabaseUrl, schema: str, settings: DatabaseSettings, clock: Clock | None) -> None:
        assert url.url is not None
        self.url = url
        self.schema = schema
        self.settings = settings
        self._clock = clock
        self._guards: str | None = None
        arguments: dict[str, Any] = {
            "timeout": settings.connect_timeout_seconds,
            "server_settings": {"application_name": f"threadkeep-{schema}", "jit": "off"},
        }
        if url.through_pooler:
            # Behind a transaction pooler a named statement may live on another server connection (B43), and start-up
            # parameters beyond the application's name are refused.
            arguments["server_settings"] = {"application_name": f"threadkeep-{schema}"}
            arguments["statement_cache_size"] = 0
            arguments["prepared_statement_cache_size"] = 0
            arguments["prepared_statement_name_func"] = lambda: ""
        else:
            arguments["prepared_statement_cache_size"] = 500
            # The driver's own cache serves planned statements; they are constants, so none grows old.
            arguments["statement_cache_size"] = 500
            arguments["max_cached_statement_lifetime"] = 0
            arguments["max_cacheable_statement_size"] = 256 * 1024
            arguments["server_settings"]["search_path"] = f'"{schema}"'
            # A killed replica's statements, and the locks they hold or wait for, end soon after it.
            arguments["server_settings"]["client_connection_check_interval"] = "2000"
        self._engine: AsyncEngine = create_async_engine(
            url.url,
            poolclass=NullPool,
            isolation_level="AUTOCOMMIT",
            connect_args=arguments,
            json_serializer=exact_text,
            json_deserializer=parse_json,
        )
        self._plans = Plans(self._engine.dialect)

    async def open_session(self) -> Session:
        """Connects. Raises what the driver raises."""
        session = await Session.open(
            self._engine, self._plans, run_plan, protect=False, clock=self._clock, joins_writes=True
        )
        try:
            if self._guards is None:
                version = session.driver.get_server_version()
                self._guards = self._guard_settings(version.major)
            if not self.url.through_pooler:
                session.incarnation = tuple(await session.driver.fetchrow(_INCARNATION))
        except BaseException:
            await session.close()
            raise
        return session

    def _guard_settings(self, major: int) -> str:
        names = {
            "idle_in_transaction_session_timeout": self.settings.idle_in_transaction_timeout_seconds,
            "lock_timeout": self.settings.lock_timeout_seconds,
        }
        if major >= 17:
            names["transaction_timeout"] = self.settings.transaction_timeout_seconds
        return "".join(f"SET LOCAL {name} = {int(seconds * 1000)};" for name, seconds in names.items())

    async def begin(self, session: Session, *, write: bool, snapshot: bool) -> None:
        """Opens a transaction with its settings in one round trip. A plain read needs none, except behind a pooler."""
        path = f'SET LOCAL search_path = "{self.schema}";' if self.url.through_pooler else ""
        if write:
            await session.control(f"BEGIN ISOLATION LEVEL READ COMMITTED READ WRITE;{path}{self._guards}")
        elif snapshot:
            await session.control(f"BEGIN ISOLATION LEVEL REPEATABLE READ READ ONLY;{path}")
        elif self.url.through_pooler:
            await session.control(f"BEGIN READ ONLY;{path}")

    def has_transaction(self, *, write: bool, snapshot: bool) -> bool:
        """True if `begin` opened one."""
        return write or snapshot or self.url.through_pooler

    async def commit(self, session: Session, connection: Connection) -> None:
        """Commits. A connection that is lost on the way is asked about on another one.

        Raises TransactionLost if nothing was committed, CommitUnknown if nobody can tell.
        """
        if not connection.xid:
            # None of a transaction that wrote nothing; whether its COMMIT arrives makes no difference.
            try:
                connection.xid = await self._transaction_id(session)
            except asyncpg.InFailedSQLTransactionError as error:
                raise RuntimeError(_SWALLOWED) from error
        try:
            tag = await session.control("COMMIT")
        except Exception as error:
            if not faults.is_connection_lost(error):
                raise
            session.broken = True
            await self._settle(session, connection.xid)
            return
        if tag != "COMMIT":
            # PostgreSQL answers the COMMIT of a failed transaction with ROLLBACK.
            raise RuntimeError(_SWALLOWED)

    async def _transaction_id(self, session: Session) -> str:
        if not self.url.through_pooler:
            return await session.driver.fetchval(_XID) or ""
        # Behind a pooler each transaction may meet another server.
        xid, *incarnation = await session.driver.fetchrow(f"{_XID}, pg_postmaster_start_time(), {_STATISTICS_RESET}")
        session.incarnation = tuple(incarnation)
        return xid or ""

    async def _settle(self, session: Session, xid: str) -> None:
        """Asks what became of a transaction: returns if it committed."""
        if not xid:
            return
        deadline = asyncio.get_running_loop().time() + self.settings.commit_outcome_timeout_seconds
        delay = 0.02
        while True:
            try:
                status = await asyncio.wait_for(
                    finish(self._ask(session, xid)), max(0.1, deadline - asyncio.get_running_loop().time())
                )
            except (
                TimeoutError, OSError, asyncpg.PostgresError, asyncpg.InterfaceError, asyncpg.InternalClientError
            ):  # fmt: skip
                # The last one: the server went away while the driver was reading.
                status = None
            if status == "committed":
                return
            if status == "aborted":
                raise faults.TransactionLost()
            if status == "unknown" or asyncio.get_running_loop().time() + delay > deadline:
                raise CommitUnknown()
            await asyncio.sleep(delay)
            delay = min(delay * 2, 0.5)

    async def _ask(self, session: Session, xid: str) -> str | None:
        """`committed`, `aborted`, `unknown` (never to be known), or None (not yet)."""
        connection = await self.connect(application="outcome")
        try:
            try:
                status = await connection.fetchval("SELECT pg_xact_status($1::text::xid8)", xid)
            except asyncpg.InvalidParameterValueError:
                # The id lies in the future: the server crashed and lost it, so it never committed.
                return "aborted"
            if status == "committed":
                now = tuple(await connection.fetchrow(_INCARNATION))
                return "committed" if session.incarnation is None or now == session.incarnation else "unknown"
            if status == "in progress":
                return None
            return status if status == "aborted" else "unknown"
        finally:
            await connection.close(timeout=2)

    async def connect(self, application: str, *, writes_nothing: bool = False) -> asyncpg.Connection:
        """A bare driver connection of its own (LISTEN, NOTIFY, outcome checks).

        A NOTIFY takes a transaction id, and its end would wait for a flush to disk. With `writes_nothing` it does not:
        there is nothing on this connection that a crash could lose.
        """
        arguments = self.url.asyncpg_arguments()
        settings = {"application_name": f"threadkeep-{self.schema}-{application}"}
        if writes_nothing and not self.url.through_pooler:
            settings["synchronous_commit"] = "off"
        if self.url.through_pooler:
            arguments["statement_cache_size"] = 0
        return await asyncpg.connect(
            **arguments, timeout=self.settings.connect_timeout_seconds, server_settings=settings
        )

    async def close(self) -> None:
        """Forgets the engine. Sessions are closed by their owners."""
        await self._engine.dispose()
