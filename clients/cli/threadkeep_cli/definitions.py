"""Definitions as people write them: one YAML or JSON text as a message, and a message as YAML."""

from __future__ import annotations

import json
from typing import Any

from google.protobuf import json_format

from threadkeep.config.v1 import definition_pb2, entity_pb2
from threadkeep_cli.exits import UsageProblem
from threadkeep_cli.parsing import read_text

_KINDS: dict[str, Any] = {
    "provider": entity_pb2.Provider,
    "tool": entity_pb2.Tool,
    "agent": entity_pb2.Agent,
    "skill": definition_pb2.Skill,
    "mcp_server": definition_pb2.McpServer,
    "sandbox_profile": definition_pb2.SandboxProfile,
    "defaults": definition_pb2.Defaults,
    "custom": definition_pb2.Custom,
    "custom_schema": definition_pb2.CustomSchema,
}


def read_definition(kind: str, file: str) -> Any:
    """The definition of one entity, from YAML or JSON with the contract's field names.

    A field that holds JSON, such as `options_json`, may be written out under its name without `_json`.
    """
    if kind not in _KINDS:
        raise UsageProblem(f"there is no type {kind}; there are {', '.join(_KINDS)}")
    return parse_definition(kind, read_text(file, "--file"), file)


def parse_definition(kind: str, text: str, file: str) -> Any:
    """The same of a text; `file` is where it comes from, for people to read."""
    value = _parse(text, file)
    if not isinstance(value, dict):
        raise UsageProblem(f"{file} holds no definition: it must be a mapping of fields")
    message: Any = _KINDS[kind]()
    _write_out_json(value, message.DESCRIPTOR)
    try:
        json_format.ParseDict(value, message)
    except json_format.ParseError as error:
        raise UsageProblem(f"{file}: {error}") from error
    return message


def to_yaml(message: Any) -> str:
    """The YAML that `parse_definition` makes the message from. JSON fields are written out where that is exact."""
    import io

    from ruamel.yaml import YAML
    from ruamel.yaml.scalarstring import LiteralScalarString

    def readable(value: Any) -> Any:
        if isinstance(value, dict):
            return {name: readable(inner) for name, inner in value.items()}
        if isinstance(value, list):
            return [readable(inner) for inner in value]
        return LiteralScalarString(value) if isinstance(value, str) and "\n" in value else value

    fields = json_format.MessageToDict(message, preserving_proto_field_name=True)
    _open_json(fields, message.DESCRIPTOR)
    yaml = YAML()
    yaml.width = 1_000_000
    out = io.StringIO()
    if fields:
        yaml.dump(readable(fields), out)
    return out.getvalue()


def fields_of(kind: str) -> list[str]:
    """The fields of a type, as YAML has them."""
    return [one.name.removesuffix("_json") for one in _KINDS[kind].DESCRIPTOR.fields]


def _parse(text: str, file: str) -> Any:
    from ruamel.yaml import YAML
    from ruamel.yaml.error import YAMLError

    try:
        # JSON is YAML.
        return YAML(typ="safe", pure=True).load(text)
    except YAMLError as error:
        raise UsageProblem(f"{file} is no YAML: {error}") from error


def _open_json(value: dict[str, Any], descriptor: Any) -> None:
    for field in descriptor.fields:
        inner = value.get(field.name)
        if field.name.endswith("_json") and isinstance(inner, str):
            opened = json.loads(inner)
            if json.dumps(opened, ensure_ascii=False, separators=(",", ":"), sort_keys=True) == inner:
                del value[field.name]
                value[field.name.removesuffix("_json")] = opened
        elif field.message_type is not None and not field.message_type.GetOptions().map_entry:
            for one in inner if isinstance(inner, list) else [inner]:
                if isinstance(one, dict):
                    _open_json(one, field.message_type)


def _write_out_json(value: dict[str, Any], descriptor: Any) -> None:
    for field in descriptor.fields:
        name = field.name.removesuffix("_json")
        if name != field.name and name in value and field.name not in value:
            value[field.name] = json.dumps(value.pop(name), ensure_ascii=False)
        elif field.message_type is not None and not field.message_type.GetOptions().map_entry:
            inner = value.get(field.name)
            for one in inner if isinstance(inner, list) else [inner]:
                if isinstance(one, dict):
                    _write_out_json(one, field.message_type)
