"""After a purge a projection that followed and one that is built anew say the same of what is left (P3, R19)."""

from typing import Any

import pytest
from langchain_core.messages import AIMessage, HumanMessage

from tests.conformance.projection.conftest import SERVICES
from tests.support.calls import refused
from tests.support.descriptors import fresh_id
from tests.support.examples.world import World
from tests.support.projection import Talk, another_projection, everything
from tests.support.suite import Suite
from tests.support.waiting import eventually
from threadkeep.projection.v1 import admin_service_pb2, summary_service_pb2
from threadkeep.runtime.v1 import checkpoint_service_pb2, retention_pb2, retention_service_pb2

pytestmark = pytest.mark.suite(
    services=SERVICES,
    topologies=["split"],
    backends=["sqlite", "postgres"],
    settings={"runtime": {"receipt_ttl_seconds": 0}},
)

rpb = retention_pb2


async def purge(world: World, **rules: rpb.RetentionRule) -> rpb.PurgeCounts:
    policy = retention_service_pb2.SetRetentionPolicyRequest(request_id=fresh_id(), policy=rpb.RetentionPolicy(**rules))
    await world.call("RetentionService.SetRetentionPolicy", policy)
    request = retention_service_pb2.PurgeNowRequest(request_id=fresh_id())
    return (await world.call("RetentionService.PurgeNow", request)).counts


async def converse(talk: Talk, turns: int) -> None:
    channel: list[Any] = []
    for turn in range(turns):
        await talk.submit((fresh_id("m"), f"question {turn}"))
        await talk.work()
        channel += [HumanMessage(f"question {turn}", id=f"h{turn}"), AIMessage(f"answer {turn}", id=f"a{turn}")]
        await talk.step(*channel)
        await talk.finish()


@pytest.mark.rule("P3", "R19")
async def test_live_and_rebuilt_agree_after_purges_of_every_kind(suite: Suite) -> None:
    world = World(suite)
    talks = [await Talk.begin(world) for _ in range(2)]
    for talk in talks:
        await converse(talk, 3)
    before = await everything(talks)
    keep = {"tasks": rpb.RetentionRule(max_count=1), "checkpoints": rpb.RetentionRule(max_count=2)}
    counts = await purge(world, events=rpb.RetentionRule(max_count=12), **keep)
    assert min(counts.events, counts.tasks, counts.checkpoints) > 0
    live = await everything(talks)
    assert live != before
    # The session is as old as it was, and its tasks are those that are left.
    assert [one["createTime"] for one in live["sessions"]] == [one["createTime"] for one in before["sessions"]]
    assert {one["taskId"] for one in live["tasks"]} <= {talk.task_ids[-1] for talk in talks}
    async with another_projection(suite) as channel:
        assert await everything(talks, channel) == live
    for talk in talks:
        rebuild = admin_service_pb2.RebuildSessionRequest(request_id=fresh_id(), session_id=talk.session_id)
        await world.call("ProjectionAdminService.RebuildSession", rebuild)
    assert await everything(talks) == live
    await converse(talks[0], 1)
    live = await everything(talks)
    async with another_projection(suite) as channel:
        assert await everything(talks, channel) == live


@pytest.mark.rule("P3", "R19", "R20")
async def test_live_and_rebuilt_agree_after_a_prune(suite: Suite) -> None:
    world = World(suite)
    talk = await Talk.begin(world)
    await converse(talk, 3)
    prune = checkpoint_service_pb2.PruneThreadRequest(
        request_id=fresh_id(),
        session_id=talk.session_id,
        strategy=checkpoint_service_pb2.PRUNE_STRATEGY_KEEP_LATEST,
    )
    await world.call("CheckpointService.PruneThread", prune)
    live = await everything([talk])
    assert len(live[talk.session_id]) >= 6
    async with another_projection(suite) as channel:
        assert await everything([talk], channel) == live


@pytest.mark.rule("P1", "R19")
async def test_sessions_that_retention_deletes_leave_the_projection(suite: Suite) -> None:
    world = World(suite)
    talk = await Talk.begin(world)
    await converse(talk, 1)
    await talk.messages()
    assert (await purge(world, sessions=rpb.RetentionRule(max_count=1))).sessions == 0
    age = rpb.RetentionRule()
    age.max_age.FromNanoseconds(1000)
    assert (await purge(world, sessions=age)).sessions == 1
    asked = summary_service_pb2.GetSessionSummaryRequest(session_id=talk.session_id)

    async def is_gone() -> bool:
        details = await refused(world.call("SummaryService.GetSessionSummary", asked))
        return details.reason == "SESSION_NOT_FOUND"

    await eventually(is_gone)
