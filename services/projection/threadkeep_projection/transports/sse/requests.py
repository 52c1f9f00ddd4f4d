"""What an HTTP request asks for: the same request, scope and grant as over gRPC, from path, headers and parameters.

`EventSource` sets no headers, so everything can be a parameter too. What is given twice is refused, as over gRPC.
"""

from __future__ import annotations

import ipaddress
from collections.abc import Collection
from typing import Any

from starlette.requests import Request

from threadkeep.projection.v1 import stream_service_pb2 as pb
from threadkeep.runtime.v1 import event_pb2
from threadkeep_chassis.errors import FieldInvalid, ScopeRequired
from threadkeep_chassis.rules import MethodRule, method_rule
from threadkeep_chassis.scope import Call, Drain, parse_grant, parse_scope
from threadkeep_chassis.telemetry import Tracing
from threadkeep_chassis.validation import Validator
from threadkeep_projection.transports.sse.frames import read_cursor_text

METHOD = "/threadkeep.projection.v1.StreamService/SubscribeSession"

SCOPE, GRANT = "threadkeep-scope", "threadkeep-grant"
RESUME = "last-event-id"

_IDENTITY = {SCOPE: "scope", GRANT: "grant"}
"""Headers, and the parameters that stand for them."""
_PARAMETERS = ("after", "visibility", "kinds", "committed_only", "until_task_id", "until_run_id")
_BOOLEANS = {"true": True, "1": True, "false": False, "0": False}


class Requests:
    """Reads requests. One per server."""

    def __init__(self, draining: Drain, allowed_hosts: Collection[str] | None) -> None:
        """`allowed_hosts`: names beside those of the loopback that a request may be addressed to; None for any."""
        self._draining = draining
        self._allowed_hosts = allowed_hosts
        self._tracing = Tracing()
        self._validator = Validator()
        rule = method_rule(METHOD)
        assert rule is not None
        self._rule: MethodRule = rule

    def call(self, request: Request, method: str = METHOD) -> Call:
        """The call of a method without its identity: what is logged and answered needs its trace."""
        carried = {name: request.headers[name] for name in ("traceparent", "tracestate") if name in request.headers}
        span, trace = self._tracing.start(method, carried)
        self._tracing.end(span, "OK")
        return Call(method=method, trace=trace, draining=self._draining)

    def identify(self, request: Request, call: Call) -> None:
        """Reads scope and grant. Raises FieldInvalid, ScopeRequired, ScopeForbidden."""
        self._check_host(request)
        scope, grant = (_identity(request, name) for name in (SCOPE, GRANT))
        call.named_scope = None if scope is None else parse_scope(scope, SCOPE)
        call.named_grant = None if grant is None else parse_grant(grant, GRANT)
        if call.named_scope is None:
            raise ScopeRequired()
        call.check()

    def wanted(self, request: Request) -> pb.SubscribeSessionRequest:
        """The request, valid by the contract's rules. Raises FieldInvalid, CursorInvalid."""
        unknown = [name for name in request.query_params if name not in (*_PARAMETERS, *_IDENTITY.values())]
        if unknown:
            raise FieldInvalid(unknown[0][:64], f"is no parameter; there are {', '.join(_PARAMETERS)}, scope and grant")
        asked = pb.SubscribeSessionRequest(session_id=request.path_params["session_id"])
        given = {name: _once(name, request.query_params.getlist(name)) for name in _PARAMETERS if name != "kinds"}
        # What the browser remembers is further than what its address says.
        resume = _once(RESUME, request.headers.getlist(RESUME))
        if resume:
            asked.after = read_cursor_text(resume, RESUME)
        elif given["after"]:
            asked.after = read_cursor_text(given["after"], "after")
        for name in ("until_task_id", "until_run_id"):
            if given[name] is not None:
                setattr(asked, name, given[name])
        if given["visibility"] is not None:
            asked.visibility = _value(event_pb2.Visibility, "VISIBILITY", given["visibility"], "visibility")
        if given["committed_only"] is not None:
            if given["committed_only"] not in _BOOLEANS:
                raise FieldInvalid("committed_only", "is true or false")
            asked.committed_only = _BOOLEANS[given["committed_only"]]
        for listed in request.query_params.getlist("kinds"):
            asked.kinds.extend(_value(pb.StreamKind, "STREAM_KIND", name, "kinds") for name in listed.split(","))
        self._validator.check_request(self._rule, asked)
        return asked

    def _check_host(self, request: Request) -> None:
        """Refuses what a foreign page reaches by a name of its own that leads here: it could read the answers."""
        named = request.headers.get("host")
        if self._allowed_hosts is None or named is None:
            return
        host = named.rpartition(":")[0] if named.rpartition(":")[2].isdigit() else named
        host = host.strip("[]").lower()
        if not _is_loopback(host) and host not in self._allowed_hosts:
            raise FieldInvalid("host", "must be a name of the loopback, or one of the setting http_allowed_hosts")


def _identity(request: Request, header: str) -> bytes | None:
    parameter = _IDENTITY[header]
    values = [value.encode("latin-1") for value in request.headers.getlist(header)]
    values += [value.encode() for value in request.query_params.getlist(parameter)]
    if len(values) > 1:
        raise FieldInvalid(header, "is given once")
    return values[0] if values else None


def _once(name: str, values: list[str]) -> str | None:
    if len(values) > 1:
        raise FieldInvalid(name, "is given once")
    return values[0] if values else None


def _value(enum: Any, prefix: str, name: str, field: str) -> Any:
    known = {value.removeprefix(f"{prefix}_").lower(): number for value, number in enum.items() if number}
    if name not in known:
        raise FieldInvalid(field, f"is one of {', '.join(known)}")
    return known[name]


def _is_loopback(host: str) -> bool:
    if host == "localhost" or host.endswith(".localhost"):
        return True
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return False
