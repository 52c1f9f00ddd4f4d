"""What a definition must be, type by type (C1), beyond the rules that the contract's fields carry themselves.

A definition is the JSON object of its message, with the contract's field names: `{"tool": {"description": ...}}`.
How JSON is read and written, and what a JSON schema is, comes in as an argument.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from threadkeep_chassis.errors import FieldInvalid
from threadkeep_config.domain import secrets
from threadkeep_config.domain.checks import (
    JsonRules,
    Violations,
    check_at_least,
    check_duration,
    check_entry_point,
    check_environment,
    check_filled,
    check_headers,
    check_json,
    check_line,
    check_name,
    check_names,
    check_object_schema,
    check_options,
    check_paths,
    check_reference,
    check_url,
    seconds,
)
from threadkeep_config.domain.values import EntityType

MAX_RETRIES = 10
MAX_LIFETIME_SECONDS = 24 * 3600.0
METHODS = ("GET", "POST", "PUT", "PATCH", "DELETE")
DECISIONS = ("approve", "edit", "reject", "respond")
ROLE_TYPES = ("bedrock", "bedrock_converse")
"""Types of providers that can take on a role."""


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
    check_name(body.get("type", ""), f"{path}type", violations, required=True)
    for field in ("model", "region", "role"):
        check_filled(body.get(field, ""), f"{path}{field}", violations)
    check_url(body.get("endpoint", ""), f"{path}endpoint", violations)
    check_reference(body.get("api_key_reference", ""), f"{path}api_key_reference", violations)
    retries = body.get("max_retries")
    if retries is not None and not 0 <= retries <= MAX_RETRIES:
        violations.append((f"{path}max_retries", f"must be from 0 to {MAX_RETRIES}"))
    check_duration(body.get("timeout"), f"{path}timeout", violations)
    if body.get("role") and body.get("type") not in ROLE_TYPES:
        violations.append((f"{path}role", f"is for providers of type {' and '.join(ROLE_TYPES)}"))
    check_options(body, "options_json", path, rules, violations)


def _check_tool(body: dict[str, Any], path: str, rules: JsonRules, violations: Violations) -> None:
    schema = check_object_schema(body, "args_schema_json", path, rules, violations)
    if "python" in body:
        check_entry_point(body["python"].get("entry_point", ""), f"{path}python.entry_point", violations)
    elif "mcp" in body:
        check_name(body["mcp"].get("server", ""), f"{path}mcp.server", violations, required=True)
        check_name(body["mcp"].get("tool", ""), f"{path}mcp.tool", violations)
    elif "http" in body:
        http = body["http"]
        check_url(http.get("url", ""), f"{path}http.url", violations, required=True)
        if http.get("method", "POST") not in METHODS:
            violations.append((f"{path}http.method", f"must be one of {', '.join(METHODS)}"))
        check_headers(http, f"{path}http.", violations)
        check_duration(http.get("timeout"), f"{path}http.timeout", violations)
        if schema is None and not body.get("args_schema_json"):
            violations.append((f"{path}args_schema_json", "is required for an HTTP endpoint, which can't be asked"))
    else:
        violations.append((f"{path}python", "is required: say how the tool is called, with python, mcp or http"))


def _check_agent(body: dict[str, Any], path: str, rules: JsonRules, violations: Violations) -> None:
    for field in ("provider", "sandbox_profile", "defaults"):
        check_name(body.get(field, ""), f"{path}{field}", violations)
    check_line(body.get("model", ""), f"{path}model", violations)
    for field in ("tools", "skills", "mcp_servers", "subagents"):
        check_names(body.get(field, ()), f"{path}{field}", violations)
    _check_counts(body, path, violations)
    body.update(_checked_middleware(body, f"{path}middleware", "middleware", rules, violations))
    _check_interrupt_rules(body.get("interrupt_rules", ()), f"{path}interrupt_rules", violations)
    check_object_schema(body, "response_schema_json", path, rules, violations)


def _check_skill(body: dict[str, Any], path: str, rules: JsonRules, violations: Violations) -> None:
    if not body.get("description", "").strip():
        violations.append((f"{path}description", "is required: it is how the model knows when to read the skill"))
    check_paths([one.get("path", "") for one in body.get("files", ())], f"{path}files", violations)
    for index, one in enumerate(body.get("files", ())):
        if one.get("path") == "SKILL.md":
            violations.append((f"{path}files[{index}].path", "is the skill itself: its text goes into instructions"))
    violations.extend(secrets.secrets_in(body.get("metadata", {}), f"{path}metadata"))
    check_names(body.get("allowed_tools", ()), f"{path}allowed_tools", violations)


def _check_mcp_server(body: dict[str, Any], path: str, rules: JsonRules, violations: Violations) -> None:
    if "http" in body:
        check_url(body["http"].get("url", ""), f"{path}http.url", violations, required=True)
        check_headers(body["http"], f"{path}http.", violations)
    elif "stdio" in body:
        stdio = body["stdio"]
        check_name(stdio.get("command", ""), f"{path}stdio.command", violations, required=True)
        for index, argument in enumerate(stdio.get("arguments", ())):
            check_filled(argument, f"{path}stdio.arguments[{index}]", violations)
            if secrets.looks_like_a_secret(argument):
                violations.append(
                    (f"{path}stdio.arguments[{index}]", "looks like a secret; put it into the environment")
                )
        check_environment(stdio, f"{path}stdio.", violations)
    else:
        violations.append((f"{path}http", "is required: say how the server is reached, with http or stdio"))
    check_names(body.get("tools", ()), f"{path}tools", violations)
    check_duration(body.get("timeout"), f"{path}timeout", violations)


def _check_sandbox_profile(body: dict[str, Any], path: str, rules: JsonRules, violations: Violations) -> None:
    check_name(body.get("kind", ""), f"{path}kind", violations, required=True)
    check_filled(body.get("image", ""), f"{path}image", violations)
    check_names(body.get("allowed_hosts", ()), f"{path}allowed_hosts", violations)
    cpus = body.get("cpus")
    # JSON has no NaN or Infinity: as texts they are no numbers.
    if cpus is not None and (isinstance(cpus, str) or not cpus > 0):
        violations.append((f"{path}cpus", "must be above 0"))
    memory = body.get("memory_bytes")
    check_at_least(None if memory is None else int(memory), 1, f"{path}memory_bytes", violations)
    lifetime = body.get("lifetime")
    if lifetime is not None and not 1 <= seconds(lifetime) <= MAX_LIFETIME_SECONDS:
        violations.append((f"{path}lifetime", "must be from 1 s to 24 h"))
    check_environment(body, path, violations)
    check_options(body, "options_json", path, rules, violations)


def _check_defaults(body: dict[str, Any], path: str, rules: JsonRules, violations: Violations) -> None:
    for field in ("provider", "model", "sandbox_profile"):
        check_name(body.get(field, "-"), f"{path}{field}", violations, required=True)
    for field in ("tools", "skills", "mcp_servers"):
        check_names(body.get(field, {}).get("values", ()), f"{path}{field}.values", violations)
    _check_counts(body, path, violations)
    if "middleware" in body:
        inner = body["middleware"]
        body["middleware"] = {
            **inner,
            **_checked_middleware(inner, f"{path}middleware.values", "values", rules, violations),
        }
    rules_of = body.get("interrupt_rules", {}).get("values", ())
    _check_interrupt_rules(rules_of, f"{path}interrupt_rules.values", violations)


def _check_custom(body: dict[str, Any], path: str, rules: JsonRules, violations: Violations) -> None:
    check_name(body.get("schema", ""), f"{path}schema", violations, required=True)
    if not body.get("document_json"):
        violations.append((f"{path}document_json", "is required"))
    _, document = check_json(body, "document_json", path, rules, violations)
    violations.extend(secrets.secrets_in(document, f"{path}document_json"))


def _check_custom_schema(body: dict[str, Any], path: str, rules: JsonRules, violations: Violations) -> None:
    if not body.get("schema_json"):
        violations.append((f"{path}schema_json", "is required"))
        return
    is_read, schema = check_json(body, "schema_json", path, rules, violations)
    fault = rules.bounded_schema_fault(schema) if is_read else None
    if fault is not None:
        violations.append((f"{path}schema_json", f"must be a JSON schema (2020-12): {fault}"))


_CHECKS: dict[EntityType, Callable[[dict[str, Any], str, JsonRules, Violations], None]] = {
    EntityType.PROVIDER: _check_provider,
    EntityType.TOOL: _check_tool,
    EntityType.AGENT: _check_agent,
    EntityType.SKILL: _check_skill,
    EntityType.MCP_SERVER: _check_mcp_server,
    EntityType.SANDBOX_PROFILE: _check_sandbox_profile,
    EntityType.DEFAULTS: _check_defaults,
    EntityType.CUSTOM: _check_custom,
    EntityType.CUSTOM_SCHEMA: _check_custom_schema,
}


def _check_counts(body: Mapping[str, Any], path: str, violations: Violations) -> None:
    for field in ("max_steps", "max_model_calls", "max_tool_calls"):
        check_at_least(body.get(field), 1, f"{path}{field}", violations)


def _checked_middleware(
    body: Mapping[str, Any], path: str, field: str, rules: JsonRules, violations: Violations
) -> dict[str, Any]:
    """The list of middleware under `field` with options in normal form; empty if there is none."""
    made = []
    for index, one in enumerate(body.get(field, ())):
        entry, at = dict(one), f"{path}[{index}]."
        if "entry_point" in entry:
            check_entry_point(entry["entry_point"], f"{at}entry_point", violations)
        else:
            check_name(entry.get("name", ""), f"{at}name", violations, required=True)
        check_options(entry, "options_json", at, rules, violations)
        made.append(entry)
    return {field: made} if made else {}


def _check_interrupt_rules(found: Any, path: str, violations: Violations) -> None:
    check_names([one.get("tool", "") for one in found], path, violations)
    for index, one in enumerate(found):
        decisions = one.get("allowed_decisions", ())
        if any(decision not in DECISIONS for decision in decisions) or len(set(decisions)) != len(decisions):
            rule = f"must be some of {', '.join(DECISIONS)}, none twice"
            violations.append((f"{path}[{index}].allowed_decisions", rule))
