"""Tokens that messages took, added up by day, agent and model (P4)."""

from datetime import UTC, datetime, timedelta
from typing import Any

import pytest
from langchain_core.messages import AIMessage, HumanMessage

from tests.conformance.projection.conftest import SERVICES
from tests.support.calls import refused
from tests.support.descriptors import fresh_id
from tests.support.examples.world import World
from tests.support.projection import Talk, fresh
from tests.support.suite import Suite
from threadkeep.projection.v1 import admin_service_pb2
from threadkeep.projection.v1 import summary_service_pb2 as pb

pytestmark = pytest.mark.suite(services=SERVICES, topologies=["embedded"])

DAY, AGENT, MODEL = pb.USAGE_KEY_DAY, pb.USAGE_KEY_AGENT, pb.USAGE_KEY_MODEL


def said(tokens: int, model: str | None) -> AIMessage:
    """An answer of a model that took so many tokens."""
    usage = {"input_tokens": tokens - 1, "output_tokens": 1, "total_tokens": tokens}
    metadata = {} if model is None else {"model_name": model}
    return AIMessage("x", id=fresh_id("ai"), usage_metadata=usage, response_metadata=metadata)


async def usage(world: World, *keys: Any, page_size: int = 0, **more: Any) -> list[pb.UsageTotal]:
    """Every total, page by page."""
    request = pb.ListUsageRequest(keys=keys, page_size=page_size, **more)
    found: list[pb.UsageTotal] = []
    while True:
        page = await world.call("SummaryService.ListUsage", request)
        found += page.totals
        if not page.next_page_token:
            return found
        request.page_token = page.next_page_token


@pytest.mark.rule("P4", "P3", "X5", "X2")
async def test_usage_is_added_up_by_what_is_asked_for(shared_suite: Suite) -> None:
    world = World(shared_suite)
    first, second = await Talk.begin(world), await Talk.begin(world)
    kept, gone, other = said(5, "big"), said(7, "small"), said(11, "big")
    await first.submit((fresh_id("in"), "hello"))
    await first.work()
    await first.step(HumanMessage("hello", id="h"), kept, gone)
    await first.step(HumanMessage("hello", id="h"), kept)
    await second.submit((fresh_id("in"), "hello"))
    await second.work()
    await second.step(other, said(13, None))
    for talk in (first, second):
        await talk.messages()

    totals = await usage(world, MODEL, freshness=fresh(second.receipt))
    assert [(one.model, one.message_count, one.usage.total_tokens) for one in totals] == [
        ("", 1, 13),
        ("big", 2, 16),
        ("small", 1, 7),
    ]
    assert not totals[0].HasField("day")
    by_agent = await usage(world, AGENT)
    assert {one.agent_name: one.usage.total_tokens for one in by_agent} == {first.agent: 12, second.agent: 24}
    (all_of_it,) = await usage(world)
    assert (all_of_it.message_count, all_of_it.usage.total_tokens, all_of_it.usage.output_tokens) == (4, 36, 4)
    days = await usage(world, DAY)
    assert sum(one.usage.total_tokens for one in days) == 36
    shown = await first.messages()
    assert days[0].day == shown[-1].create_time.ToDatetime(tzinfo=UTC).strftime("%Y-%m-%d")
    everything = await usage(world, DAY, AGENT, MODEL)
    assert await usage(world, MODEL, AGENT, DAY, page_size=1) == everything
    assert len(everything) == 4
    assert [one.usage.total_tokens for one in await usage(world, session_id=first.session_id)] == [12]
    assert [one.usage.total_tokens for one in await usage(world, agent_name=first.agent, model="big")] == [5]
    tomorrow = datetime.now(UTC) + timedelta(days=1)
    assert await usage(world, created_from=tomorrow) == []
    assert len(await usage(world, created_before=tomorrow)) == 1
    assert await usage(World(shared_suite), DAY) == []
    assert (await refused(usage(world, 9))).reason == "FIELD_INVALID"

    rebuild = admin_service_pb2.RebuildSessionRequest(request_id=fresh_id(), session_id=first.session_id)
    await world.call("ProjectionAdminService.RebuildSession", rebuild)
    assert await usage(world, DAY, AGENT, MODEL) == everything
