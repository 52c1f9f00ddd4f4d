"""State keys: their declarations, and what a commit's commands on them come to (R11).

Values are JSON texts; whether they match a declaration's schema is held against it elsewhere, before the commit.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import datetime
from typing import Any, NamedTuple

from threadkeep_chassis.errors import FailedPrecondition, FieldInvalid, InvalidArgument, LimitExceeded, ThreadkeepError
from threadkeep_runtime.domain.values import Actor


class StateKeyUndeclared(InvalidArgument):
    """The key is not declared in the caller's scope."""

    reason = "STATE_KEY_UNDECLARED"

    def __init__(self, path: str) -> None:
        super().__init__(
            f"{path}: is not declared in this scope; declare it with DeclareStateKeys.",
            violations=[(path, "must be declared in this scope")],
        )


class StateConflict(InvalidArgument):
    """Commands of one commit on one key exclude each other."""

    reason = "STATE_CONFLICT"

    def __init__(self, path: str, rule: str) -> None:
        super().__init__(f"{path}: {rule}", violations=[(path, rule)])


class StateKeyPinned(FailedPrecondition):
    """The key is declared otherwise."""

    reason = "STATE_KEY_PINNED"

    def __init__(self, path: str, rule: str, schema_version: int) -> None:
        super().__init__(f"{path}: {rule}", metadata={"schema_version": str(schema_version)})


class StateDeclarationChanged(ThreadkeepError):
    """The declaration that the commands were held against is no longer the one in force. Stays inside the server."""


@dataclass(frozen=True, slots=True)
class Declaration:
    """A declared key. `lifetime` is RUN or THREAD, `merge` EXCLUSIVE, DISJOINT or COMMUTATIVE."""

    key: str
    lifetime: str
    merge: str
    schema_version: int
    max_value_bytes: int
    schema_json: str | None
    create_time: datetime
    update_time: datetime


class Command(NamedTuple):
    """One change of one key.

    `kind` is `set` (value: JSON text), `entries` (dict), `remove_entries` (sequence of names), `add` (int), `union`
    (list) or `remove`.
    """

    key: str
    kind: str
    value: Any
    path: str
    """Where the request holds it, for errors."""


class Problem(NamedTuple):
    """What a command breaks of the schema that was in force when it was looked at."""

    path: str
    rule: str


class Commands(NamedTuple):
    """A commit's commands, and what was found when they were held against the declarations."""

    commands: tuple[Command, ...] = ()
    versions: Mapping[str, int] = {}
    """By key: the schema version that its commands were held against; a key that is not there was undeclared."""
    problem: Problem | None = None


NO_COMMANDS = Commands()


@dataclass(frozen=True, slots=True)
class StateValue:
    """What a thread holds under a key since a commit; `value` is JSON, or None after a removal."""

    key: str
    version: int
    schema_version: int
    value: bytes | None
    commit_sequence: int
    run_id: str | None
    actor: Actor
    create_time: datetime


class Held(NamedTuple):
    """What a commit needs to know of a key that it names."""

    declaration: Declaration
    newest: StateValue | None


_TAKES = {
    "EXCLUSIVE": ("set", "remove"),
    "DISJOINT": ("entries", "remove_entries", "remove"),
    "COMMUTATIVE": ("add", "union", "remove"),
}
_FIELDS = {
    "set": "set_json",
    "entries": "entries_json",
    "remove_entries": "remove_entries",
    "add": "add",
    "union": "union_json",
    "remove": "remove",
}
ADVICE = "Store the content as an artifact and name it in the value, or declare the key with a larger max_value_bytes."


def declare(known: Declaration | None, wanted: Declaration, path: str) -> Declaration:
    """What is declared after `wanted`: `known` itself if nothing changes. Raises StateKeyPinned."""
    if known is None:
        return wanted
    for field, name in (("lifetime", "scope"), ("merge", "merge")):
        if getattr(known, field) != getattr(wanted, field):
            raise StateKeyPinned(f"{path}.{name}", "is declared otherwise and never changes", known.schema_version)
    same = replace(wanted, create_time=known.create_time, update_time=known.update_time) == known
    if same:
        return known
    if wanted.schema_version <= known.schema_version:
        raise StateKeyPinned(
            f"{path}.schema_version",
            f"must be above {known.schema_version} to change the schema or the size limit",
            known.schema_version,
        )
    return replace(wanted, create_time=known.create_time)


def check_batch(given: Commands, held: Mapping[str, Held], *, with_lease: bool) -> None:
    """Refuses commands that no value could make good.

    Raises StateKeyUndeclared, FieldInvalid, StateConflict, StateDeclarationChanged.
    """
    for command in given.commands:
        if command.key not in held:
            raise StateKeyUndeclared(f"{command.path}.key")
        if given.versions.get(command.key) != held[command.key].declaration.schema_version:
            raise StateDeclarationChanged()
    for command in given.commands:
        declaration = held[command.key].declaration
        if command.kind not in _TAKES[declaration.merge]:
            raise FieldInvalid(
                f"{command.path}.{_FIELDS[command.kind]}",
                f"is no command of a key that is {declaration.merge}; it takes "
                + ", ".join(_FIELDS[kind] for kind in _TAKES[declaration.merge]),
            )
        if declaration.lifetime == "RUN" and not with_lease:
            raise FieldInvalid(f"{command.path}.key", "lives as long as a run, and is written under its lease only")
    for commands in _by_key(given.commands).values():
        _check_conflicts(commands)
    if given.problem is not None:
        raise FieldInvalid(*given.problem)


def _by_key(commands: Sequence[Command]) -> dict[str, list[Command]]:
    found: dict[str, list[Command]] = {}
    for command in commands:
        found.setdefault(command.key, []).append(command)
    return found


def _check_conflicts(commands: Sequence[Command]) -> None:
    removes = [command for command in commands if command.kind == "remove"]
    if removes and len(removes) < len(commands):
        raise StateConflict(f"{removes[0].path}.remove", "goes with no other command on the key in one commit")
    sets = [command for command in commands if command.kind == "set"]
    if len(sets) > 1:
        raise StateConflict(f"{sets[1].path}.set_json", "is the second set of an EXCLUSIVE key in one commit")
    entries: set[str] = set()
    for command in commands:
        if command.kind in ("entries", "remove_entries"):
            for name in command.value:
                if name in entries:
                    raise StateConflict(
                        f"{command.path}.{_FIELDS[command.kind]}", "writes an entry that the commit writes already"
                    )
                entries.add(name)


def new_values(
    given: Commands, held: Mapping[str, Held], *, commit_sequence: int, run_id: str | None, actor: Actor, now: datetime
) -> tuple[StateValue, ...]:
    """The values after the commands, one per key, in the order in which the keys are named first.

    Raises FieldInvalid (an integer to a set, or the other way round), LimitExceeded.
    """
    found = []
    for key, commands in _by_key(given.commands).items():
        declaration, newest = held[key]
        if newest is not None and declaration.lifetime == "RUN" and newest.run_id != run_id:
            newest = None
        value = _merged(commands, None if newest is None else newest.value)
        if value is not None and len(value) > declaration.max_value_bytes:
            raise LimitExceeded("max_value_bytes", declaration.max_value_bytes, len(value), ADVICE)
        version = 1 if newest is None else newest.version + 1
        found.append(StateValue(key, version, declaration.schema_version, value, commit_sequence, run_id, actor, now))
    return tuple(found)


def _merged(commands: Sequence[Command], before: bytes | None) -> bytes | None:
    first = commands[0].kind
    if first == "remove":
        return None
    if first == "set":
        return str(commands[0].value).encode()
    if first in ("entries", "remove_entries"):
        entries: dict[str, Any] = {} if before is None else json.loads(before)
        for command in commands:
            if command.kind == "entries":
                entries.update(command.value)
            else:
                for name in command.value:
                    entries.pop(name, None)
        return _text(dict(sorted(entries.items())))
    return _accumulated(commands, None if before is None else json.loads(before))


def _accumulated(commands: Sequence[Command], value: Any) -> bytes:
    is_set = isinstance(value, list) or (value is None and commands[0].kind == "union")
    for command in commands:
        if (command.kind == "union") != is_set:
            field = f"{command.path}.{_FIELDS[command.kind]}"
            if value is None:
                raise StateConflict(field, "adds to a set and to an integer in one commit")
            raise FieldInvalid(
                field, f"does not go with the key's value, which is {'a set' if is_set else 'an integer'}"
            )
    if not is_set:
        return _text((value or 0) + sum(command.value for command in commands))
    elements = {_identity(element) for element in value or ()}
    for command in commands:
        elements.update(map(_identity, command.value))
    return f"[{','.join(sorted(elements))}]".encode()


def _identity(value: Any) -> str:
    """The same JSON text for the same value: 1 and 1.0 are one number, the order of an object's keys means nothing."""
    return json.dumps(_plain(value), sort_keys=True, ensure_ascii=False, separators=(",", ":"))


def _plain(value: Any) -> Any:
    if isinstance(value, float) and value.is_integer():
        return int(value)
    if isinstance(value, list):
        return [_plain(one) for one in value]
    if isinstance(value, dict):
        return {name: _plain(one) for name, one in value.items()}
    return value


def _text(value: Any) -> bytes:
    return json.dumps(value, ensure_ascii=False, separators=(",", ":")).encode()
