"""What a definition must be, type by type (C1), beyond the rules that the contract's fields carry themselves.

A definition is the JSON object of its message, with the contract's field names: `{"tool": {"description": ...}}`.
How JSON is read and written, and what a JSON schema is, comes in as an argument.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any
from urllib.parse import parse_qsl, urlsplit

from threadkeep_chassis.errors import FieldInvalid
from threadkeep_config.domain import secrets
from threadkeep_config.domain.values import EntityType

MAX_RETRIES = 10
MAX_TIMEOUT_SECONDS = 3600.0
MIN_TIMEOUT_SECONDS = 0.001

_CONTROL = re.compile("[\x00-\x1f\x7f-\x9f]")
_ENTRY_POINT = re.compile(r"[^\W\d]\w*(\.[^\W\d]\w*)*:[^\W\d]\w*(\.[^\W\d]\w*)*\Z")

Violations = list[tuple[str, str]]


@dataclass(frozen=True)
class JsonRules:
    """How embedded JSON is treated."""

    parse: Callable[[str], Any]
    """Reads a document strictly. Raises ValueError, whose text continues the sentence `it ...`."""
    normal: Callable[[Any], str]
    """The one text of a value: equal values have equal texts, whatever their keys' order."""
    schema_fault: Callable[[Any], str | None]
    """What is wrong with a JSON schema, or None."""


def checked(type: EntityType, definition: Mapping[str, Any], rules: JsonRules, prefix: str = "") -> dict[str, Any]:
    """Returns the definition with its embedded JSON in normal form.

    Raises FieldInvalid with every violation; paths begin with `prefix`, such as `definition.provider.endpoint`.
    """
    body = dict(definition.get(type.field, {}))
    path = f"{prefix}{type.field}."
    violations: Violations = []
    _CHECKS[type](body, path, rules, violations)
    if violations:
        (field, rule), *more = violations
        raise FieldInvalid(field, rule, *more)
    return {type.field: body}


def _check_provider(body: dict[str, Any], path: str, rules: JsonRules, violations: Violations) -> None:
    _check_name(body.get("type", ""), f"{path}type", violations, required=True)
    _check_line(body.get("model", ""), f"{path}model", violations)
    _check_endpoint(body.get("endpoint", ""), f"{path}endpoint", violations)
    reference = body.get("api_key_reference", "")
    if reference and not secrets.is_reference(reference):
        violations.append((f"{path}api_key_reference", secrets.REFERENCE_RULE))
    retries = body.get("max_retries")
    if retries is not None and not 0 <= retries <= MAX_RETRIES:
        violations.append((f"{path}max_retries", f"must be from 0 to {MAX_RETRIES}"))
    timeout = body.get("timeout")
    if timeout is not None and not MIN_TIMEOUT_SECONDS <= _seconds(timeout) <= MAX_TIMEOUT_SECONDS:
        violations.append((f"{path}timeout", "must be from 1 ms to 1 h"))
    options = _check_json_object(body, "options_json", path, rules, violations)
    if options is not None:
        violations.extend(secrets.secrets_in(options, f"{path}options_json"))


def _check_tool(body: dict[str, Any], path: str, rules: JsonRules, violations: Violations) -> None:
    python = body.get("python")
    if python is None:
        violations.append((f"{path}python", "is required: say how the tool is called"))
    elif not _ENTRY_POINT.match(python.get("entry_point", "")):
        violations.append((f"{path}python.entry_point", "must have the form package.module:attribute"))
    schema = _check_json_object(body, "args_schema_json", path, rules, violations)
    if schema is not None:
        fault = rules.schema_fault(schema)
        if fault is not None:
            violations.append((f"{path}args_schema_json", f"must be a JSON schema: {fault}"))
        elif schema.get("type", "object") != "object":
            violations.append((f"{path}args_schema_json", "must describe an object"))


def _check_agent(body: dict[str, Any], path: str, rules: JsonRules, violations: Violations) -> None:
    _check_name(body.get("provider", ""), f"{path}provider", violations)
    _check_line(body.get("model", ""), f"{path}model", violations)
    seen: set[str] = set()
    for index, name in enumerate(body.get("tools", ())):
        _check_name(name, f"{path}tools[{index}]", violations, required=True)
        if name in seen:
            violations.append((f"{path}tools[{index}]", "must not be named twice"))
        seen.add(name)
    steps = body.get("max_steps")
    if steps is not None and steps < 1:
        violations.append((f"{path}max_steps", "must be at least 1"))


_CHECKS: dict[EntityType, Callable[[dict[str, Any], str, JsonRules, Violations], None]] = {
    EntityType.PROVIDER: _check_provider,
    EntityType.TOOL: _check_tool,
    EntityType.AGENT: _check_agent,
}


def _check_name(name: str, path: str, violations: Violations, *, required: bool = False) -> None:
    if required and not name:
        violations.append((path, "is required"))
    elif len(name) > 256:
        violations.append((path, "has at most 256 characters"))
    else:
        _check_line(name, path, violations)


def _check_line(text: str, path: str, violations: Violations) -> None:
    if _CONTROL.search(text):
        violations.append((path, "must not hold control characters"))


def _check_endpoint(endpoint: str, path: str, violations: Violations) -> None:
    if not endpoint:
        return
    try:
        url = urlsplit(endpoint)
        valid = url.scheme in ("http", "https") and bool(url.hostname) and (url.port is None or url.port > 0)
    except ValueError:
        valid = False
    if not valid or _CONTROL.search(endpoint) or " " in endpoint:
        violations.append((path, "must be an http or https URL"))
        return
    if url.username is not None or url.password is not None:
        violations.append((path, "must not carry a user or a password"))
    if any(
        secrets.names_a_secret(name) or secrets.looks_like_a_secret(value)
        for name, value in parse_qsl(url.query, keep_blank_values=True)
    ):
        violations.append((path, "must not carry a secret in its query"))


def _check_json_object(
    body: dict[str, Any], field: str, path: str, rules: JsonRules, violations: Violations
) -> dict[str, Any] | None:
    """Puts the field's JSON into normal form; None when there is none, or it is wrong."""
    text = body.get(field, "")
    if not text:
        return None
    try:
        value = rules.parse(text)
    except ValueError as error:
        violations.append((path + field, f"must be a JSON document: it {error}"))
        return None
    if not isinstance(value, dict):
        violations.append((path + field, "must be a JSON object"))
        return None
    body[field] = rules.normal(value)
    return value


def _seconds(duration: str) -> float:
    """The seconds of a duration in its JSON form, such as `1.5s`."""
    return float(duration.removesuffix("s"))
