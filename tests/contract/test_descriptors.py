"""What every declaration of the contract owes: a method rule, ids that say so, and request_id on every mutation."""

import pytest
from google.protobuf.descriptor import FieldDescriptor

from tests.support.descriptors import FieldPlace, Rpc, fields, messages, rpcs
from threadkeep.common.v1 import options_pb2

EVERY_RPC = pytest.mark.parametrize("rpc", rpcs(), ids=lambda rpc: rpc.name)

# Fields of requests that end like an id and are none, and why.
NOT_IDS = {
    "threadkeep.runtime.v1.PendingWrite.task_id": "LangGraph's own text, which its checkpoints compare with",
    "threadkeep.runtime.v1.PendingWriteName.task_id": "the same text",
    "threadkeep.runtime.v1.LiveObservation.session_id": "the server fills it in",
    "threadkeep.runtime.v1.LiveObservation.task_id": "the server fills it in",
    "threadkeep.runtime.v1.LiveObservation.run_id": "the server fills it in",
}


@pytest.mark.rule("X13")
@EVERY_RPC
def test_every_method_says_how_it_finds_its_scope(rpc: Rpc) -> None:
    assert rpc.rule.scope != options_pb2.SCOPE_RULE_UNSPECIFIED


@pytest.mark.rule("X13")
def test_only_four_methods_take_a_grant_for_a_scope() -> None:
    taking = {rpc.method.name for rpc in rpcs() if rpc.rule.scope == options_pb2.SCOPE_RULE_GRANT}
    assert taking <= {"AcquireRun", "ListEvents", "SubscribeEvents", "Watch"}


@pytest.mark.rule("X3")
@EVERY_RPC
def test_a_mutation_requires_request_id_and_a_read_has_none(rpc: Rpc) -> None:
    places = [place for place in fields(rpc.method.input_type) if place.field.name == "request_id"]
    if not rpc.rule.mutation:
        assert places == []
        return
    assert len(places) == 1, "exactly one request_id, wherever it stands"
    assert places[0].rule.kind == options_pb2.FIELD_KIND_ID
    assert places[0].rule.required


@EVERY_RPC
def test_every_rpc_has_its_own_request_and_response(rpc: Rpc) -> None:
    assert rpc.method.input_type.name == f"{rpc.method.name}Request"
    assert rpc.method.output_type.name == f"{rpc.method.name}Response"


@pytest.mark.rule("X8")
@EVERY_RPC
def test_every_id_in_a_request_is_declared_as_one(rpc: Rpc) -> None:
    undeclared = [
        place.name
        for place in fields(rpc.method.input_type)
        if place.field.type == FieldDescriptor.TYPE_STRING
        and place.field.name.endswith(("_id", "_ids"))
        and place.field.full_name not in NOT_IDS
        and place.rule.kind != options_pb2.FIELD_KIND_ID
    ]
    assert undeclared == []


@pytest.mark.rule("X8")
@EVERY_RPC
def test_an_id_is_required_or_shows_whether_it_is_present(rpc: Rpc) -> None:
    """Without presence, an empty id could not be told from an absent one."""
    unclear = [
        place.name
        for place in fields(rpc.method.input_type)
        if place.rule.kind == options_pb2.FIELD_KIND_ID and not _shows_presence(place)
    ]
    assert unclear == []


def _shows_presence(place: FieldPlace) -> bool:
    return place.rule.required or place.field.is_repeated or place.field.has_presence


@pytest.mark.rule("X8")
def test_every_json_field_says_so() -> None:
    """A field whose name promises JSON is checked as JSON when it comes in."""
    requests = {place.field for rpc in rpcs() for place in fields(rpc.method.input_type)}
    named = [field for field in requests if field.name.endswith("_json") and not field.message_type]
    undeclared = [field.full_name for field in named if FieldPlace((field,)).rule.kind != options_pb2.FIELD_KIND_JSON]
    assert undeclared == []


@pytest.mark.rule("X5")
@EVERY_RPC
def test_a_list_is_paged_or_streamed(rpc: Rpc) -> None:
    if not rpc.method.name.startswith("List") or rpc.method.server_streaming:
        return
    assert {"page_size", "page_token"} <= set(rpc.method.input_type.fields_by_name)
    assert "next_page_token" in rpc.method.output_type.fields_by_name


@pytest.mark.rule("X9")
@EVERY_RPC
def test_what_repeats_in_a_request_has_a_limit(rpc: Rpc) -> None:
    unbounded = [
        place.name for place in fields(rpc.method.input_type) if place.field.is_repeated and not place.rule.max_size
    ]
    assert unbounded == []


@pytest.mark.rule("X12")
def test_enums_start_unspecified() -> None:
    enums = {field.enum_type for message in messages() for field in message.fields if field.enum_type}
    assert [enum.full_name for enum in enums if not enum.values[0].name.endswith("_UNSPECIFIED")] == []
