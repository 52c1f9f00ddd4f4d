"""The projection shows a fork's messages from the first on, whatever they came from (R18, P2, P3)."""

from typing import Any

import pytest
from langchain_core.messages import AIMessage, HumanMessage

from tests.conformance.projection.conftest import SERVICES
from tests.support.descriptors import fresh_id
from tests.support.examples.world import World
from tests.support.projection import Talk, all_messages, another_projection, everything, fresh
from tests.support.suite import Suite
from threadkeep.runtime.v1 import message_pb2, session_service_pb2

pytestmark = pytest.mark.suite(services=SERVICES, topologies=["split"], backends=["sqlite"])

pb = session_service_pb2


async def fork(world: World, session_id: str) -> Any:
    request = pb.ForkSessionRequest(request_id=fresh_id(), session_id=session_id)
    return await world.call("SessionService.ForkSession", request)


@pytest.mark.rule("R18", "P2", "P3")
async def test_messages_of_checkpoints_come_along(suite: Suite) -> None:
    world = World(suite)
    talk = await Talk.begin(world)
    await talk.put(HumanMessage("hello", id="h"), AIMessage("hi", id="a"))
    made = await fork(world, talk.session_id)
    shown = await all_messages(world, made.session.session_id, fresh(made.receipt))
    assert [one.message_id for one in shown] == ["h", "a"]
    talks = [talk, Talk(world, talk.agent, made.session.session_id)]
    async with another_projection(suite) as channel:
        assert await everything(talks, channel) == await everything(talks)


@pytest.mark.rule("R18", "P2", "P3")
async def test_message_facts_come_along(suite: Suite) -> None:
    world = World(suite)
    session_id = (await world.session()).session.session_id
    draft = message_pb2.MessageDraft(message_id="m", role="MESSAGE_ROLE_USER", parts=[{"text": "hello"}])  # type: ignore[arg-type]
    await world.commit(session_id=session_id, messages=[message_pb2.MessageChange(append=draft)])
    made = await fork(world, session_id)
    (shown,) = await all_messages(world, made.session.session_id, fresh(made.receipt))
    assert (shown.message_id, shown.parts[0].text) == ("m", "hello")
