"""The projection's own answers that are not OK."""

from __future__ import annotations

from collections.abc import Sequence

from threadkeep_chassis.errors import DeadlineExceeded, FailedPrecondition, NotFound


class SessionNotFound(NotFound):
    """No such session in the caller's scope."""

    reason = "SESSION_NOT_FOUND"

    def __init__(self, session_id: str) -> None:
        super().__init__("There is no such session in this scope.", resource=("session", session_id))


class TaskNotFound(NotFound):
    """No such task in the caller's scope."""

    reason = "TASK_NOT_FOUND"

    def __init__(self, task_id: str) -> None:
        super().__init__("There is no such task in this scope.", resource=("task", task_id))


class RunNotFound(NotFound):
    """No such run in the caller's scope."""

    reason = "RUN_NOT_FOUND"

    def __init__(self, run_id: str) -> None:
        super().__init__("There is no such run in this scope.", resource=("run", run_id))


class MessageNotFound(NotFound):
    """No such message in the conversation, or no such session."""

    reason = "MESSAGE_NOT_FOUND"

    def __init__(self, message_id: str) -> None:
        super().__init__("There is no such message in this session.", resource=("message", message_id))


class FreshnessTimeout(DeadlineExceeded):
    """The projection did not get as far as `at_least` in time."""

    reason = "FRESHNESS_TIMEOUT"
    default_message = "The projection did not reach at_least in time; wait longer, or read without it."


class TicketAmbiguous(FailedPrecondition):
    """A message could be the answer to several tickets."""

    reason = "TICKET_AMBIGUOUS"

    def __init__(self, ticket_ids: Sequence[str]) -> None:
        super().__init__(
            "The task waits for several answers; name the ticket in the message's metadata, as `ticket_id`.",
            metadata={"ticket_ids": ",".join(ticket_ids)},
        )


class UnsupportedOperation(FailedPrecondition):
    """The protocol has this operation, but not for what was named."""

    reason = "UNSUPPORTED_OPERATION"


class VersionNotSupported(FailedPrecondition):
    """The call asks for a version of the protocol that is not spoken here."""

    reason = "VERSION_NOT_SUPPORTED"
