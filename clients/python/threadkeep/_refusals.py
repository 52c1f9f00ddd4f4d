"""Errors of the family FailedPrecondition: the state forbids it. Users import them from `threadkeep.errors`."""

from __future__ import annotations

from threadkeep._errors import FailedPrecondition


class TaskTerminal(FailedPrecondition):
    """The task has ended."""

    reason = "TASK_TERMINAL"


class TaskNotTerminal(FailedPrecondition):
    """The task has not ended."""

    reason = "TASK_NOT_TERMINAL"


class TicketNotOpen(FailedPrecondition):
    """The ticket is not open."""

    reason = "TICKET_NOT_OPEN"


class LeaseRequired(FailedPrecondition):
    """A run of the thread is leased, and the call carried no lease of it."""

    reason = "LEASE_REQUIRED"


class SessionBusy(FailedPrecondition):
    """The session has an open run or an open ticket."""

    reason = "SESSION_BUSY"


class FileManaged(FailedPrecondition):
    """The entity comes from a file; change the file."""

    reason = "FILE_MANAGED"


class AgentUnresolved(FailedPrecondition):
    """No Agent entity of that name resolves in the caller's scope, or what it names does not."""

    reason = "AGENT_UNRESOLVED"


class CheckpointDeleted(FailedPrecondition):
    """The checkpoint was deleted; it does not come back."""

    reason = "CHECKPOINT_DELETED"


class StagedValueIncomplete(FailedPrecondition):
    """A staged value lacks chunks, or has another size; stage it again."""

    reason = "STAGED_VALUE_INCOMPLETE"


class UploadMismatch(FailedPrecondition):
    """The upload's bytes do not have the size or digest that was announced."""

    reason = "UPLOAD_MISMATCH"
