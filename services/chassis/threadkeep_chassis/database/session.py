"""One database session and the transactions on it; the dialects' differences in BEGIN and COMMIT end here.

A session is a driver connection in autocommit mode. BEGIN and COMMIT are our own statements, so that one round trip
opens a transaction with its settings, a lost COMMIT is seen as such, and SQLite gets BEGIN IMMEDIATE (with SQLAlchemy's
own BEGIN, 40 of 60 concurrent increments were lost silently).
"""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Awaitable, Callable, Coroutine, Sequence
from datetime import datetime
from typing import TYPE_CHECKING, Any, NoReturn, TypeVar, cast

import sqlalchemy as sa
from sqlalchemy.engine import Connection as SyncConnection
from sqlalchemy.engine import CursorResult, Result
from sqlalchemy.ext.asyncio import AsyncConnection, AsyncEngine
from sqlalchemy.sql import Executable
from sqlalchemy.util import await_

from threadkeep_chassis.database import faults
from threadkeep_chassis.database.plans import Parameters, Plan, Plans, Written
from threadkeep_chassis.database.sql import database_now
from threadkeep_chassis.database.together import Backlog

if TYPE_CHECKING:
    from threadkeep_chassis.clock import Clock

T = TypeVar("T")

_NOW = sa.select(database_now())


async def finish(work: Coroutine[Any, Any, T]) -> T:
    """Runs `work` to its end even if this task is cancelled meanwhile, and only then lets the cancellation through."""
    task = asyncio.ensure_future(work)
    try:
        return await asyncio.shield(task)
    except asyncio.CancelledError:
        while not task.done():
            # Cancelled again while waiting: the work is short, and what it holds matters more.
            with contextlib.suppress(asyncio.CancelledError):
                await asyncio.wait([task])
        if not task.cancelled():
            # The cancellation is what the caller asked for; an error of the abandoned work has no reader.
            task.exception()
        raise


Answer = Result[Any] | Written
RunPlan = Callable[[Any, Plan, Parameters | Sequence[Parameters]], Coroutine[Any, Any, Answer]]
"""(driver connection, plan, parameters or several sets of them): how a dialect executes a plan."""


class Session:
    """A driver connection with its SQLAlchemy face. Used by one task at a time."""

    def __init__(
        self,
        connection: AsyncConnection,
        driver: Any,
        plans: Plans,
        run_plan: RunPlan,
        *,
        protect: bool,
        clock: Clock | None,
        joins_writes: bool = False,
    ) -> None:
        self.connection = connection
        self.driver = driver
        self.plans = plans
        self._run_plan = run_plan
        self.protect = protect
        """True if a statement must not be torn by cancellation: closing an in-memory connection would lose the data."""
        self.clock = clock
        """Where `now()` comes from; None for the database."""
        self.joins_writes = joins_writes
        """True if writes whose outcome nobody looks at are worth gathering: each statement is a round trip."""
        self.broken = False
        self.last_used = 0.0
        self.incarnation: object = None
        """What identifies the server's uninterrupted life; see `postgres`."""

    @classmethod
    async def open(
        cls,
        engine: AsyncEngine,
        plans: Plans,
        run_plan: RunPlan,
        *,
        protect: bool,
        clock: Clock | None,
        joins_writes: bool = False,
    ) -> Session:
        """Connects."""
        connection = await engine.connect()
        raw = await connection.get_raw_connection()
        return cls(
            connection,
            raw.driver_connection,
            plans,
            run_plan,
            protect=protect,
            clock=clock,
            joins_writes=joins_writes,
        )

    @property
    def is_usable(self) -> bool:
        """False once the connection is known to be gone."""
        if self.broken or self.connection.closed or self.connection.invalidated:
            return False
        is_closed = getattr(self.driver, "is_closed", None)
        return not (is_closed is not None and is_closed())

    def planned(self, statement: Executable, parameters: Any) -> Coroutine[Any, Any, Answer] | None:
        """The execution of a statement that has a plan; None if SQLAlchemy has to do it."""
        found = self.plans.find(statement, parameters)
        return None if found is None else self._run_plan(self.driver, *found)

    async def control(self, sql: str) -> Any:
        """Runs a transaction-control statement (no parameters, no result rows)."""
        if self.protect:
            return await finish(self.driver.execute(sql))
        return await self.driver.execute(sql)

    async def close(self) -> None:
        """Closes it, whatever state it is in."""
        self.broken = True
        try:
            if self.connection.closed:
                return
            if not self.connection.invalidated:
                await self.connection.invalidate()
            await self.connection.close()
        except Exception:
            pass


class Connection:
    """What statements run on, within one transaction or one read. Made by `Database.read` and `Database.write`."""

    def __init__(self, session: Session, backend: str, *, writable: bool, noted_xid: str = "") -> None:
        self._session = session
        self.backend = backend
        self.writable = writable
        self.xid = noted_xid
        self._after_commit: list[Callable[[], None]] = []

    async def execute(self, statement: Executable, parameters: Any = None) -> CursorResult[Any]:
        """Runs a statement; with a list of parameter dicts, once for each. The result is buffered.

        Raises sqlalchemy.exc.DBAPIError; see `faults` for what it means.
        """
        planned: Any = self._session.planned(statement, parameters)
        work = planned or self._session.connection.execute(statement, parameters)
        result: CursorResult[Any] = await (finish(work) if self._session.protect else work)
        return result

    async def scalar(self, statement: Executable, parameters: Any = None) -> Any:
        """The first column of the first row, or None."""
        return (await self.execute(statement, parameters)).scalar()

    async def run(self, work: Callable[[SyncConnection], T]) -> T:
        """Runs a plain function of a synchronous SQLAlchemy connection: several statements without an await between."""
        session = self._session

        def whole(inner: SyncConnection) -> T:
            statements = _Statements(session, inner)
            result = work(cast(SyncConnection, statements))
            statements.send_writes()
            return result

        pending = session.connection.run_sync(whole)
        return await (finish(pending) if self._session.protect else pending)

    async def run_on_schema(self, work: Callable[[SyncConnection], T]) -> T:
        """The same for what inspects or changes the schema: it needs SQLAlchemy's own connection."""
        pending = self._session.connection.run_sync(work)
        return await (finish(pending) if self._session.protect else pending)

    async def now(self) -> datetime:
        """The time that this database's leases and timestamps go by (X10), aware, in UTC."""
        if self._session.clock is not None:
            return self._session.clock.now()
        value = await self.scalar(_NOW)
        assert isinstance(value, datetime)
        return value

    def note_transaction_id(self, xid: str) -> None:
        """Takes what a statement returned for `sql.transaction_id()`, which saves asking for it before COMMIT."""
        self.xid = xid or ""

    def after_commit(self, callback: Callable[[], None]) -> None:
        """Calls `callback` once the transaction has committed (signals, caches). Not called after a rollback."""
        self._after_commit.append(callback)

    def committed(self) -> None:
        """Runs what waited for the commit."""
        callbacks, self._after_commit = self._after_commit, []
        for callback in callbacks:
            callback()


class _Statements:
    """The synchronous connection that plain functions get: SQLAlchemy's, with a short way for planned statements."""

    __slots__ = ("_backlog", "_inner", "_session")

    def __init__(self, session: Session, inner: SyncConnection) -> None:
        self._session = session
        self._inner = inner
        self._backlog = Backlog() if session.joins_writes else None

    def execute(self, statement: Executable, parameters: Any = None) -> Any:
        """See sqlalchemy.engine.Connection."""
        self.send_writes()
        planned = self._session.planned(statement, parameters)
        return self._inner.execute(statement, parameters) if planned is None else await_(planned)

    def write(self, statement: Executable, rows: Sequence[Parameters]) -> None:
        """See `write_rows`."""
        found = self._session.plans.find(statement, rows) if self._backlog is not None and len(rows) == 1 else None
        if self._backlog is None or found is None or found[0].returns_rows:
            self.execute(statement, rows)
            return
        plan, row = found
        if not self._backlog.takes(plan):
            self.send_writes()
        self._backlog.add(plan, cast(Parameters, row))

    def send_writes(self) -> None:
        """Sends the writes that wait. Whatever is executed later sees them."""
        if self._backlog:
            sql, arguments = self._backlog.take()
            await_(self._session.driver.execute(sql, *arguments))

    def scalar(self, statement: Executable, parameters: Any = None) -> Any:
        """See sqlalchemy.engine.Connection."""
        return self.execute(statement, parameters).scalar()

    def scalars(self, statement: Executable, parameters: Any = None) -> Any:
        """See sqlalchemy.engine.Connection."""
        return self.execute(statement, parameters).scalars()

    def __getattr__(self, name: str) -> Any:
        self.send_writes()
        return getattr(self._inner, name)


def write_rows(connection: SyncConnection, statement: Executable, rows: Sequence[Parameters]) -> None:
    """Executes a statement whose result nobody looks at, once for each row.

    What it does is there for whatever is executed next; until then it may wait, and travel with other writes. An error
    of it (a unique violation, say) is raised by then, or at the end of the function given to `Connection.run`.
    """
    if not rows:
        return
    if isinstance(connection, _Statements):
        connection.write(statement, rows)
    else:
        connection.execute(statement, rows)


async def roll_back(session: Session) -> None:
    """Ends the transaction without effect; a session that can't even do that is thrown away."""
    if not session.is_usable:
        session.broken = True
        return
    try:
        await asyncio.wait_for(finish(session.driver.execute("ROLLBACK")), timeout=5)
    except asyncio.CancelledError:
        session.broken = True
        raise
    except Exception as error:
        if not _no_transaction(error):
            session.broken = True


def _no_transaction(error: BaseException) -> bool:
    # SQLite ends the transaction by itself after some errors (disk full, for example).
    return "no transaction is active" in str(error)


def raise_translated(error: BaseException) -> NoReturn:
    """Raises what a caller of the database should see for a failure that is known to have committed nothing."""
    if isinstance(error, Exception) and faults.is_connection_lost(error):
        raise faults.TransactionLost() from error
    raise error


Work = Callable[[Connection], Awaitable[T]]
