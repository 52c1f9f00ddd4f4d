"""LISTEN/NOTIFY between replicas; what is lost costs latency only (B52, B53)."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import asyncpg
import pytest

from tests.store.chassis.tables import SCHEMA, opened
from tests.store.chassis.wire import Wire, wire_to
from tests.support.postgres import Postgres
from tests.support.waiting import eventually
from threadkeep_chassis.database import Database
from threadkeep_chassis.postgres_link import RECONNECTS
from threadkeep_chassis.postgres_signals import PostgresSignals
from threadkeep_chassis.signals import LocalSignals, signals_for

pytestmark = pytest.mark.suite(backends=["postgres"])


@asynccontextmanager
async def replica(url: str, **options: Any) -> AsyncIterator[PostgresSignals]:
    """The signals of one server process."""
    database = await Database.open(url, SCHEMA)
    signals = PostgresSignals(database, **{"poll_seconds": 60.0, **options})
    await signals.start()
    await asyncio.wait_for(signals.listening.wait(), 10)
    try:
        yield signals
    finally:
        await signals.close()
        await database.close()


@pytest.fixture
async def url(database_url: str) -> str:
    async with opened(database_url):
        return database_url


async def kill(url: str, pattern: str) -> None:
    connection = await asyncpg.connect(url)
    await connection.execute(
        "SELECT pg_terminate_backend(pid) FROM pg_stat_activity "
        "WHERE datname = current_database() AND application_name LIKE $1",
        pattern,
    )
    await connection.close()


async def test_a_signal_reaches_every_replica(url: str) -> None:
    async with replica(url) as one, replica(url) as two:
        async with one.subscribe("t") as here, two.subscribe("t") as there, two.subscribe("u") as other:
            one.notify("t")
            assert await here.wait(10)
            assert await there.wait(10)
            assert not await other.wait(0.1)


async def test_topics_of_any_length_and_number_arrive(url: str) -> None:
    topics = ["x" * 20_000, "with\nnewline", "Ünïcode 😀" * 40, *(f"topic {i} {'y' * 150}" for i in range(200))]
    async with replica(url) as one, replica(url) as two:
        async with _each(two, topics) as subscriptions:
            one.notify(*topics)
            assert all([await subscription.wait(10) for subscription in subscriptions])


@pytest.mark.rule("X9")
async def test_a_flood_of_topics_becomes_one_signal_for_everything(url: str) -> None:
    async with replica(url) as one, replica(url) as two:
        async with two.subscribe("anything") as there:
            for number in range(30_000):
                one.notify(f"topic {number}")
            assert len(one._pending) <= 10_001
            assert await there.wait(10)


@pytest.mark.case("B52")
async def test_a_killed_listener_comes_back_counts_and_wakes_everyone(url: str) -> None:
    async with replica(url) as one, replica(url) as two:
        before = RECONNECTS.labels("signals listener")._value.get()
        async with two.subscribe("t") as there:
            await kill(url, f"threadkeep-{SCHEMA}-signals listen")
            # Nobody knows what was missed, so everyone looks.
            assert await there.wait(10)
            await asyncio.wait_for(two.listening.wait(), 5)
            await asyncio.wait_for(one.listening.wait(), 5)
            one.notify("t")
            assert await there.wait(10)
        assert two.reconnects == 1
        assert RECONNECTS.labels("signals listener")._value.get() >= before + 2


@pytest.mark.case("B52")
async def test_a_killed_sender_comes_back(url: str) -> None:
    async with replica(url, heartbeat_seconds=0.2) as one, replica(url) as two:
        async with two.subscribe("t") as there:
            one.notify("t")
            assert await there.wait(10)
            await kill(url, f"threadkeep-{SCHEMA}-signals notify")

            async def heard() -> bool:
                one.notify("t")
                return await there.wait(0.2)

            assert await eventually(heard)


@pytest.mark.case("B53")
async def test_a_half_open_socket_is_found_by_the_heartbeat(url: str, postgres: Postgres) -> None:
    async with wire_to(postgres.socket_folder) as wire:
        options = {"heartbeat_seconds": 0.3, "heartbeat_timeout_seconds": 0.3}
        async with _through(wire, url, **options) as two, replica(url) as one:
            async with two.subscribe("t") as there:
                wire.is_silent = True
                one.notify("t")
                # Lost on the silent wire: the poll interval is what it costs.
                assert not await there.wait(0.1)
                await eventually(lambda: two.reconnects >= 1)
                wire.is_silent = False
                await asyncio.wait_for(two.listening.wait(), 10)
                assert await there.wait(10)


async def test_a_database_that_is_away_at_the_start_delays_nobody(url: str, postgres: Postgres) -> None:
    async with wire_to(postgres.socket_folder) as wire:
        database = await Database.open(wire.url(url), SCHEMA)
        wire.is_refusing = True
        signals = PostgresSignals(database)
        await asyncio.wait_for(signals.start(), 1)
        async with signals.subscribe("t") as here:
            signals.notify("t")
            assert await here.wait(1)
        wire.is_refusing = False
        await asyncio.wait_for(signals.listening.wait(), 10)
        await signals.close()
        await database.close()


async def test_the_signals_fit_the_database(url: str) -> None:
    memory = await Database.open("memory:", SCHEMA)
    assert isinstance(signals_for(memory), LocalSignals)
    await memory.close()
    database = await Database.open(url, SCHEMA)
    assert isinstance(signals_for(database), PostgresSignals)
    await database.close()


@asynccontextmanager
async def _through(wire: Wire, url: str, **options: Any) -> AsyncIterator[PostgresSignals]:
    async with replica(wire.url(url), **options) as signals:
        yield signals


@asynccontextmanager
async def _each(signals: PostgresSignals, topics: list[str]) -> AsyncIterator[list[Any]]:
    from contextlib import AsyncExitStack

    async with AsyncExitStack() as stack:
        yield [await stack.enter_async_context(signals.subscribe(topic)) for topic in topics]
