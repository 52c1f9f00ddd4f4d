"""Types, SQL forms and addresses mean the same on every backend (X8, X10, R22)."""

from collections.abc import AsyncIterator
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest
import sqlalchemy as sa

from tests.store.chassis.tables import READ, metadata, opened, things
from threadkeep_chassis.canonical import JsonInvalid
from threadkeep_chassis.clock import ManualClock
from threadkeep_chassis.database import (
    Database,
    DatabaseUrl,
    DatabaseUrlInvalid,
    contains_text,
    database_now,
    database_now_plus,
    insert_or_ignore,
    json_text_at,
    starts_with,
    upsert,
)


@pytest.fixture
async def database(database_url: str) -> AsyncIterator[Database]:
    async with opened(database_url) as made:
        yield made


async def test_values_come_back_as_they_went_in(database: Database) -> None:
    exact = {
        "big": 2**70,
        "int64": -(2**63),
        "minus zero": -0.0,
        "one": 1.0,
        "e": 1e22,
        "nul": "\x00",
        "é": ["😀", None],
    }
    row = {
        "id": "株式会社 😀",
        "time": datetime(2026, 1, 2, 3, 4, 5, 678901, tzinfo=UTC),
        "exact": exact,
        "document": {"k": [1, 2**53 + 1, "é\u2028"], "a": None},
        "content": bytes(range(256)),
    }
    async with database.write() as connection:
        await connection.execute(sa.insert(things), row)
    async with database.read() as connection:
        found = (await connection.execute(sa.select(things).where(things.c.id == row["id"]))).one()
    assert repr(found.exact) == repr(exact)
    assert found.document == row["document"]
    assert found.content == row["content"]
    assert found.time == row["time"]
    assert found.time.utcoffset() == timedelta(0)


async def test_a_filterable_document_refuses_nul_on_every_backend(database: Database) -> None:
    for bad in ({"a": "\x00"}, {"\x00": 1}, ["\\\x00"]):
        with pytest.raises(sa.exc.StatementError) as caught:
            async with database.write() as connection:
                await connection.execute(sa.insert(things), {"id": "n", "document": bad})
        assert isinstance(caught.value.orig, JsonInvalid)
    for good in ({"a": "\\u0000"}, "\\\\u0000", "u0000"):
        async with database.write() as connection:
            await connection.execute(sa.update(things).values(document=good))
            assert await connection.scalar(sa.select(things.c.document)) == good


async def test_a_naive_time_is_refused(database: Database) -> None:
    with pytest.raises((ValueError, sa.exc.StatementError)):
        async with database.write() as connection:
            await connection.execute(sa.insert(things), {"id": "t", "time": datetime(2026, 1, 1)})


async def test_time_is_the_databases_or_an_injected_clocks(database: Database, database_url: str) -> None:
    async with database.write() as connection:
        now = await connection.now()
        await connection.execute(sa.update(things).values(time=database_now_plus(60)))
        left = (await connection.scalar(sa.select(things.c.time))) - await connection.scalar(sa.select(database_now()))
        assert abs(now - datetime.now(UTC)) < timedelta(seconds=30)
        assert timedelta(seconds=59) < left <= timedelta(seconds=60, milliseconds=2)
        soon = sa.select(sa.func.count()).where(things.c.time > database_now_plus(sa.bindparam("s")))
        assert await connection.scalar(soon, {"s": 0.5}) == 1
        assert await connection.scalar(soon, {"s": 120}) == 0
    await database.close()
    clock = ManualClock()
    other = await Database.open(database_url, "probe", clock=clock)
    async with other.read() as connection:
        assert await connection.now() == clock.now()
    await other.close()


async def test_existing_rows_are_left_alone_or_overwritten_as_the_statement_says(database: Database) -> None:
    async with database.write() as connection:
        ignore = insert_or_ignore(things, ["id"])
        await connection.execute(ignore, [{"id": "a", "n": 9}, {"id": "b", "n": 9}])
        new = await connection.execute(ignore.values([{"id": "b"}, {"id": "c"}]).returning(things.c.id))
        assert [row.id for row in new] == ["c"]
        over = upsert(things, ["id"], ["n"], where=things.c.n < 5)
        await connection.execute(over, [{"id": "a", "n": 3}, {"id": "b", "n": 3}])
        assert await connection.scalar(READ, {"key": "a"}) == 3
        assert await connection.scalar(READ, {"key": "b"}) == 9


async def test_prefixes_and_texts_are_found_literally_and_keys_sort_by_code_point(database: Database) -> None:
    ids = ["A", "Z", "_x", "a%b", "a_b", "aXb", "ab", "a\U0010ffffz", "é", "\uffee", "😀"]
    async with database.write() as connection:
        await connection.execute(sa.delete(things))
        await connection.execute(sa.insert(things), [{"id": one} for one in ids])

        async def found(condition: Any) -> list[str]:
            return [row.id for row in await connection.execute(sa.select(things.c.id).where(condition).order_by("id"))]

        assert await found(sa.true()) == sorted(ids)
        assert await found(starts_with(things.c.id, "a")) == sorted(one for one in ids if one.startswith("a"))
        assert await found(starts_with(things.c.id, "a_")) == ["a_b"]
        assert await found(starts_with(things.c.id, "a%")) == ["a%b"]
        assert await found(starts_with(things.c.id, "")) == sorted(ids)
        assert await found(contains_text(things.c.id, "_")) == ["_x", "a_b"]
        assert await found(contains_text(things.c.id, "X")) == ["aXb"]


async def test_a_key_that_looks_like_sql_is_only_a_key(database: Database) -> None:
    nasty = "a') OR 1=1 --"
    async with database.write() as connection:
        await connection.execute(sa.update(things).values(document={nasty: "x", "plain": "y"}))
        count = sa.select(sa.func.count()).select_from(things)
        assert await connection.scalar(count.where(json_text_at(things.c.document, nasty) == "x")) == 1
        assert await connection.scalar(count.where(json_text_at(things.c.document, "plain") == "y")) == 1
        assert await connection.scalar(count.where(json_text_at(things.c.document, "b' OR '1'='1") == "x")) == 0


def test_addresses_are_understood_or_refused_without_their_password() -> None:
    assert DatabaseUrl.parse("memory:").backend == "memory"
    assert str(DatabaseUrl.parse("sqlite:////data/x.db").path) == "/data/x.db"
    assert DatabaseUrl.parse("sqlite:///x.db").path is not None
    pooled = DatabaseUrl.parse("postgresql://u:hunter2@db:6432/x?pooler=transaction&sslmode=require")
    assert pooled.through_pooler
    assert "hunter2" not in repr(pooled)
    assert pooled.asyncpg_arguments() == {
        "host": "db", "port": 6432, "user": "u", "password": "hunter2", "database": "x", "ssl": "require"
    }  # fmt: skip
    for bad in (
        "",
        "mysql://x",
        "sqlite:",
        "sqlite://",
        "postgresql://u:hunter2@h:port/x",
        "postgresql://x?pooler=odd",
    ):
        with pytest.raises(DatabaseUrlInvalid) as caught:
            DatabaseUrl.parse(bad)
        assert "hunter2" not in str(caught.value)


def test_metadata_has_no_schema_names() -> None:
    assert all(table.schema is None for table in metadata.tables.values())


@pytest.mark.rule("X10")
@pytest.mark.parametrize("time", [datetime.min.replace(tzinfo=UTC), datetime.max.replace(tzinfo=UTC)])
async def test_the_first_and_the_last_moment_come_back(database: Database, time: datetime) -> None:
    async with database.write() as connection:
        await connection.execute(sa.insert(things), {"id": "edge", "time": time})
    async with database.read() as connection:
        found = (await connection.execute(sa.select(things.c.time).where(things.c.id == "edge"))).scalar_one()
    assert found == time
