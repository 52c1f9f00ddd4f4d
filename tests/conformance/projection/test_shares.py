"""Several shares of the log, on the wire: those of before are divided on a live suite, and a pause is for all (P1)."""

import asyncio

import asyncpg
import pytest
from langchain_core.messages import AIMessage, HumanMessage

from tests.conformance.projection.conftest import SERVICES
from tests.support.calls import grant_all
from tests.support.descriptors import fresh_id
from tests.support.examples.world import World
from tests.support.projection import Talk, another_projection, everything
from tests.support.suite import Suite, migrate_one
from tests.support.waiting import eventually
from threadkeep.projection.v1 import admin_service_pb2 as pb
from threadkeep.runtime.v1 import event_service_pb2

pytestmark = pytest.mark.suite(services=SERVICES, topologies=["split"], backends=["postgres"])

AS_BEFORE = """
ALTER TABLE projection.session_entries DROP COLUMN create_time;
CREATE INDEX session_entries_by_scope_key_entry_session_id ON projection.session_entries (scope_key, entry, session_id);
ALTER TABLE projection.task_entries DROP COLUMN create_time;
CREATE INDEX task_entries_by_scope_key_entry_task_id ON projection.task_entries (scope_key, entry, task_id);
DELETE FROM projection.shares WHERE share <> 0;
ALTER TABLE projection.shares DROP COLUMN share_count;
ALTER TABLE projection.shares RENAME COLUMN log_cursor TO cursor;
DROP TABLE projection.followers;
UPDATE projection.schema_version SET version_num = 'projection_0006'
"""


async def status(world: World) -> pb.GetStatusResponse:
    return await world.call("ProjectionAdminService.GetStatus", pb.GetStatusRequest())


async def as_before(suite: Suite, applied: int) -> None:
    """Gives the projection the schema and the one share that it had, at the end of the log."""
    listing = World(suite).bind("EventService.ListEvents")
    page = await listing(event_service_pb2.ListEventsRequest(page_size=1000), metadata=grant_all())
    assert not page.next_page_token
    connection = await asyncpg.connect(suite.urls["projection"])
    await connection.execute(AS_BEFORE)
    await connection.execute(
        "UPDATE projection.shares SET cursor = $1, applied_count = $2, owner = 'old', epoch = 7,"
        " lease_expire_time = now() + interval '1 hour'",
        page.cursor,
        applied,
    )
    await connection.close()


@pytest.mark.rule("P1", "X12")
async def test_an_upgrade_divides_the_one_share_and_applies_nothing_twice(suite: Suite) -> None:
    world = World(suite)
    talks = [await Talk.begin(world) for _ in range(6)]
    for talk in talks:
        await talk.submit((fresh_id("in"), "hello"))
    before = await everything(talks)
    applied = sum(one.applied_count for one in (await status(world)).shares)
    await suite.hosts["projection"].stop()
    await as_before(suite, applied)

    # The runtime goes on, and so does the suite: the schema is brought up, and the new replica takes over.
    for talk in talks:
        await talk.work()
        await talk.step(HumanMessage("1", id="1"), AIMessage("2", id="2"))
    await migrate_one(suite.urls["projection"], "projection")
    await suite.rehost("projection")
    after = await everything(talks)
    assert after != before
    shares = (await status(world)).shares
    assert [one.share for one in shares] == list(range(8))
    assert len({one.owner for one in shares}) == 1
    events = sum(int(one["eventSequence"]) for one in after["sessions"])
    assert sum(one.applied_count for one in shares) == events, "what was in is not applied again"
    async with another_projection(suite) as anew:
        assert await everything(talks, anew) == after


@pytest.mark.rule("P1")
async def test_a_pause_holds_the_shares_of_every_replica(suite: Suite) -> None:
    world = World(suite)
    talks = [await Talk.begin(world) for _ in range(6)]
    operator = world.metadata + grant_all()
    async with another_projection(suite, suite.urls["projection"]) as second:
        await eventually(lambda: _is_shared(world))
        await world.bind("ProjectionAdminService.Pause")(pb.PauseRequest(request_id=fresh_id()), metadata=operator)
        paused = await status(world)
        assert all(one.is_paused and not one.owner for one in paused.shares)
        await asyncio.gather(*(talk.submit((fresh_id("in"), "hello")) for talk in talks))
        for talk in talks:
            request = pb.RebuildSessionRequest(request_id=fresh_id(), session_id=talk.session_id)
            assert (await world.call("ProjectionAdminService.RebuildSession", request)).message_count == 1
        assert [one.cursor for one in (await status(world)).shares] == [one.cursor for one in paused.shares]
        await world.bind("ProjectionAdminService.Resume")(pb.ResumeRequest(request_id=fresh_id()), metadata=operator)
        assert await everything(talks) == await everything(talks, second)
        await eventually(lambda: _is_shared(world))


async def _is_shared(world: World) -> bool:
    owners = [one.owner for one in (await status(world)).shares]
    return "" not in owners and sorted(map(owners.count, set(owners))) == [4, 4]
