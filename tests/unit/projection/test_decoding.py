"""Checkpoints become messages by an allow list, and nothing that is stored there runs (P2)."""

import pickle
import sys
from dataclasses import dataclass
from typing import Any

import ormsgpack
import pytest
from langchain_core.messages import (
    AIMessage,
    AIMessageChunk,
    ChatMessage,
    FunctionMessage,
    HumanMessage,
    RemoveMessage,
    SystemMessage,
    ToolMessage,
)
from langgraph.checkpoint.serde.jsonplus import EXT_CONSTRUCTOR_SINGLE_ARG, EXT_METHOD_SINGLE_ARG, JsonPlusSerializer
from langgraph.checkpoint.serde.types import _DeltaSnapshot
from langgraph.graph.message import REMOVE_ALL_MESSAGES

from threadkeep_projection.domain.values import Content, Entry, Part, Removal, ToolCall, Usage
from threadkeep_projection.messages import Undecodable, decode_messages

SERIALIZER = JsonPlusSerializer()


def stored(value: Any) -> tuple[str, bytes]:
    """What LangGraph's serialiser makes of a value."""
    return SERIALIZER.dumps_typed(value)


def contents(*messages: Any) -> list[Content]:
    decoded = decode_messages(*stored(list(messages)))
    assert decoded is not None
    return [entry.content for entry in decoded if isinstance(entry, Entry)]


@pytest.mark.rule("P2")
def test_messages_keep_ids_parts_names_models_and_tokens() -> None:
    decoded = decode_messages(
        *stored(
            [
                SystemMessage("Be brief.", id="s"),
                HumanMessage("Hello", id="h", name="ada"),
                AIMessage(
                    "Hi",
                    id="a",
                    response_metadata={"model_name": "m-1"},
                    usage_metadata={"input_tokens": 3, "output_tokens": 2, "total_tokens": 5},
                ),
            ]
        )
    )
    assert decoded == (
        Entry(Content("SYSTEM", (Part("Be brief."),)), "s"),
        Entry(Content("USER", (Part("Hello"),), name="ada"), "h"),
        Entry(Content("ASSISTANT", (Part("Hi"),), model="m-1", usage=Usage(3, 2, 5)), "a"),
    )


@pytest.mark.rule("P2")
@pytest.mark.case("B103")
def test_a_tool_call_and_its_result_share_the_models_id() -> None:
    call, result = contents(
        AIMessage("", tool_calls=[{"name": "count", "args": {"text": "é", "n": 1.5}, "id": "call_7"}]),
        ToolMessage("3", tool_call_id="call_7", name="count"),
    )
    assert call.tool_calls == (ToolCall("call_7", "count", '{"n":1.5,"text":"é"}'),)
    assert call.parts == ()
    assert (result.role, result.tool_call_id, result.name) == ("TOOL", "call_7", "count")


@pytest.mark.rule("P2")
def test_text_blocks_are_text_and_other_blocks_keep_their_form() -> None:
    (content,) = contents(
        AIMessage(
            [
                {"type": "text", "text": "see"},
                "plain",
                {"type": "image", "data": b"\x00\x01", "score": float("nan"), "nested": {"a": [1, None]}},
            ]
        )
    )
    assert content.parts == (
        Part("see"),
        Part("plain"),
        Part(block_json='{"data":"AAE=","nested":{"a":[1,null]},"score":null,"type":"image"}'),
    )


@pytest.mark.case("B72")
def test_the_text_of_an_interrupt_marker_is_text() -> None:
    (content,) = contents(HumanMessage("__interrupt__"))
    assert content.parts == (Part("__interrupt__"),)


def test_every_message_class_has_its_role() -> None:
    found = contents(
        AIMessageChunk("a"),
        ChatMessage("c", role="assistant"),
        ChatMessage("c", role="moderator"),
        FunctionMessage("f", name="fn"),
    )
    assert [content.role for content in found] == ["ASSISTANT", "ASSISTANT", "UNSPECIFIED", "TOOL"]


def test_tombstones_come_through_as_such() -> None:
    decoded = decode_messages(*stored([RemoveMessage(REMOVE_ALL_MESSAGES), RemoveMessage("m")]))
    assert decoded == (Removal(REMOVE_ALL_MESSAGES, removes_all=True), Removal("m"))


def test_the_forms_that_langchain_coerces_to_messages_are_read_too() -> None:
    found = contents("plain", ("system", "rules"), {"role": "assistant", "content": "yes", "id": "d"})
    assert [(content.role, content.parts) for content in found] == [
        ("USER", (Part("plain"),)),
        ("SYSTEM", (Part("rules"),)),
        ("ASSISTANT", (Part("yes"),)),
    ]


def test_a_snapshot_of_a_delta_channel_is_its_list_and_an_absent_value_is_none() -> None:
    assert decode_messages(*stored(_DeltaSnapshot([HumanMessage("x", id="1")]))) == (
        Entry(Content("USER", (Part("x"),)), "1"),
    )
    assert decode_messages("empty", b"") is None
    assert decode_messages("null", b"") is None


@pytest.mark.parametrize("path", [["langchain", "schema", "messages"], ["langchain_core", "messages", "human"]])
def test_the_json_of_older_versions_is_read_as_data(path: list[str]) -> None:
    import json

    document = [{"lc": 1, "type": "constructor", "id": [*path, "HumanMessage"], "kwargs": {"content": "x", "id": "1"}}]
    assert decode_messages("json", json.dumps(document).encode()) == (Entry(Content("USER", (Part("x"),)), "1"),)


class MyMessage(HumanMessage):
    """A class that no allow list names."""


@dataclass
class Ledger:
    """A value that an application keeps beside a tool's result."""

    total: int


@pytest.mark.rule("P2")
def test_a_class_that_is_not_allowed_makes_the_channel_undecodable() -> None:
    with pytest.raises(Undecodable):
        decode_messages(*stored([HumanMessage("ok"), MyMessage("no")]))


@pytest.mark.rule("P2")
def test_a_foreign_object_beside_the_content_is_no_hindrance() -> None:
    (content,) = contents(ToolMessage("3", tool_call_id="c", artifact=Ledger(3)))
    assert content.parts == (Part("3"),)


@pytest.mark.rule("P2")
@pytest.mark.parametrize(
    ("type_tag", "value"),
    [
        ("msgpack+aes", b"\x00" * 32),
        ("pickle", pickle.dumps([HumanMessage("x")])),
        ("bytes", b"x"),
        ("msgpack", b"\xc1"),
        ("msgpack", b""),
        ("json", b"{"),
        ("json", b"[" * 100_000),
        ("json", b'[{"content": 1}]'),
        ("msgpack", ormsgpack.packb([{"no": "content"}])),
        ("msgpack", ormsgpack.packb([7])),
    ],
)
def test_what_cannot_or_must_not_be_read_is_undecodable_and_nothing_else(type_tag: str, value: bytes) -> None:
    with pytest.raises(Undecodable):
        decode_messages(type_tag, value)


@pytest.mark.rule("P2")
@pytest.mark.parametrize("code", [EXT_CONSTRUCTOR_SINGLE_ARG, EXT_METHOD_SINGLE_ARG])
def test_a_stored_constructor_is_never_called_and_its_module_never_imported(code: int) -> None:
    """`this` prints when it is imported: a harmless stand-in for what an attacker would name."""
    sys.modules.pop("this", None)
    packed = ormsgpack.packb(("this", "s", "argument", "fromisoformat"))
    with pytest.raises(Undecodable):
        decode_messages("msgpack", ormsgpack.packb([ormsgpack.Ext(code, packed)]))
    assert "this" not in sys.modules


def test_lone_surrogates_become_text_that_every_reader_takes() -> None:
    decoded = decode_messages("json", b'["a\\ud800b"]')
    assert decoded == (Entry(Content("USER", (Part("a?b"),))),)
