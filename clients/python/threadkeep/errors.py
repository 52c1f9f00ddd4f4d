"""Typed errors: one class per reason of the contract.

Branch on classes (`except SessionBusy`) or families (`except NotFound`), never on message texts. What a reason means
is written in protos/threadkeep/common/v1/error_reason.proto.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from threadkeep._artifact_errors import (
    ArtifactNotFound,
    ContentNotText,
    ContentStoreUnavailable,
    CorruptContent,
    LastVersion,
    OffsetOutOfRange,
    PathTaken,
    QuotaExceeded,
    UploadMismatch,
    UploadNotFound,
)
from threadkeep._errors import (
    Aborted,
    AlreadyExists,
    DataLoss,
    DeadlineExceeded,
    FailedPrecondition,
    Internal,
    InvalidArgument,
    NotFound,
    OutOfRange,
    PermissionDenied,
    ResourceExhausted,
    ThreadkeepError,
    Unauthenticated,
    Unavailable,
    Violation,
)
from threadkeep._errors import (
    Cancelled as Cancelled,
)
from threadkeep._errors import (
    Unimplemented as Unimplemented,
)
from threadkeep._refusals import (
    AgentUnresolved,
    CheckpointDeleted,
    CheckpointIdOrder,
    CursorInvalid,
    FieldInvalid,
    FileManaged,
    LeaseRequired,
    MessageSourceMixed,
    PageTokenInvalid,
    SessionBusy,
    StagedValueIncomplete,
    StateConflict,
    StateKeyPinned,
    StateKeyUndeclared,
    TaskNotTerminal,
    TaskTerminal,
    TicketAmbiguous,
    TicketAnswerInvalid,
    TicketNotOpen,
    UnsupportedOperation,
    VersionNotSupported,
)


class SessionNotFound(NotFound):
    """No such session in the caller's scope."""

    reason = "SESSION_NOT_FOUND"


class TaskNotFound(NotFound):
    """No such task in the caller's scope."""

    reason = "TASK_NOT_FOUND"


class RunNotFound(NotFound):
    """No such run in the caller's scope."""

    reason = "RUN_NOT_FOUND"


class TicketNotFound(NotFound):
    """No such ticket in the caller's scope."""

    reason = "TICKET_NOT_FOUND"


class ScheduleNotFound(NotFound):
    """No such schedule in the caller's scope."""

    reason = "SCHEDULE_NOT_FOUND"


class EntityNotFound(NotFound):
    """No such config entity for the caller's scope."""

    reason = "ENTITY_NOT_FOUND"


class CheckpointValueNotFound(NotFound):
    """No such value of a checkpoint in the caller's scope, or it was deleted meanwhile."""

    reason = "CHECKPOINT_VALUE_NOT_FOUND"


class CheckpointNotFound(NotFound):
    """No such checkpoint in the session."""

    reason = "CHECKPOINT_NOT_FOUND"


class MessageNotFound(NotFound):
    """No such message in the caller's scope."""

    reason = "MESSAGE_NOT_FOUND"


class RequestIdReused(AlreadyExists):
    """The request_id was used for another request."""

    reason = "REQUEST_ID_REUSED"


class IdTaken(AlreadyExists):
    """The id is in use in this scope, or was and must not return."""

    reason = "ID_TAKEN"


class DedupeKeyReused(AlreadyExists):
    """The dedupe_key stands for another message to the same target; `metadata["message_id"]` names it."""

    reason = "DEDUPE_KEY_REUSED"


class RevisionConflict(Aborted):
    """expected_revision is not the current one. Read again and decide anew."""

    reason = "REVISION_CONFLICT"

    @property
    def current_revision(self) -> int | None:
        """The current revision."""
        return self._number("current_revision")


class ThreadVersionConflict(Aborted):
    """expected_thread_version is not the current one."""

    reason = "THREAD_VERSION_CONFLICT"

    @property
    def current_thread_version(self) -> int | None:
        """The current version."""
        return self._number("current_thread_version")


class LeaseLost(Aborted):
    """The lease's epoch is stale: another attempt owns the run, or it ended. Stop; do not retry."""

    reason = "LEASE_LOST"


class Contention(Aborted):
    """The database chose this call to break a deadlock too often."""

    reason = "CONTENTION"


class CursorExpired(OutOfRange):
    """The cursor is older than what is kept; `resume_cursor` is the oldest."""

    reason = "CURSOR_EXPIRED"


class CursorUnknown(OutOfRange):
    """The cursor belongs to another incarnation of the log (a restore). Rebuild from the start."""

    reason = "CURSOR_UNKNOWN"


class RevisionCompacted(OutOfRange):
    """History up to there was compacted; `resume_revision` is the oldest left."""

    reason = "REVISION_COMPACTED"


class CommitCompacted(OutOfRange):
    """The thread as of that commit is no longer kept."""

    reason = "COMMIT_COMPACTED"

    @property
    def oldest_commit(self) -> int | None:
        """The oldest commit that is kept."""
        return self._number("oldest_commit")


class FreshnessTimeout(DeadlineExceeded):
    """The projection did not reach `at_least` in time."""

    reason = "FRESHNESS_TIMEOUT"


class WaitTimeout(DeadlineExceeded):
    """The task did not reach a waited-for state in time."""

    reason = "WAIT_TIMEOUT"


class LimitExceeded(ResourceExhausted):
    """A limit was exceeded; `metadata` names `limit`, `maximum`, `actual` and `advice`."""

    reason = "LIMIT_EXCEEDED"


class SlowConsumer(ResourceExhausted):
    """The reader fell too far behind; `resume_cursor` or `resume_revision` says where to go on."""

    reason = "SLOW_CONSUMER"


class CommitUnknown(Unavailable):
    """The database did not say whether the commit happened. Retry with the same request_id."""

    reason = "COMMIT_UNKNOWN"


class ShuttingDown(Unavailable):
    """The server is stopping. Retry elsewhere."""

    reason = "SHUTTING_DOWN"


class DatabaseUnavailable(Unavailable):
    """The database is out of reach."""

    reason = "DATABASE_UNAVAILABLE"


class PeerUnavailable(Unavailable):
    """Another threadkeep service that the call needs is out of reach."""

    reason = "PEER_UNAVAILABLE"


class AuditMismatch(DataLoss):
    """What is stored of a thread is not what its chain of commits says."""

    reason = "AUDIT_MISMATCH"

    @property
    def commit_sequence(self) -> int | None:
        """The first commit that does not match."""
        return self._number("commit_sequence")


class ScopeRequired(Unauthenticated):
    """The call names no scope."""

    reason = "SCOPE_REQUIRED"


class ScopeForbidden(PermissionDenied):
    """The scope lies outside the caller's grant, or the write aims at a broader scope."""

    reason = "SCOPE_FORBIDDEN"


class NoIdentity(Unauthenticated):
    """No trusted identity."""

    reason = "UNAUTHENTICATED"


class ServerFault(Internal):
    """A fault of the server. Its log has the details under the trace id in `metadata`."""

    reason = "INTERNAL"


class MethodUnknown(Unimplemented):
    """The server knows no such method."""

    reason = "METHOD_UNKNOWN"


def _subclasses(base: type[ThreadkeepError]) -> Iterator[type[ThreadkeepError]]:
    for child in base.__subclasses__():
        yield child
        yield from _subclasses(child)


BY_REASON: Mapping[str, type[ThreadkeepError]] = {
    kind.reason: kind for kind in _subclasses(ThreadkeepError) if kind.reason
}
"""The class of each reason."""

__all__ = [
    "BY_REASON",
    "Aborted",
    "AgentUnresolved",
    "AlreadyExists",
    "ArtifactNotFound",
    "AuditMismatch",
    "CheckpointDeleted",
    "CheckpointIdOrder",
    "CheckpointNotFound",
    "CheckpointValueNotFound",
    "CommitCompacted",
    "CommitUnknown",
    "ContentNotText",
    "ContentStoreUnavailable",
    "Contention",
    "CorruptContent",
    "CursorExpired",
    "CursorInvalid",
    "CursorUnknown",
    "DataLoss",
    "DatabaseUnavailable",
    "DeadlineExceeded",
    "DedupeKeyReused",
    "EntityNotFound",
    "FailedPrecondition",
    "FieldInvalid",
    "FileManaged",
    "FreshnessTimeout",
    "IdTaken",
    "Internal",
    "InvalidArgument",
    "LastVersion",
    "LeaseLost",
    "LeaseRequired",
    "LimitExceeded",
    "MessageNotFound",
    "MessageSourceMixed",
    "MethodUnknown",
    "NoIdentity",
    "NotFound",
    "OffsetOutOfRange",
    "OutOfRange",
    "PageTokenInvalid",
    "PathTaken",
    "PeerUnavailable",
    "PermissionDenied",
    "QuotaExceeded",
    "RequestIdReused",
    "ResourceExhausted",
    "RevisionCompacted",
    "RevisionConflict",
    "RunNotFound",
    "ScheduleNotFound",
    "ScopeForbidden",
    "ScopeRequired",
    "ServerFault",
    "SessionBusy",
    "SessionNotFound",
    "ShuttingDown",
    "SlowConsumer",
    "StagedValueIncomplete",
    "StateConflict",
    "StateKeyPinned",
    "StateKeyUndeclared",
    "TaskNotFound",
    "TaskNotTerminal",
    "TaskTerminal",
    "ThreadVersionConflict",
    "ThreadkeepError",
    "TicketAmbiguous",
    "TicketAnswerInvalid",
    "TicketNotFound",
    "TicketNotOpen",
    "Unauthenticated",
    "Unavailable",
    "UnsupportedOperation",
    "UploadMismatch",
    "UploadNotFound",
    "VersionNotSupported",
    "Violation",
    "WaitTimeout",
]
