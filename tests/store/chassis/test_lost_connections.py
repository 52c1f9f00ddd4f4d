"""Connections that go away: what is replayed, what is known, what is not (X7, B45)."""

import asyncio
import os
import signal
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any, cast

import asyncpg
import pytest
import sqlalchemy as sa
from google.protobuf.message import Message

from tests.store.chassis.tables import BUMP, opened, things, value
from tests.store.chassis.wire import Cut, Wire, wire_to
from tests.support.postgres import Postgres
from tests.support.waiting import eventually
from threadkeep.common.v1 import payload_pb2
from threadkeep_chassis.database import Connection, Database, DatabaseSettings, TransactionLost, transaction_id
from threadkeep_chassis.errors import CommitUnknown, DatabaseUnavailable
from threadkeep_chassis.receipts import idempotent
from threadkeep_chassis.scope import Call, Scope

QUICK = DatabaseSettings(commit_outcome_timeout_seconds=1.0, connect_timeout_seconds=5.0)
pytestmark = pytest.mark.suite(backends=["postgres"])


async def bump(connection: Connection) -> None:
    await connection.execute(BUMP, {"key": "a"})


async def kill_backends(url: str) -> None:
    connection = await asyncpg.connect(url)
    await connection.execute(
        "SELECT pg_terminate_backend(pid) FROM pg_stat_activity "
        "WHERE pid <> pg_backend_pid() AND datname = current_database()"
    )
    await connection.close()


@pytest.mark.case("B45")
@pytest.mark.rule("X3")
async def test_after_all_connections_were_killed_reads_succeed_and_a_write_lands_once(
    database_url: str,
) -> None:
    async with opened(database_url) as database:
        await asyncio.gather(*(value(database) for _ in range(20)))
        for expected in range(1, 4):
            await kill_backends(database_url)
            assert await value(database) == expected - 1
            async with database.read(snapshot=True) as connection:
                assert await connection.scalar(sa.select(things.c.n)) == expected - 1
            await kill_backends(database_url)
            await database.retrying(bump)
            assert await value(database) == expected
            await kill_backends(database_url)
            async with database.write() as connection:
                assert await connection.scalar(sa.select(things.c.n)) == expected
        writer = await database.dedicated()
        for _ in range(2):
            await kill_backends(database_url)
            async with writer.transaction() as connection:
                await bump(connection)
        assert await value(database) == 5


@pytest.mark.case("B45")
async def test_a_read_that_finds_its_connection_gone_between_two_statements_goes_on(
    database_url: str,
) -> None:
    async with opened(database_url) as database, database.read() as connection:
        assert await connection.scalar(sa.select(things.c.n)) == 0
        await kill_backends(database_url)
        assert await connection.scalar(sa.select(things.c.n)) == 0


async def test_a_connection_lost_before_commit_is_known_to_have_changed_nothing(
    database_url: str,
) -> None:
    async with opened(database_url) as database:
        with pytest.raises(TransactionLost):  # noqa: PT012
            async with database.write() as connection:
                await bump(connection)
                await kill_backends(database_url)
                await bump(connection)
        assert await value(database) == 0
        tries: list[int] = []

        async def once_unlucky(connection: Connection) -> None:
            await bump(connection)
            if not tries:
                tries.append(1)
                await kill_backends(database_url)
            await bump(connection)

        await database.retrying(once_unlucky)
        assert await value(database) == 2


@pytest.mark.rule("X7")
@pytest.mark.parametrize("noted", [False, True], ids=["asked before commit", "noted by a statement"])
async def test_a_lost_commit_is_asked_about_and_the_truth_is_told(
    database_url: str, postgres: Postgres, noted: bool
) -> None:
    async def work(connection: Connection) -> None:
        await bump(connection)
        if noted:
            connection.note_transaction_id(await connection.scalar(sa.select(transaction_id())))

    async with wire_to(postgres.socket_folder) as wire, _opened_through(wire, database_url) as database:
        wire.next_commit = Cut.AFTER_COMMIT
        async with database.write() as connection:
            await work(connection)
        assert wire.cut.is_set()
        assert await value(database) == 1

        wire.cut.clear()
        wire.next_commit = Cut.BEFORE_COMMIT
        with pytest.raises(TransactionLost):
            async with database.write() as connection:
                await work(connection)
        assert wire.cut.is_set()
        assert await value(database) == 1

        wire.next_commit = Cut.BEFORE_COMMIT
        await database.retrying(work)
        assert await value(database) == 2
        wire.next_commit = Cut.AFTER_COMMIT
        await database.retrying(work)
        assert await value(database) == 3


@pytest.mark.rule("X7")
async def test_a_dedicated_writer_tells_the_truth_too(database_url: str, postgres: Postgres) -> None:
    async with wire_to(postgres.socket_folder) as wire, _opened_through(wire, database_url) as database:
        writer = await database.dedicated()
        committed: list[int] = []
        wire.next_commit = Cut.AFTER_COMMIT
        async with writer.transaction() as connection:
            await bump(connection)
            connection.after_commit(lambda: committed.append(1))
        assert committed == [1]
        wire.next_commit = Cut.BEFORE_COMMIT
        with pytest.raises(TransactionLost):  # noqa: PT012
            async with writer.transaction() as connection:
                await bump(connection)
                connection.after_commit(lambda: committed.append(2))
        async with writer.transaction() as connection:
            await bump(connection)
        assert await value(database) == 2
        assert committed == [1]


@pytest.mark.rule("X7", "X3")
@pytest.mark.parametrize("cut", [Cut.BEFORE_COMMIT, Cut.AFTER_COMMIT])
async def test_an_outcome_that_nobody_can_tell_is_unknown_and_a_retry_has_one_effect(
    database_url: str, postgres: Postgres, cut: Cut
) -> None:
    request = payload_pb2.Actor(id="r-1")
    call = Call("/m", named_scope=Scope({"tenant": "acme"}))

    async def change(database: Database) -> Message:
        async def work(connection: Connection) -> Message:
            await bump(connection)
            return payload_pb2.Actor(id="done")

        return await idempotent(database, call, cast(Message, _WithRequestId(request)), payload_pb2.Actor, work)

    async with wire_to(postgres.socket_folder) as wire, _opened_through(wire, database_url) as database:
        wire.next_commit = cut

        async def refuse_from_the_cut_on() -> None:
            await wire.cut.wait()
            wire.is_refusing = True

        refusing = asyncio.create_task(refuse_from_the_cut_on())
        with pytest.raises(CommitUnknown):
            await change(database)
        await refusing
        with pytest.raises(DatabaseUnavailable):
            await value(database)
        wire.is_refusing = False
        assert (await change(database)) == payload_pb2.Actor(id="done")
        assert await value(database) == 1
        assert bool(call.trailing) is (cut is Cut.AFTER_COMMIT)


@pytest.mark.rule("X7")
async def test_after_a_crash_of_the_server_a_status_is_believed_only_where_it_can_not_lie() -> None:
    """A transaction id that a crash lost is given out again, and may then read `committed` for somebody else's."""
    private = Postgres()
    try:
        async with wire_to(private.socket_folder) as wire:
            url = await private.empty_database()
            # Who asks is answered, however slowly the server recovers: the answer decides, not the time.
            patient = DatabaseSettings(commit_outcome_timeout_seconds=120.0)
            async with _opened_through(wire, url, patient) as database:
                before = await _life(private)
                assert before is not None
                wire.next_commit = Cut.AFTER_COMMIT

                async def crash_at_the_cut() -> None:
                    await wire.cut.wait()
                    wire.is_refusing = True
                    connection = await asyncpg.connect(private.url())
                    pid = connection.get_server_pid()
                    os.kill(pid, signal.SIGKILL)
                    connection.terminate()

                    async def has_risen() -> bool:
                        # The server that was killed still answers, until its postmaster has noticed.
                        return await _life(private) not in (None, before)

                    await eventually(has_risen, timeout=120)
                    wire.is_refusing = False

                crashing = asyncio.create_task(crash_at_the_cut())
                with pytest.raises(CommitUnknown):
                    async with database.write() as connection:
                        await bump(connection)
                await crashing
                # It was committed, as it happens; only its status could not prove it.
                assert await value(database) == 1
    finally:
        private.close()


async def test_a_silent_session_in_a_transaction_is_ended_by_the_server(database_url: str) -> None:
    settings = DatabaseSettings(idle_in_transaction_timeout_seconds=0.3)
    async with opened(database_url, settings=settings) as database:
        with pytest.raises(TransactionLost):  # noqa: PT012
            async with database.write() as stopped:
                await bump(stopped)
                # The row lock of the stopped one does not block others for longer than the time-out.
                await asyncio.wait_for(database.retrying(bump), 15)
                await bump(stopped)
        assert await value(database) == 1


async def test_a_transaction_that_takes_too_long_is_ended_by_the_server(database_url: str) -> None:
    settings = DatabaseSettings(transaction_timeout_seconds=0.3)
    async with opened(database_url, settings=settings) as database:
        with pytest.raises(TransactionLost):
            async with database.write() as connection:
                await connection.execute(sa.text("SELECT pg_sleep(5)"))


async def _life(postgres: Postgres) -> str | None:
    """Which of its lives a server is in; None while it does not answer."""
    try:
        connection = await asyncpg.connect(postgres.url(), timeout=10)
        try:
            return str(await connection.fetchval("SELECT stats_reset FROM pg_stat_bgwriter"))
        finally:
            connection.terminate()
    except (OSError, asyncpg.PostgresError, asyncpg.InterfaceError, asyncpg.InternalClientError, TimeoutError):
        return None


@asynccontextmanager
async def _opened_through(wire: Wire, url: str, settings: DatabaseSettings = QUICK) -> AsyncIterator[Database]:
    async with opened(url):
        pass
    database = await Database.open(wire.url(url), "probe", settings=settings)
    try:
        yield database
    finally:
        await database.close()


class _WithRequestId:
    """Actor has no request_id; what `idempotent` needs of a request is that and its bytes."""

    def __init__(self, message: payload_pb2.Actor) -> None:
        self.request_id = message.id
        self._message = message

    def SerializeToString(self, **options: Any) -> bytes:
        return self._message.SerializeToString(**options)
