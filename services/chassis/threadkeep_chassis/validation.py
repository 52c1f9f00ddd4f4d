"""Enforces the contract's field rules on every request before a servicer sees it (X8).

Each message type is compiled once into a list of checks. Text without a rule must still be text: NUL is refused in
every string field, because PostgreSQL can't store it and no backend may differ.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import Any, cast

from google.protobuf.descriptor import Descriptor, FieldDescriptor
from google.protobuf.message import Message

from threadkeep.common.v1 import options_pb2
from threadkeep_chassis.canonical import JsonInvalid, parse_json
from threadkeep_chassis.errors import FieldInvalid
from threadkeep_chassis.rules import MethodRule, field_rule

MAX_NAME_CHARACTERS = 256
MAX_VIOLATIONS = 16

Violations = list[tuple[str, str]]
Check = Callable[[Any, str, Violations], None]

_CONTROL = re.compile("[\x00-\x1f\x7f-\x9f]")
_SHA256 = re.compile("[0-9a-f]{64}\\Z")
_PAYLOAD = "threadkeep.common.v1.Payload"
_NANOS = 1_000_000_000
_DURATION_SECONDS = 315_576_000_000
"""What protobuf allows a Duration: about 10,000 years either way."""
_TIMESTAMP_SECONDS = (-62_135_596_800, 253_402_300_799)
"""What protobuf allows a Timestamp: the years 1 to 9999."""
_NO_RULE = options_pb2.FieldRule()


class Validator:
    """Validates messages by the rules in their descriptors."""

    def __init__(self) -> None:
        self._plans: dict[str, list[Check]] = {}

    def check(self, message: Message) -> None:
        """Raises FieldInvalid with every violation (up to 16), each with its path such as `ops[2].checkpoint_id`."""
        violations: Violations = []
        for check in self._plan(_descriptor(message)):
            check(message, "", violations)
        if violations:
            raise _error(violations)

    def check_request(self, rule: MethodRule, message: Message, *, first: bool = True) -> None:
        """Like `check`; a mutation must carry its request_id, in the first message of a stream."""
        violations: Violations = []
        if rule.request_id_path and first:
            found: Any = message
            *parts, name = rule.request_id_path
            for depth, part in enumerate(parts, 1):
                if not found.HasField(part):
                    violations.append((".".join(parts[:depth]), "must come first: it names the request"))
                    break
                found = getattr(found, part)
            else:
                if not getattr(found, name):
                    violations.append((".".join(rule.request_id_path), "is required: every mutation names its request"))
        for check in self._plan(_descriptor(message)):
            check(message, "", violations)
        if violations:
            raise _error(violations)

    def _plan(self, descriptor: Descriptor) -> list[Check]:
        plan = self._plans.get(descriptor.full_name)
        if plan is None:
            plan = self._plans[descriptor.full_name] = []
            if _reaches_checks(descriptor, set()):
                plan.extend(self._compile(descriptor))
        return plan

    def _compile(self, descriptor: Descriptor) -> list[Check]:
        checks: list[Check] = []
        for field in descriptor.fields:
            rule = field_rule(field)
            if rule is not None or _holds_strings(field):
                checks.append(_field_check(field, rule or _NO_RULE))
            inner = _message_type(field)
            if inner is not None and _reaches_checks(inner, set()):
                checks.append(self._nested(field, inner))
        whole = _WHOLE_CHECKS.get(descriptor.full_name)
        if whole is not None:
            checks.append(whole)
        return checks

    def _nested(self, field: FieldDescriptor, inner: Descriptor) -> Check:
        name = field.name
        # The plan is looked up when used: a type may contain itself.
        plan = self._plan(inner)

        def walk(message: Message, path: str, violations: Violations) -> None:
            for check in plan:
                check(message, path, violations)

        if _is_map(field):

            def check_map(message: Message, path: str, violations: Violations) -> None:
                for key, value in getattr(message, name).items():
                    walk(value, f"{path}{name}[{_shown(key)}].", violations)

            return check_map
        if field.is_repeated:

            def check_list(message: Message, path: str, violations: Violations) -> None:
                for index, value in enumerate(getattr(message, name)):
                    walk(value, f"{path}{name}[{index}].", violations)

            return check_list

        def check_one(message: Message, path: str, violations: Violations) -> None:
            if message.HasField(name):
                walk(getattr(message, name), f"{path}{name}.", violations)

        return check_one


def _field_check(field: FieldDescriptor, rule: options_pb2.FieldRule) -> Check:
    name, required, max_size = field.name, rule.required, rule.max_size
    content = _content_check(rule.kind, max_size if not field.is_repeated else 0, is_string=_holds_strings(field))

    if field.is_repeated:
        is_map = _is_map(field)
        # The keys of a map follow its rule as far as names go: JSON and digests are about the values.
        key_kinds = (options_pb2.FIELD_KIND_ID, options_pb2.FIELD_KIND_NAME, options_pb2.FIELD_KIND_UNSPECIFIED)
        checks_keys = is_map and rule.kind in key_kinds and _has_text_keys(field)
        checks_text = _is_text(_map_value(field) if is_map else field)

        def check_many(message: Message, path: str, violations: Violations) -> None:
            values = getattr(message, name)
            count = len(values)
            if required and not count:
                violations.append((path + name, "is required"))
            if max_size and count > max_size:
                violations.append((path + name, f"has at most {max_size} elements, not {count}"))
            elif content is not None and (checks_text or checks_keys):
                pairs = values.items() if is_map else enumerate(values)
                for key, value in pairs:
                    problem = content(key) if checks_keys else None
                    if problem is None and checks_text:
                        problem = content(value)
                    if problem:
                        violations.append((f"{path}{name}[{_shown(key)}]", problem))

        return check_many

    has_presence, is_text, not_negative = field.has_presence, _is_text(field), rule.not_negative

    def check_single(message: Message, path: str, violations: Violations) -> None:
        if has_presence and not message.HasField(name):
            if required:
                violations.append((path + name, "is required"))
            return
        value = getattr(message, name)
        if not is_text:
            if required and not has_presence and not value:
                violations.append((path + name, "is required"))
            elif not_negative and value < 0:
                violations.append((path + name, "must not be negative"))
            return
        if not value and not has_presence:
            if required:
                violations.append((path + name, "is required"))
            return
        if not value and required:
            violations.append((path + name, "must not be empty"))
            return
        problem = content(value) if content is not None else None
        if problem:
            violations.append((path + name, problem))

    return check_single


def _content_check(kind: int, max_size: int, *, is_string: bool) -> Callable[[Any], str | None] | None:
    """What is wrong with a present value, in words, or None."""
    if kind in (options_pb2.FIELD_KIND_ID, options_pb2.FIELD_KIND_NAME):
        most = max_size or MAX_NAME_CHARACTERS

        def check_name(value: Any) -> str | None:
            if not value:
                return "must not be empty"
            if len(value) > most:
                return f"has at most {most} characters, not {len(value)}"
            if isinstance(value, str) and _CONTROL.search(value):
                return "must not hold control characters"
            return None

        return check_name
    if kind == options_pb2.FIELD_KIND_JSON:

        def check_json(value: Any) -> str | None:
            if max_size and len(value) > max_size:
                return f"has at most {max_size} {_unit(value)}, not {len(value)}"
            try:
                parse_json(value)
            except JsonInvalid as error:
                return f"must be a JSON document: it {error}"
            return None

        return check_json
    if kind == options_pb2.FIELD_KIND_SHA256:
        return lambda value: None if _SHA256.match(value) else "must be a SHA-256 in 64 lower-case hexadecimal digits"
    if not max_size and not is_string:
        return None

    def check_text(value: Any) -> str | None:
        if max_size and len(value) > max_size:
            return f"has at most {max_size} {_unit(value)}, not {len(value)}"
        if isinstance(value, str) and "\x00" in value:
            return "must not hold the character NUL"
        return None

    return check_text


def _check_payload(message: Any, path: str, violations: Violations) -> None:
    # Media types are the same in any case, whatever their parameters say.
    if message.content_type.partition(";")[0].strip().lower() == "application/json":
        try:
            parse_json(message.data)
        except JsonInvalid as error:
            violations.append((f"{path}data", f"must be a JSON document: it {error}"))


def _check_duration(message: Any, path: str, violations: Violations) -> None:
    seconds, nanos = message.seconds, message.nanos
    if abs(seconds) > _DURATION_SECONDS or abs(nanos) >= _NANOS or seconds * nanos < 0:
        rule = "must be a normalized duration: nanos below a second and of the sign of seconds, at most 10,000 years"
        violations.append((path.rstrip("."), rule))


def _check_timestamp(message: Any, path: str, violations: Violations) -> None:
    first, last = _TIMESTAMP_SECONDS
    if not first <= message.seconds <= last or not 0 <= message.nanos < _NANOS:
        rule = "must be a normalized time in the years 1 to 9999: nanos from 0 to below a second"
        violations.append((path.rstrip("."), rule))


_WHOLE_CHECKS: dict[str, Check] = {
    _PAYLOAD: _check_payload,
    "google.protobuf.Duration": _check_duration,
    "google.protobuf.Timestamp": _check_timestamp,
}
"""What is checked of a message of these types as a whole, wherever it stands."""


def _reaches_checks(descriptor: Descriptor, seen: set[str]) -> bool:
    if descriptor.full_name in _WHOLE_CHECKS:
        return True
    if descriptor.full_name in seen:
        return False
    seen.add(descriptor.full_name)
    for field in descriptor.fields:
        if field_rule(field) is not None or _holds_strings(field):
            return True
        inner = _message_type(field)
        if inner is not None and _reaches_checks(inner, seen):
            return True
    return False


def _message_type(field: FieldDescriptor) -> Descriptor | None:
    if _is_map(field):
        return _map_value(field).message_type
    return field.message_type


def _is_map(field: FieldDescriptor) -> bool:
    return field.message_type is not None and field.message_type.GetOptions().map_entry


def _holds_strings(field: FieldDescriptor) -> bool:
    if _is_map(field):
        assert field.message_type is not None
        entry = field.message_type.fields_by_name
        return FieldDescriptor.TYPE_STRING in (entry["key"].type, entry["value"].type)
    return field.type == FieldDescriptor.TYPE_STRING


def _has_text_keys(field: FieldDescriptor) -> bool:
    assert field.message_type is not None
    return field.message_type.fields_by_name["key"].type == FieldDescriptor.TYPE_STRING


def _map_value(field: FieldDescriptor) -> FieldDescriptor:
    assert field.message_type is not None
    return field.message_type.fields_by_name["value"]


def _is_text(field: FieldDescriptor) -> bool:
    return field.type in (FieldDescriptor.TYPE_STRING, FieldDescriptor.TYPE_BYTES)


def _descriptor(message: Message) -> Descriptor:
    return cast(Descriptor, message.DESCRIPTOR)


def _unit(value: Any) -> str:
    return "characters" if isinstance(value, str) else "bytes"


def _shown(key: object) -> str:
    """A map key in a path: never long, never with control characters (X11 keeps payloads out of errors)."""
    return _CONTROL.sub("?", str(key))[:32]


def _error(violations: Violations) -> FieldInvalid:
    (field, rule), *more = violations[:MAX_VIOLATIONS]
    return FieldInvalid(field, rule, *more)
