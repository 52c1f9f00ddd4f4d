"""The migrations' head is what `tables.py` says."""

import pytest
import sqlalchemy as sa
from alembic.autogenerate import compare_metadata
from alembic.migration import MigrationContext

from tests.support.config import config_database
from tests.support.databases import Databases
from threadkeep_chassis.database import Database
from threadkeep_chassis.migrations import HISTORY_TABLE, VERSION_TABLE, prepare
from threadkeep_config.server import MIGRATIONS
from threadkeep_config.tables import metadata


@pytest.mark.rule("X14")
async def test_the_migrated_schema_is_the_one_that_the_code_uses(databases: Databases, backend: str) -> None:
    database = await Database.open(await config_database(databases, backend), "config")

    def differences(connection: sa.Connection) -> list[object]:
        def include(item: object, name: str | None, type: str, reflected: bool, other: object) -> bool:
            return name not in (VERSION_TABLE, HISTORY_TABLE)

        options = {"include_object": include, "compare_type": True}
        return compare_metadata(MigrationContext.configure(connection, opts=options), metadata)

    try:
        await prepare(database, MIGRATIONS)
        async with database.read() as connection:
            assert await connection.run_on_schema(differences) == []
    finally:
        await database.close()
