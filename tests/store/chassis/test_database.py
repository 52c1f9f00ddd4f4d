"""Transactions, replays and types, the same on every backend (X4, X8, X10, R22)."""

import asyncio
from collections.abc import AsyncIterator
from typing import Any

import pytest
import sqlalchemy as sa

from tests.store.chassis.tables import BUMP, READ, opened, things, value
from threadkeep_chassis.database import (
    Connection,
    Database,
    DatabaseSettings,
    is_data_error,
    is_unique_violation,
    locked_in_key_order,
    locked_skipping_others,
)
from threadkeep_chassis.errors import Contention, RevisionConflict


@pytest.fixture
async def database(database_url: str) -> AsyncIterator[Database]:
    async with opened(database_url) as made:
        yield made


async def bump(connection: Connection) -> None:
    await connection.execute(BUMP, {"key": "a"})


@pytest.mark.rule("R22")
async def test_a_write_commits_on_leaving_and_rolls_back_on_an_exception(database: Database) -> None:
    committed: list[str] = []
    async with database.write() as connection:
        await bump(connection)
        connection.after_commit(lambda: committed.append("first"))
        assert committed == []
    with pytest.raises(LookupError):  # noqa: PT012
        async with database.write() as connection:
            await bump(connection)
            connection.after_commit(lambda: committed.append("second"))
            raise LookupError
    assert await value(database) == 1
    assert committed == ["first"]


@pytest.mark.rule("R22")
async def test_no_increment_is_lost_with_many_writers(database: Database) -> None:
    async def read_and_write(connection: Connection) -> None:
        statement = locked_in_key_order(sa.select(things.c.n).where(things.c.id == "a"), things.c.id)
        current = await connection.scalar(statement)
        await connection.execute(sa.update(things).where(things.c.id == "a").values(n=current + 1))

    await asyncio.gather(*(database.retrying(read_and_write) for _ in range(60)))
    assert await value(database) == 60


@pytest.mark.rule("X4")
async def test_of_many_writers_with_one_expected_revision_one_wins(database: Database) -> None:
    async def swap(connection: Connection) -> None:
        statement = sa.update(things).where(things.c.id == "a", things.c.n == 0).values(n=1)
        if (await connection.execute(statement)).rowcount == 0:
            raise RevisionConflict(await connection.scalar(READ, {"key": "a"}))

    results = await asyncio.gather(*(database.retrying(swap) for _ in range(20)), return_exceptions=True)
    assert results.count(None) == 1
    assert all(isinstance(one, RevisionConflict) and one.current == 1 for one in results if one is not None)


async def test_a_dedicated_writer_is_like_any_write(database: Database) -> None:
    writer = await database.dedicated()
    async with writer.transaction() as connection:
        await bump(connection)
    with pytest.raises(LookupError):  # noqa: PT012
        async with writer.transaction() as connection:
            await bump(connection)
            raise LookupError
    async with writer.transaction() as connection:
        await bump(connection)
    assert await value(database) == 2
    await writer.close()


async def test_a_cancelled_transaction_leaves_nothing_and_harms_nobody(database: Database) -> None:
    inside = asyncio.Event()

    async def dawdle() -> None:
        async with database.write() as connection:
            await bump(connection)
            inside.set()
            await asyncio.Event().wait()

    for _ in range(5):
        inside.clear()
        task = asyncio.create_task(dawdle())
        await inside.wait()
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task
    assert await value(database) == 0
    await database.retrying(bump)
    assert await value(database) == 1


async def test_a_cancellation_in_the_middle_of_statements_never_tears_a_transaction(database: Database) -> None:
    async def many(connection: Connection) -> None:
        for _ in range(20):
            await bump(connection)

    for delay in range(25):
        task = asyncio.create_task(database.retrying(many))
        await asyncio.sleep(delay / 2000)
        task.cancel()
        await asyncio.gather(task, return_exceptions=True)
        assert await value(database) % 20 == 0
    await database.retrying(many)
    assert await value(database) % 20 == 0


@pytest.mark.suite(backends=["sqlite", "postgres"])
async def test_a_snapshot_sees_one_state_and_a_plain_read_the_newest(database: Database) -> None:
    async with database.read(snapshot=True) as snapshot, database.read() as plain:
        assert await snapshot.scalar(READ, {"key": "a"}) == 0
        await database.retrying(bump)
        assert await snapshot.scalar(READ, {"key": "a"}) == 0
        assert await plain.scalar(READ, {"key": "a"}) == 1


@pytest.mark.suite(backends=["sqlite", "postgres"])
async def test_reading_can_not_write(database: Database) -> None:
    with pytest.raises(sa.exc.DBAPIError):
        async with database.read(snapshot=True) as connection:
            await bump(connection)
    assert await value(database) == 0


@pytest.mark.suite(backends=["memory", "sqlite"])
async def test_a_nested_session_is_refused_where_it_would_wait_for_itself(database: Database) -> None:
    async with database.write():
        with pytest.raises(RuntimeError, match="pass the connection on"):
            async with database.write():
                pass


async def test_a_task_started_inside_a_transaction_has_sessions_of_its_own(database: Database) -> None:
    started: list[asyncio.Task[None]] = []
    async with database.write() as connection:
        await bump(connection)
        started.append(asyncio.create_task(database.retrying(bump)))
        connection.after_commit(lambda: started.append(asyncio.create_task(database.retrying(bump))))
    await asyncio.gather(*started)
    assert len(started) == 2
    assert await value(database) == 3


async def test_what_waits_for_a_commit_follows_it_also_when_the_caller_is_gone(database: Database) -> None:
    told: list[int] = []

    async def change() -> None:
        async with database.write() as connection:
            await bump(connection)
            connection.after_commit(lambda: told.append(1))

    for delay in range(30):
        task = asyncio.create_task(change())
        await asyncio.sleep(delay / 5000)
        task.cancel()
        await asyncio.gather(task, return_exceptions=True)
        assert await value(database) == len(told)


async def test_faults_are_told_apart(database: Database) -> None:
    with pytest.raises(sa.exc.IntegrityError) as caught:
        async with database.write() as connection:
            await connection.execute(sa.insert(things), {"id": "a"})
    assert is_data_error(caught.value)
    assert is_unique_violation(caught.value)
    with pytest.raises(sa.exc.DBAPIError) as missing:
        async with database.write() as connection:
            await connection.execute(sa.text("SELECT * FROM nothing_of_that_name"))
    assert not is_data_error(missing.value)


@pytest.mark.suite(backends=["postgres"])
async def test_an_error_that_was_swallowed_does_not_commit_half(database: Database) -> None:
    with pytest.raises(RuntimeError, match="aborted by an earlier error"):  # noqa: PT012
        async with database.write() as connection:
            await bump(connection)
            with pytest.raises(sa.exc.DBAPIError):
                await connection.execute(sa.text("SELECT 1/0"))
    assert await value(database) == 0


@pytest.mark.case("B47")
async def test_deadlocks_are_replayed_and_never_surface(database: Database) -> None:
    async with database.write() as connection:
        await connection.execute(sa.insert(things), [{"id": f"k{i:02}"} for i in range(10)])

    def work(keys: list[str]) -> Any:
        async def both(connection: Connection) -> None:
            for key in keys:
                await connection.execute(BUMP, {"key": key})

        return both

    keys = [f"k{i:02}" for i in range(10)]
    for _ in range(10):
        await asyncio.gather(*(database.retrying(work(order)) for order in (keys, keys[::-1])))
    assert {await value(database, key) for key in keys} == {20}


@pytest.mark.case("B47")
@pytest.mark.rule("X6")
@pytest.mark.suite(backends=["postgres"])
async def test_a_collision_that_does_not_end_is_contention(database: Database) -> None:
    tries: list[int] = []

    async def collide(connection: Connection) -> None:
        tries.append(1)
        await connection.execute(sa.text("DO $$ BEGIN RAISE EXCEPTION 'x' USING ERRCODE = '40P01'; END $$"))

    with pytest.raises(Contention):
        await database.retrying(collide)
    assert len(tries) == database.settings.retries + 1
    await database.retrying(bump)


@pytest.mark.rule("X8")
@pytest.mark.rule("X8")
@pytest.mark.rule("X12")
@pytest.mark.suite(backends=["postgres"])
async def test_a_migration_under_a_live_server_harms_no_statement(database: Database) -> None:
    wide = sa.select(sa.literal_column("n"), sa.literal_column("content")).select_from(things)
    other = await Database.open(database.url, "probe")

    async def work(connection: Connection) -> Any:
        return (await connection.execute(wide)).all()

    for kind in ("TEXT", "BIGINT", "TEXT"):
        await other.retrying(work)
        async with database.write() as connection:
            await connection.execute(sa.text("ALTER TABLE things ALTER n DROP DEFAULT"))
            await connection.execute(sa.text(f"ALTER TABLE things ALTER n TYPE {kind} USING n::{kind}"))
        if kind == "BIGINT":
            assert len(await other.retrying(work)) == 1
        async with other.read() as connection:
            assert len(await work(connection)) == 1
    await other.close()


@pytest.mark.rule("X10")
@pytest.mark.rule("X10")
@pytest.mark.case("B37")
@pytest.mark.suite(backends=["postgres"])
async def test_competing_consumers_pass_each_other_by(database: Database) -> None:
    async with database.write() as connection:
        await connection.execute(sa.insert(things), {"id": "b"})
    claim = locked_skipping_others(sa.select(things.c.id).order_by(things.c.id).limit(1))
    async with database.write() as first, database.write() as second:
        assert await first.scalar(claim) == "a"
        assert await second.scalar(claim) == "b"


@pytest.mark.rule("X9")
@pytest.mark.suite(backends=["sqlite", "postgres"])
async def test_the_number_of_sessions_is_bounded_and_waiting_ends(database_url: str) -> None:
    from threadkeep_chassis.errors import DatabaseUnavailable

    settings = DatabaseSettings(pool_size=2, sqlite_readers=2, pool_timeout_seconds=0.2)
    async with opened(database_url, settings=settings) as database:
        async with database.read(), database.read():
            with pytest.raises(DatabaseUnavailable, match="sessions were busy"):
                async with database.read():
                    pass
        assert await value(database) == 0


async def test_many_readers_at_a_cold_start_get_their_answers(database_url: str) -> None:
    async with opened(database_url) as database:
        assert await asyncio.gather(*(value(database) for _ in range(64))) == [0] * 64
