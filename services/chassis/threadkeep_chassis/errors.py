"""The errors that threadkeep answers with, as plain exceptions (X6).

Pure standard library, so that domain code may raise them. The mapping to gRPC lives in `status`, and only there.
A concrete error is a subclass of a family that sets `reason`, the name of a value of `common.v1.ErrorReason` without
its prefix: `class TicketNotOpen(FailedPrecondition): reason = "TICKET_NOT_OPEN"`.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import ClassVar


class ThreadkeepError(Exception):
    """An answer to the caller that is not OK.

    `code` is the gRPC status code's name, `reason` the stable reason that clients branch on. Metadata and message carry
    neither payloads nor scope values (X11).
    """

    code: ClassVar[str] = "INTERNAL"
    reason: str = "INTERNAL"
    default_message: ClassVar[str] = "The server failed."

    def __init__(
        self,
        message: str | None = None,
        *,
        metadata: Mapping[str, str] | None = None,
        violations: Iterable[tuple[str, str]] = (),
        retry_after: float | None = None,
        resource: tuple[str, str] | None = None,
    ) -> None:
        """Builds the error.

        `violations` are (field path, rule broken). `retry_after` is in seconds. `resource` is (type, id), such as
        ("task", "t-1"): what the error is about.
        """
        self.message = message if message is not None else self.default_message
        self.metadata: dict[str, str] = dict(metadata or {})
        self.violations: list[tuple[str, str]] = list(violations)
        self.retry_after = retry_after
        self.resource = resource
        super().__init__(self.message)

    def __str__(self) -> str:
        return f"{self.reason}: {self.message}"


class NotFound(ThreadkeepError):
    """It is absent, or belongs to another scope (which is the same, X2)."""

    code = "NOT_FOUND"
    default_message = "Not found."


class AlreadyExists(ThreadkeepError):
    """It exists already."""

    code = "ALREADY_EXISTS"
    default_message = "It exists already."


class Aborted(ThreadkeepError):
    """A concurrent change won."""

    code = "ABORTED"
    default_message = "A concurrent change won."


class FailedPrecondition(ThreadkeepError):
    """The state forbids it."""

    code = "FAILED_PRECONDITION"
    default_message = "The current state forbids it."


class InvalidArgument(ThreadkeepError):
    """The request can't be right in any state."""

    code = "INVALID_ARGUMENT"
    default_message = "The request is not valid."


class OutOfRange(ThreadkeepError):
    """A position outside what is kept."""

    code = "OUT_OF_RANGE"
    default_message = "The position is outside what is kept."


class DeadlineExceeded(ThreadkeepError):
    """It did not happen in time."""

    code = "DEADLINE_EXCEEDED"
    default_message = "It did not happen in time."


class ResourceExhausted(ThreadkeepError):
    """A limit was reached."""

    code = "RESOURCE_EXHAUSTED"
    default_message = "A limit was reached."


class Unavailable(ThreadkeepError):
    """Not now; retrying with the same request_id is safe."""

    code = "UNAVAILABLE"
    default_message = "Not available now; retry."


class DataLoss(ThreadkeepError):
    """What is stored is not what was written."""

    code = "DATA_LOSS"
    default_message = "Stored content is damaged."


class UnauthenticatedError(ThreadkeepError):
    """The family of errors about a missing identity."""

    code = "UNAUTHENTICATED"
    default_message = "No trusted identity."


class PermissionDenied(ThreadkeepError):
    """The identity may not do it."""

    code = "PERMISSION_DENIED"
    default_message = "Not allowed."


class Internal(ThreadkeepError):
    """A fault of the server. Raise nothing like it on purpose: any unknown exception becomes this."""

    reason = "INTERNAL"


class MethodUnknown(ThreadkeepError):
    """The server knows no such method."""

    code = "UNIMPLEMENTED"
    reason = "METHOD_UNKNOWN"
    default_message = "This server knows no such method: it is older than the caller, or another service."


# --- errors that every service shares ---------------------------------------------------------------------------------


class FieldInvalid(InvalidArgument):
    """A field breaks a rule: `FieldInvalid("checkpoint_ops[2].checkpoint_id", "must not be empty")`."""

    reason = "FIELD_INVALID"

    def __init__(self, field: str, rule: str, *more: tuple[str, str]) -> None:
        super().__init__(f"{field}: {rule}", violations=[(field, rule), *more])
        self.field = field
        self.rule = rule


class RequestIdReused(AlreadyExists):
    """The request_id was used for another request (X3)."""

    reason = "REQUEST_ID_REUSED"
    default_message = "This request_id was used for another request; use a new one."


class IdTaken(AlreadyExists):
    """The id is in use in this scope, or was and must not return."""

    reason = "ID_TAKEN"

    def __init__(self, resource_type: str, resource_id: str) -> None:
        super().__init__(f"The {resource_type} id is taken in this scope.", resource=(resource_type, resource_id))


class RevisionConflict(Aborted):
    """A compare-and-set lost (X4). `current` is the revision now; read again and decide anew."""

    reason = "REVISION_CONFLICT"

    def __init__(self, current: int) -> None:
        super().__init__(
            f"expected_revision is not the current one, which is {current}.",
            metadata={"current_revision": str(current)},
        )
        self.current = current


class PageTokenInvalid(InvalidArgument):
    """The page token was edited, or belongs to another method, query or scope (X5)."""

    reason = "PAGE_TOKEN_INVALID"

    def __init__(self) -> None:
        super().__init__(
            "page_token was edited or belongs to another query; start again without one.",
            violations=[("page_token", "must come from the same method, scope and query")],
        )


class CursorInvalid(InvalidArgument):
    """The cursor was edited, or belongs to another kind of feed."""

    reason = "CURSOR_INVALID"

    def __init__(self, field: str = "cursor") -> None:
        super().__init__(
            f"{field} was edited or belongs to another feed.",
            violations=[(field, "must be a cursor that this feed gave")],
        )


class CursorExpired(OutOfRange):
    """The cursor is older than what is kept. `oldest` is the oldest cursor left, base64."""

    reason = "CURSOR_EXPIRED"

    def __init__(self, oldest: str) -> None:
        super().__init__(
            "The cursor is older than what is kept; start from oldest_cursor.", metadata={"oldest_cursor": oldest}
        )


class CursorUnknown(OutOfRange):
    """The cursor belongs to another incarnation of the log, as after a restore."""

    reason = "CURSOR_UNKNOWN"
    default_message = "The cursor belongs to another incarnation of the log (a restore); rebuild from the start."


class LimitExceeded(ResourceExhausted):
    """A limit was exceeded (X9). `advice` says the way out: stream it, page it, store an artifact."""

    reason = "LIMIT_EXCEEDED"

    def __init__(self, limit: str, maximum: int, actual: int, advice: str) -> None:
        super().__init__(
            f"{limit} is {maximum}, this is {actual}. {advice}",
            metadata={"limit": limit, "maximum": str(maximum), "actual": str(actual), "advice": advice},
        )
        self.limit = limit


class SlowConsumer(ResourceExhausted):
    """The reader fell too far behind. Give where to go on as `resume_cursor` (base64) or `resume_revision`."""

    reason = "SLOW_CONSUMER"

    def __init__(self, *, resume_cursor: str | None = None, resume_revision: int | None = None) -> None:
        super().__init__(
            "The reader fell too far behind; resume from the point in the metadata.",
            metadata=_resume(resume_cursor, resume_revision),
        )


class CommitUnknown(Unavailable):
    """The database did not say whether the commit happened (X7)."""

    reason = "COMMIT_UNKNOWN"
    default_message = "The database did not say whether the commit happened; retry with the same request_id."

    def __init__(self, message: str | None = None) -> None:
        super().__init__(message, retry_after=0.5)


class Contention(Aborted):
    """The database chose this transaction as a victim more often than we retry."""

    reason = "CONTENTION"
    default_message = "Concurrent transactions kept colliding; retry with the same request_id."

    def __init__(self, message: str | None = None) -> None:
        super().__init__(message, retry_after=0.2)


class ShuttingDown(Unavailable):
    """The server is stopping. A stream names where to go on as `resume_cursor` (base64) or `resume_revision`."""

    reason = "SHUTTING_DOWN"

    def __init__(self, *, resume_cursor: str | None = None, resume_revision: int | None = None) -> None:
        super().__init__(
            "The server is stopping; go on elsewhere.",
            metadata=_resume(resume_cursor, resume_revision),
            retry_after=0.1,
        )


class DatabaseUnavailable(Unavailable):
    """The database is out of reach, and nothing was committed."""

    reason = "DATABASE_UNAVAILABLE"
    default_message = "The database is out of reach; retry."

    def __init__(self, message: str | None = None) -> None:
        super().__init__(message, retry_after=0.5)


class PeerUnavailable(Unavailable):
    """Another threadkeep service that the call needs is out of reach."""

    reason = "PEER_UNAVAILABLE"

    def __init__(self, peer: str) -> None:
        super().__init__(f"The {peer} service is out of reach; retry.", metadata={"peer": peer}, retry_after=0.5)


class CorruptContent(DataLoss):
    """Stored content does not have its digest."""

    reason = "CORRUPT_CONTENT"


class Unauthenticated(UnauthenticatedError):
    """No trusted identity."""

    reason = "UNAUTHENTICATED"


class ScopeRequired(UnauthenticatedError):
    """The call names no scope (X1)."""

    reason = "SCOPE_REQUIRED"
    default_message = "The call names no scope; the empty scope is sent explicitly."


class ScopeForbidden(PermissionDenied):
    """The scope lies outside the caller's grant, or the write aims at a broader scope (X13)."""

    reason = "SCOPE_FORBIDDEN"
    default_message = "The scope lies outside the caller's grant."


def _resume(cursor: str | None, revision: int | None) -> dict[str, str]:
    metadata = {}
    if cursor is not None:
        metadata["resume_cursor"] = cursor
    if revision is not None:
        metadata["resume_revision"] = str(revision)
    return metadata
