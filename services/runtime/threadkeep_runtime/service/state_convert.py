"""State keys between messages and domain values, and what commands break of a key's schema (R11)."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from datetime import datetime
from typing import Any

from threadkeep.runtime.v1 import state_pb2
from threadkeep_chassis.bounded_schemas import one_budget
from threadkeep_chassis.canonical import parse_json
from threadkeep_chassis.errors import FieldInvalid
from threadkeep_chassis.limits import Limits
from threadkeep_runtime.domain.state import Command, Declaration, Problem, StateValue
from threadkeep_runtime.service.answers import breach, schema_problem
from threadkeep_runtime.service.parse import enum_name
from threadkeep_runtime.service.render import actor_to_proto


def commands_of(messages: Sequence[state_pb2.StateCommand], path: str) -> tuple[Command, ...]:
    """A commit's commands. Raises FieldInvalid."""
    return tuple(_command_of(message, f"{path}[{index}]") for index, message in enumerate(messages))


def _command_of(message: state_pb2.StateCommand, path: str) -> Command:
    which = message.WhichOneof("command")
    if which is None:
        raise FieldInvalid(path, "needs a command")
    if which == "set_json":
        return Command(message.key, "set", message.set_json, path)
    if which == "entries_json":
        entries = parse_json(message.entries_json)
        if not isinstance(entries, dict):
            raise FieldInvalid(f"{path}.entries_json", "must be a JSON object")
        return Command(message.key, "entries", entries, path)
    if which == "remove_entries":
        return Command(message.key, "remove_entries", tuple(dict.fromkeys(message.remove_entries.names)), path)
    if which == "add":
        return Command(message.key, "add", message.add, path)
    if which == "union_json":
        elements = parse_json(message.union_json)
        if not isinstance(elements, list):
            raise FieldInvalid(f"{path}.union_json", "must be a JSON array")
        return Command(message.key, "union", elements, path)
    return Command(message.key, "remove", None, path)


def declarations_of(
    messages: Sequence[state_pb2.StateKeyDeclaration], now: datetime, limits: Limits, default_bytes: int
) -> list[Declaration]:
    """What is to be declared, with the defaults filled in. Raises FieldInvalid, LimitExceeded."""
    seen: set[str] = set()
    found = []
    for index, message in enumerate(messages):
        path = f"declarations[{index}]"
        if message.key in seen:
            raise FieldInvalid(f"{path}.key", "must be different in each declaration")
        seen.add(message.key)
        lifetime = enum_name(state_pb2.StateScope, message.scope, "STATE_SCOPE_", f"{path}.scope")
        merge = enum_name(state_pb2.StateMerge, message.merge, "STATE_MERGE_", f"{path}.merge")
        if lifetime == "UNSPECIFIED":
            raise FieldInvalid(f"{path}.scope", "is required")
        if merge == "UNSPECIFIED":
            raise FieldInvalid(f"{path}.merge", "is required")
        limits.check("max_state_value_bytes", message.max_value_bytes)
        schema = message.schema_json if message.HasField("schema_json") else None
        if schema is not None:
            limits.check("max_state_schema_bytes", len(schema.encode()))
            if (problem := schema_problem(schema)) is not None:
                raise FieldInvalid(f"{path}.schema_json", problem)
        size = message.max_value_bytes or min(default_bytes, limits["max_state_value_bytes"])
        found.append(Declaration(message.key, lifetime, merge, message.schema_version or 1, size, schema, now, now))
    return found


def declaration_to_proto(declaration: Declaration) -> state_pb2.StateKey:
    """A declared key."""
    return state_pb2.StateKey(
        declaration=state_pb2.StateKeyDeclaration(
            key=declaration.key,
            scope=f"STATE_SCOPE_{declaration.lifetime}",  # type: ignore[arg-type]
            merge=f"STATE_MERGE_{declaration.merge}",  # type: ignore[arg-type]
            schema_version=declaration.schema_version,
            max_value_bytes=declaration.max_value_bytes,
            schema_json=declaration.schema_json,
        ),
        create_time=declaration.create_time,  # type: ignore[arg-type]
        update_time=declaration.update_time,  # type: ignore[arg-type]
    )


def value_to_proto(value: StateValue) -> state_pb2.StateValue:
    """A key's value."""
    return state_pb2.StateValue(
        key=value.key,
        value_json=(value.value or b"").decode(),
        version=value.version,
        schema_version=value.schema_version,
        commit_sequence=value.commit_sequence,
        actor=actor_to_proto(value.actor),
        run_id=value.run_id,
        update_time=value.create_time,  # type: ignore[arg-type]
    )


def check_state(pairs: Sequence[tuple[Declaration, Command]]) -> Problem | None:
    """What the first of a commit's commands breaks of its key's schema, or None. All of them share one budget.

    The rule never quotes the value (X11).
    """
    with one_budget():
        for declaration, command in pairs:
            if declaration.schema_json is None:
                continue
            schema = parse_json(declaration.schema_json)
            for field, value in _brought(command):
                rule = breach(schema, value, "the key's schema")
                if rule is not None:
                    return Problem(f"{command.path}.{field}", rule)
    return None


def _brought(command: Command) -> Iterator[tuple[str, Any]]:
    """What a command brings, each with the field that holds it."""
    if command.kind == "set":
        yield "set_json", parse_json(command.value)
    elif command.kind == "entries":
        yield from (("entries_json", value) for value in command.value.values())
    elif command.kind == "add":
        yield "add", command.value
    elif command.kind == "union":
        yield from (("union_json", value) for value in command.value)
