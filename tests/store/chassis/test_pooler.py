"""Everything behind a transaction pooler (B43)."""

import asyncio

import pytest
import sqlalchemy as sa

from tests.store.chassis.pooler import pooler_to
from tests.store.chassis.tables import BUMP, READ, SCHEMA, opened, things, value
from tests.store.chassis.test_receipts import call_in, change
from tests.support.postgres import Postgres
from threadkeep_chassis.database import Connection, Database, DatabaseSettings, DatabaseUrlInvalid
from threadkeep_chassis.signals import signals_for

pytestmark = pytest.mark.suite(backends=["postgres"])


@pytest.mark.case("B43")
async def test_fifty_parallel_callers_meet_no_error(database_url: str, postgres: Postgres) -> None:
    async with opened(database_url):
        pass
    async with pooler_to(postgres.socket_folder, database_url, size=5) as pooler:
        settings = DatabaseSettings(pool_size=20)
        database = await Database.open(f"{pooler.url}&pooler=transaction", SCHEMA, settings=settings)

        async def bump(connection: Connection) -> None:
            await connection.execute(BUMP, {"key": "a"})

        async def caller(number: int) -> None:
            for step in range(4):
                await database.retrying(bump)
                assert await value(database) > 0
                async with database.read(snapshot=True) as connection:
                    first = await connection.scalar(READ, {"key": "a"})
                    assert await connection.scalar(sa.select(things.c.n)) == first
                await change(database, call_in(), f"r {number} {step}")

        await asyncio.gather(*(caller(number) for number in range(50)))
        assert await value(database) == 50 * 4 * 2
        writer = await database.dedicated()
        async with writer.transaction() as connection:
            await bump(connection)
        assert await value(database) == 50 * 4 * 2 + 1
        await database.close()


@pytest.mark.case("B43")
async def test_a_pooler_that_the_address_does_not_name_is_said_at_once(database_url: str, postgres: Postgres) -> None:
    async with pooler_to(postgres.socket_folder, database_url) as pooler:
        with pytest.raises(DatabaseUrlInvalid, match="pooler=transaction"):
            await Database.open(pooler.url, SCHEMA)


@pytest.mark.case("B43")
async def test_signals_take_the_direct_address(database_url: str, postgres: Postgres) -> None:
    async with opened(database_url):
        pass
    async with pooler_to(postgres.socket_folder, database_url) as pooler:
        database = await Database.open(f"{pooler.url}&pooler=transaction", SCHEMA)
        one = signals_for(database, direct_url=database_url, poll_seconds=60)
        two = signals_for(database, direct_url=database_url, poll_seconds=60)
        await one.start()
        await two.start()
        await asyncio.wait_for(two.listening.wait(), 10)  # type: ignore[attr-defined]
        async with two.subscribe("t") as there:
            one.notify("t")
            assert await there.wait(10)
        await one.close()
        await two.close()
        await database.close()
