"""Manifests (C9): an agent with what it depends on, of one revision, canonical, with a digest that is its content's."""

import asyncio
import hashlib
import json

import grpc
import pytest
import rfc8785

from tests.support.calls import refused
from tests.support.config import AGENT, PROVIDER, TOOL, Caller, agent, provider, tool


async def define(caller: Caller, prompt: str = "Be brief.") -> None:
    """An agent with a provider and two tools."""
    await caller.put(PROVIDER, "main", provider(model="m", api_key_reference="env:KEY", options_json='{"b":1,"a":2}'))
    await caller.put(TOOL, "reader", tool("reads"))
    await caller.put(TOOL, "writer", tool("writes", approval_required=True))
    await caller.put(AGENT, "clerk", agent(prompt, provider="main", tools=["writer", "reader"], max_steps=5))


def content_digest(manifest_json: bytes) -> str:
    """What the contract says that the digest covers."""
    document = json.loads(manifest_json)
    for part in (document["agent"], *([document["provider"]] if "provider" in document else []), *document["tools"]):
        del part["revision"]
    return hashlib.sha256(rfc8785.dumps(document)).hexdigest()


@pytest.mark.rule("C9")
async def test_a_manifest_holds_the_agent_and_all_that_it_depends_on(acme: Caller) -> None:
    await define(acme)
    manifest = await acme.manifest("clerk")
    document = json.loads(manifest.manifest_json)
    assert rfc8785.dumps(document) == manifest.manifest_json, "canonical"
    entities = {
        "agent": await acme.get(AGENT, "clerk"),
        "provider": await acme.get(PROVIDER, "main"),
        "writer": await acme.get(TOOL, "writer"),
        "reader": await acme.get(TOOL, "reader"),
    }
    parts = {"agent": document["agent"], "provider": document["provider"]}
    parts |= dict(zip(("writer", "reader"), document["tools"], strict=True))
    for name, part in parts.items():
        assert (part["name"], part["revision"], part["digest"]) == (
            entities[name].name,
            entities[name].revision,
            entities[name].digest,
        )
    assert document["provider"]["definition"] == {
        "provider": {
            "type": "scripted",
            "model": "m",
            "api_key_reference": "env:KEY",
            "options_json": '{"a":2,"b":1}',
        }
    }
    assert document["tools"][0]["definition"]["tool"]["approval_required"] is True
    assert manifest.agent_revision == entities["agent"].revision
    assert manifest.config_revision >= max(entity.revision for entity in entities.values())
    assert manifest.digest == content_digest(manifest.manifest_json)


@pytest.mark.rule("C9")
async def test_the_same_content_has_the_same_digest_in_every_scope(acme: Caller, globex: Caller) -> None:
    await define(acme)
    await globex.put(TOOL, "reader", tool("other"))
    await define(globex)
    one, other = await acme.manifest("clerk"), await globex.manifest("clerk")
    assert one.digest == other.digest
    assert one.manifest_json != other.manifest_json, "revisions differ"


@pytest.mark.rule("C9")
async def test_each_change_of_a_part_changes_the_digest_and_a_change_of_others_does_not(acme: Caller) -> None:
    await define(acme)
    seen = [(await acme.manifest("clerk")).digest]
    for type, name, definition in (
        (PROVIDER, "main", provider(model="other")),
        (TOOL, "reader", tool("reads well")),
        (AGENT, "clerk", agent("Be long.", provider="main", tools=["writer", "reader"])),
    ):
        await acme.put(type, name, definition)
        seen.append((await acme.manifest("clerk")).digest)
    await acme.put(TOOL, "unused", tool())
    after = await acme.manifest("clerk")
    assert len(set(seen)) == 4
    assert after.digest == seen[-1]


@pytest.mark.rule("C9", "C2")
async def test_what_an_agent_names_resolves_in_the_callers_scope(acme: Caller) -> None:
    await acme.apply(
        {
            "agents/clerk.md": "---\nprovider: main\ntools: [reader]\n---\nHi.",
            "providers/main.yaml": "type: scripted",
            "tools/reader.yaml": "python: {entry_point: 'a:b'}",
        }
    )
    inner = acme.within(project="p")
    before = await inner.manifest("clerk")
    assert before.digest == (await acme.manifest("clerk")).digest
    await inner.put(TOOL, "reader", tool("narrower"))
    document = json.loads((await inner.manifest("clerk")).manifest_json)
    assert document["tools"][0]["definition"]["tool"]["description"] == "narrower"
    assert (await acme.manifest("clerk")).digest == before.digest


@pytest.mark.rule("C9")
async def test_an_agent_without_a_provider_and_tools_has_a_manifest(acme: Caller) -> None:
    await acme.put(AGENT, "bare", agent())
    document = json.loads((await acme.manifest("bare")).manifest_json)
    assert set(document) == {"agent", "tools"}
    assert document["tools"] == []


@pytest.mark.rule("C9")
async def test_what_does_not_resolve_is_named(acme: Caller, globex: Caller) -> None:
    nobody = await refused(acme.manifest("nobody"))
    assert (nobody.code, nobody.reason) == (grpc.StatusCode.FAILED_PRECONDITION, "AGENT_UNRESOLVED")
    assert nobody.metadata["unresolved"] == "agent nobody"
    await globex.put(TOOL, "reader", tool())
    await acme.put(AGENT, "clerk", agent(provider="main", tools=["reader", "writer"]))
    await acme.put(TOOL, "writer", tool())
    missing = await refused(acme.manifest("clerk"))
    assert missing.metadata["unresolved"] == "provider main, tool reader"
    await acme.put(PROVIDER, "main", provider())
    await acme.put(TOOL, "reader", tool())
    assert (await acme.manifest("clerk")).digest
    await acme.put(TOOL, "reader", hidden=True)
    assert (await refused(acme.manifest("clerk"))).metadata["unresolved"] == "tool reader"


@pytest.mark.rule("C9")
async def test_a_manifest_is_of_one_revision_while_its_parts_change(acme: Caller) -> None:
    """Agent and tool always change in one set, so a manifest that mixes two sets is torn."""

    def files(text: str) -> dict[str, str]:
        python = "python: {entry_point: 'a:b'}"
        return {
            "agents/clerk.yaml": f"system_prompt: {text}\ntools: [reader]",
            "tools/reader.yaml": f"description: {text}\n{python}",
        }

    await acme.apply(files("v0"))
    done = asyncio.Event()

    async def read() -> int:
        count = 0
        while not done.is_set():
            document = json.loads((await acme.manifest("clerk")).manifest_json)
            told = document["agent"]["definition"]["agent"]["system_prompt"]
            assert document["tools"][0]["definition"]["tool"]["description"] == told
            count += 1
        return count

    readers = [asyncio.create_task(read()) for _ in range(4)]
    for number in range(1, 25):
        await acme.apply(files(f"v{number}"))
        document = json.loads((await acme.manifest("clerk")).manifest_json)
        assert document["agent"]["definition"]["agent"]["system_prompt"] == f"v{number}"
    done.set()
    assert sum(await asyncio.gather(*readers)) > 0
