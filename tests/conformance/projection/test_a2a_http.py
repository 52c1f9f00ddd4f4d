"""Agent cards over HTTP, found by the official client where it looks for them, and spoken to over gRPC (P6)."""

import json
from collections.abc import AsyncIterator
from urllib.parse import quote

import httpx
import pytest
from a2a.client import A2ACardResolver, ClientFactory
from a2a.types import a2a_pb2

from tests.support.a2a import Agency, agency, message, text_of
from tests.support.suite import Suite
from threadkeep.config.v1 import entity_pb2

SETTINGS = {"projection": {"http_listen": "127.0.0.1:0"}}

pytestmark = pytest.mark.suite(pairs=[("sqlite", "embedded")], settings=SETTINGS)


@pytest.fixture
async def at(suite: Suite) -> AsyncIterator[Agency]:
    async with agency(suite) as made:
        yield made


def address(at: Agency) -> str:
    services = at.suite.hosts["projection"].services
    return next(f"http://{one.http_address}" for one in services if one.name == "projection")


@pytest.mark.rule("P6", "X1", "X2")
async def test_an_agent_is_found_by_its_address_and_spoken_to(at: Agency) -> None:
    headers = {"threadkeep-scope": json.dumps(at.scope)}
    async with httpx.AsyncClient(headers=headers, trust_env=False) as http:
        card = await A2ACardResolver(http, f"{address(at)}/agents/talker").get_agent_card()
        assert (card.name, card.supported_interfaces[0].tenant) == ("talker", "talker")
        async with ClientFactory(at.config()).create(card) as client:
            request = a2a_pb2.SendMessageRequest(message=message("say found"))
            frames = [one async for one in client.send_message(request, context=at.context)]
        assert text_of(frames[-2].artifact_update.artifact.parts) == "found"
        # At the root stands the only one, once it is that.
        well_known = "/.well-known/agent-card.json"
        several = await http.get(address(at) + well_known)
        assert (several.status_code, several.json()["error"]["status"]) == (400, "INVALID_ARGUMENT")
        await at.client.config.delete("agent", "twice")
        assert (await A2ACardResolver(http, address(at)).get_agent_card()).name == "talker"
        await at.client.config.put("a/b ö", entity_pb2.Agent())
        named = await http.get(f"{address(at)}/agents/{quote('a/b ö', safe='')}{well_known}")
        assert named.json()["name"] == "a/b ö"
        unknown = await http.get(f"{address(at)}/agents/nobody{well_known}")
        assert unknown.status_code == 404
        assert (await http.get(f"{address(at)}/agents/talker{well_known}?x=1")).status_code == 400
        foreign = await http.get(f"{address(at)}/agents/talker{well_known}", headers={"host": "evil.example"})
        assert foreign.status_code == 400
        assert (await http.post(f"{address(at)}/agents/talker{well_known}")).status_code == 405
    async with httpx.AsyncClient(trust_env=False) as http:
        assert (await http.get(f"{address(at)}/agents/talker{well_known}")).status_code == 401
        elsewhere = {"threadkeep-scope": '{"test":"elsewhere"}'}
        hidden = await http.get(f"{address(at)}/agents/talker{well_known}", headers=elsewhere)
        assert hidden.json() == unknown.json()
