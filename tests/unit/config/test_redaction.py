"""Secrets that are stored all the same are shown to nobody (C8)."""

import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.unit.config.test_definitions import GOOD, content
from threadkeep.config.v1 import entity_pb2
from threadkeep_config.domain.redaction import HOLDS_ANY, MARK, may_hold_secrets, redacted
from threadkeep_config.domain.secrets import looks_like_a_secret, names_a_secret
from threadkeep_config.wire import definition_of
from threadkeep_config.wire import shown as shown_of

SECRET = "hunter2hunter2"


def shown(kind: str, body: dict[str, Any]) -> dict[str, Any]:
    """A definition's body as it is shown."""
    definition = {kind: body}
    assert may_hold_secrets(definition)
    found: dict[str, Any] = redacted(definition)[kind]
    return found


@pytest.mark.rule("C8", "X11")
@pytest.mark.parametrize(
    ("kind", "body"),
    [
        ("provider", {"type": "x", "api_key_reference": SECRET}),
        ("provider", {"type": "x", "endpoint": f"https://u:{SECRET}@x"}),
        ("provider", {"type": "x", "endpoint": f"https://x?api_key={SECRET}"}),
        ("provider", {"type": "x", "options_json": json.dumps({"a": [{"password": SECRET}]})}),
        ("tool", {"http": {"url": "https://x", "headers": {"Authorization": SECRET}}}),
        ("tool", {"http": {"url": "https://x", "header_references": {"a": SECRET}}}),
        ("tool", {"http": {"url": "https://x", "bearer_token_reference": SECRET}}),
        ("mcp_server", {"stdio": {"command": "x", "environment": {"API_KEY": SECRET}}}),
        ("mcp_server", {"stdio": {"command": "x", "arguments": [f"sk-{SECRET}"]}}),
        ("agent", {"middleware": [{"name": "m", "options_json": json.dumps({"token": SECRET})}]}),
        ("defaults", {"middleware": {"values": [{"name": "m", "options_json": json.dumps({"token": SECRET})}]}}),
        ("custom", {"schema": "s", "document_json": json.dumps([f"Bearer {SECRET}"])}),
        ("skill", {"description": "d", "metadata": {"password": SECRET}}),
    ],
)
def test_what_a_write_would_refuse_is_shown_as_a_mark(kind: str, body: dict[str, Any]) -> None:
    found = json.dumps(shown(kind, body))
    assert SECRET not in found
    assert MARK in found


@pytest.mark.rule("C8")
@pytest.mark.parametrize(("kind", "body"), GOOD, ids=[f"{kind}-{n}" for n, (kind, _) in enumerate(GOOD)])
def test_what_a_write_takes_is_shown_as_it_is(kind: str, body: dict[str, Any]) -> None:
    made = content(kind, body)
    definition = definition_of(made.definition)
    assert redacted(definition) == definition
    assert shown_of(made, definition) is shown_of(made, definition) is definition


@pytest.mark.rule("C8")
def test_numbers_keep_their_form_where_there_is_nothing_to_hide() -> None:
    options = '{"key":1.50,"n":9007199254740993}'
    assert shown("provider", {"type": "x", "options_json": options})["options_json"] == options


@pytest.mark.rule("C8")
@given(st.text(max_size=12), st.text(max_size=12))
def test_what_looks_like_a_secret_is_marked_wherever_it_stands(name: str, value: str) -> None:
    body = {"type": "x", "options_json": json.dumps({name: value}, ensure_ascii=False)}
    if names_a_secret(name) or looks_like_a_secret(value):
        assert MARK in shown("provider", body)["options_json"]


@pytest.mark.rule("C8")
def test_the_glance_overlooks_no_field_of_the_contract() -> None:
    """Whatever field of a definition may hold a secret is one that the glance knows, or lies in one."""
    marks = {"headers", "environment", "metadata", "url", "endpoint", "arguments", "options_json", "document_json"}

    def inner_of(one: Any) -> Any:
        inner = one.message_type
        return inner if inner is not None and not inner.GetOptions().map_entry else None

    def sensitive(descriptor: Any) -> bool:
        return any(
            one.name in marks
            or one.name.endswith(("_reference", "_references"))
            or (
                one.message_type is not None
                and not one.message_type.GetOptions().map_entry
                and sensitive(one.message_type)
            )
            for one in descriptor.fields
        )

    for kind in entity_pb2.Definition.DESCRIPTOR.fields:
        assert kind.message_type is not None
        for one in kind.message_type.fields:
            inner = inner_of(one)
            is_plain = one.name in marks or one.name.endswith(("_reference", "_references"))
            is_sensitive = is_plain or (inner is not None and sensitive(inner))
            assert not is_sensitive or one.name in HOLDS_ANY, f"{kind.name}.{one.name}"
