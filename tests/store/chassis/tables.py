"""A schema of one service for these tests: a table of things, receipts and meta."""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import asyncpg
import sqlalchemy as sa

from threadkeep_chassis.database import (
    Bytes,
    Database,
    JsonDocument,
    JsonText,
    Key,
    UtcTimestamp,
)
from threadkeep_chassis.meta import meta_table
from threadkeep_chassis.receipts import receipts_table

SCHEMA = "probe"

metadata = sa.MetaData()
things = sa.Table(
    "things",
    metadata,
    sa.Column("id", Key(), primary_key=True),
    sa.Column("n", sa.BigInteger(), nullable=False, server_default="0"),
    sa.Column("time", UtcTimestamp()),
    sa.Column("exact", JsonText()),
    sa.Column("document", JsonDocument()),
    sa.Column("content", Bytes()),
)
receipts_table(metadata)
meta_table(metadata)

BUMP = sa.update(things).where(things.c.id == sa.bindparam("key")).values(n=things.c.n + 1)
READ = sa.select(things.c.n).where(things.c.id == sa.bindparam("key"))


async def create(database: Database) -> None:
    """Makes the tables, and a row `a` with n = 0."""
    async with database.write() as connection:
        await connection.run_on_schema(metadata.create_all)
        await connection.execute(sa.insert(things), {"id": "a", "n": 0})


async def create_schema(url: str) -> None:
    """Makes the PostgreSQL schema; nothing elsewhere."""
    if url.startswith("postgresql:"):
        connection = await asyncpg.connect(url)
        await connection.execute(f"CREATE SCHEMA IF NOT EXISTS {SCHEMA}")
        await connection.close()


@asynccontextmanager
async def opened(url: str, **options: Any) -> AsyncIterator[Database]:
    """The database with its tables."""
    await create_schema(url)
    database = await Database.open(url, SCHEMA, **options)
    try:
        await create(database)
        yield database
    finally:
        await database.close()


async def value(database: Database, key: str = "a") -> Any:
    """What n is."""
    async with database.read() as connection:
        return await connection.scalar(READ, {"key": key})
