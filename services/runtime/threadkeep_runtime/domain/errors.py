"""The runtime's refusals, each with its stable reason. NOT_FOUND never says which id: foreign ids look unused (X2)."""

from __future__ import annotations

from threadkeep_chassis.errors import (
    Aborted,
    AlreadyExists,
    DataLoss,
    DeadlineExceeded,
    FailedPrecondition,
    Internal,
    InvalidArgument,
    NotFound,
    OutOfRange,
    ThreadkeepError,
)


class SessionNotFound(NotFound):
    """No such session in the caller's scope."""

    reason = "SESSION_NOT_FOUND"
    default_message = "There is no such session in this scope."


class TaskNotFound(NotFound):
    """No such task in the caller's scope."""

    reason = "TASK_NOT_FOUND"
    default_message = "There is no such task in this scope."


class RunNotFound(NotFound):
    """No such run in the caller's scope, or none of the named session."""

    reason = "RUN_NOT_FOUND"
    default_message = "There is no such run in this scope."


class TicketNotFound(NotFound):
    """No such ticket in the caller's scope."""

    reason = "TICKET_NOT_FOUND"
    default_message = "There is no such ticket in this scope."


class CheckpointValueNotFound(NotFound):
    """No such value of a checkpoint or of its writes in the caller's scope."""

    reason = "CHECKPOINT_VALUE_NOT_FOUND"
    default_message = "There is no such value in this scope; it may have been deleted meanwhile."


class ScheduleNotFound(NotFound):
    """No such schedule in the caller's scope."""

    reason = "SCHEDULE_NOT_FOUND"
    default_message = "There is no such schedule in this scope."


class ThreadVersionConflict(Aborted):
    """expected_thread_version is not the current one."""

    reason = "THREAD_VERSION_CONFLICT"

    def __init__(self, current: int) -> None:
        super().__init__(
            f"expected_thread_version is not the current one, which is {current}.",
            metadata={"current_thread_version": str(current)},
        )


class DedupeKeyReused(AlreadyExists):
    """The dedupe key stands for another message to the same target (R16)."""

    reason = "DEDUPE_KEY_REUSED"

    def __init__(self, message_id: str) -> None:
        super().__init__(
            "The dedupe_key stands for another message to this target.", metadata={"message_id": message_id}
        )


class LeaseLost(Aborted):
    """The lease's epoch is stale: another attempt owns the run, or it ended (R3)."""

    reason = "LEASE_LOST"
    default_message = "The lease is lost: another attempt owns the run, or it ended. Stop working on it."


class LeaseRequired(FailedPrecondition):
    """A run of the thread is leased, and the call carried no lease of it (R3)."""

    reason = "LEASE_REQUIRED"
    default_message = "A run of this session is leased; its checkpoints change only with that lease."


class SessionBusy(FailedPrecondition):
    """The session has an open run (R5)."""

    reason = "SESSION_BUSY"

    def __init__(self, run_id: str) -> None:
        super().__init__(
            "The session has an open run; wait for it, answer its ticket, cancel its task, or submit with another "
            "multitask_strategy.",
            metadata={"active_run_id": run_id},
        )


class TaskTerminal(FailedPrecondition):
    """The task has ended (R4, R9)."""

    reason = "TASK_TERMINAL"
    default_message = "The task has ended."


class TaskNotTerminal(FailedPrecondition):
    """The task has not ended (R6)."""

    reason = "TASK_NOT_TERMINAL"
    default_message = "The task has not ended; wait for it, or cancel it."


class TicketNotOpen(FailedPrecondition):
    """The ticket is not open (R10)."""

    reason = "TICKET_NOT_OPEN"

    def __init__(self, state: str) -> None:
        super().__init__("The ticket is not open.", metadata={"ticket_state": state})


class TicketAnswerInvalid(InvalidArgument):
    """The answer does not match the ticket's schema or its allowed decisions (R10)."""

    reason = "TICKET_ANSWER_INVALID"

    def __init__(self, field: str, rule: str) -> None:
        super().__init__(f"{field}: {rule}", violations=[(field, rule)])


class AuditMismatch(DataLoss):
    """What is stored is not what the chain of commits says (R17)."""

    reason = "AUDIT_MISMATCH"

    def __init__(self, commit: int, kind: str = "", part_id: str = "") -> None:
        what = f"its {kind} {part_id}" if kind else "it"
        super().__init__(
            f"Commit {commit} is the first that does not match the chain: {what} is not what was committed.",
            metadata={"commit_sequence": str(commit), "part_kind": kind, "part_id": part_id},
        )


class CommitCompacted(OutOfRange):
    """The thread as of that commit is no longer kept."""

    reason = "COMMIT_COMPACTED"

    def __init__(self, oldest: int) -> None:
        super().__init__(
            f"The thread as of that commit is no longer kept; the oldest that is kept is {oldest}.",
            metadata={"oldest_commit": str(oldest)},
        )


class WaitTimeout(DeadlineExceeded):
    """The task did not reach a waited-for state in time (R24)."""

    reason = "WAIT_TIMEOUT"
    default_message = "The task is still at work; wait again."


class RunNotQueued(ThreadkeepError):
    """The run is no longer there to be leased: another worker was faster. Stays inside the server."""


class NothingToRecover(ThreadkeepError):
    """The state that the loop found has changed meanwhile: nothing is left to do. Stays inside the server."""


class IllegalTransition(Internal):
    """A fault of ours: a decision broke the table of legal transitions. Nothing is written."""
