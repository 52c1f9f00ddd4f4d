"""Call metadata and error details, as every client sends and reads them.

Scopes and grants are UTF-8 JSON in binary metadata; errors are google.rpc.Status with ErrorInfo and BadRequest.
"""

import json
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field, fields
from typing import Any

import grpc
import pytest
from google.rpc import error_details_pb2, status_pb2

SCOPE_KEY = "threadkeep-scope-bin"
GRANT_KEY = "threadkeep-grant-bin"
REPLAY_KEY = "threadkeep-replay"
STATUS_KEY = "grpc-status-details-bin"

Metadata = tuple[tuple[str, str | bytes], ...]


def scope(**values: str) -> Metadata:
    """Metadata of a call in one scope: `scope(tenant="acme")`. Without values it is the empty scope with its grant."""
    named = ((SCOPE_KEY, _json(values)),)
    return named if values else named + grant_all()


def scope_of(values: Mapping[str, str]) -> Metadata:
    """The same for a map of values, such as the one that a lease carries."""
    return scope(**values)


def grant(*scopes: Mapping[str, str]) -> Metadata:
    """Metadata of a call that may act in exactly these scopes."""
    return ((GRANT_KEY, _json({"scopes": [dict(one) for one in scopes]})),)


def grant_all() -> Metadata:
    """Metadata of an operator's call."""
    return ((GRANT_KEY, _json({"all": True})),)


def _json(value: Any) -> bytes:
    return json.dumps(value, ensure_ascii=False, separators=(",", ":")).encode()


@dataclass(frozen=True)
class ErrorDetails:
    """What a failed call said: gRPC code, stable reason, ErrorInfo metadata, field violations (path to text)."""

    code: grpc.StatusCode
    reason: str
    metadata: dict[str, str] = field(default_factory=dict)
    violations: dict[str, str] = field(default_factory=dict)
    message: str = ""
    raw: bytes = b""


def error_details(error: grpc.RpcError) -> ErrorDetails:
    """Reads the details of a failed call; reason is empty when it carried none (an error that is not ours)."""
    raw = b""
    for key, value in error.trailing_metadata() or ():
        if key == STATUS_KEY:
            raw = value if isinstance(value, bytes) else value.encode("latin-1")
    status = status_pb2.Status.FromString(raw)
    reason, metadata, violations = "", {}, {}
    for detail in status.details:
        info, request = error_details_pb2.ErrorInfo(), error_details_pb2.BadRequest()
        if detail.Unpack(info):
            assert info.domain == "threadkeep", info
            reason, metadata = info.reason, dict(info.metadata)
        elif detail.Unpack(request):
            violations = {one.field: one.description for one in request.field_violations}
    return ErrorDetails(error.code(), reason, metadata, violations, error.details() or "", raw)


async def refused(call: Any) -> ErrorDetails:
    """Awaits a call that must fail and gives its details; an answer instead is an AssertionError."""
    try:
        answer = await call
    except grpc.RpcError as error:
        return error_details(error)
    raise AssertionError(f"the call was answered: {answer}")


@contextmanager
def refusing(code: grpc.StatusCode, reason: str) -> Iterator[ErrorDetails]:
    """The block's call must be refused so; what is yielded holds the details afterwards."""
    details = ErrorDetails(code, reason)
    with pytest.raises(grpc.RpcError) as caught:
        yield details
    found = error_details(caught.value)
    assert (found.code, found.reason) == (code, reason), found
    for one in fields(found):
        object.__setattr__(details, one.name, getattr(found, one.name))
