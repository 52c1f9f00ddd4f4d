"""HTTP answers that are no stream: errors as google.rpc.Status in JSON, with the reasons that gRPC callers get (X6)."""

from __future__ import annotations

import json
import math
from collections.abc import Mapping

from google.protobuf.json_format import MessageToDict
from starlette.responses import Response

from threadkeep_chassis.errors import ThreadkeepError
from threadkeep_chassis.status import to_status

_STATUS = {
    "CANCELLED": 499,
    "INVALID_ARGUMENT": 400,
    "DEADLINE_EXCEEDED": 504,
    "NOT_FOUND": 404,
    "ALREADY_EXISTS": 409,
    "PERMISSION_DENIED": 403,
    "RESOURCE_EXHAUSTED": 429,
    "FAILED_PRECONDITION": 400,
    "ABORTED": 409,
    "OUT_OF_RANGE": 400,
    "UNIMPLEMENTED": 501,
    "UNAVAILABLE": 503,
    "UNAUTHENTICATED": 401,
}
"""As google.rpc.Code says; what is not here is 500."""

NO_STORE = {"cache-control": "no-store"}


def error_body(error: BaseException, trace_id: str = "", code: int | None = None) -> bytes:
    """`{"error": {"code", "status", "message", "details"}}` as Google's APIs give it (AIP-193), on one line.

    `code` is the HTTP status, where it is not the one that the error has.
    """
    status = to_status(error, trace_id)
    plain = {
        "code": code or _http(error),
        "status": _code(error),
        "message": status.message,
        "details": [MessageToDict(detail) for detail in status.details],
    }
    return json.dumps({"error": plain}, ensure_ascii=False, separators=(",", ":")).encode()


def refusal(
    error: BaseException, trace_id: str = "", status: int | None = None, headers: Mapping[str, str] | None = None
) -> Response:
    """The answer to a request that got no stream."""
    headers = {**NO_STORE, **(headers or {})}
    if isinstance(error, ThreadkeepError) and error.retry_after is not None:
        headers["retry-after"] = str(math.ceil(error.retry_after))
    body = error_body(error, trace_id, status)
    return Response(body, status or _http(error), headers=headers, media_type="application/json")


def _code(error: BaseException) -> str:
    return error.code if isinstance(error, ThreadkeepError) else "INTERNAL"


def _http(error: BaseException) -> int:
    return _STATUS.get(_code(error), 500)
