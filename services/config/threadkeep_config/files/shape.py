"""Fits a YAML tree to a message of the contract: the fields' names and types, each fault with its path and line.

A field that holds JSON, such as `options_json`, may be written as YAML under its name without `_json`.
"""

from __future__ import annotations

import base64
import re
from dataclasses import dataclass, field
from typing import Any

from google.protobuf.descriptor import Descriptor, FieldDescriptor

from threadkeep.common.v1 import options_pb2
from threadkeep_chassis.canonical import JsonInvalid, exact_text
from threadkeep_chassis.rules import field_rule
from threadkeep_config.files.yaml_tree import Tree

_DURATION = re.compile(r"[0-9]{1,9}(\.[0-9]{1,9})?s\Z")
_INTEGERS = {
    FieldDescriptor.TYPE_INT32: range(-(2**31), 2**31),
    FieldDescriptor.TYPE_INT64: range(-(2**63), 2**63),
}


@dataclass
class Shaped:
    """What became of a tree."""

    lines: dict[str, int] = field(default_factory=dict)
    """The line of each path that the file sets."""
    faults: list[tuple[str, str]] = field(default_factory=list)
    """(path, what is wrong)."""

    def line_of(self, path: str) -> int:
        """The line of a path, or of the nearest thing around it; 0 for the whole file."""
        while path:
            if path in self.lines:
                return self.lines[path]
            cut = max(path.rfind("."), path.rfind("["))
            path = path[:cut] if cut > 0 else ""
        return 0


def shape(tree: Tree, descriptor: Descriptor, path: str, shaped: Shaped) -> dict[str, Any]:
    """The tree as the JSON of a message; lines and faults go into `shaped`. Paths begin with `path`."""
    document: dict[str, Any] = {}
    if not isinstance(tree.value, dict):
        shaped.lines[path] = tree.line
        shaped.faults.append((path, "must be a mapping of names to values"))
        return document
    known = {one.name: one for one in descriptor.fields}
    short = {name.removesuffix("_json"): one for name, one in known.items() if holds_json(one)}
    for name, value in tree.value.items():
        one = known.get(name) or short.get(name)
        shaped.lines[f"{path}.{name}"] = tree.key_lines[name]
        if one is None:
            shaped.faults.append((f"{path}.{name}", "is not a field; the fields are " + ", ".join(sorted(known))))
        elif one.name in document:
            shaped.faults.append((f"{path}.{name}", f"is set twice, the other time as {one.name}"))
        elif value.value is not None:
            inner = f"{path}.{one.name}"
            shaped.lines.setdefault(inner, tree.key_lines[name])
            document[one.name] = (
                _json_text(value, inner, shaped) if name not in known else _value(one, value, inner, shaped)
            )
    return document


def holds_json(one: FieldDescriptor) -> bool:
    """True for a field such as `options_json`."""
    rule = field_rule(one)
    return rule is not None and rule.kind == options_pb2.FIELD_KIND_JSON and one.name.endswith("_json")


def _json_text(tree: Tree, path: str, shaped: Shaped) -> str:
    """The text of a JSON field that was written as YAML."""
    # The field itself stays at the line of its name.
    shaped.lines.update({**dict(tree.lines(path)), path: shaped.lines[path]})
    try:
        return exact_text(tree.plain())
    except JsonInvalid as error:
        shaped.faults.append((path, f"has no JSON form: {error}"))
        return ""


def _value(one: FieldDescriptor, tree: Tree, path: str, shaped: Shaped) -> Any:
    if one.message_type is not None and one.message_type.GetOptions().map_entry:
        return _texts(tree, path, shaped)
    if one.is_repeated:
        if not isinstance(tree.value, list):
            shaped.faults.append((path, "must be a list"))
            return []
        items = []
        for index, item in enumerate(tree.value):
            shaped.lines[f"{path}[{index}]"] = item.line
            items.append(_single(one, item, f"{path}[{index}]", shaped))
        return items
    return _single(one, tree, path, shaped)


def _single(one: FieldDescriptor, tree: Tree, path: str, shaped: Shaped) -> Any:
    value = tree.value
    if one.message_type is not None and one.message_type.full_name == "google.protobuf.Duration":
        if isinstance(value, int | float) and not isinstance(value, bool) and 0 <= value < 10**9:
            value = f"{value:.9f}".rstrip("0").rstrip(".") + "s"
        if isinstance(value, str) and _DURATION.match(value):
            return value
        shaped.faults.append((path, "must be a number of seconds, such as 30 or 1.5s"))
        return "0s"
    if one.message_type is not None:
        only = one.message_type.fields[0]
        if isinstance(value, list) and len(one.message_type.fields) == 1 and only.is_repeated:
            # A message that exists to make a list optional is written as the list.
            inner = f"{path}.{only.name}"
            shaped.lines[inner] = tree.line
            return {only.name: _value(only, tree, inner, shaped)}
        return shape(tree, one.message_type, path, shaped)
    if one.type == FieldDescriptor.TYPE_STRING:
        return _text(tree, path, shaped)
    if one.type == FieldDescriptor.TYPE_BYTES:
        return base64.b64encode(_text(tree, path, shaped).encode()).decode()
    if one.type == FieldDescriptor.TYPE_DOUBLE:
        if isinstance(value, int | float) and not isinstance(value, bool) and abs(value) < 1e300:
            return float(value)
        shaped.faults.append((path, "must be a number"))
        return 0.0
    if one.type == FieldDescriptor.TYPE_BOOL:
        if isinstance(value, bool):
            return value
        shaped.faults.append((path, "must be true or false"))
        return False
    if isinstance(value, int) and not isinstance(value, bool) and value in _INTEGERS[one.type]:
        return value
    shaped.faults.append((path, "must be a whole number"))
    return 0


def _text(tree: Tree, path: str, shaped: Shaped) -> str:
    if isinstance(tree.value, str):
        return tree.value
    shaped.faults.append((path, "must be text; put it into quotes"))
    return ""


def _texts(tree: Tree, path: str, shaped: Shaped) -> dict[str, str]:
    """A map of names to texts."""
    if not isinstance(tree.value, dict):
        shaped.faults.append((path, "must be a mapping of names to texts"))
        return {}
    found = {}
    for name, value in tree.value.items():
        shaped.lines[f"{path}.{name}"] = tree.key_lines[name]
        found[name] = _text(value, f"{path}.{name}", shaped)
    return found
