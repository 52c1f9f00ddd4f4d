"""What a server refuses because of the state that it is in, or of the request itself. Users import from
`threadkeep.errors`."""

from __future__ import annotations

from threadkeep._errors import FailedPrecondition, InvalidArgument


class TaskTerminal(FailedPrecondition):
    """The task has ended."""

    reason = "TASK_TERMINAL"


class TicketAmbiguous(FailedPrecondition):
    """The task waits for several answers, and the message does not say which of them it is."""

    reason = "TICKET_AMBIGUOUS"


class UnsupportedOperation(FailedPrecondition):
    """The protocol has this operation, but not for what was named."""

    reason = "UNSUPPORTED_OPERATION"


class VersionNotSupported(FailedPrecondition):
    """The server does not speak the version of the protocol that the call asks for."""

    reason = "VERSION_NOT_SUPPORTED"


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


class MessageSourceMixed(FailedPrecondition):
    """The session's messages come from its checkpoints; its commits carry none."""

    reason = "MESSAGE_SOURCE_MIXED"


class StagedValueIncomplete(FailedPrecondition):
    """A staged value lacks chunks, or has another size; stage it again."""

    reason = "STAGED_VALUE_INCOMPLETE"


class StateKeyPinned(FailedPrecondition):
    """The state key is declared otherwise: scope and merge rule never change, the rest only with a higher version."""

    reason = "STATE_KEY_PINNED"


class FieldInvalid(InvalidArgument):
    """A field breaks a rule; `violations` name it."""

    reason = "FIELD_INVALID"


class PageTokenInvalid(InvalidArgument):
    """The page token was edited, or belongs to another query or scope."""

    reason = "PAGE_TOKEN_INVALID"


class CursorInvalid(InvalidArgument):
    """The cursor was edited, or belongs to another kind of feed."""

    reason = "CURSOR_INVALID"


class TicketAnswerInvalid(InvalidArgument):
    """The ticket's answer does not match its schema or its allowed decisions."""

    reason = "TICKET_ANSWER_INVALID"


class CheckpointIdOrder(InvalidArgument):
    """A new checkpoint's id does not sort above the greatest of its namespace."""

    reason = "CHECKPOINT_ID_ORDER"


class StateKeyUndeclared(InvalidArgument):
    """The state key is not declared in the caller's scope."""

    reason = "STATE_KEY_UNDECLARED"


class StateConflict(InvalidArgument):
    """Commands of one commit on one state key exclude each other; nothing of the commit happened."""

    reason = "STATE_CONFLICT"
