"""The one mapping from errors to google.rpc.Status and back (X6).

Unknown exceptions become INTERNAL without a word of their text; whoever maps them logs them under the trace id.
"""

from __future__ import annotations

from collections.abc import Iterable

import grpc
from google.protobuf import any_pb2, duration_pb2
from google.rpc import code_pb2, error_details_pb2, status_pb2
from grpc_status import rpc_status

from threadkeep_chassis import errors
from threadkeep_chassis.errors import Internal, ThreadkeepError

DOMAIN = "threadkeep"
MAX_VIOLATIONS = 16
MAX_TEXT = 1024
MAX_MESSAGE_BYTES = 768
MAX_DETAIL_BYTES = 3072
"""Details travel in trailing metadata: gRPC clients refuse more than 8 KiB of it, and then see no error of ours at all.
The message goes there twice, once with three bytes for each byte that is not ASCII; longer texts are cut."""


def to_status(error: BaseException, trace_id: str = "", also: Iterable[tuple[str, str]] = ()) -> status_pb2.Status:
    """Renders an error. Any exception that is no ThreadkeepError becomes INTERNAL and names only the trace id.

    `also` are (domain, reason) of other protocols that have a name for it; each becomes an ErrorInfo behind our own.
    """
    if not isinstance(error, ThreadkeepError):
        error = Internal(
            "The server failed; its log has the details under the trace id.", metadata={"trace_id": trace_id}
        )
    info = error_details_pb2.ErrorInfo(reason=error.reason, domain=DOMAIN)
    for key, value in error.metadata.items():
        info.metadata[key] = _cut(value, MAX_TEXT)
    details = [info, *(error_details_pb2.ErrorInfo(domain=domain, reason=reason) for domain, reason in also)]
    if error.violations:
        bad_request = error_details_pb2.BadRequest()
        room = MAX_DETAIL_BYTES - info.ByteSize()
        for path, rule in error.violations[:MAX_VIOLATIONS]:
            violation = error_details_pb2.BadRequest.FieldViolation(field=_cut(path, 512), description=_cut(rule, 512))
            room -= violation.ByteSize()
            if room < 0 and bad_request.field_violations:
                break
            bad_request.field_violations.append(violation)
        details.append(bad_request)
    if error.retry_after is not None:
        delay = duration_pb2.Duration()
        delay.FromMilliseconds(int(error.retry_after * 1000))
        details.append(error_details_pb2.RetryInfo(retry_delay=delay))
    if error.resource is not None:
        kind, name = error.resource
        details.append(error_details_pb2.ResourceInfo(resource_type=kind, resource_name=_cut(name, MAX_TEXT)))
    status = status_pb2.Status(code=code_pb2.Code.Value(error.code), message=_cut(error.message, MAX_MESSAGE_BYTES))
    for detail in details:
        packed = any_pb2.Any()
        packed.Pack(detail)
        status.details.append(packed)
    return status


def _cut(text: str, size: int) -> str:
    """The text, or as many of its first characters as fit into `size` bytes of UTF-8."""
    encoded = text.encode("utf-8", "replace")
    return text if len(encoded) <= size else encoded[:size].decode("utf-8", "ignore")


def code_of(error: BaseException) -> str:
    """The gRPC status code's name for an error, for metrics and logs."""
    return error.code if isinstance(error, ThreadkeepError) else "INTERNAL"


def to_grpc_status(error: BaseException, trace_id: str = "", also: Iterable[tuple[str, str]] = ()) -> grpc.Status:
    """What `context.abort_with_status` takes."""
    return rpc_status.to_status(to_status(error, trace_id, also))


def reason_of(error: BaseException) -> str:
    """The stable reason of an error."""
    return error.reason if isinstance(error, ThreadkeepError) else Internal.reason


def from_rpc_error(error: grpc.RpcError, peer: str) -> ThreadkeepError:
    """Turns what a peer answered into our error with the same code and reason, so that it can be passed on.

    UNAVAILABLE without our details means that the peer is out of reach: PeerUnavailable.
    """
    code = error.code().name if hasattr(error, "code") and error.code() is not None else "UNKNOWN"
    status = _status_of(error)
    info = error_details_pb2.ErrorInfo()
    for detail in status.details if status is not None else ():
        if detail.Is(info.DESCRIPTOR):
            detail.Unpack(info)
            break
    if info.domain != DOMAIN:
        if code in ("UNAVAILABLE", "CANCELLED"):
            return errors.PeerUnavailable(peer)
        if code == "DEADLINE_EXCEEDED":
            return errors.DeadlineExceeded(f"The {peer} service did not answer in time.")
        return Internal()
    family = _FAMILIES.get(code, Internal)
    mapped = family(status.message if status is not None else None, metadata=dict(info.metadata))
    mapped.reason = info.reason
    bad_request = error_details_pb2.BadRequest()
    for detail in status.details if status is not None else ():
        if detail.Is(bad_request.DESCRIPTOR):
            detail.Unpack(bad_request)
            mapped.violations = [(v.field, v.description) for v in bad_request.field_violations]
    return mapped


def _status_of(error: grpc.RpcError) -> status_pb2.Status | None:
    for key, value in error.trailing_metadata() or () if hasattr(error, "trailing_metadata") else ():
        if key == "grpc-status-details-bin":
            status = status_pb2.Status()
            status.ParseFromString(value)
            return status
    return None


_FAMILIES: dict[str, type[ThreadkeepError]] = {
    family.code: family
    for family in (
        errors.NotFound,
        errors.AlreadyExists,
        errors.Aborted,
        errors.FailedPrecondition,
        errors.InvalidArgument,
        errors.OutOfRange,
        errors.DeadlineExceeded,
        errors.ResourceExhausted,
        errors.Unavailable,
        errors.DataLoss,
        errors.UnauthenticatedError,
        errors.PermissionDenied,
    )
}
