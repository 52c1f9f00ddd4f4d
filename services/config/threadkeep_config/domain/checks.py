"""The checks that definitions of several types share. Each adds (path, rule) to the violations; none quotes a value."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any
from urllib.parse import parse_qsl, urlsplit

from threadkeep_config.domain import secrets, variables

MAX_SECONDS = 3600.0
MIN_SECONDS = 0.001

Violations = list[tuple[str, str]]

_CONTROL = re.compile("[\x00-\x1f\x7f-\x9f]")
_ENTRY_POINT = re.compile(r"[^\W\d]\w*(\.[^\W\d]\w*)*:[^\W\d]\w*(\.[^\W\d]\w*)*\Z")
_HEADER = re.compile(r"[!#$%&'*+.^_`|~0-9A-Za-z-]+\Z")
_VARIABLE = re.compile(r"[A-Za-z_][A-Za-z0-9_]*\Z")


@dataclass(frozen=True)
class JsonRules:
    """How embedded JSON is treated."""

    parse: Callable[[str], Any]
    """Reads a document strictly. Raises ValueError, whose text continues the sentence `it ...`."""
    normal: Callable[[Any], str]
    """The one text of a value: equal values have equal texts, whatever their keys' order."""
    schema_fault: Callable[[Any], str | None]
    """What is wrong with a JSON schema, or None."""
    bounded_schema_fault: Callable[[Any], str | None]
    """The same of a schema that this server is to hold documents against."""


def check_name(name: str, path: str, violations: Violations, *, required: bool = False) -> None:
    """A name of 1 to 256 characters without control characters; perhaps none."""
    if required and not name:
        violations.append((path, "is required"))
    elif len(name) > 256:
        violations.append((path, "has at most 256 characters"))
    else:
        check_line(name, path, violations)


def check_names(names: Sequence[str], path: str, violations: Violations) -> None:
    """A list of names, none twice."""
    seen: set[str] = set()
    for index, name in enumerate(names):
        check_name(name, f"{path}[{index}]", violations, required=True)
        if name in seen:
            violations.append((f"{path}[{index}]", "must not be named twice"))
        seen.add(name)


def check_line(text: str, path: str, violations: Violations) -> None:
    """Text without control characters."""
    if _CONTROL.search(text):
        violations.append((path, "must not hold control characters"))


def check_filled(text: str, path: str, violations: Violations) -> None:
    """The same of a text into which workers put variables."""
    fault = variables.fault(text)
    if fault is not None:
        violations.append((path, fault))
    else:
        check_line(variables.sample(text), path, violations)


def check_entry_point(text: str, path: str, violations: Violations) -> None:
    """`package.module:attribute`."""
    if not _ENTRY_POINT.match(text):
        violations.append((path, "must have the form package.module:attribute"))


def check_reference(text: str, path: str, violations: Violations) -> None:
    """A reference to a secret, or none (C8)."""
    if text and not secrets.is_reference(text):
        violations.append((path, secrets.REFERENCE_RULE))


def check_url(url: str, path: str, violations: Violations, *, required: bool = False) -> None:
    """An http or https URL without secrets."""
    if not url:
        if required:
            violations.append((path, "is required"))
        return
    fault = variables.fault(url)
    if fault is not None:
        violations.append((path, fault))
        return
    url = variables.sample_url(url)
    try:
        parts = urlsplit(url)
        valid = parts.scheme in ("http", "https") and bool(parts.hostname) and (parts.port is None or parts.port > 0)
    except ValueError:
        valid = False
    if not valid or _CONTROL.search(url) or " " in url:
        violations.append((path, "must be an http or https URL"))
        return
    if parts.username is not None or parts.password is not None:
        violations.append((path, "must not carry a user or a password"))
    if any(
        secrets.names_a_secret(name) or secrets.looks_like_a_secret(value)
        for name, value in parse_qsl(parts.query, keep_blank_values=True)
    ):
        violations.append((path, "must not carry a secret in its query"))


def check_at_least(value: float | None, least: float, path: str, violations: Violations) -> None:
    """A number that is not below `least`; perhaps none."""
    if value is not None and not value >= least:
        violations.append((path, f"must be at least {least}"))


def check_duration(text: str | None, path: str, violations: Violations) -> None:
    """A duration in its JSON form, such as `1.5s`: from 1 ms to 1 h; perhaps none."""
    if text is not None and not MIN_SECONDS <= seconds(text) <= MAX_SECONDS:
        violations.append((path, "must be from 1 ms to 1 h"))


def seconds(duration: str) -> float:
    """The seconds of a duration in its JSON form, such as `1.5s`."""
    return float(duration.removesuffix("s"))


def check_json(
    body: dict[str, Any], field: str, path: str, rules: JsonRules, violations: Violations
) -> tuple[bool, Any]:
    """Puts the field's JSON into normal form; gives (True, its value), or False when there is none, or it is wrong."""
    text = body.get(field, "")
    if not text:
        return False, None
    try:
        value = rules.parse(text)
    except ValueError as error:
        violations.append((path + field, f"must be a JSON document: it {error}"))
        return False, None
    body[field] = rules.normal(value)
    return True, value


def check_json_object(
    body: dict[str, Any], field: str, path: str, rules: JsonRules, violations: Violations
) -> dict[str, Any] | None:
    """The same of a JSON object; None when there is none, or it is wrong."""
    is_read, value = check_json(body, field, path, rules, violations)
    if not is_read:
        return None
    if not isinstance(value, dict):
        violations.append((path + field, "must be a JSON object"))
        return None
    return value


def check_options(body: dict[str, Any], field: str, path: str, rules: JsonRules, violations: Violations) -> None:
    """A JSON object without secrets."""
    options = check_json_object(body, field, path, rules, violations)
    if options is not None:
        violations.extend(secrets.secrets_in(options, path + field))


def check_object_schema(
    body: dict[str, Any], field: str, path: str, rules: JsonRules, violations: Violations
) -> dict[str, Any] | None:
    """A JSON schema of an object."""
    schema = check_json_object(body, field, path, rules, violations)
    if schema is None:
        return None
    fault = rules.schema_fault(schema)
    if fault is not None:
        violations.append((path + field, f"must be a JSON schema: {fault}"))
    elif schema.get("type", "object") != "object":
        violations.append((path + field, "must describe an object"))
    return schema


def check_headers(body: Mapping[str, Any], path: str, violations: Violations) -> None:
    """Plain headers, headers that are references, and a bearer token: none twice, no secrets."""
    _check_pairs(body, ("headers", "header_references"), path, violations, _HEADER, "header", str.lower)
    check_reference(body.get("bearer_token_reference", ""), f"{path}bearer_token_reference", violations)
    names = {name.lower() for field in ("headers", "header_references") for name in body.get(field, {})}
    if body.get("bearer_token_reference") and "authorization" in names:
        violations.append((f"{path}bearer_token_reference", "is set beside another Authorization header"))


def check_environment(body: Mapping[str, Any], path: str, violations: Violations) -> None:
    """Plain environment variables, and those that are references: none twice, no secrets."""
    fields = ("environment", "environment_references")
    _check_pairs(body, fields, path, violations, _VARIABLE, "environment variable", str)


def _check_pairs(
    body: Mapping[str, Any],
    fields: tuple[str, str],
    path: str,
    violations: Violations,
    form: re.Pattern[str],
    kind: str,
    same: Callable[[str], str],
) -> None:
    _, references = fields
    seen: set[str] = set()
    for field in fields:
        for name, value in body.get(field, {}).items():
            at = f"{path}{field}.{name[:64]}"
            if not form.match(name) or len(name) > 256:
                violations.append((f"{path}{field}", f"holds a name that no {kind} can have"))
            elif same(name) in seen:
                violations.append((at, "is set twice"))
            elif field == references:
                check_reference(value or "-", at, violations)
            elif secrets.names_a_secret(name):
                violations.append((at, f"looks like the name of a secret; put a reference into {references}"))
            elif secrets.looks_like_a_secret(value) or secrets.looks_like_a_secret(variables.sample(value)):
                violations.append((at, f"looks like a secret; put a reference into {references}"))
            else:
                check_filled(value, at, violations)
            seen.add(same(name))


def check_paths(paths: Sequence[str], path: str, violations: Violations) -> None:
    """Relative paths with forward slashes, none twice."""
    seen: set[str] = set()
    for index, one in enumerate(paths):
        at = f"{path}[{index}].path"
        if not one or one.startswith("/") or "\\" in one or any(part in ("", ".", "..") for part in one.split("/")):
            violations.append((at, "must be a relative path with forward slashes, without `.` and `..`"))
        elif one in seen:
            violations.append((at, "is there twice"))
        else:
            check_name(one, at, violations)
        seen.add(one)
