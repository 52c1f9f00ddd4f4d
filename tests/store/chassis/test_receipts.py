"""One effect per request_id (X3)."""

import asyncio
from collections.abc import AsyncIterator
from datetime import timedelta
from typing import Any

import pytest
import sqlalchemy as sa

from tests.store.chassis.tables import BUMP, opened, things, value
from tests.unit.chassis.probe import probe
from threadkeep_chassis.clock import ManualClock
from threadkeep_chassis.database import Connection, Database, insert_or_ignore
from threadkeep_chassis.errors import IdTaken, RequestIdReused, RevisionConflict
from threadkeep_chassis.receipts import (
    check_receipt,
    find_receipts,
    fingerprint,
    idempotent,
    insert_receipts,
    purge_receipts,
    receipt_row,
)
from threadkeep_chassis.scope import ALL_SCOPES, Call, Scope

METHOD = "/threadkeep.probe.v1.ProbeService/Change"


def call_in(tenant: str = "acme", method: str = METHOD) -> Call:
    return Call(method, named_scope=Scope({"tenant": tenant}))


@pytest.fixture
async def database(database_url: str) -> AsyncIterator[Database]:
    async with opened(database_url) as made:
        yield made


async def change(database: Database, call: Call, request_id: str = "r", content: str = "x", fails: Any = None) -> Any:
    async def work(connection: Connection) -> Any:
        await connection.execute(BUMP, {"key": "a"})
        if fails is not None:
            raise fails
        return probe.ChangeResponse(value=f"{content} {await connection.scalar(sa.select(things.c.n))}")

    request = probe.ChangeRequest(request_id=request_id, value=content)
    return await idempotent(database, call, request, probe.ChangeResponse, work)


@pytest.mark.rule("X3")
async def test_a_replay_has_no_second_effect_and_gets_the_first_response(database: Database) -> None:
    first, again = call_in(), call_in()
    assert (await change(database, first)).value == "x 1"
    assert (await change(database, again)).value == "x 1"
    assert await value(database) == 1
    assert (first.trailing, again.trailing) == ({}, {"threadkeep-replay": "1"})


@pytest.mark.rule("X3")
async def test_the_receipt_is_looked_for_before_anything_is_checked_or_done(database: Database) -> None:
    runs: list[int] = []

    async def work(connection: Connection) -> Any:
        runs.append(1)
        await connection.execute(BUMP, {"key": "a"})
        return probe.ChangeResponse(value="done")

    request = probe.ChangeRequest(request_id="r")
    for _ in range(3):
        assert (await idempotent(database, call_in(), request, probe.ChangeResponse, work)).value == "done"
    assert runs == [1]


@pytest.mark.rule("X3")
async def test_the_same_id_with_another_request_or_method_is_refused(database: Database) -> None:
    await change(database, call_in())
    with pytest.raises(RequestIdReused):
        await change(database, call_in(), content="y")
    with pytest.raises(RequestIdReused):
        await change(database, call_in(method="/threadkeep.probe.v1.ProbeService/Other"))
    assert await value(database) == 1


@pytest.mark.rule("X2", "X3")
async def test_request_ids_live_inside_their_scope(database: Database) -> None:
    await change(database, call_in("acme"))
    await change(database, call_in("other"), content="y")
    await change(database, Call(METHOD, named_grant=ALL_SCOPES), content="z")
    assert await value(database) == 3


@pytest.mark.rule("X3")
async def test_a_failure_leaves_no_receipt(database: Database) -> None:
    with pytest.raises(RevisionConflict):
        await change(database, call_in(), fails=RevisionConflict(1))
    assert await value(database) == 0
    assert (await change(database, call_in(), content="y")).value == "y 1"


@pytest.mark.rule("X3")
async def test_two_at_once_have_one_effect(database: Database) -> None:
    for round_ in range(10):
        answers = await asyncio.gather(*(change(database, call_in(), f"r{round_}") for _ in range(8)))
        assert {answer.value for answer in answers} == {f"x {round_ + 1}"}
    assert await value(database) == 10


@pytest.mark.rule("X3")
async def test_two_creates_at_once_are_one_and_the_loser_is_a_replay_not_a_conflict(database: Database) -> None:
    async def create(key: str, call: Call) -> Any:
        async def work(connection: Connection) -> Any:
            row = insert_or_ignore(things, ["id"]).values(id=key).returning(things.c.id)
            if (await connection.execute(row)).first() is None:
                raise IdTaken("thing", key)
            return probe.ChangeResponse(value=key)

        request = probe.ChangeRequest(request_id=f"create {key}")
        return await idempotent(database, call, request, probe.ChangeResponse, work)

    for number in range(10):
        calls = [call_in() for _ in range(4)]
        answers = await asyncio.gather(*(create(f"k{number}", call) for call in calls))
        assert {answer.value for answer in answers} == {f"k{number}"}
        assert sum(bool(call.trailing) for call in calls) == 3


@pytest.mark.rule("X3")
async def test_batches_read_and_write_many_receipts_at_once(database: Database) -> None:
    requests = {f"r{i}": probe.ChangeRequest(request_id=f"r{i}") for i in range(50)}
    async with database.write() as connection:
        now = await connection.now()
        rows = [
            receipt_row("s", name, METHOD, fingerprint(METHOD, request), name.encode(), now)
            for name, request in reversed(requests.items())
        ]
        await insert_receipts(connection, rows)
        await insert_receipts(connection, [])
    async with database.read() as connection:
        found = await find_receipts(connection, [("s", name) for name in requests] + [("s", "new"), ("t", "r1")])
        assert await find_receipts(connection, []) == {}
    assert len(found) == 50
    assert check_receipt(found["s", "r7"], fingerprint(METHOD, requests["r7"])) == b"r7"
    assert check_receipt(found.get(("s", "new")), b"") is None
    with pytest.raises(RequestIdReused):
        check_receipt(found["s", "r7"], fingerprint(METHOD, requests["r8"]))


@pytest.mark.rule("X3", "X9")
async def test_receipts_are_kept_for_their_time_and_then_purged_in_batches(database_url: str) -> None:
    clock = ManualClock()
    async with opened(database_url, clock=clock) as database:
        for number in range(7):
            await change(database, call_in(), f"old {number}")
        clock.advance(3600)
        await change(database, call_in(), "young")
        clock.advance(24 * 3600 - 1800)
        assert await purge_receipts(database, older_than=timedelta(hours=24), batch=3) == 7
        assert await purge_receipts(database, older_than=timedelta(hours=24)) == 0
        await change(database, call_in(), "young")
        assert await value(database) == 8
        await change(database, call_in(), "old 1", content="another")
        assert await value(database) == 9
