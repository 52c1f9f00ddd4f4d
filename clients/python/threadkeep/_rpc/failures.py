"""How a failed gRPC call, synchronous or asyncio, becomes a typed error."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any

import grpc

from threadkeep import errors
from threadkeep._errors import ThreadkeepError, Violation

DOMAIN = "threadkeep"
_FRAME = re.compile(r"message larger than max \((\d+) vs\. (\d+)\)")
_ADVICE = "Stream it, page it, or store an artifact."
STATUS_KEY = "grpc-status-details-bin"

_FAMILIES: Mapping[grpc.StatusCode, type[ThreadkeepError]] = {
    kind.code: kind for kind in ThreadkeepError.__subclasses__()
}


def typed_error(error: grpc.RpcError) -> ThreadkeepError:
    """The typed error of a failed call.

    A reason that this client does not know yet gives its code's family; `metadata["reason"]` then has its name. An
    error that is not threadkeep's (a broken connection, a proxy) gives the family too, with an empty reason.
    """
    code = _call(error, "code") or grpc.StatusCode.UNKNOWN
    message = _call(error, "details") or ""
    family = _FAMILIES.get(code, ThreadkeepError)
    raw = next((value for key, value in _call(error, "trailing_metadata") or () if key == STATUS_KEY), None)
    typed = _from_status(raw, family, message, code) if raw is not None else None
    if typed is None and code is grpc.StatusCode.RESOURCE_EXHAUSTED:
        typed = _too_large(message)
    return typed if typed is not None else family(message, code=code)


def _too_large(message: str) -> ThreadkeepError | None:
    """What gRPC itself says of a message that is far beyond the server's limit, in the words of the contract (X9).

    The server looks at what is somewhat above its limit and refuses it by name; the rest is not even read.
    """
    found = _FRAME.search(message)
    if found is None:
        return None
    actual, read = found.groups()
    return errors.LimitExceeded(
        f"max_message_bytes is exceeded, this message has {actual} bytes. {_ADVICE}",
        code=grpc.StatusCode.RESOURCE_EXHAUSTED,
        metadata={"limit": "max_message_bytes", "actual": actual, "most_bytes_read": read, "advice": _ADVICE},
    )


def _from_status(
    raw: bytes, family: type[ThreadkeepError], message: str, code: grpc.StatusCode
) -> ThreadkeepError | None:
    from google.rpc import error_details_pb2, status_pb2

    info, request, retry, resource = (
        error_details_pb2.ErrorInfo(),
        error_details_pb2.BadRequest(),
        error_details_pb2.RetryInfo(),
        error_details_pb2.ResourceInfo(),
    )
    has_retry = has_resource = False
    for detail in status_pb2.Status.FromString(raw).details:
        if detail.Unpack(info) or detail.Unpack(request):
            continue
        has_retry = detail.Unpack(retry) or has_retry
        has_resource = detail.Unpack(resource) or has_resource
    if info.domain != DOMAIN:
        return None
    kind = errors.BY_REASON.get(info.reason, family)
    return kind(
        message,
        code=code,
        metadata={**info.metadata, **({} if kind.reason == info.reason else {"reason": info.reason})},
        violations=[Violation(one.field, one.description) for one in request.field_violations],
        retry_after=retry.retry_delay.ToMilliseconds() / 1000 if has_retry else None,
        resource=(resource.resource_type, resource.resource_name) if has_resource else None,
    )


def _call(error: grpc.RpcError, name: str) -> Any:
    method = getattr(error, name, None)
    return method() if callable(method) else None
