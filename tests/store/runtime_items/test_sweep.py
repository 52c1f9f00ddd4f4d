"""The sweep of expired items (B29), seen in the table; readers miss expired items anyway."""

from datetime import timedelta

import pytest
import sqlalchemy as sa

from threadkeep_chassis.clock import ManualClock
from threadkeep_chassis.database import Database
from threadkeep_chassis.migrations import MigrationSet, migrate, prepare
from threadkeep_runtime.domain.store_items import ItemKey, ItemPut, decode_namespace, encode_namespace
from threadkeep_runtime.loops.sweeping import sweep_items
from threadkeep_runtime.store.items import apply_puts
from threadkeep_runtime.tables import store_items

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
