"""The errors that only config has."""

from __future__ import annotations

from collections.abc import Sequence

from threadkeep_chassis.errors import FailedPrecondition, NotFound, OutOfRange


class EntityNotFound(NotFound):
    """No such entity for the caller's scope."""

    reason = "ENTITY_NOT_FOUND"
    default_message = "No such entity."


class FileManaged(FailedPrecondition):
    """The entity comes from a file (C7)."""

    reason = "FILE_MANAGED"
    default_message = "This entity comes from a file; change the file and apply the set again."


class AgentUnresolved(FailedPrecondition):
    """The agent, or what it names, does not resolve. Each of `missing` is such as `tool search`."""

    reason = "AGENT_UNRESOLVED"

    def __init__(self, missing: Sequence[str]) -> None:
        names = ", ".join(missing)
        super().__init__(f"Does not resolve in this scope: {names}.", metadata={"unresolved": names})


class RevisionCompacted(OutOfRange):
    """History up to there was compacted; `oldest` is the oldest revision left (C6)."""

    reason = "REVISION_COMPACTED"

    def __init__(self, oldest: int) -> None:
        super().__init__(
            f"History was compacted; the oldest revision left is {oldest}. Take a snapshot.",
            metadata={"oldest_revision": str(oldest)},
        )
