"""Definitions in files: a directory as a set, and one file as a message."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from google.protobuf import json_format

from threadkeep.config.v1 import entity_pb2
from threadkeep_cli.exits import UsageProblem
from threadkeep_cli.parsing import read_text

_KINDS = {"provider": entity_pb2.Provider, "tool": entity_pb2.Tool, "agent": entity_pb2.Agent}
_FOLDERS = ("agents", "providers", "tools")
_ENDINGS = (".yaml", ".yml", ".md")

Body = entity_pb2.Provider | entity_pb2.Tool | entity_pb2.Agent


def read_set(directory: Path) -> dict[str, bytes]:
    """The definition files of a directory, by path inside it. Raises UsageProblem if it has none of the folders."""
    if not directory.is_dir():
        raise UsageProblem(f"there is no directory {directory}")
    if not any((directory / folder).is_dir() for folder in _FOLDERS):
        raise UsageProblem(f"{directory} has none of the folders {', '.join(_FOLDERS)}")
    found: dict[str, bytes] = {}
    for folder in _FOLDERS:
        for path in sorted((directory / folder).rglob("*")):
            if path.is_file() and path.suffix in _ENDINGS and not path.name.startswith("."):
                found[path.relative_to(directory).as_posix()] = path.read_bytes()
    return found


def read_definition(kind: str, file: str) -> Body:
    """The definition of one entity, from YAML or JSON with the contract's field names.

    A field that holds JSON, such as `options_json`, may be written out under its name without `_json`.
    """
    if kind not in _KINDS:
        raise UsageProblem(f"there is no type {kind}; there are {', '.join(_KINDS)}")
    value = _read(file)
    if not isinstance(value, dict):
        raise UsageProblem(f"{file} holds no definition: it must be a mapping of fields")
    message = _KINDS[kind]()
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
