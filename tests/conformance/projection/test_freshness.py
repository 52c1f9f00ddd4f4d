"""A caller can wait for what it wrote, by every cursor that the runtime gives (P5)."""

import asyncio
import random
from typing import Any

import pytest
from google.protobuf.duration_pb2 import Duration
from langchain_core.messages import HumanMessage

from tests.conformance.projection.conftest import SERVICES
from tests.support.calls import grant, grant_all, refused
from tests.support.examples.world import World
from tests.support.projection import Talk, fresh
from tests.support.suite import Suite
from tests.support.waiting import eventually
from threadkeep.projection.v1 import admin_service_pb2, summary_service_pb2
from threadkeep.projection.v1 import message_service_pb2 as pb
from threadkeep.runtime.v1 import event_service_pb2

pytestmark = pytest.mark.suite(services=SERVICES)


@pytest.mark.rule("P5")
async def test_every_caller_reads_its_own_writes_at_once(world: World) -> None:
    """Many callers at once, each with the cursor of its own commit: nobody ever sees less than it wrote."""
    agent = await world.agent()

    async def converse() -> None:
        talk = Talk(world, agent)
        said: list[HumanMessage] = []
        for number in range(6):
            said.append(HumanMessage("x", id=f"m{number}"))
            await talk.put(*said)
            assert await talk.ids() == [one.id for one in said]

    await asyncio.gather(*(converse() for _ in range(8)))


async def _event_cursor(world: World, request: event_service_pb2.ListEventsRequest, metadata: Any) -> bytes:
    page = await world.bind("EventService.ListEvents")(request, metadata=metadata, timeout=20)
    return bytes(page.cursor)


@pytest.mark.rule("P5")
async def test_cursors_of_every_kind_of_feed_can_be_waited_for(talk: Talk, world: World) -> None:
    await talk.submit(("in", "x"))
    of_session = event_service_pb2.ListEventsRequest()
    of_session.filter.session_id = talk.session_id
    of_task = event_service_pb2.ListEventsRequest()
    of_task.filter.task_id = talk.task_ids[0]
    everything = event_service_pb2.ListEventsRequest()
    cursors = [
        await _event_cursor(world, of_session, world.metadata),
        await _event_cursor(world, of_task, world.metadata),
        await _event_cursor(world, everything, world.metadata),
        await _event_cursor(world, everything, grant(world.values)),
    ]
    # A feed over all scopes may be at its first page; that is a cursor too.
    cursors.append(await _event_cursor(world, everything, grant_all()))
    for cursor in cursors:
        request = summary_service_pb2.GetTaskSummaryRequest(task_id=talk.task_ids[0], freshness=fresh(cursor))
        await world.call("SummaryService.GetTaskSummary", request)
        listing = pb.ListMessagesRequest(session_id=talk.session_id, freshness=fresh(cursor))
        assert len((await world.call("MessageService.ListMessages", listing)).messages) == 1


@pytest.mark.rule("P5")
async def test_with_freshness_the_wait_comes_before_the_existence_check(talk: Talk) -> None:
    """Right after the first commit nothing may be projected yet; a fresh read still finds the session."""
    await talk.put(HumanMessage("x", id="m"))
    assert (await talk.session()).message_count == 1
    unknown = pb.ListMessagesRequest(session_id="never-used", freshness=fresh(talk.receipt))
    assert (await refused(talk.world.call("MessageService.ListMessages", unknown))).reason == "SESSION_NOT_FOUND"


@pytest.mark.rule("P5")
@pytest.mark.parametrize("cursor", [b"x", b"\x00" * 40, bytes(range(200)), random.Random(7).randbytes(64)])
async def test_what_is_no_cursor_is_refused_at_once(world: World, cursor: bytes) -> None:
    request = pb.ListMessagesRequest(session_id="s", freshness=fresh(cursor))
    details = await refused(world.call("MessageService.ListMessages", request))
    assert details.reason == "CURSOR_INVALID"
    assert "freshness.at_least" in details.violations


@pytest.mark.rule("P5")
async def test_a_cursor_that_was_edited_to_lie_ahead_is_found_out_by_the_runtime(talk: Talk) -> None:
    await talk.put(HumanMessage("x", id="m"))
    await talk.ids()
    edited = talk.receipt.cursor[:-1] + bytes([talk.receipt.cursor[-1] | 0x80, 0x7F])
    request = pb.ListMessagesRequest(session_id=talk.session_id, freshness=fresh(edited))
    assert (await refused(talk.world.call("MessageService.ListMessages", request))).reason == "CURSOR_INVALID"


@pytest.mark.parametrize("wait", [Duration(seconds=61), Duration(seconds=-1)])
async def test_a_wait_that_is_too_long_or_negative_names_its_field(talk: Talk, wait: Duration) -> None:
    await talk.put(HumanMessage("x", id="m"))
    request = pb.ListMessagesRequest(session_id=talk.session_id)
    request.freshness.at_least = talk.receipt.cursor
    request.freshness.max_wait.CopyFrom(wait)
    details = await refused(talk.world.call("MessageService.ListMessages", request))
    assert (details.reason, list(details.violations)) == ("FIELD_INVALID", ["freshness.max_wait"])


@pytest.mark.rule("P5", "X15")
async def test_status_and_metrics_say_how_far_the_follower_is(talk: Talk, shared_suite: Suite) -> None:
    await talk.put(HumanMessage("x", id="m"))
    await talk.ids()
    status = await talk.world.call("ProjectionAdminService.GetStatus", admin_service_pb2.GetStatusRequest())
    assert len(status.shares) == (8 if shared_suite.backend == "postgres" else 1)
    assert len({one.owner for one in status.shares} - {""}) == 1
    share = next(one for one in status.shares if one.applied_count)
    assert share.applied_count > 0
    assert share.HasField("apply_time")
    registry = shared_suite.hosts["projection"].registry
    await eventually(lambda: (registry.get_sample_value("threadkeep_projection_events_total") or 0) > 0)
    assert registry.get_sample_value("threadkeep_projection_lag_seconds", {"share": str(share.share)}) is not None
    for one in status.shares:
        assert registry.get_sample_value("threadkeep_projection_share_owned", {"share": str(one.share)}) == 1
    assert registry.get_sample_value("threadkeep_projection_checkpoints_total", {"outcome": "decoded"}) > 0
