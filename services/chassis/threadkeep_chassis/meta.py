"""A small table of facts about one service's data: the token secret, the log's incarnation.

Every service's schema has it (`meta_table(metadata)`), made by its migrations. A fact is written once and then the same
for every replica.
"""

from __future__ import annotations

import os

import sqlalchemy as sa

from threadkeep_chassis.database import Bytes, Connection, Database, Key, insert_or_ignore

TOKEN_SECRET = "token_secret"


def meta_table(metadata: sa.MetaData) -> sa.Table:
    """Declares `meta(name, value)`."""
    return sa.Table(
        "meta",
        metadata,
        sa.Column("name", Key(), primary_key=True),
        sa.Column("value", Bytes(), nullable=False),
    )


_TABLE = meta_table(sa.MetaData())
_SELECT = sa.select(_TABLE.c.value).where(_TABLE.c.name == sa.bindparam("name"))
_INSERT = insert_or_ignore(_TABLE, ["name"])


async def read_meta(connection: Connection, name: str) -> bytes | None:
    """The fact, or None if it was never written."""
    value = await connection.scalar(_SELECT, {"name": name})
    return None if value is None else bytes(value)


async def ensure_meta(database: Database, name: str, value: bytes) -> bytes:
    """Writes the fact unless there is one, and returns the one that counts: all replicas get the same."""
    async with database.read() as connection:
        found = await read_meta(connection, name)
    if found is not None:
        return found

    async def work(connection: Connection) -> bytes:
        await connection.execute(_INSERT, {"name": name, "value": value})
        found = await read_meta(connection, name)
        assert found is not None
        return found

    return await database.retrying(work)


async def load_token_secret(database: Database) -> bytes:
    """The 32 random bytes that sign page tokens and cursors of this database, made on first use."""
    return await ensure_meta(database, TOKEN_SECRET, os.urandom(32))
