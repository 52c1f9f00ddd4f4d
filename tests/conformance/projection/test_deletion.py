"""A deleted session leaves the projection too, live and in a rebuild (R19, P1, P3)."""

import pytest

from tests.conformance.projection.conftest import SERVICES
from tests.support.calls import refused
from tests.support.descriptors import fresh_id
from tests.support.examples.world import World
from tests.support.projection import Talk, another_projection, everything, fresh
from tests.support.suite import Suite
from threadkeep.projection.v1 import admin_service_pb2, message_service_pb2, summary_service_pb2
from threadkeep.runtime.v1 import commit_pb2, session_service_pb2

pytestmark = pytest.mark.suite(services=SERVICES, topologies=["embedded"])


async def delete(talk: Talk) -> commit_pb2.CommitReceipt:
    request = session_service_pb2.DeleteSessionRequest(request_id=fresh_id(), session_id=talk.session_id)
    return (await talk.world.call("SessionService.DeleteSession", request)).receipt


@pytest.mark.rule("R19", "P1", "P5")
async def test_a_deleted_session_is_gone_from_messages_and_summaries(shared_suite: Suite) -> None:
    world = World(shared_suite)
    kept, gone = await Talk.begin(world), await Talk.begin(world)
    for talk in (kept, gone):
        await talk.submit((fresh_id("m"), "hello"), metadata={"n": "1"})
        await talk.messages()
    receipt = await delete(gone)
    listing = summary_service_pb2.ListSessionSummariesRequest(freshness=fresh(receipt))
    left = await world.call("SummaryService.ListSessionSummaries", listing)
    assert [one.session_id for one in left.sessions] == [kept.session_id]
    tasks = await world.call("SummaryService.ListTaskSummaries", summary_service_pb2.ListTaskSummariesRequest())
    assert [one.session_id for one in tasks.tasks] == [kept.session_id]
    asked = message_service_pb2.ListMessagesRequest(session_id=gone.session_id)
    assert (await refused(world.call("MessageService.ListMessages", asked))).reason == "SESSION_NOT_FOUND"
    rebuild = admin_service_pb2.RebuildSessionRequest(request_id=fresh_id(), session_id=gone.session_id)
    assert (await refused(world.call("ProjectionAdminService.RebuildSession", rebuild))).reason == "SESSION_NOT_FOUND"


@pytest.mark.rule("R19", "P3")
@pytest.mark.suite(services=SERVICES, topologies=["split"], backends=["sqlite"])
async def test_a_projection_built_anew_does_not_know_it_either(suite: Suite) -> None:
    world = World(suite)
    kept, gone = await Talk.begin(world), await Talk.begin(world)
    for talk in (gone, kept):
        await talk.submit((fresh_id("m"), "hello"))
    await delete(gone)
    await kept.submit((fresh_id("m"), "again"), strategy="MULTITASK_STRATEGY_ENQUEUE")
    live = await everything([kept])
    async with another_projection(suite) as channel:
        assert await everything([kept], channel) == live
