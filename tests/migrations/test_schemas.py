"""Every service's schema, as its migrations make it: it is what the tables declare, however it came about (X14)."""

import importlib
from typing import Any

import pytest
import sqlalchemy as sa
from sqlalchemy.ext.asyncio import create_async_engine

from tests.support.schema import schema_differences
from threadkeep_chassis.database import Database, DatabaseUrl
from threadkeep_chassis.migrations import MigrationSet, migrate, prepare

SERVICES = ("runtime", "config", "artifacts", "projection")
ON_DISK = pytest.mark.suite(backends=["sqlite", "postgres"])
pytestmark = pytest.mark.parametrize("service", SERVICES)


def migrations_of(service: str) -> MigrationSet:
    found: MigrationSet = importlib.import_module(f"threadkeep_{service}.server").MIGRATIONS
    return found


def tables_of(service: str) -> sa.MetaData:
    found: sa.MetaData = importlib.import_module(f"threadkeep_{service}.tables").metadata
    return found


async def run(url: str, service: str, work: Any) -> Any:
    """Runs a plain function on a connection whose default schema is the service's."""
    parsed = DatabaseUrl.parse(url)
    if parsed.url is None:
        engine = create_async_engine(f"sqlite+aiosqlite:///{parsed.path}")
    else:
        engine = create_async_engine(parsed.url, connect_args={"server_settings": {"search_path": service}})
    async with engine.begin() as connection:
        result = await connection.run_sync(work)
    await engine.dispose()
    return result


async def differences(url: str, service: str) -> list[str]:
    return await run(url, service, lambda connection: schema_differences(connection, tables_of(service)))


@ON_DISK
@pytest.mark.case("B39", "B42")
@pytest.mark.rule("X14")
async def test_the_migrations_make_what_the_tables_declare(database_url: str, service: str) -> None:
    migrations = migrations_of(service)
    assert (await migrate(database_url, migrations)).after == migrations.head
    assert await differences(database_url, service) == []
    assert (await migrate(database_url, migrations)).applied == ()


@ON_DISK
@pytest.mark.case("B39")
async def test_every_older_version_comes_up_also_without_its_version_row(database_url: str, service: str) -> None:
    migrations = migrations_of(service)
    for revision in migrations.revisions():
        await migrate(database_url, migrations, revision=revision)
        await run(database_url, service, lambda connection: connection.execute(sa.text("DELETE FROM schema_version")))
        assert (await migrate(database_url, migrations, revision=revision)).before == revision
    await migrate(database_url, migrations)
    assert await differences(database_url, service) == []


@pytest.mark.suite(backends=["memory"])
@pytest.mark.case("B42")
async def test_a_memory_server_has_the_same_schema(database_url: str, service: str) -> None:
    database = await Database.open(database_url, service)
    await prepare(database, migrations_of(service))
    async with database.read() as connection:
        assert await connection.run_on_schema(lambda sync: schema_differences(sync, tables_of(service))) == []
    await database.close()
