"""Events that could not be projected are listed, and tried again (P1)."""

import contextlib
import sqlite3

import pytest
from langchain_core.messages import HumanMessage

from tests.conformance.projection.conftest import SERVICES
from tests.support.descriptors import fresh_id
from tests.support.examples.world import World
from tests.support.projection import Talk, everything
from tests.support.suite import Suite
from threadkeep.projection.v1 import admin_service_pb2 as pb
from threadkeep_chassis.scope import Scope

pytestmark = pytest.mark.suite(services=SERVICES, topologies=["split"], backends=["sqlite"])


@pytest.mark.rule("P1", "X2")
async def test_what_an_older_release_could_not_project_is_there_after_a_retry(suite: Suite) -> None:
    talk = await Talk.begin(World(suite))
    for n in range(3):
        await talk.put(*(HumanMessage(str(one), id=str(one)) for one in range(n + 1)))
    live = await everything([talk])
    await suite.stop()
    path = suite.urls["projection"].removeprefix("sqlite:///")
    with contextlib.closing(sqlite3.connect(path)) as connection:
        connection.execute("DELETE FROM messages WHERE message_id = '1'")
        row = (Scope(talk.world.values).key, talk.session_id, 3, "threadkeep.checkpoint.saved", "ValueError", 0)
        connection.execute("INSERT INTO poison_events VALUES (?, ?, ?, ?, ?, ?)", row)
        connection.commit()
    await suite.resume()
    world, other = talk.world, World(suite)
    listing = pb.ListPoisonEventsRequest()
    (one,) = (await world.call("ProjectionAdminService.ListPoisonEvents", listing)).events
    assert (one.session_id, one.sequence, one.reason) == (talk.session_id, 3, "ValueError")
    assert not (await other.call("ProjectionAdminService.ListPoisonEvents", listing)).events
    status = await world.call("ProjectionAdminService.GetStatus", pb.GetStatusRequest())
    assert status.poison_count == 1
    theirs = pb.RetryPoisonEventsRequest(request_id=fresh_id(), session_id=talk.session_id)
    assert (await other.call("ProjectionAdminService.RetryPoisonEvents", theirs)).session_count == 0
    retry = pb.RetryPoisonEventsRequest(request_id=fresh_id())
    answer = await world.call("ProjectionAdminService.RetryPoisonEvents", retry)
    assert (answer.session_count, answer.projected_count, answer.has_more) == (1, 1, False)
    assert not (await world.call("ProjectionAdminService.ListPoisonEvents", listing)).events
    assert await everything([talk]) == live
