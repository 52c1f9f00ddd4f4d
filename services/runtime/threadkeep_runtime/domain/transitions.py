"""The legal transitions of tasks, runs and tickets, in one place (R4, R6, R7). What is absent here can't happen."""

from __future__ import annotations

from collections.abc import Mapping

from threadkeep_runtime.domain.errors import IllegalTransition

TASK: Mapping[str, frozenset[str]] = {
    # REJECTED is the agent's refusal; no command of this release leads there.
    "SUBMITTED": frozenset({"WORKING", "FAILED", "CANCELED"}),
    "WORKING": frozenset({"INPUT_REQUIRED", "AUTH_REQUIRED", "COMPLETED", "FAILED", "CANCELED"}),
    "INPUT_REQUIRED": frozenset({"AUTH_REQUIRED", "WORKING", "FAILED", "CANCELED"}),
    "AUTH_REQUIRED": frozenset({"INPUT_REQUIRED", "WORKING", "FAILED", "CANCELED"}),
    "COMPLETED": frozenset(),
    "FAILED": frozenset(),
    "CANCELED": frozenset(),
    "REJECTED": frozenset(),
}

RUN: Mapping[str, frozenset[str]] = {
    # A queued run ends when its task is canceled; a crashed or released one goes back to the queue.
    "QUEUED": frozenset({"RUNNING", "ENDED"}),
    "RUNNING": frozenset({"QUEUED", "AWAITING", "ENDED"}),
    "AWAITING": frozenset({"QUEUED", "ENDED"}),
    "ENDED": frozenset(),
}

TICKET: Mapping[str, frozenset[str]] = {
    "OPEN": frozenset({"RESOLVED", "EXPIRED", "CLOSED"}),
    "RESOLVED": frozenset(),
    "EXPIRED": frozenset(),
    "CLOSED": frozenset(),
}

TERMINAL_TASK_STATES = frozenset(state for state, after in TASK.items() if not after)
WAITED_FOR_TASK_STATES = TERMINAL_TASK_STATES | {"INPUT_REQUIRED", "AUTH_REQUIRED"}

TASK_STATE_OF_CAUSE: Mapping[str, str] = {
    "SUCCEEDED": "COMPLETED",
    "FAILED": "FAILED",
    "CANCELED": "CANCELED",
    "SUPERSEDED": "CANCELED",
    "TIMED_OUT": "FAILED",
    "INDETERMINATE": "FAILED",
}
"""What a task becomes when its run ends."""


def check(table: Mapping[str, frozenset[str]], before: str, after: str) -> str:
    """Returns `after` if the step is legal, else raises IllegalTransition."""
    if after not in table[before]:
        raise IllegalTransition(f"no transition leads from {before} to {after}")
    return after
