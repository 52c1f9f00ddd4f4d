"""Entities: what is written comes back, in exactly its scope, with revisions that only grow (C1, C4, C5)."""

import asyncio
import hashlib
import json

import grpc
import pytest
import rfc8785
from google.protobuf.json_format import MessageToDict

from tests.support.calls import REPLAY_KEY, SCOPE_KEY, error_details, refused, scope_of
from tests.support.config import AGENT, PROVIDER, TOOL, Caller, agent, config_server_on, provider, tool
from tests.support.databases import Databases
from tests.support.descriptors import fresh_id
from threadkeep.common.v1 import payload_pb2
from threadkeep.config.v1 import config_service_pb2 as pb
from threadkeep.config.v1 import entity_pb2

CODE = grpc.StatusCode


@pytest.mark.rule("C1")
async def test_an_entity_comes_back_as_it_was_put(acme: Caller) -> None:
    definition = provider(
        "openai_compatible",
        model="m-1",
        endpoint="https://models.example:8443/v1?version=2",
        api_key_reference="env:MODEL_KEY",
        max_retries=0,
        timeout={"seconds": 2, "nanos": 500_000_000},
        options_json='{"seed":9007199254740993,"temperature":1.0,"nested":{"b":[1,null,true],"a":"ü\\u0000"}}',
    )
    put = await acme.put(PROVIDER, "größe ß/∞", definition)
    got = await acme.get(PROVIDER, "größe ß/∞")
    assert put.changed
    assert put.entity == got
    assert dict(got.scope.values) == acme.values
    assert got.source.kind == entity_pb2.SOURCE_KIND_API
    assert got.definition.provider.HasField("max_retries")
    kept, sent = got.definition.provider.options_json, definition.provider.options_json
    assert json.loads(kept) == json.loads(sent)
    assert "9007199254740993" in kept
    assert "1.0" in kept, "a float stays a float"
    definition.provider.options_json = kept
    assert got.definition == definition
    assert got.create_time == got.update_time


@pytest.mark.rule("C5")
async def test_the_digest_is_that_of_the_canonical_definition(acme: Caller) -> None:
    entity = (await acme.put(TOOL, "reader", tool(args_schema_json='{"type":"object","properties":{}}'))).entity
    document = MessageToDict(entity.definition, preserving_proto_field_name=True)
    assert entity.digest == hashlib.sha256(rfc8785.dumps(document)).hexdigest()


@pytest.mark.rule("C5", "X8")
async def test_the_same_content_makes_no_revision_whatever_its_keys_order(acme: Caller) -> None:
    first = await acme.put(TOOL, "reader", tool(args_schema_json='{"type":"object","title":"T"}'))
    again = await acme.put(TOOL, "reader", tool(args_schema_json='{ "title": "T", "type": "object" }'))
    other = await acme.put(TOOL, "reader", tool(args_schema_json='{"type":"object","title":"U"}'))
    assert (first.changed, again.changed, other.changed) == (True, False, True)
    assert again.entity == first.entity
    assert other.entity.revision > first.entity.revision
    assert len(await acme.history(TOOL, "reader")) == 2


@pytest.mark.rule("C5")
async def test_deleting_keeps_a_tombstone_and_revisions_only_grow(acme: Caller) -> None:
    put = (await acme.put(AGENT, "writer", agent())).entity
    tombstone = await acme.delete(AGENT, "writer")
    assert tombstone.deleted
    assert tombstone.revision > put.revision
    assert not tombstone.HasField("definition")
    assert (await refused(acme.get(AGENT, "writer"))).reason == "ENTITY_NOT_FOUND"
    assert (await refused(acme.delete(AGENT, "writer"))).reason == "ENTITY_NOT_FOUND"
    back = (await acme.put(AGENT, "writer", agent())).entity
    assert back.revision > tombstone.revision
    assert back.create_time == put.create_time
    history = await acme.history(AGENT, "writer", page_size=1)
    assert [(entity.revision, entity.deleted) for entity in history] == [
        (back.revision, False),
        (tombstone.revision, True),
        (put.revision, False),
    ]


@pytest.mark.rule("X4")
async def test_a_stale_expected_revision_is_refused_with_the_current_one(acme: Caller) -> None:
    first = (await acme.put(AGENT, "writer", agent("1"), expected_revision=0)).entity
    taken = await refused(acme.put(AGENT, "writer", agent("2"), expected_revision=0))
    second = (await acme.put(AGENT, "writer", agent("2"), expected_revision=first.revision)).entity
    for call in (
        acme.put(AGENT, "writer", agent("3"), expected_revision=first.revision),
        acme.put(AGENT, "writer", agent("2"), expected_revision=first.revision),
        acme.delete(AGENT, "writer", expected_revision=first.revision),
        acme.roll_back(AGENT, "writer", first.revision, expected_revision=first.revision),
    ):
        details = await refused(call)
        assert (details.code, details.reason) == (CODE.ABORTED, "REVISION_CONFLICT")
        assert details.metadata["current_revision"] == str(second.revision)
    assert taken.metadata["current_revision"] == str(first.revision)
    assert (await acme.get(AGENT, "writer")).revision == second.revision
    await acme.delete(AGENT, "writer", expected_revision=second.revision)
    gone = await refused(acme.put(AGENT, "writer", agent("3"), expected_revision=second.revision))
    assert gone.metadata["current_revision"] == "0", "what is deleted does not exist"
    assert (await acme.put(AGENT, "writer", agent("3"), expected_revision=0)).changed


@pytest.mark.rule("X4")
async def test_of_many_writers_with_one_expected_revision_one_wins(acme: Caller) -> None:
    first = (await acme.put(AGENT, "writer", agent("0"))).entity
    outcomes = await asyncio.gather(
        *(acme.put(AGENT, "writer", agent(str(n)), expected_revision=first.revision) for n in range(1, 17)),
        return_exceptions=True,
    )
    assert sum(isinstance(outcome, pb.PutEntityResponse) for outcome in outcomes) == 1
    assert {error_details(outcome).reason for outcome in outcomes if isinstance(outcome, grpc.RpcError)} == {
        "REVISION_CONFLICT"
    }
    assert len(await acme.history(AGENT, "writer")) == 2


@pytest.mark.rule("X4")
async def test_creators_at_once_make_one_entity_each_change_a_revision(acme: Caller) -> None:
    await asyncio.gather(*(acme.put(AGENT, "writer", agent(str(n))) for n in range(8)))
    history = await acme.history(AGENT, "writer")
    assert len(history) == 8
    assert len({entity.create_time.ToJsonString() for entity in history}) == 1
    created = await asyncio.gather(
        *(acme.put(AGENT, "other", agent(str(n)), expected_revision=0) for n in range(8)), return_exceptions=True
    )
    assert sum(isinstance(outcome, pb.PutEntityResponse) for outcome in created) == 1


@pytest.mark.rule("C5")
async def test_a_rollback_writes_the_old_content_as_a_new_revision(acme: Caller) -> None:
    first = (await acme.put(AGENT, "writer", agent("1"))).entity
    second = (await acme.put(AGENT, "writer", agent("2"))).entity
    back = await acme.roll_back(AGENT, "writer", first.revision, expected_revision=second.revision)
    assert back.changed
    assert back.entity.digest == first.digest
    assert back.entity.revision > second.revision
    again = await acme.roll_back(AGENT, "writer", first.revision)
    assert not again.changed
    await acme.delete(AGENT, "writer")
    assert (await acme.roll_back(AGENT, "writer", second.revision)).entity.digest == second.digest


@pytest.mark.rule("C5")
async def test_a_rollback_to_where_the_entity_was_not_is_refused(acme: Caller) -> None:
    other = (await acme.put(AGENT, "other", agent())).entity
    first = (await acme.put(AGENT, "writer", agent())).entity
    tombstone = await acme.delete(AGENT, "writer")
    assert (await refused(acme.roll_back(AGENT, "writer", other.revision))).reason == "ENTITY_NOT_FOUND"
    assert (await refused(acme.roll_back(AGENT, "writer", tombstone.revision))).reason == "ENTITY_NOT_FOUND"
    assert (await refused(acme.roll_back(AGENT, "nobody", first.revision))).reason == "ENTITY_NOT_FOUND"
    future = await refused(acme.roll_back(AGENT, "writer", tombstone.revision + 10**6))
    assert "to_revision" in future.violations


@pytest.mark.rule("C5")
async def test_a_diff_names_the_fields_that_changed(acme: Caller) -> None:
    first = (await acme.put(AGENT, "writer", agent("1", tools=["a"], description="d"))).entity
    second = (await acme.put(AGENT, "writer", agent("2", tools=["a", "b"], max_steps=3))).entity
    assert await acme.diff(AGENT, "writer", first.revision) == {
        "agent.description": ('"d"', ""),
        "agent.max_steps": ("", "3"),
        "agent.system_prompt": ('"1"', '"2"'),
        "agent.tools": ('["a"]', '["a","b"]'),
    }
    assert await acme.diff(AGENT, "writer", second.revision) == {}
    await acme.put(AGENT, "another", agent())
    assert await acme.diff(AGENT, "writer", first.revision, second.revision + 1) == await acme.diff(
        AGENT, "writer", first.revision, second.revision
    ), "a revision of another entity stands for the one before it"
    await acme.delete(AGENT, "writer")
    assert set(await acme.diff(AGENT, "writer", second.revision)) == {
        "agent.max_steps",
        "agent.system_prompt",
        "agent.tools",
    }
    assert "to_revision" in (await refused(acme.diff(AGENT, "writer", second.revision, first.revision))).violations


@pytest.mark.rule("C4", "X2")
async def test_a_write_goes_to_exactly_its_scope(acme: Caller, globex: Caller) -> None:
    inner = acme.within(project="p")
    await acme.put(TOOL, "reader", tool("outer"))
    await inner.put(TOOL, "reader", tool("inner"))
    await globex.put(TOOL, "reader", tool("globex"))
    assert (await acme.get(TOOL, "reader")).definition.tool.description == "outer", "an override edits nothing"
    assert (await inner.get(TOOL, "reader")).definition.tool.description == "inner"
    await inner.delete(TOOL, "reader")
    assert (await refused(inner.get(TOOL, "reader"))).reason == "ENTITY_NOT_FOUND", "what is inherited is not there"
    assert (await acme.get(TOOL, "reader")).definition.tool.description == "outer"


@pytest.mark.rule("C4")
async def test_a_narrower_target_is_written_from_the_broader_scope(acme: Caller) -> None:
    target = {**acme.values, "project": "p"}
    put = await acme.put(TOOL, "reader", tool(), target=target)
    assert dict(put.entity.scope.values) == target
    inner = acme.within(project="p")
    assert await inner.get(TOOL, "reader") == put.entity
    assert await acme.get(TOOL, "reader", target) == put.entity
    assert (await refused(acme.get(TOOL, "reader"))).reason == "ENTITY_NOT_FOUND"
    same = await acme.put(TOOL, "own", tool(), target=acme.values)
    assert dict(same.entity.scope.values) == acme.values


@pytest.mark.rule("C4")
@pytest.mark.parametrize("target", [{}, {"tenant": "other"}, {"project": "p"}, {"tenant": "other", "project": "p"}])
async def test_a_broader_or_foreign_target_is_forbidden(acme: Caller, target: dict[str, str]) -> None:
    key = acme.key(TOOL, "reader", target)
    put = pb.PutEntityRequest(request_id=fresh_id(), key=key, definition=tool())
    delete = pb.DeleteEntityRequest(request_id=fresh_id(), key=key)
    roll_back = pb.RollbackRequest(request_id=fresh_id(), key=key, to_revision=1)
    for call in (
        acme.stub.PutEntity(put, metadata=acme.metadata),
        acme.stub.DeleteEntity(delete, metadata=acme.metadata),
        acme.stub.Rollback(roll_back, metadata=acme.metadata),
        acme.stub.GetEntity(pb.GetEntityRequest(key=key), metadata=acme.metadata),
        acme.stub.ListRevisions(pb.ListRevisionsRequest(key=key), metadata=acme.metadata),
        acme.stub.DiffRevisions(pb.DiffRevisionsRequest(key=key, from_revision=1), metadata=acme.metadata),
    ):
        details = await refused(call)
        assert (details.code, details.reason) == (CODE.PERMISSION_DENIED, "SCOPE_FORBIDDEN")


@pytest.mark.rule("C4", "X1")
@pytest.mark.case("B37")
@pytest.mark.parametrize(
    "target", [{"a') OR 1=1 --": "1"}, {"Tenant": "a"}, {"tenant": ""}, {"tenant": "a\x00"}, {"tenant": "a" * 257}]
)
async def test_a_target_that_is_no_scope_is_refused(acme: Caller, target: dict[str, str]) -> None:
    details = await refused(acme.put(TOOL, "reader", tool(), target=target))
    assert (details.code, details.reason) == (CODE.INVALID_ARGUMENT, "FIELD_INVALID")
    (field,) = details.violations
    assert field.startswith("key.target_scope")


@pytest.mark.rule("X3")
async def test_a_replay_gives_the_first_answer_and_other_content_is_refused(acme: Caller) -> None:
    request = pb.PutEntityRequest(request_id=fresh_id(), key=acme.key(AGENT, "writer"), definition=agent("1"))
    first = await acme.stub.PutEntity(request, metadata=acme.metadata)
    await acme.put(AGENT, "writer", agent("2"))
    call = acme.stub.PutEntity(request, metadata=acme.metadata)
    assert await call == first
    assert (REPLAY_KEY, "1") in tuple(await call.trailing_metadata())
    assert (await acme.get(AGENT, "writer")).definition.agent.system_prompt == "2", "a replay writes nothing"
    request.definition.agent.system_prompt = "3"
    details = await refused(acme.stub.PutEntity(request, metadata=acme.metadata))
    assert (details.code, details.reason) == (CODE.ALREADY_EXISTS, "REQUEST_ID_REUSED")


@pytest.mark.rule("X3")
async def test_a_refused_mutation_leaves_no_receipt(acme: Caller) -> None:
    request = pb.PutEntityRequest(
        request_id=fresh_id(), key=acme.key(AGENT, "writer"), definition=agent(), expected_revision=7
    )
    assert (await refused(acme.stub.PutEntity(request, metadata=acme.metadata))).reason == "REVISION_CONFLICT"
    request.expected_revision = 0
    assert (await acme.stub.PutEntity(request, metadata=acme.metadata)).changed


@pytest.mark.rule("X2", "X13", "C2")
async def test_the_empty_scope_needs_its_grant_and_is_the_fallback(databases: Databases, backend: str) -> None:
    async with config_server_on(databases, backend) as server:
        acme = server.caller()
        root = acme.elsewhere({})
        entity = (await root.put(TOOL, "x", tool("everywhere"))).entity
        assert dict(entity.scope.values) == {}
        assert await root.get(TOOL, "x") == entity
        assert (await acme.resolve(TOOL, "x")).entity == entity
        assert (await refused(acme.get(TOOL, "x"))).reason == "ENTITY_NOT_FOUND"
        request = pb.GetEntityRequest(key=root.key(TOOL, "x"))
        ungranted = await refused(root.stub.GetEntity(request, metadata=((SCOPE_KEY, b"{}"),)))
        assert ungranted.reason == "SCOPE_FORBIDDEN"
        assert (await refused(root.stub.GetEntity(request))).reason == "SCOPE_REQUIRED"


@pytest.mark.rule("C1")
@pytest.mark.parametrize(
    ("type", "definition", "field"),
    [
        (PROVIDER, entity_pb2.Definition(provider=entity_pb2.Provider()), "definition.provider.type"),
        (PROVIDER, provider(endpoint="ftp://x"), "definition.provider.endpoint"),
        (PROVIDER, provider(endpoint="https://user:pw@x"), "definition.provider.endpoint"),
        (PROVIDER, provider(max_retries=11), "definition.provider.max_retries"),
        (PROVIDER, provider(timeout={"seconds": 3601}), "definition.provider.timeout"),
        (PROVIDER, provider(timeout={"seconds": 10**15}), "definition.provider.timeout"),
        (PROVIDER, provider(timeout={"seconds": 0}), "definition.provider.timeout"),
        (PROVIDER, provider(options_json="[]"), "definition.provider.options_json"),
        (PROVIDER, provider(options_json='{"a":NaN}'), "definition.provider.options_json"),
        (TOOL, entity_pb2.Definition(tool=entity_pb2.Tool()), "definition.tool.python"),
        (TOOL, tool(entry_point="os.system"), "definition.tool.python.entry_point"),
        (TOOL, tool(args_schema_json='{"type":"objekt"}'), "definition.tool.args_schema_json"),
        (TOOL, tool(args_schema_json='{"type":"array"}'), "definition.tool.args_schema_json"),
        (AGENT, agent(tools=["a", "b", "a"]), "definition.agent.tools[2]"),
        (AGENT, agent(tools=["a\n"]), "definition.agent.tools[0]"),
        (AGENT, agent(max_steps=0), "definition.agent.max_steps"),
        (AGENT, tool(), "definition"),
        (AGENT, entity_pb2.Definition(), "definition"),
        (AGENT, None, "definition"),
        (99, agent(), "key.type"),
        (0, agent(), "key.type"),
    ],
)
async def test_a_definition_that_breaks_a_rule_is_refused_naming_the_field(
    acme: Caller, type: int, definition: entity_pb2.Definition | None, field: str
) -> None:
    details = await refused(acme.put(type, "x", definition))
    assert (details.code, details.reason) == (CODE.INVALID_ARGUMENT, "FIELD_INVALID")
    assert list(details.violations) == [field]
    assert await acme.list_all() == []


@pytest.mark.rule("C1", "C2")
async def test_a_hidden_entity_has_no_definition(acme: Caller) -> None:
    both = await refused(acme.put(TOOL, "x", tool(), hidden=True))
    assert "definition" in both.violations
    entity = (await acme.put(TOOL, "x", hidden=True)).entity
    assert entity.hidden
    assert not entity.HasField("definition")
    assert entity.digest == ""


@pytest.mark.rule("X2", "X8")
@pytest.mark.case("B12")
async def test_no_character_of_a_name_or_scope_is_a_wildcard(acme: Caller) -> None:
    names = ["john-doe", "john_doe", "johnXdoe", "john%", "john\\", "john*", "JOHN_DOE", "john_doe ", "'; DROP TABLE x"]
    for name in names:
        await acme.put(TOOL, name, tool(name))
    for name in names:
        assert (await acme.get(TOOL, name)).definition.tool.description == name
        assert (await acme.resolve(TOOL, name)).entity.definition.tool.description == name
    for absent in ("%", "_", "john", "john\\_doe", "j%", ""):
        details = await refused(acme.resolve(TOOL, absent))
        assert details.reason == ("ENTITY_NOT_FOUND" if absent else "FIELD_INVALID")
    await acme.within(project="a_b").put(TOOL, "scoped", tool())
    for project in ("aXb", "%", "a%", "a\\_b"):
        assert (await refused(acme.within(project=project).resolve(TOOL, "scoped"))).reason == "ENTITY_NOT_FOUND"


@pytest.mark.rule("X1")
@pytest.mark.case("B37")
async def test_a_scope_key_that_is_sql_is_refused(acme: Caller) -> None:
    request = pb.ResolveRequest(type=TOOL, name="x")
    details = await refused(acme.stub.Resolve(request, metadata=scope_of({"a') OR 1=1 --": "1"})))
    assert (details.code, details.reason) == (CODE.INVALID_ARGUMENT, "FIELD_INVALID")


@pytest.mark.rule("X2")
async def test_what_another_scope_has_answers_like_what_never_was(acme: Caller, globex: Caller) -> None:
    entity = (await globex.put(AGENT, "theirs", agent())).entity
    key = payload_pb2.Scope(values=globex.values)
    assert key.values
    for name in ("theirs", "nobody"):
        for call in (
            acme.get(AGENT, name),
            acme.delete(AGENT, name),
            acme.resolve(AGENT, name),
            acme.history(AGENT, name),
            acme.diff(AGENT, name, entity.revision),
            acme.roll_back(AGENT, name, entity.revision),
        ):
            details = await refused(call)
            assert (details.code, details.reason, details.metadata) == (CODE.NOT_FOUND, "ENTITY_NOT_FOUND", {})
            assert name not in details.message
    assert (await acme.explain(AGENT, "theirs")).candidates == []
    assert (await globex.get(AGENT, "theirs")) == entity
