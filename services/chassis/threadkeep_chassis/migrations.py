"""Schema migrations (X14): Alembic revisions per service, run by many processes at once without harm.

A service package has `migrations/versions/*.py` with plain Alembic revisions (`upgrade()` only; forward is the only
direction) and says so with `MigrationSet("config", "threadkeep_config")`. No env.py, no ini file.
"""

from __future__ import annotations

import asyncio
import hashlib
import importlib.resources
import time
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import sqlalchemy as sa
import structlog
from alembic.migration import MigrationContext
from alembic.operations import Operations
from alembic.script import ScriptDirectory
from sqlalchemy import event
from sqlalchemy.engine import Connection as SyncConnection
from sqlalchemy.ext.asyncio import AsyncConnection, AsyncEngine, create_async_engine
from sqlalchemy.pool import NullPool

from threadkeep_chassis.database import Database, DatabaseUrl, OwnerLock, is_connection_lost
from threadkeep_chassis.errors import DatabaseUnavailable
from threadkeep_chassis.schema_shape import HISTORY_TABLE, VERSION_TABLE, schema_shape

_log = structlog.get_logger("threadkeep.migrations")


class MigrationFailed(RuntimeError):
    """The schema could not be brought up to date; the message says what to do."""


class SchemaOutOfRange(RuntimeError):
    """The schema is older or newer than this server knows; the message says what to run."""


@dataclass(frozen=True)
class MigrationSet:
    """A service's migrations."""

    service: str
    """The service's name, which is its schema's name too."""
    package: str
    """The package that holds `migrations/versions`."""
    oldest_served: str | None = None
    """The oldest revision that the server can work on; None for the head alone."""

    def script(self) -> ScriptDirectory:
        """Alembic's view of the revisions."""
        return ScriptDirectory(str(self._folder()))

    def _folder(self) -> Path:
        return Path(str(importlib.resources.files(self.package))) / "migrations"

    def revisions(self) -> list[str]:
        """All revisions, oldest first. There is one line of history."""
        return [script.revision for script in reversed(list(self.script().walk_revisions()))]

    @property
    def head(self) -> str:
        """The newest revision."""
        return self.revisions()[-1]


@dataclass(frozen=True)
class MigrationReport:
    """What `migrate` did."""

    service: str
    before: str | None
    after: str
    applied: tuple[str, ...]


async def migrate(
    url: str | DatabaseUrl,
    migrations: MigrationSet,
    *,
    lock_timeout_seconds: float = 300.0,
    revision: str | None = None,
) -> MigrationReport:
    """Brings the schema to `revision` (default: the head). Safe to run twice, by many at once, and killed midway.

    On PostgreSQL an advisory lock, polled without holding a snapshot, admits one at a time, on the same connection that
    does the work; a killed holder's lock goes with its session. On SQLite the file's owner lock is taken meanwhile.
    Raises MigrationFailed, DataOwned, DatabaseUnavailable.
    """
    parsed = url if isinstance(url, DatabaseUrl) else DatabaseUrl.parse(url)
    target = revision or migrations.head
    if parsed.backend == "memory":
        raise MigrationFailed("a memory database has no schema to prepare; its server makes it at start")
    if parsed.backend == "sqlite":
        assert parsed.path is not None
        lock = OwnerLock.acquire(parsed.path, f"threadkeep migrate {migrations.service}")
        try:
            return await _migrate_sqlite(parsed, migrations, target)
        finally:
            lock.release()
    return await _migrate_postgres(parsed, migrations, target, lock_timeout_seconds)


async def migrate_memory(database: Database, migrations: MigrationSet) -> MigrationReport:
    """Makes the schema of a memory database, on its own connection (the only one that sees it)."""
    # A plain read is the one connection without a transaction around it; Alembic brings its own.
    async with database.read() as connection:
        return await connection.run_on_schema(lambda sync: _upgrade(sync, migrations, migrations.head, None))


async def prepare(database: Database, migrations: MigrationSet) -> None:
    """What a server does at start: makes a memory schema, otherwise only checks. Raises SchemaOutOfRange."""
    if database.backend == "memory":
        await migrate_memory(database, migrations)
    else:
        await check_version(database, migrations)


async def check_version(database: Database, migrations: MigrationSet) -> str:
    """The schema's revision, if this server can work on it. Never changes anything. Raises SchemaOutOfRange."""

    def current(sync: SyncConnection) -> str | None:
        return _current(sync, database.schema if database.backend == "postgresql" else None)

    async with database.read() as connection:
        revision = await connection.run_on_schema(current)
    known = migrations.revisions()
    oldest = migrations.oldest_served or known[-1]
    service = migrations.service
    if revision is None:
        raise SchemaOutOfRange(f"the {service} schema does not exist yet: run `threadkeepd migrate` first")
    if revision not in known:
        raise SchemaOutOfRange(
            f"the {service} schema is at {revision}, which this version does not know (its newest is {known[-1]}): "
            "run a newer threadkeepd"
        )
    if known.index(revision) < known.index(oldest):
        raise SchemaOutOfRange(
            f"the {service} schema is at {revision}, this version needs {oldest} to {known[-1]}: "
            "run `threadkeepd migrate`"
        )
    return revision


# -- SQLite ------------------------------------------------------------------------------------------------------------


async def _migrate_sqlite(url: DatabaseUrl, migrations: MigrationSet, target: str) -> MigrationReport:
    engine = create_async_engine(f"sqlite+aiosqlite:///{url.path}", poolclass=NullPool)

    # Python's sqlite3 does not open transactions before DDL; our own BEGIN makes each revision all or nothing.
    @event.listens_for(engine.sync_engine, "connect")
    def _connect(connection: Any, _: Any) -> None:
        connection.isolation_level = None
        cursor = connection.cursor()
        cursor.execute("PRAGMA journal_mode=WAL")
        cursor.execute("PRAGMA synchronous=FULL")
        cursor.close()

    @event.listens_for(engine.sync_engine, "begin")
    def _begin(connection: SyncConnection) -> None:
        connection.exec_driver_sql("BEGIN IMMEDIATE")

    try:
        async with engine.connect() as connection:
            return await connection.run_sync(lambda sync: _upgrade(sync, migrations, target, None))
    finally:
        await engine.dispose()


# -- PostgreSQL --------------------------------------------------------------------------------------------------------


async def _migrate_postgres(
    url: DatabaseUrl, migrations: MigrationSet, target: str, lock_timeout: float
) -> MigrationReport:
    if url.through_pooler:
        raise _through_pooler()
    assert url.url is not None
    schema = migrations.service
    engine: AsyncEngine = create_async_engine(
        url.url,
        poolclass=NullPool,
        connect_args={"server_settings": {"application_name": f"threadkeep-migrate-{schema}"}},
    )
    try:
        async with engine.connect() as connection:
            driver = (await connection.get_raw_connection()).driver_connection
            assert driver is not None
            if await driver.fetchval("SELECT pg_backend_pid()") != driver.get_server_pid():
                raise _through_pooler()
            # A killed process's long statement then ends, and with it the lock, instead of running to its end.
            await driver.execute(f"SET search_path = \"{schema}\"; SET client_connection_check_interval = '1s'")
            await _take_lock(driver, schema, lock_timeout)
            try:
                await _create_schema(driver, schema)
                return await connection.run_sync(lambda sync: _upgrade(sync, migrations, target, schema))
            finally:
                await _give_up_lock(connection, driver, schema)
    except MigrationFailed:
        raise
    except Exception as error:
        if is_connection_lost(error):
            raise DatabaseUnavailable() from error
        raise
    finally:
        await engine.dispose()


def _through_pooler() -> MigrationFailed:
    return MigrationFailed(
        "the address leads through a connection pooler, where a session's lock has no meaning; give `migrate` the "
        "address of PostgreSQL itself (THREADKEEP_DATABASE_DIRECT_URL)"
    )


def _lock_number(schema: str) -> int:
    return int.from_bytes(hashlib.sha256(f"threadkeep migrate {schema}".encode()).digest()[:8], "big", signed=True)


async def _take_lock(driver: Any, schema: str, timeout: float) -> None:
    """Polls: a statement blocked on the lock would hold a snapshot that CREATE INDEX CONCURRENTLY waits for."""
    deadline = time.monotonic() + timeout
    while not await driver.fetchval("SELECT pg_try_advisory_lock($1)", _lock_number(schema)):
        if time.monotonic() > deadline:
            raise MigrationFailed(f"another process has been migrating {schema} for {timeout:g} s; try again later")
        await asyncio.sleep(0.1)


async def _give_up_lock(connection: AsyncConnection, driver: Any, schema: str) -> None:
    if driver.is_closed():
        return
    await connection.rollback()
    await driver.execute("SELECT pg_advisory_unlock($1)", _lock_number(schema))


async def _create_schema(driver: Any, schema: str) -> None:
    # IF NOT EXISTS alone asks for the right to create even when the schema is there, and a service's role may lack it.
    if not await driver.fetchval("SELECT 1 FROM pg_namespace WHERE nspname = $1", schema):
        await driver.execute(f'CREATE SCHEMA IF NOT EXISTS "{schema}"')


# -- the upgrade itself, synchronous as Alembic is ---------------------------------------------------------------------


def _upgrade(sync: SyncConnection, migrations: MigrationSet, target: str, schema: str | None) -> MigrationReport:
    script = migrations.script()
    known = migrations.revisions()
    before = _current(sync, schema)
    _end(sync)
    if before is not None and before not in known:
        raise MigrationFailed(
            f"the {migrations.service} schema is at {before}, which this version does not know: run a newer threadkeepd"
        )
    if before is None:
        before = _recognise(sync, migrations, schema)
        _end(sync)
        if before is not None:
            _log.warning("version row was missing; recognised the schema", service=migrations.service, at=before)
            _stamp(sync, before, schema)
            _end(sync)
    if before is not None and known.index(before) >= known.index(target):
        return MigrationReport(migrations.service, before, before, ())
    applied: list[str] = []

    def note(ctx: MigrationContext, step: Any, heads: Any, run_args: Any) -> None:
        applied.append(step.up_revision_id)
        _write_history(sync, step.up_revision_id)

    def steps(revision: Any, _: MigrationContext) -> Any:
        return script._upgrade_revs(target, revision)

    context = MigrationContext.configure(
        sync,
        opts={
            "fn": steps,
            "version_table": VERSION_TABLE,
            "transaction_per_migration": True,
            "on_version_apply": [note],
            "script": script,
        },
    )
    _ensure_history(sync)
    _end(sync)
    with Operations.context(context):
        context.run_migrations()
    _end(sync)
    for revision in applied:
        _log.info("migrated", service=migrations.service, revision=revision)
    return MigrationReport(migrations.service, before, target, tuple(applied))


def _end(sync: SyncConnection) -> None:
    """Commits what autobegin opened, so that Alembic opens its own transactions."""
    if sync.in_transaction():
        sync.commit()


def _current(sync: SyncConnection, schema: str | None) -> str | None:
    if not sa.inspect(sync).has_table(VERSION_TABLE, schema=schema):
        return None
    value = sync.execute(sa.text(f"SELECT version_num FROM {VERSION_TABLE}")).scalar()
    return None if value is None else str(value)


def _ensure_history(sync: SyncConnection) -> None:
    sync.execute(
        sa.text(
            f"CREATE TABLE IF NOT EXISTS {HISTORY_TABLE} (revision VARCHAR(64) NOT NULL PRIMARY KEY, "
            "position INTEGER NOT NULL)"
        )
    )


def _write_history(sync: SyncConnection, revision: str) -> None:
    sync.execute(
        sa.text(
            f"INSERT INTO {HISTORY_TABLE} (revision, position) "
            # WHERE tells SQLite's parser that ON begins no join condition.
            f"SELECT :revision, COUNT(*) + 1 FROM {HISTORY_TABLE} WHERE true ON CONFLICT (revision) DO NOTHING"
        ),
        {"revision": revision},
    )


def _stamp(sync: SyncConnection, revision: str, schema: str | None) -> None:
    context = MigrationContext.configure(sync, opts={"version_table": VERSION_TABLE})
    context._ensure_version_table()
    sync.execute(sa.text(f"DELETE FROM {VERSION_TABLE}"))
    sync.execute(sa.text(f"INSERT INTO {VERSION_TABLE} (version_num) VALUES (:revision)"), {"revision": revision})


def _recognise(sync: SyncConnection, migrations: MigrationSet, schema: str | None) -> str | None:
    """Finds the revision of a schema whose version row was lost (B39): from the history, else from its shape.

    None for an empty schema. Raises MigrationFailed when the shape fits no single revision.
    """
    inspector = sa.inspect(sync)
    tables = set(inspector.get_table_names(schema=schema)) - {VERSION_TABLE, HISTORY_TABLE}
    if not tables:
        return None
    known = migrations.revisions()
    if inspector.has_table(HISTORY_TABLE, schema=schema):
        revision = sync.execute(
            sa.text(f"SELECT revision FROM {HISTORY_TABLE} ORDER BY position DESC LIMIT 1")
        ).scalar()
        if revision in known:
            return str(revision)
    shape = schema_shape(inspector, schema)
    fitting = [revision for revision, other in _shapes(migrations).items() if other == shape]
    if len(fitting) == 1:
        return fitting[0]
    raise MigrationFailed(
        f"the {migrations.service} schema has tables but no version, and its shape fits "
        f"{'no revision' if not fitting else 'several revisions: ' + ', '.join(fitting)}. Restore the row of "
        f"{VERSION_TABLE} (the revisions are {', '.join(known)})."
    )


def _shapes(migrations: MigrationSet) -> dict[str, dict[str, frozenset[str]]]:
    """The shape after each revision, found by running them in memory."""
    shapes = {}
    engine = sa.create_engine("sqlite://")
    with engine.connect() as connection:
        for revision in migrations.revisions():
            _upgrade(connection, migrations, revision, None)
            shapes[revision] = schema_shape(sa.inspect(connection), None)
            _end(connection)
    engine.dispose()
    return shapes
