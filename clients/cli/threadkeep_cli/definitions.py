"""Definitions in files: a directory as a set, and one file as a message."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from google.protobuf import json_format

from threadkeep.config.v1 import definition_pb2, entity_pb2
from threadkeep_cli.exits import UsageProblem
from threadkeep_cli.parsing import read_text

_KINDS = {
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
_FOLDERS = (
    *("agents", "tools", "providers", "skills", "mcp_servers", "sandbox_profiles"),
    *("defaults", "custom", "custom_schemas"),
)
_ENDINGS = (".yaml", ".yml", ".md")


def read_set(directory: Path) -> dict[str, bytes]:
    """The definition files of a directory, by path inside it. Raises UsageProblem if it has none of the folders."""
    if not directory.is_dir():
        raise UsageProblem(f"there is no directory {directory}")
    if not any((directory / folder).is_dir() for folder in _FOLDERS):
        raise UsageProblem(f"{directory} has none of the folders {', '.join(_FOLDERS)}")
    found: dict[str, bytes] = {}
    for folder in _FOLDERS:
        for path in sorted((directory / folder).rglob("*")):
            inside = path.relative_to(directory)
            is_hidden = any(part.startswith(".") for part in inside.parts)
            # Skills have files of any kind beside them.
            is_wanted = path.suffix in _ENDINGS or (folder == "skills" and len(inside.parts) > 2)
            if is_wanted and not is_hidden and path.is_file():
                found[inside.as_posix()] = path.read_bytes()
    return found


def read_definition(kind: str, file: str) -> Any:
    """The definition of one entity, from YAML or JSON with the contract's field names.

    A field that holds JSON, such as `options_json`, may be written out under its name without `_json`.
    """
    if kind not in _KINDS:
        raise UsageProblem(f"there is no type {kind}; there are {', '.join(_KINDS)}")
    value = _read(file)
    if not isinstance(value, dict):
        raise UsageProblem(f"{file} holds no definition: it must be a mapping of fields")
    message: Any = _KINDS[kind]()
    _write_out_json(value, message.DESCRIPTOR)
    try:
        json_format.ParseDict(value, message)
    except json_format.ParseError as error:
        raise UsageProblem(f"{file}: {error}") from error
    return message


def _read(file: str) -> Any:
    from ruamel.yaml import YAML
    from ruamel.yaml.error import YAMLError

    try:
        # JSON is YAML.
        return YAML(typ="safe", pure=True).load(read_text(file, "--file"))
    except YAMLError as error:
        raise UsageProblem(f"{file} is no YAML: {error}") from error


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
