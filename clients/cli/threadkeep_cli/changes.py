"""Changes of definitions for people to read: field by field, texts line by line."""

from __future__ import annotations

import difflib
import json
from collections.abc import Iterable, Iterator

from threadkeep.config.v1 import entity_pb2, set_pb2
from threadkeep_cli.output import short_name

_MARKS = {
    set_pb2.SET_ACTION_CREATED: "+",
    set_pb2.SET_ACTION_UPDATED: "~",
    set_pb2.SET_ACTION_DELETED: "-",
    set_pb2.SET_ACTION_SHADOWED: "!",
}


def set_lines(changes: Iterable[set_pb2.SetChange]) -> Iterator[str]:
    """What becomes of a set; fields only of what is updated."""
    for change in changes:
        action = short_name(set_pb2.SetAction.Name(change.action))
        kind = short_name(entity_pb2.EntityType.Name(change.entity.type))
        yield f"{_MARKS.get(change.action, ' ')} {action:<10} {kind} {change.entity.name}"
        if change.action == set_pb2.SET_ACTION_UPDATED:
            yield from field_lines(change.fields, "    ")
            if change.fields_left_out:
                yield "    ... and more than fits into an answer"


def field_lines(fields: Iterable[entity_pb2.FieldChange], indent: str = "") -> Iterator[str]:
    """The fields with their values before (`-`) and after (`+`)."""
    for field in fields:
        yield f"{indent}{field.path}"
        old = _lines(field.old_json) if field.HasField("old_json") else []
        new = _lines(field.new_json) if field.HasField("new_json") else []
        for line in difflib.unified_diff(old, new, lineterm="", n=2):
            if not line.startswith(("---", "+++")):
                yield f"{indent}  {line}"


def _lines(text: str) -> list[str]:
    value = json.loads(text)
    if isinstance(value, str):
        inner = _json(value)
        value = inner if inner is not None else value
    return (
        value.splitlines() or [""]
        if isinstance(value, str)
        else json.dumps(value, ensure_ascii=False, indent=2, sort_keys=True).splitlines()
    )


def _json(text: str) -> object:
    """The object or list that a text holds as JSON (as `options_json` does), or None."""
    if not text.startswith(("{", "[")):
        return None
    try:
        return json.loads(text)
    except ValueError:
        return None
