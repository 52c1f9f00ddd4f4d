"""What a definition must be (C1): every fault names its field, and no fault quotes a value."""

from typing import Any

import pytest
from google.protobuf import json_format

from threadkeep.config.v1 import entity_pb2
from threadkeep_chassis.errors import FieldInvalid
from threadkeep_config import wire
from threadkeep_config.domain.values import API, EntityType

URL = "https://mcp.example/x"
ENDPOINT = {"http": {"url": URL}, "args_schema_json": "{}"}

FAULTS: list[tuple[str, dict[str, Any], str]] = [
    ("provider", {"type": "openai", "role": "arn:aws:iam::1:role/x"}, "provider.role"),
    ("provider", {"type": "openai", "region": "a\nb"}, "provider.region"),
    ("tool", {"args_schema_json": "{}"}, "tool.python"),
    ("tool", {"mcp": {"tool": "x"}}, "tool.mcp.server"),
    ("tool", {"http": {"url": URL}}, "tool.args_schema_json"),
    ("tool", {"http": {"url": "ftp://x"}, "args_schema_json": "{}"}, "tool.http.url"),
    ("tool", {"http": {"url": "http://u:p@x"}, "args_schema_json": "{}"}, "tool.http.url"),
    ("tool", {"http": {"url": URL, "method": "TRACE"}, "args_schema_json": "{}"}, "tool.http.method"),
    (
        "tool",
        {"http": {"url": URL, "headers": {"X-Api-Key": "SECRET"}}, "args_schema_json": "{}"},
        "tool.http.headers.X-Api-Key",
    ),
    (
        "tool",
        {"http": {"url": URL, "headers": {"x": "Bearer SECRET"}}, "args_schema_json": "{}"},
        "tool.http.headers.x",
    ),
    ("tool", {"http": {"url": URL, "headers": {"a b": "c"}}, "args_schema_json": "{}"}, "tool.http.headers"),
    (
        "tool",
        {"http": {"url": URL, "header_references": {"X-Key": "SECRET"}}, "args_schema_json": "{}"},
        "tool.http.header_references.X-Key",
    ),
    (
        "tool",
        {"http": {"url": URL, "bearer_token_reference": "sk-SECRET"}, "args_schema_json": "{}"},
        "tool.http.bearer_token_reference",
    ),
    ("tool", {"http": {"url": URL, "timeout": "7200s"}, "args_schema_json": "{}"}, "tool.http.timeout"),
    ("agent", {"skills": ["a", "a"]}, "agent.skills[1]"),
    ("agent", {"mcp_servers": [""]}, "agent.mcp_servers[0]"),
    ("agent", {"subagents": ["x", "x"]}, "agent.subagents[1]"),
    ("agent", {"middleware": [{}]}, "agent.middleware[0].name"),
    ("agent", {"middleware": [{"entry_point": "x"}]}, "agent.middleware[0].entry_point"),
    ("agent", {"middleware": [{"name": "x", "options_json": "[]"}]}, "agent.middleware[0].options_json"),
    (
        "agent",
        {"middleware": [{"name": "x", "options_json": '{"api_key":"SECRET"}'}]},
        "agent.middleware[0].options_json.api_key",
    ),
    ("agent", {"response_schema_json": '{"type":"array"}'}, "agent.response_schema_json"),
    ("agent", {"interrupt_rules": [{"tool": "a"}, {"tool": "a"}]}, "agent.interrupt_rules[1]"),
    (
        "agent",
        {"interrupt_rules": [{"tool": "a", "allowed_decisions": ["shout"]}]},
        "agent.interrupt_rules[0].allowed_decisions",
    ),
    ("agent", {"max_model_calls": 0}, "agent.max_model_calls"),
    ("agent", {"max_tool_calls": -1}, "agent.max_tool_calls"),
    ("skill", {"instructions": "x"}, "skill.description"),
    ("skill", {"description": "x", "files": [{"path": "../x"}]}, "skill.files[0].path"),
    ("skill", {"description": "x", "files": [{"path": "/x"}]}, "skill.files[0].path"),
    ("skill", {"description": "x", "files": [{"path": "a"}, {"path": "a"}]}, "skill.files[1].path"),
    ("skill", {"description": "x", "files": [{"path": "SKILL.md"}]}, "skill.files[0].path"),
    ("skill", {"description": "x", "metadata": {"password": "SECRET"}}, "skill.metadata.password"),
    ("mcp_server", {}, "mcp_server.http"),
    ("mcp_server", {"http": {"url": "x"}}, "mcp_server.http.url"),
    ("mcp_server", {"stdio": {}}, "mcp_server.stdio.command"),
    ("mcp_server", {"stdio": {"command": "x", "arguments": ["ghp_SECRET00000"]}}, "mcp_server.stdio.arguments[0]"),
    (
        "mcp_server",
        {"stdio": {"command": "x", "environment": {"API_KEY": "SECRET"}}},
        "mcp_server.stdio.environment.API_KEY",
    ),
    ("mcp_server", {"stdio": {"command": "x", "environment": {"a=b": "c"}}}, "mcp_server.stdio.environment"),
    (
        "mcp_server",
        {"stdio": {"command": "x", "environment_references": {"A": "SECRET"}}},
        "mcp_server.stdio.environment_references.A",
    ),
    ("mcp_server", {"http": {"url": URL}, "tools": ["a", "a"]}, "mcp_server.tools[1]"),
    ("sandbox_profile", {}, "sandbox_profile.kind"),
    ("sandbox_profile", {"kind": "k", "cpus": 0}, "sandbox_profile.cpus"),
    ("sandbox_profile", {"kind": "k", "cpus": "NaN"}, "sandbox_profile.cpus"),
    ("sandbox_profile", {"kind": "k", "memory_bytes": 0}, "sandbox_profile.memory_bytes"),
    ("sandbox_profile", {"kind": "k", "lifetime": "0.5s"}, "sandbox_profile.lifetime"),
    ("sandbox_profile", {"kind": "k", "options_json": '{"token":"SECRET"}'}, "sandbox_profile.options_json.token"),
    ("defaults", {"tools": {"values": ["a", "a"]}}, "defaults.tools.values[1]"),
    ("defaults", {"max_steps": 0}, "defaults.max_steps"),
    ("defaults", {"middleware": {"values": [{}]}}, "defaults.middleware.values[0].name"),
    ("defaults", {"interrupt_rules": {"values": [{"tool": ""}]}}, "defaults.interrupt_rules.values[0]"),
    ("custom", {"document_json": "{}"}, "custom.schema"),
    ("custom", {"schema": "s"}, "custom.document_json"),
    ("custom", {"schema": "s", "document_json": '{"password":"SECRET"}'}, "custom.document_json.password"),
    ("custom_schema", {}, "custom_schema.schema_json"),
    ("custom_schema", {"schema_json": "3"}, "custom_schema.schema_json"),
    ("custom_schema", {"schema_json": "null"}, "custom_schema.schema_json"),
    ("custom_schema", {"schema_json": '{"type":"SECRET"}'}, "custom_schema.schema_json"),
    ("custom_schema", {"schema_json": '{"pattern":"(?=SECRET)"}'}, "custom_schema.schema_json"),
    (
        "custom_schema",
        {"schema_json": '{"$schema":"http://json-schema.org/draft-07/schema"}'},
        "custom_schema.schema_json",
    ),
]

GOOD: list[tuple[str, dict[str, Any]]] = [
    ("provider", {"type": "bedrock", "role": "arn:aws:iam::1:role/x", "region": "eu-west-1", "priority": -1}),
    ("tool", {"mcp": {"server": "files", "tool": "read"}}),
    (
        "tool",
        {
            "http": {"url": URL, "header_references": {"X-Api-Key": "env:KEY"}, "timeout": "1.500s"},
        }
        | {"args_schema_json": "{}"},
    ),
    ("agent", {"skills": ["a"], "mcp_servers": ["m"], "subagents": ["b"], "defaults": "d", "sandbox_profile": "s"}),
    (
        "agent",
        {"middleware": [{"name": "x"}, {"entry_point": "a.b:C", "options_json": '{"n":1}'}], "max_tool_calls": 3},
    ),
    ("agent", {"interrupt_rules": [{"tool": "t", "allowed_decisions": ["approve", "respond"]}]}),
    ("skill", {"description": "d", "files": [{"path": "a/b.py", "content": "AAE="}], "metadata": {"k": "v"}}),
    ("mcp_server", {"http": {"url": URL, "bearer_token_reference": "env:T"}, "tools": ["a"], "timeout": "5s"}),
    ("mcp_server", {"stdio": {"command": "uvx", "arguments": ["x"], "environment": {"A": "b"}}}),
    ("sandbox_profile", {"kind": "k", "cpus": 0.5, "memory_bytes": "9007199254740993", "lifetime": "60s"}),
    ("defaults", {}),
    ("defaults", {"provider": "p", "tools": {}, "middleware": {"values": [{"name": "m"}]}}),
    ("custom", {"schema": "s", "document_json": "[1]"}),
    ("custom_schema", {"schema_json": '{"type":"object"}'}),
    ("custom_schema", {"schema_json": "true"}),
]


def content(kind: str, body: dict[str, Any]) -> Any:
    """The content of a definition."""
    message = json_format.ParseDict({kind: body}, entity_pb2.Definition())
    return wire.content_from(EntityType[kind.upper()], message, API, "")


@pytest.mark.rule("C1", "C8", "X11")
@pytest.mark.parametrize(("kind", "body", "path"), FAULTS, ids=[f"{path}-{n}" for n, (_, _, path) in enumerate(FAULTS)])
def test_a_fault_names_its_field_and_quotes_nothing(kind: str, body: dict[str, Any], path: str) -> None:
    with pytest.raises(FieldInvalid) as caught:
        content(kind, body)
    assert [field for field, _ in caught.value.violations] == [path]
    assert "SECRET" not in str(caught.value.violations)


@pytest.mark.rule("C1")
@pytest.mark.parametrize(("kind", "body"), GOOD, ids=[f"{kind}-{n}" for n, (kind, _) in enumerate(GOOD)])
def test_a_good_definition_comes_back_as_it_went_in(kind: str, body: dict[str, Any]) -> None:
    message = json_format.ParseDict({kind: body}, entity_pb2.Definition())
    stored = content(kind, body).definition
    assert wire.definition_to(wire.definition_of(stored)) == message
    assert wire.content_from(EntityType[kind.upper()], message, API, "").definition == stored


@pytest.mark.rule("C1")
def test_every_type_of_the_contract_is_known() -> None:
    fields = {one.name for one in entity_pb2.Definition.DESCRIPTOR.fields}
    assert {type.field for type in EntityType} == fields
    assert {int(type) for type in EntityType} == set(entity_pb2.EntityType.values()) - {0}
    assert {kind for kind, _ in GOOD} == {kind for kind, _, _ in FAULTS} == fields


@pytest.mark.rule("C1", "X8")
@pytest.mark.case("B02")
@pytest.mark.parametrize("value", ["NaN", "Infinity", "-Infinity", "[NaN]", '{"a":{"b":-Infinity}}'])
def test_what_is_no_json_is_refused_in_every_field_that_holds_json(value: str) -> None:
    document = f'{{"x":{value}}}'
    for kind, body, field in (
        ("provider", {"type": "x", "options_json": document}, "provider.options_json"),
        ("tool", {"python": {"entry_point": "a:b"}, "args_schema_json": document}, "tool.args_schema_json"),
        ("agent", {"response_schema_json": document}, "agent.response_schema_json"),
        ("agent", {"middleware": [{"name": "m", "options_json": document}]}, "agent.middleware[0].options_json"),
        ("sandbox_profile", {"kind": "k", "options_json": document}, "sandbox_profile.options_json"),
        ("custom", {"schema": "s", "document_json": document}, "custom.document_json"),
        ("custom_schema", {"schema_json": document}, "custom_schema.schema_json"),
    ):
        with pytest.raises(FieldInvalid) as caught:
            content(kind, body)
        assert [path for path, _ in caught.value.violations] == [field]
