"""The projection's own answers that are not OK."""

from __future__ import annotations

from threadkeep_chassis.errors import DeadlineExceeded, NotFound


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
