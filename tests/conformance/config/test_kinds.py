"""The types beside agents, tools and providers (C1): written, updated in part, hidden, held against schemas, merged."""

import json

import pytest
from google.protobuf import field_mask_pb2

from tests.support.calls import refused
from tests.support.config import (
    AGENT,
    CUSTOM,
    CUSTOM_SCHEMA,
    DEFAULTS,
    MCP_SERVER,
    PROVIDER,
    SANDBOX_PROFILE,
    SKILL,
    TOOL,
    Caller,
    agent,
    custom,
    defined,
    provider,
    schema,
    tool,
)

KINDS = [
    (SKILL, defined(skill={"description": "d", "files": [{"path": "a/b", "content": "AAEC"}], "metadata": {"k": "v"}})),
    (MCP_SERVER, defined(mcp_server={"http": {"url": "https://x.example/mcp"}, "timeout": "2.500s", "tools": ["t"]})),
    (SANDBOX_PROFILE, defined(sandbox_profile={"kind": "k", "memory_bytes": "9007199254740993", "cpus": 0.5})),
    (DEFAULTS, defined(defaults={"tools": {}, "middleware": {"values": [{"name": "m"}]}})),
    (CUSTOM_SCHEMA, schema({"type": "object"})),
]


def mask(*paths: str) -> field_mask_pb2.FieldMask:
    """A field mask."""
    return field_mask_pb2.FieldMask(paths=paths)


@pytest.mark.rule("C1", "C2")
@pytest.mark.case("B85")
async def test_every_type_is_written_inherited_hidden_and_shown_again(acme: Caller) -> None:
    inner = acme.within(user="u")
    for type, definition in KINDS:
        put = (await acme.put(type, "x", definition)).entity
        assert put.definition == definition
        assert (await inner.resolve(type, "x")).entity == put
        assert (await inner.put(type, "x", hidden=True)).entity.hidden
        assert (await refused(inner.resolve(type, "x"))).reason == "ENTITY_NOT_FOUND"
        assert (await acme.resolve(type, "x")).entity == put
        await inner.delete(type, "x")
        assert (await inner.resolve(type, "x")).entity == put


@pytest.mark.rule("C1", "C5")
async def test_an_update_mask_writes_only_its_fields(acme: Caller) -> None:
    await acme.put(AGENT, "clerk", agent("Be brief.", provider="p", model="m", tools=["a", "b"]))
    change = agent("Be long.", model="other", tools=["c"])
    updated = await acme.put(AGENT, "clerk", change, update_mask=mask("system_prompt", "tools", "provider"))
    assert updated.changed
    assert updated.entity.definition == agent("Be long.", model="m", tools=["c"])
    again = await acme.put(AGENT, "clerk", change, update_mask=mask("system_prompt"))
    assert not again.changed
    deep = defined(tool={"http": {"url": "https://x.example", "method": "GET"}, "args_schema_json": "{}"})
    await acme.put(TOOL, "t", deep)
    moved = defined(tool={"http": {"url": "https://y.example", "timeout": "3s"}})
    found = (await acme.put(TOOL, "t", moved, update_mask=mask("http.url", "http.timeout"))).entity.definition.tool
    assert (found.http.url, found.http.method, found.http.timeout.seconds) == ("https://y.example", "GET", 3)
    python = (await acme.put(TOOL, "t", tool(), update_mask=mask("python"))).entity.definition.tool
    assert python.WhichOneof("implementation") == "python"


@pytest.mark.rule("C1", "X4")
async def test_an_update_that_cannot_be_is_refused_by_field(acme: Caller) -> None:
    async def refusal(*paths: str, name: str = "clerk", **more: object) -> tuple[str, list[str]]:
        definition = more.pop("definition", agent())
        details = await refused(acme.put(AGENT, name, definition, update_mask=mask(*paths), **more))
        return details.reason, list(details.violations)

    entity = (await acme.put(AGENT, "clerk", agent("Be brief."))).entity
    assert await refusal("system_prompt", name="nobody") == ("ENTITY_NOT_FOUND", [])
    assert await refusal() == ("FIELD_INVALID", ["update_mask"])
    assert await refusal("system_prompt", "colour") == ("FIELD_INVALID", ["update_mask.paths[1]"])
    assert await refusal("tools", definition=tool()) == ("FIELD_INVALID", ["definition"])
    assert await refusal("max_steps", definition=agent(max_steps=0)) == (
        "FIELD_INVALID",
        ["definition.agent.max_steps"],
    )
    assert (await refusal("system_prompt", expected_revision=entity.revision + 1))[0] == "REVISION_CONFLICT"
    await acme.put(AGENT, "hidden", hidden=True)
    assert (await refusal("system_prompt", name="hidden"))[0] == "ENTITY_NOT_FOUND"
    await acme.apply({"agents/filed.md": "x"})
    assert (await refusal("system_prompt", name="filed"))[0] == "FILE_MANAGED"
    inner = acme.within(user="u")
    details = await refused(inner.put(AGENT, "clerk", agent(), update_mask=mask("system_prompt")))
    assert details.reason == "ENTITY_NOT_FOUND", "what is inherited is not edited"


@pytest.mark.rule("C1")
async def test_a_document_is_held_against_the_schema_that_counts_in_its_scope(acme: Caller) -> None:
    inner = acme.within(user="u")
    number = {"type": "object", "properties": {"n": {"type": "integer"}}, "required": ["n"]}
    details = await refused(acme.put(CUSTOM, "quota", custom("quota", {"n": 1})))
    assert (details.reason, list(details.violations)) == ("FIELD_INVALID", ["definition.custom.schema"])
    await acme.put(CUSTOM_SCHEMA, "quota", schema(number))
    first = (await inner.put(CUSTOM, "quota", custom("quota", {"n": 9007199254740993}))).entity
    assert json.loads(first.definition.custom.document_json) == {"n": 9007199254740993}
    for document in ({"n": "x"}, {}, [1]):
        details = await refused(inner.put(CUSTOM, "quota", custom("quota", document)))
        assert (details.reason, list(details.violations)) == ("FIELD_INVALID", ["definition.custom.document_json"])
    await inner.put(CUSTOM_SCHEMA, "quota", schema({"type": "object", "required": ["m"]}))
    assert (await refused(inner.put(CUSTOM, "other", custom("quota", {"n": 1})))).reason == "FIELD_INVALID"
    assert (await inner.put(CUSTOM, "quota", custom("quota", {"m": 1}))).changed
    assert (await refused(inner.roll_back(CUSTOM, "quota", first.revision))).reason == "FIELD_INVALID"
    assert (await acme.put(CUSTOM, "quota", custom("quota", {"n": 1}))).changed


@pytest.mark.rule("C1", "C7")
async def test_a_set_is_held_against_the_schemas_that_it_brings(acme: Caller) -> None:
    files = {
        "custom_schemas/quota.yaml": "schema: {type: object, required: [n]}",
        "custom/a.yaml": "schema: quota\ndocument: {n: 1}",
        "custom/b.yaml": "schema: quota\n\ndocument:\n  m: 1\n",
        "custom/c.yaml": "schema: nowhere\ndocument: 1",
    }
    dry = await acme.apply(files, dry_run=True)
    answer = await acme.apply(files)
    assert [(one.path, one.line) for one in answer.problems] == [("custom/b.yaml", 3), ("custom/c.yaml", 1)]
    assert answer.problems == dry.problems
    assert [change.entity.name for change in answer.changes] == ["a", "quota"]
    files["custom_schemas/quota.yaml"] = "schema: {type: object, required: [m]}"
    answer = await acme.apply(files)
    assert [(one.path, one.line) for one in answer.problems] == [("custom/a.yaml", 2), ("custom/c.yaml", 1)]
    assert (await acme.get(CUSTOM, "a")).definition.custom.document_json == '{"n":1}', "spared"
    del files["custom_schemas/quota.yaml"]
    answer = await acme.apply(files)
    assert [one.path for one in answer.problems] == ["custom/a.yaml", "custom/b.yaml", "custom/c.yaml"]


@pytest.mark.rule("C2")
@pytest.mark.case("B84")
async def test_defaults_merge_over_scopes_and_explain_says_which_field_is_whose(acme: Caller) -> None:
    inner, deep = acme.within(user="u"), acme.within(user="u", project="p")
    await acme.put(DEFAULTS, "default", defined(defaults={"provider": "p", "max_steps": 5, "tools": {"values": ["a"]}}))
    middle = (await inner.put(DEFAULTS, "default", defined(defaults={"max_steps": 7}))).entity
    last = (await deep.put(DEFAULTS, "default", defined(defaults={"tools": {}}))).entity
    found = (await deep.resolve(DEFAULTS, "default")).entity
    assert found.definition == defined(defaults={"provider": "p", "max_steps": 7, "tools": {}})
    assert (found.scope, found.revision) == (last.scope, last.revision)
    assert found.digest not in (last.digest, middle.digest)
    explained = await deep.explain(DEFAULTS, "default")
    assert [list(one.counting_fields) for one in explained.candidates] == [["tools"], ["max_steps"], ["provider"]]
    assert [one.winner for one in explained.candidates] == [True, False, False]
    await inner.put(DEFAULTS, "default", hidden=True)
    assert (await deep.resolve(DEFAULTS, "default")).entity.definition == last.definition
    assert (await refused(inner.resolve(DEFAULTS, "default"))).reason == "ENTITY_NOT_FOUND"
    await inner.delete(DEFAULTS, "default")
    merged = (await inner.resolve(DEFAULTS, "default")).entity.definition
    assert merged.defaults.max_steps == 5


@pytest.mark.rule("C9")
async def test_a_manifest_holds_everything_and_fills_in_defaults(acme: Caller) -> None:
    for type, definition in KINDS[:3]:
        await acme.put(type, "x", definition)
    await acme.put(MCP_SERVER, "other", KINDS[1][1])
    await acme.put(TOOL, "remote", defined(tool={"mcp": {"server": "other"}}))
    await acme.put(PROVIDER, "p", provider())
    given = {"provider": "p", "model": "m", "skills": {"values": ["x"]}, "max_tool_calls": 9}
    await acme.put(DEFAULTS, "default", defined(defaults=given))
    await acme.put(AGENT, "helper", agent("Help.", provider="p", skills=["x"]))
    main = agent("Lead.", tools=["remote"], mcp_servers=["x"], subagents=["helper"], sandbox_profile="x", max_steps=3)
    await acme.put(AGENT, "lead", main)
    manifest = await acme.manifest("lead")
    document = json.loads(manifest.manifest_json)
    body = document["agent"]["definition"]["agent"]
    assert (body["provider"], body["model"], body["skills"], body["max_tool_calls"]) == ("p", "m", ["x"], 9)
    names = {name: [one["name"] for one in document[name]] for name in ("tools", "skills", "mcp_servers")}
    assert names == {"tools": ["remote"], "skills": ["x"], "mcp_servers": ["x", "other"]}
    assert document["sandbox_profile"]["definition"]["sandbox_profile"]["kind"] == "k"
    assert document["defaults"]["name"] == "default"
    (helper,) = document["subagents"]
    assert helper["provider"]["name"] == "p"
    assert "model" not in helper["agent"]["definition"]["agent"], "another provider's model is not taken"
    for type, name, definition in (
        (SKILL, "x", defined(skill={"description": "other"})),
        (SANDBOX_PROFILE, "x", defined(sandbox_profile={"kind": "other"})),
        (MCP_SERVER, "other", defined(mcp_server={"stdio": {"command": "x"}})),
        (AGENT, "helper", agent("Help more.", provider="p")),
        (DEFAULTS, "default", defined(defaults={"provider": "p"})),
    ):
        await acme.put(type, name, definition)
        changed = await acme.manifest("lead")
        assert changed.digest != manifest.digest
        manifest = changed


@pytest.mark.rule("C9")
async def test_a_manifest_names_all_that_does_not_resolve(acme: Caller) -> None:
    await acme.put(AGENT, "a", agent(subagents=["b"], skills=["s"], sandbox_profile="box", defaults="none"))
    await acme.put(AGENT, "b", agent(subagents=["a"], mcp_servers=["m"]))
    details = await refused(acme.manifest("a"))
    assert details.reason == "AGENT_UNRESOLVED"
    unresolved = set(details.metadata["unresolved"].split(", "))
    expected = {"skill s", "sandbox_profile box", "defaults none", "mcp_server m", "agent a (it leads back to itself)"}
    assert unresolved == expected
    for name in ("s", "m", "none", "box"):
        type, definition = next(
            one for one, wanted in zip(KINDS, ("s", "m", "box", "none", "?"), strict=True) if wanted == name
        )
        await acme.put(type, name, definition)
    await acme.put(AGENT, "b", agent(mcp_servers=["m"]))
    assert (await acme.manifest("a")).digest


@pytest.mark.rule("C9")
async def test_an_agent_without_a_provider_gets_the_one_of_smallest_priority(acme: Caller) -> None:
    inner = acme.within(user="u")
    await acme.put(PROVIDER, "plain", provider())
    await inner.put(AGENT, "a", agent())

    async def found() -> str | None:
        document = json.loads((await inner.manifest("a")).manifest_json)
        return document["provider"]["name"] if "provider" in document else None

    assert await found() is None
    await acme.put(PROVIDER, "late", provider(priority=5))
    assert await found() == "late"
    await acme.put(PROVIDER, "b-early", provider(priority=-1))
    await acme.put(PROVIDER, "a-early", provider(priority=-1))
    assert await found() == "a-early"
    await inner.put(PROVIDER, "a-early", provider())
    assert await found() == "b-early", "the narrower one counts whole"
    await inner.put(PROVIDER, "b-early", hidden=True)
    assert await found() == "late"
    await acme.put(DEFAULTS, "default", defined(defaults={"provider": "plain"}))
    assert await found() == "plain"
