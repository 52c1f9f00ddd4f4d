"""A2A's parts and answers against ours: what comes in reaches models, what goes out is exact, thoughts stay inside."""

import json
from typing import Any

import pytest
from a2a.types import a2a_pb2
from google.protobuf import json_format, struct_pb2
from hypothesis import given
from hypothesis import strategies as st

from threadkeep.common.v1 import payload_pb2
from threadkeep.runtime.v1 import ticket_pb2
from threadkeep_chassis.errors import FieldInvalid
from threadkeep_projection.domain.values import Part
from threadkeep_projection.transports.a2a.answers import answer_of, question_part
from threadkeep_projection.transports.a2a.parts import a2a_parts, content_parts, data_part, file_part, value_of

JSON_VALUES = st.recursive(
    st.none()
    | st.booleans()
    | st.integers(-(2**70), 2**70)
    | st.floats(allow_nan=False, allow_infinity=False)
    | st.text(),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(), inner, max_size=3),
    max_leaves=8,
)


def said(*parts: a2a_pb2.Part | str) -> a2a_pb2.Message:
    made = [part if isinstance(part, a2a_pb2.Part) else a2a_pb2.Part(text=part) for part in parts]
    return a2a_pb2.Message(message_id="m", parts=made)


def data(value: Any) -> a2a_pb2.Part:
    return a2a_pb2.Part(data=json_format.ParseDict(value, struct_pb2.Value()))


@pytest.mark.rule("P6", "X8")
@given(JSON_VALUES)
def test_a_document_leaves_exactly_as_data_or_as_raw_json(value: Any) -> None:
    part = data_part(json.dumps(value))
    assert part.media_type == "application/json"
    if part.WhichOneof("content") == "raw":
        assert json.loads(part.raw) == value
    else:
        assert value_of(part.data, "x") == value


@pytest.mark.rule("P6", "X8")
def test_whole_numbers_beyond_doubles_are_not_rounded() -> None:
    assert json.loads(data_part('{"n": 9007199254740993}').raw) == {"n": 9007199254740993}
    assert data_part('{"n": 9007199254740992}').HasField("data")
    assert data_part("[" * 5000 + "]" * 5000).HasField("raw")


@pytest.mark.rule("P6")
@given(
    st.binary(), st.sampled_from(["image/png", "audio/wav", "video/mp4", "application/pdf", ""]), st.text(max_size=9)
)
def test_files_come_back_as_they_went_in(content: bytes, media_type: str, filename: str) -> None:
    (part,) = content_parts([a2a_pb2.Part(raw=content, media_type=media_type, filename=filename)], "parts")
    (shown,) = a2a_parts([Part(block_json=part.block_json)])
    assert (shown.raw, shown.filename) == (content, filename)
    assert shown.media_type == (media_type or "application/octet-stream")


@pytest.mark.rule("P6")
def test_what_an_agent_thinks_and_calls_stays_its_own() -> None:
    blocks = [
        {"type": "reasoning", "reasoning": "hm"},
        {"type": "tool_use", "id": "1", "name": "f", "input": {}},
        {"type": "image_url", "image_url": {"url": "data:image/png;base64,AAEC"}},
        {"type": "image", "base64": "not base64!", "mime_type": "image/png"},
        {"type": "chart", "points": [1, 2]},
        {"type": "non_standard", "value": {"a": 1}},
        "no object",
    ]
    parts = a2a_parts(
        [Part(text="so"), *(Part(block_json=json.dumps(block)) for block in blocks), Part(block_json="{")]
    )
    assert [part.WhichOneof("content") for part in parts] == ["text", "raw", "data", "data", "data"]
    assert (parts[1].raw, parts[1].media_type) == (b"\x00\x01\x02", "image/png")
    assert value_of(parts[3].data, "x") == {"type": "chart", "points": [1, 2]}
    assert value_of(parts[4].data, "x") == {"a": 1}


@pytest.mark.rule("P6")
def test_content_is_text_or_data_where_it_is_that() -> None:
    assert file_part(b"# hi", "text/markdown").text == "# hi"
    assert file_part(b"\xff", "text/plain").raw == b"\xff"
    assert file_part(b'{"a":1}', "application/json; charset=utf-8").HasField("data")
    assert file_part(b"{", "application/json").raw == b"{"


@pytest.mark.rule("P6", "R10")
def test_an_answer_to_a_ticket_with_decisions_begins_with_one() -> None:
    ticket = ticket_pb2.Ticket(ticket_id="t", allowed_decisions=["approve", "Edit"])
    for message, expected in (
        (said(" APPROVE\n"), ("approve", None)),
        (said("edit", data({"args": [1]})), ("Edit", {"args": [1]})),
        (said(data({"decision": "approve"})), ("approve", None)),
        (said(data({"decision": "Edit", "value": None})), ("Edit", None)),
        (said(data("edit")), ("Edit", None)),
    ):
        answer = answer_of(ticket, message)
        value = json.loads(answer.value_json) if answer.HasField("value_json") else None
        assert (answer.decision, value) == expected
    assert answer_of(ticket, said(data({"decision": "Edit", "value": None}))).value_json == "null"
    for message in (said("no"), said(data({"decision": "approve", "x": 1})), said(data(1)), said()):
        with pytest.raises(FieldInvalid):
            answer_of(ticket, message)


@pytest.mark.rule("P6", "R10")
def test_any_other_answer_is_its_part_or_the_list_of_them() -> None:
    ticket = ticket_pb2.Ticket(ticket_id="t")
    for message, expected in (
        (said("blue"), "blue"),
        (said(""), ""),
        (said(data({"decision": "x"})), {"decision": "x"}),
        (said("a", data(2)), ["a", 2]),
        (said(a2a_pb2.Part(raw=b"x")), {"type": "file", "base64": "eA==", "mime_type": "application/octet-stream"}),
    ):
        answer = answer_of(ticket, message)
        assert not answer.HasField("decision")
        assert json.loads(answer.value_json) == expected


@pytest.mark.rule("P6", "R10")
def test_a_question_says_how_it_may_be_answered() -> None:
    ticket = ticket_pb2.Ticket(
        ticket_id="t",
        kind=ticket_pb2.TICKET_KIND_AUTH,
        prompt=payload_pb2.Payload(content_type="application/json", data=b'"log in"'),
        allowed_decisions=["done"],
        answer_schema_json='{"type":"string"}',
    )
    part = question_part(ticket)
    assert part.text == "log in"
    assert json_format.MessageToDict(part.metadata) == {
        "ticket_id": "t",
        "kind": "auth",
        "allowed_decisions": ["done"],
        "answer_schema_json": '{"type":"string"}',
    }
    assert question_part(ticket_pb2.Ticket(ticket_id="t")).text
