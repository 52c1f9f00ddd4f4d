"""The contract's method and field rules, read from the descriptors (options.proto)."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from dataclasses import dataclass
from enum import IntEnum

from google.protobuf import descriptor_pool
from google.protobuf.descriptor import FieldDescriptor, MethodDescriptor

from threadkeep.common.v1 import options_pb2


class ContractIncomplete(RuntimeError):
    """A method lacks a rule; the server refuses to start with it."""


class ScopeRule(IntEnum):
    """How a method finds its scope."""

    NONE = options_pb2.SCOPE_RULE_NONE
    ONE = options_pb2.SCOPE_RULE_ONE
    GRANT = options_pb2.SCOPE_RULE_GRANT


@dataclass(frozen=True)
class AdoptedService:
    """A gRPC service of another protocol that is served under threadkeep's rules: scope, limits, checks, errors."""

    scope: ScopeRule
    """How its methods find their scope."""
    domain: str = ""
    """The protocol's domain in ErrorInfo. Its reason is given beside threadkeep's own, which comes first."""
    reasons: Mapping[str, str] = dataclasses.field(default_factory=dict)
    """Its reasons by threadkeep's."""
    codes: Mapping[str, str] = dataclasses.field(default_factory=dict)
    """Its reasons by gRPC code, for what `reasons` does not name."""

    def reason_of(self, code: str, reason: str) -> str | None:
        """The protocol's reason for an error, if it has one."""
        return self.reasons.get(reason) or self.codes.get(code)


@dataclass(frozen=True)
class MethodRule:
    """What the server enforces for one method."""

    name: str
    """`/package.Service/Method`."""
    scope: ScopeRule
    mutation: bool
    descriptor: MethodDescriptor
    request_id_path: tuple[str, ...] = ()
    """Where a mutation's request_id is: ("request_id",), or ("header", "request_id") in a stream's first message."""
    adopted: AdoptedService | None = None
    """The service of another protocol that the method belongs to."""


def method_rule(name: str, adopted: Mapping[str, AdoptedService] | None = None) -> MethodRule | None:
    """The rule of `/package.Service/Method`; None for methods outside threadkeep's packages (health, reflection).

    `adopted` are services outside, by full name, that have rules all the same. Raises ContractIncomplete when a
    threadkeep method declares no scope rule, or is a mutation without request_id.
    """
    service_name, _, method_name = name.lstrip("/").partition("/")
    foreign = (adopted or {}).get(service_name)
    if foreign is not None:
        service = descriptor_pool.Default().FindServiceByName(service_name)
        return MethodRule(name, foreign.scope, False, service.methods_by_name[method_name], adopted=foreign)
    if not service_name.startswith("threadkeep."):
        return None
    try:
        service = descriptor_pool.Default().FindServiceByName(service_name)
    except KeyError as error:
        raise ContractIncomplete(f"no descriptor of {service_name} is loaded") from error
    method = service.methods_by_name[method_name]
    options = method.GetOptions().Extensions[options_pb2.method]
    if options.scope == options_pb2.SCOPE_RULE_UNSPECIFIED:
        raise ContractIncomplete(f"{name} declares no scope rule")
    path: tuple[str, ...] = ()
    if options.mutation:
        found = _request_id_path(method)
        if found is None:
            raise ContractIncomplete(f"{name} is a mutation without request_id")
        path = found
    return MethodRule(name, ScopeRule(options.scope), options.mutation, method, path)


def service_rules(service_name: str) -> dict[str, MethodRule]:
    """The rules of every method of a service, by full method name. Raises ContractIncomplete."""
    service = descriptor_pool.Default().FindServiceByName(service_name)
    rules = {}
    for method in service.methods:
        name = f"/{service_name}/{method.name}"
        rule = method_rule(name)
        if rule is not None:
            rules[name] = rule
    return rules


def field_rule(field: FieldDescriptor) -> options_pb2.FieldRule | None:
    """The field's rule, or None."""
    options = field.GetOptions()
    return options.Extensions[options_pb2.field] if options.HasExtension(options_pb2.field) else None


def _request_id_path(method: MethodDescriptor) -> tuple[str, ...] | None:
    message = method.input_type
    if "request_id" in message.fields_by_name:
        return ("request_id",)
    for field in message.fields:
        inner = field.message_type
        if inner is not None and not field.is_repeated and "request_id" in inner.fields_by_name:
            return (field.name, "request_id")
    return None
