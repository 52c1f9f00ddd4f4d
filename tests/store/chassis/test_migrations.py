"""Migrations run by many at once, twice, killed midway, from any version, with a lost version row (X14, B39 to B42)."""

import asyncio
import os
import signal
import sys
from pathlib import Path
from typing import Any

import asyncpg
import pytest
import sqlalchemy as sa
from sqlalchemy.ext.asyncio import create_async_engine

from tests.store.chassis.pooler import pooler_to
from tests.support.postgres import Postgres
from tests.support.schema import schema_differences
from threadkeep_chassis.database import Database, DatabaseUrl, DataOwned, JsonDocument, Key, OwnerLock, UtcTimestamp
from threadkeep_chassis.migrations import (
    MigrationFailed,
    MigrationSet,
    SchemaOutOfRange,
    check_version,
    migrate,
    migrate_memory,
    prepare,
)

ROOT = Path(__file__).parents[3]
EXAMPLE = MigrationSet("probe", "tests.store.chassis.example")
ON_DISK = pytest.mark.suite(backends=["sqlite", "postgres"])
ON_POSTGRES = pytest.mark.suite(backends=["postgres"])

metadata = sa.MetaData()
sa.Table(
    "things",
    metadata,
    sa.Column("id", Key(), primary_key=True),
    sa.Column("n", sa.BigInteger(), nullable=False, server_default="0"),
    sa.Column("time", UtcTimestamp()),
    sa.Column("note", sa.Text(), nullable=False, server_default=""),
    sa.Index("things_by_note", "note"),
)
sa.Table(
    "others",
    metadata,
    sa.Column("id", Key(), primary_key=True),
    sa.Column("thing", Key(), sa.ForeignKey("things.id"), nullable=False),
    sa.Column("document", JsonDocument()),
    sa.Index("others_by_thing", "thing"),
)

RUN = """
import asyncio, sys
sys.path.insert(0, sys.argv[1])
from threadkeep_chassis.migrations import MigrationSet, migrate
report = asyncio.run(migrate(sys.argv[2], MigrationSet("probe", sys.argv[3])))
print("applied", len(report.applied), "at", report.after)
"""


async def run(url: str, work: Any) -> Any:
    """Runs a plain function on a connection whose default schema is the service's."""
    parsed = DatabaseUrl.parse(url)
    if parsed.url is None:
        engine = create_async_engine(f"sqlite+aiosqlite:///{parsed.path}")
    else:
        engine = create_async_engine(parsed.url, connect_args={"server_settings": {"search_path": "probe"}})
    async with engine.begin() as connection:
        result = await connection.run_sync(work)
    await engine.dispose()
    return result


async def execute(url: str, *statements: str) -> None:
    def work(connection: Any) -> None:
        for statement in statements:
            connection.execute(sa.text(statement))

    await run(url, work)


async def differences(url: str) -> list[str]:
    return await run(url, lambda connection: schema_differences(connection, metadata))


@ON_DISK
@pytest.mark.case("B39", "B42")
@pytest.mark.rule("X14")
async def test_migrating_twice_is_migrating_once_and_gives_the_declared_tables(database_url: str) -> None:
    first = await migrate(database_url, EXAMPLE)
    assert (first.before, first.after, first.applied) == (None, "0003", ("0001", "0002", "0003"))
    second = await migrate(database_url, EXAMPLE)
    assert (second.before, second.after, second.applied) == ("0003", "0003", ())
    assert await differences(database_url) == []


@ON_DISK
@pytest.mark.case("B42")
async def test_a_difference_between_migrations_and_tables_is_seen(database_url: str) -> None:
    await migrate(database_url, EXAMPLE)
    await execute(database_url, "DROP INDEX things_by_note", "ALTER TABLE things ADD COLUMN extra TEXT")
    found = "\n".join(await differences(database_url))
    assert "things_by_note" in found
    assert "extra" in found


@ON_DISK
@pytest.mark.case("B39")
@pytest.mark.rule("X14", "X12")
@pytest.mark.parametrize("start", ["0001", "0002"])
async def test_every_older_version_comes_up_with_its_rows(database_url: str, start: str) -> None:
    await migrate(database_url, EXAMPLE, revision=start)
    await execute(database_url, "INSERT INTO things (id, n) VALUES ('x', 7)")
    report = await migrate(database_url, EXAMPLE)
    assert report.before == start
    assert await differences(database_url) == []

    def read(connection: Any) -> Any:
        return connection.execute(sa.text("SELECT n, note FROM things")).one()

    assert tuple(await run(database_url, read)) == (7, "old" if start == "0001" else "")


@ON_DISK
@pytest.mark.case("B39")
@pytest.mark.parametrize("at", ["0001", "0002", "0003"])
@pytest.mark.parametrize(
    "lost",
    [
        ["DELETE FROM schema_version"],
        ["DROP TABLE schema_version"],
        ["DROP TABLE schema_version", "DROP TABLE schema_history"],
    ],
    ids=["row", "table", "all trace"],
)
async def test_a_lost_version_is_recognised(database_url: str, at: str, lost: list[str]) -> None:
    await migrate(database_url, EXAMPLE, revision=at)
    await execute(database_url, *lost)
    report = await migrate(database_url, EXAMPLE)
    assert (report.before, report.after) == (at, "0003")
    assert await differences(database_url) == []
    assert (await migrate(database_url, EXAMPLE)).applied == ()


@ON_DISK
@pytest.mark.case("B39")
async def test_a_schema_that_fits_no_version_is_one_clear_error_and_stays_as_it_is(database_url: str) -> None:
    await migrate(database_url, EXAMPLE, revision="0001")
    await execute(
        database_url,
        "DROP TABLE schema_version",
        "DROP TABLE schema_history",
        "ALTER TABLE things ADD COLUMN odd TEXT",
    )
    with pytest.raises(MigrationFailed, match="fits no revision"):
        await migrate(database_url, EXAMPLE)


@ON_POSTGRES
@pytest.mark.case("B40", "B41")
@pytest.mark.rule("X14")
async def test_eight_processes_migrate_one_empty_database_at_once(database_url: str) -> None:
    children = [
        await asyncio.create_subprocess_exec(
            sys.executable, "-c", RUN, str(ROOT), database_url, EXAMPLE.package, stdout=asyncio.subprocess.PIPE
        )
        for _ in range(8)
    ]
    outputs = [(await child.communicate())[0].decode() for child in children]
    assert [child.returncode for child in children] == [0] * 8
    assert sum("applied 3 at 0003" in output for output in outputs) == 1
    assert sum("applied 0 at 0003" in output for output in outputs) == 7
    assert await differences(database_url) == []


@ON_POSTGRES
@pytest.mark.case("B40")
async def test_one_connection_is_enough(database_url: str, postgres: Postgres) -> None:
    name = database_url.removeprefix("postgresql://postgres@/").split("?", 1)[0]
    role = f"only_one_{name}"
    await postgres.execute(f"CREATE ROLE {role} LOGIN CONNECTION LIMIT 1")
    await postgres.execute(f'ALTER DATABASE "{name}" OWNER TO {role}')
    report = await migrate(database_url.replace("postgres@", f"{role}@"), EXAMPLE)
    assert report.after == "0003"
    await postgres.execute(f'ALTER DATABASE "{name}" OWNER TO postgres')
    await postgres.execute(f"REASSIGN OWNED BY {role} TO postgres", name)
    await postgres.execute(f"DROP ROLE {role}")


@ON_POSTGRES
@pytest.mark.case("B40")
@pytest.mark.rule("X14")
async def test_a_killed_migration_frees_the_lock_and_leaves_nothing_half_done(database_url: str) -> None:
    slow = MigrationSet("probe", "tests.store.chassis.slow")
    child = await asyncio.create_subprocess_exec(
        sys.executable, "-c", RUN, str(ROOT), database_url, slow.package, stdout=asyncio.subprocess.PIPE
    )
    assert child.stdout is not None
    assert (await child.stdout.readline()).strip() == b"sleeping"
    with pytest.raises(MigrationFailed, match="another process"):
        await migrate(database_url, slow, lock_timeout_seconds=0.3)
    child.send_signal(signal.SIGKILL)
    await child.wait()
    os.environ["TK_TEST_QUICK"] = "1"
    try:
        report = await asyncio.wait_for(migrate(database_url, slow), 20)
    finally:
        del os.environ["TK_TEST_QUICK"]
    assert report.applied == ("0001",)


@ON_POSTGRES
@pytest.mark.case("B40")
async def test_behind_a_pooler_there_is_one_clear_error(database_url: str, postgres: Postgres) -> None:
    async with pooler_to(postgres.socket_folder, database_url) as pooler:
        for url in (pooler.url, f"{pooler.url}&pooler=transaction"):
            with pytest.raises(MigrationFailed, match="pooler"):
                await migrate(url, EXAMPLE)
    connection = await asyncpg.connect(database_url)
    assert await connection.fetchval("SELECT count(*) FROM pg_namespace WHERE nspname = 'probe'") == 0
    await connection.close()


@pytest.mark.suite(backends=["sqlite"])
@pytest.mark.rule("X14")
async def test_a_file_that_a_server_owns_is_not_migrated_under_it(database_url: str) -> None:
    path = DatabaseUrl.parse(database_url).path
    assert path is not None
    lock = OwnerLock.acquire(path, "a server")
    with pytest.raises(DataOwned, match="a server"):
        await migrate(database_url, EXAMPLE)
    lock.release()
    assert (await migrate(database_url, EXAMPLE)).after == "0003"


@ON_DISK
@pytest.mark.rule("X14")
async def test_a_server_checks_the_schema_and_never_changes_it(database_url: str) -> None:
    if database_url.startswith("postgresql"):
        await _schema(database_url)
    for at, message in ((None, "run `threadkeepd migrate`"), ("0001", "run `threadkeepd migrate`"), ("0003", None)):
        if at is not None:
            await migrate(database_url, EXAMPLE, revision=at)
        database = await Database.open(database_url, "probe")
        try:
            if message is None:
                await prepare(database, EXAMPLE)
            else:
                with pytest.raises(SchemaOutOfRange, match=message):
                    await prepare(database, EXAMPLE)
        finally:
            await database.close()
        if at is not None:
            assert (await migrate(database_url, EXAMPLE, revision=at)).before == at


@ON_DISK
@pytest.mark.rule("X14", "X12")
async def test_a_server_works_on_the_range_that_it_knows(database_url: str) -> None:
    await migrate(database_url, EXAMPLE, revision="0002")
    database = await Database.open(database_url, "probe")
    wide = MigrationSet("probe", EXAMPLE.package, oldest_served="0002")
    assert await check_version(database, wide) == "0002"
    await database.close()
    await execute(database_url, "UPDATE schema_version SET version_num = '0009'")
    database = await Database.open(database_url, "probe")
    with pytest.raises(SchemaOutOfRange, match="newer threadkeepd"):
        await check_version(database, wide)
    await database.close()
    with pytest.raises(MigrationFailed, match="newer threadkeepd"):
        await migrate(database_url, EXAMPLE)


@pytest.mark.suite(backends=["memory"])
async def test_a_memory_server_makes_its_schema_at_start(database_url: str) -> None:
    database = await Database.open(database_url, "probe")
    await prepare(database, EXAMPLE)
    await prepare(database, EXAMPLE)
    async with database.write() as connection:
        await connection.execute(sa.text("INSERT INTO things (id) VALUES ('x')"))
    async with database.read() as connection:
        assert await connection.run_on_schema(lambda sync: schema_differences(sync, metadata)) == []
    assert (await migrate_memory(database, EXAMPLE)).applied == ()
    await database.close()
    with pytest.raises(MigrationFailed):
        await migrate("memory:", EXAMPLE)


async def _schema(url: str) -> None:
    connection = await asyncpg.connect(url)
    await connection.execute("CREATE SCHEMA IF NOT EXISTS probe")
    await connection.close()
