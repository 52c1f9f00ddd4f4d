"""The sweeps of expired items (B29) and of staged values that no commit used, seen in the tables."""

import sqlite3
from contextlib import closing
from datetime import timedelta

import pytest
import sqlalchemy as sa

from tests.support.suite import Suite
from tests.support.waiting import eventually
from threadkeep import AsyncClient
from threadkeep_chassis.clock import ManualClock
from threadkeep_chassis.database import Database
from threadkeep_chassis.migrations import MigrationSet, migrate, prepare
from threadkeep_runtime.checkpoints import stage_chunk
from threadkeep_runtime.domain.store_items import ItemKey, ItemPut, decode_namespace, encode_namespace
from threadkeep_runtime.loops.sweeping import sweep_chunks, sweep_items
from threadkeep_runtime.store.items import apply_puts
from threadkeep_runtime.tables import staged_chunks, store_items

MIGRATIONS = MigrationSet("runtime", "threadkeep_runtime")


@pytest.mark.rule("R21", "R22")
@pytest.mark.case("B29", "B30")
async def test_the_sweep_deletes_what_has_expired_and_nothing_else(database_url: str, backend: str) -> None:
    if backend != "memory":
        await migrate(database_url, MIGRATIONS)
    database = await Database.open(database_url, "runtime", clock=ManualClock())
    await prepare(database, MIGRATIONS)
    async with database.write() as connection:
        now = await connection.now()
        then = now - timedelta(minutes=2)
        for scope_key in ("one", "two"):
            puts = [
                ItemPut(ItemKey(encode_namespace(["a"]), f"{ttl}-{number}"), b"{}", timedelta(minutes=ttl))
                for ttl in (1, 60)
                for number in range(600)
            ]
            puts.append(ItemPut(ItemKey(encode_namespace(["a"]), "for ever"), b"{}"))
            await connection.run(
                lambda sync, scope_key=scope_key, puts=puts: apply_puts(
                    sync, scope_key, {put.at: put for put in puts}, then
                )
            )
    assert await sweep_items(database) == 1200
    assert await sweep_items(database) == 0
    async with database.read() as connection:
        left = (await connection.execute(sa.select(store_items.c.key))).scalars().all()
    assert len(left) == 1202
    assert not [key for key in left if key.startswith("1-")]
    await database.close()


@pytest.mark.rule("X9", "R22")
@pytest.mark.case("B92")
async def test_the_sweep_deletes_staged_values_whose_latest_chunk_is_old(database_url: str, backend: str) -> None:
    if backend != "memory":
        await migrate(database_url, MIGRATIONS)
    database = await Database.open(database_url, "runtime", clock=ManualClock())
    await prepare(database, MIGRATIONS)
    async with database.write() as connection:
        now = await connection.now()
        for scope_key in ("one", "two"):
            for staged_id, ages in (("left", [120] * 300), ("under way", [120, 120, 30]), ("new", [0])):
                for index, age in enumerate(ages):
                    then = now - timedelta(minutes=age)
                    await connection.run(
                        lambda sync, place=(scope_key, staged_id, index, b"x", then): stage_chunk(sync, *place)
                    )
    assert await sweep_chunks(database, timedelta(hours=1)) == 600
    assert await sweep_chunks(database, timedelta(hours=1)) == 0
    async with database.read() as connection:
        left = (await connection.execute(sa.select(staged_chunks.c.staged_id))).scalars().all()
    assert sorted(left) == ["new"] * 2 + ["under way"] * 6
    await database.close()


@pytest.mark.rule("R21")
def test_a_namespace_as_text_sorts_and_reads_back_as_its_labels() -> None:
    names = [
        (),
        ("a",),
        ("a", "b"),
        ("a b",),
        ("ab",),
        ("a", "ünï", "\U0010ffff"),
        ("\U0010ffff\U0010ffff",),
        ("%", "_"),
    ]
    assert [decode_namespace(encode_namespace(name)) for name in names] == names
    assert sorted(names, key=encode_namespace) == sorted(names)


@pytest.mark.rule("R21", "X9")
@pytest.mark.case("B29", "B92")
@pytest.mark.suite(
    backends=["sqlite"],
    topologies=["split"],
    services=["config", "runtime"],
    settings={
        "runtime": {
            "store_sweep_interval_seconds": 0.1,
            "staged_sweep_interval_seconds": 0.1,
            "staged_value_ttl_seconds": 1.0,
        }
    },
)
async def test_a_running_server_sweeps_both(suite: Suite) -> None:
    def rows(table: str) -> int:
        with closing(sqlite3.connect(suite.urls["runtime"].removeprefix("sqlite:///"))) as file:
            count: int = file.execute(f"SELECT count(*) FROM {table}").fetchone()[0]
            return count

    async with AsyncClient(suite.addresses, scope={"test": "sweep"}) as client:
        await client.store.put(["a"], "short", {}, ttl=timedelta(seconds=1))
        await client.store.put(["a"], "long", {}, ttl=timedelta(hours=1))
        await client.checkpoints.stage_chunk("left", 0, b"x")
        assert rows("store_items") == 2
        assert rows("staged_chunks") == 1
        await eventually(lambda: (rows("store_items"), rows("staged_chunks")) == (1, 0), timeout=60)
        assert await client.store.get(["a"], "long") is not None
