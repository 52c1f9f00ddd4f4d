"""What a feed of events holds: its extent, its filter, and the event that ends it. Pure; how it is read is `feeds/`."""

from __future__ import annotations

from dataclasses import dataclass, field

from threadkeep_runtime.domain.values import INTERNAL

SESSION, RUN, TASK, SCOPE, GRANT = "session", "run", "task", "scope", "grant"

SESSION_DELETED = "threadkeep.session.deleted"
"""A thread's last event (R19)."""

TERMINAL_TYPES = {
    SESSION: frozenset({SESSION_DELETED}),
    RUN: frozenset({"threadkeep.run.ended", SESSION_DELETED}),
    TASK: frozenset(
        {
            SESSION_DELETED,
            "threadkeep.task.completed",
            "threadkeep.task.failed",
            "threadkeep.task.canceled",
            "threadkeep.task.rejected",
        }
    ),
}
"""The last event of a run and of a task (R4), and of all there is in a session that is deleted."""


@dataclass(frozen=True, slots=True)
class EventFilter:
    """Which events of an extent are wanted. Without types and prefixes: every type."""

    types: frozenset[str] = frozenset()
    prefixes: tuple[str, ...] = ()
    """Beginnings of types, the last dot included."""
    visibility: int = INTERNAL
    """The reader's level."""

    @classmethod
    def of(cls, types: tuple[str, ...], visibility: int) -> EventFilter:
        """From the contract's form, where a type that ends with `.*` stands for all that begin so."""
        prefixes = tuple(sorted({name[:-1] for name in types if name.endswith(".*")}))
        return cls(frozenset(name for name in types if not name.endswith(".*")), prefixes, visibility)

    @property
    def has_types(self) -> bool:
        """True if not every type is wanted."""
        return bool(self.types or self.prefixes)

    def matches(self, type_: str, visibility: int) -> bool:
        """True if an event of this type and visibility is wanted."""
        if visibility > self.visibility:
            return False
        return not self.has_types or type_ in self.types or (bool(self.prefixes) and type_.startswith(self.prefixes))


@dataclass(frozen=True, slots=True)
class ThreadExtent:
    """The events of one thread: all of them, or those of one of its runs or tasks."""

    kind: str
    """SESSION, RUN or TASK."""
    scope_key: str
    session_id: str
    thread_key: str
    partition: int
    member_id: str | None = None
    """The run or task."""
    first_sequence: int = 1
    """Where the run's or task's events begin."""
    last_sequence: int | None = None
    """Where they end, once it ended."""

    @property
    def terminal_types(self) -> frozenset[str]:
        """Types that end the feed."""
        return TERMINAL_TYPES[self.kind]


@dataclass(frozen=True, slots=True)
class WideExtent:
    """The events of many threads: those of one scope, or of all that a grant covers."""

    kind: str
    """SCOPE or GRANT."""
    scope_keys: frozenset[str] | None
    """None: every scope."""
    name: str = field(default="")
    """The scope key of a SCOPE feed."""
    partitions: frozenset[int] | None = None
    """The log partitions in question. None: all."""

    def holds(self, partition: int) -> bool:
        """True if the partition's events are meant."""
        return self.partitions is None or partition in self.partitions


Extent = ThreadExtent | WideExtent
