"""LangGraph checkpoints as a thread sees them: values, and the rules that a commit's checkpoint operations must meet.

Values stay opaque. Statements are in `checkpoints/`; when they run, and under which lease, is the commit's affair.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from typing import Any

from threadkeep_chassis.errors import FailedPrecondition, FieldInvalid, InvalidArgument

ROOT_NAMESPACE = ""
"""The namespace of the root graph."""

MAX_KEY_BYTES = 2500
"""Largest number of bytes that the names of one row's key have together, in UTF-8. PostgreSQL's index takes 2,704 for
the whole key, with the thread's 40 and the columns' headers; what it could not hold, no backend takes."""


class CheckpointDeleted(FailedPrecondition):
    """The checkpoint was deleted; it does not come back (R19)."""

    reason = "CHECKPOINT_DELETED"
    default_message = "The checkpoint was deleted; a put or writes do not bring it back."

    def __init__(self, checkpoint_id: str) -> None:
        super().__init__(resource=("checkpoint", checkpoint_id))


class StagedValueIncomplete(FailedPrecondition):
    """A staged value does not have the chunks or the size that the commit says."""

    reason = "STAGED_VALUE_INCOMPLETE"

    def __init__(self, path: str) -> None:
        super().__init__(f"{path}: the staged value is not there as it is described; stage it again.")


class CheckpointIdOrder(InvalidArgument):
    """A new checkpoint's id does not sort above the greatest of its namespace (R20)."""

    reason = "CHECKPOINT_ID_ORDER"

    def __init__(self, path: str, greatest: str) -> None:
        super().__init__(
            f"{path}: must sort above the namespace's greatest checkpoint id; raise the id clock and try again.",
            violations=[(path, "must sort above the namespace's greatest checkpoint id")],
            metadata={"greatest_checkpoint_id": greatest},
        )


@dataclass(frozen=True, slots=True)
class StagedValue:
    """A value that lies in chunks until the commit that names it."""

    staged_id: str
    chunk_count: int
    size: int
    """Bytes."""
    path: str = field(default="staged", compare=False)
    """Where the request holds it, for errors."""


@dataclass(frozen=True, slots=True)
class ChannelValue:
    """One channel's dumped value. With an empty `version` the channel has none: the value is its checkpoint's own."""

    channel: str
    version: str
    type: str
    data: bytes
    staged: StagedValue | None = None
    """To be written: where the value lies, if it is not in `data`."""
    deferred_size: int = 0
    """Read back: bytes of a value that was left out."""


@dataclass(frozen=True, slots=True)
class CheckpointPut:
    """A checkpoint to store. `checkpoint_json` and `metadata_json` are JSON objects that hold no NUL character."""

    checkpoint_ns: str
    checkpoint_id: str
    parent_checkpoint_id: str | None
    checkpoint_json: bytes
    metadata_json: bytes
    channel_values: tuple[ChannelValue, ...] = ()
    value_versions: str | None = None
    """JSON object of channel to version text, where the checkpoint's `channel_versions` do not say it: they hold
    numbers, or a value has no version. None: `channel_versions` says it all."""
    path: str = field(default="put", compare=False)
    """Where the request holds it, for errors."""


@dataclass(frozen=True, slots=True)
class PendingWrite:
    """One write of a LangGraph task. Special channels have a negative index: there the last write counts."""

    task_id: str
    index: int
    channel: str
    type: str
    data: bytes
    task_path: str = ""
    staged: StagedValue | None = None
    deferred_size: int = 0


@dataclass(frozen=True, slots=True)
class CheckpointWrites:
    """Pending writes to store, of a checkpoint that may arrive later."""

    checkpoint_ns: str
    checkpoint_id: str
    writes: tuple[PendingWrite, ...]
    path: str = field(default="writes", compare=False)
    """Where the request holds it, for errors."""


CheckpointOp = CheckpointPut | CheckpointWrites
"""One operation of a commit on its thread's checkpoints."""


@dataclass(frozen=True, slots=True)
class StoredCheckpoint:
    """A checkpoint as it is read back. `pending_writes` are ordered by task_path, task_id and index."""

    session_id: str
    checkpoint_ns: str
    checkpoint_id: str
    parent_checkpoint_id: str | None
    checkpoint_json: bytes
    metadata_json: bytes
    channel_values: tuple[ChannelValue, ...]
    pending_writes: tuple[PendingWrite, ...]
    commit_sequence: int


@dataclass(frozen=True, slots=True)
class CheckpointIndex:
    """What a thread holds of the checkpoints that a commit names, read under the thread's lock."""

    floor: str = ""
    """The greatest checkpoint id that the thread has ever held, in any namespace. Empty: none."""
    deleted_floor: str = ""
    """The floor at the thread's last deletion: what lies at or below it and has no row is gone for good."""
    existing: frozenset[tuple[str, str]] = frozenset()
    """Those of the named (checkpoint_ns, checkpoint_id) that have a row. Only ids up to the floor are looked up."""
    greatest: Mapping[str, str] = field(default_factory=dict)
    """The greatest id of each namespace that was looked up."""


@dataclass(frozen=True, slots=True)
class RollBack:
    """Whose checkpoints go: what the commits of this task's runs recorded, whatever the metadata says (R20)."""

    task_id: str
    first_event_sequence: int
    """The task's first event: no commit before it was one of its runs'."""


@dataclass(frozen=True, slots=True)
class Head:
    """The root namespace's greatest checkpoint, as `threadkeep.checkpoint.saved` tells of it."""

    checkpoint_id: str
    parent_checkpoint_id: str | None
    channels: tuple[str, ...]
    """Channels with a value that is not inline."""


@dataclass(frozen=True, slots=True)
class Removal:
    """What a thread loses: checkpoints with their writes, and values that no other checkpoint refers to."""

    checkpoints: tuple[tuple[str, str], ...]
    """(checkpoint_ns, checkpoint_id)."""
    values: tuple[tuple[str, str, str], ...]
    """(checkpoint_ns, channel, version)."""
    head: Head | None
    """What is the root's head afterwards."""


@dataclass(frozen=True, slots=True)
class CheckpointChange:
    """What one commit does to the checkpoint tables: copies, deletes, if so decided; then the operations."""

    thread_key: str
    commit_sequence: int
    ops: tuple[CheckpointOp, ...] = ()
    delete_all: bool = False
    removal: Removal | None = None
    copied_from: str | None = None
    """Key of the thread whose rows are copied."""
    roll_back: RollBack | None = None
    scope_key: str = ""
    """Whose staged values the operations name."""
    time: datetime | None = None
    """When the commit happens."""
    copied_upto: int | None = None
    """Only what commits up to this one recorded is copied. None: everything."""
    copied_below: str = ""
    """Of rows that don't say which commit recorded them: those of checkpoints up to this id."""


@dataclass(frozen=True, slots=True)
class CheckpointDecision:
    """What a commit's operations come to."""

    floor: str
    """The thread's floor after the commit."""
    saved: tuple[CheckpointPut, ...]
    """The puts, in order: one `threadkeep.checkpoint.saved` each."""


def unversioned_key(checkpoint_id: str) -> str:
    """The version under which a checkpoint's value of an unversioned channel lies: no other checkpoint finds it."""
    return f"@{checkpoint_id}"


def check_key(**names: tuple[str, str]) -> None:
    """Raises FieldInvalid, of the longest name, if a row's names are too long together.

    `names`: what each is called, with its path in the request and its text.
    """
    sizes = {name: len(text.encode()) for name, (_, text) in names.items()}
    total = sum(sizes.values())
    if total > MAX_KEY_BYTES:
        longest = max(sizes, key=sizes.__getitem__)
        rule = f"{', '.join(names)} have at most {MAX_KEY_BYTES} bytes together, not {total}"
        raise FieldInvalid(names[longest][0], rule)


def named_at_or_below(ops: Iterable[CheckpointOp], floor: str) -> set[tuple[str, str]]:
    """The (checkpoint_ns, checkpoint_id) that must be looked up before `decide_checkpoint_ops`.

    An id above the floor has no row anywhere in the thread, so a commit that only adds newer checkpoints looks up
    nothing but the one that its writes follow.
    """
    return {(op.checkpoint_ns, op.checkpoint_id) for op in ops if op.checkpoint_id <= floor}


def decide_checkpoint_ops(ops: Sequence[CheckpointOp], index: CheckpointIndex, *, fenced: bool) -> CheckpointDecision:
    """Judges a commit's operations in order; `fenced` says that the commit carries the run's lease.

    A checkpoint counts as deleted when it has no row and its id is at or below what was deleted last, or not above its
    namespace's greatest. Another namespace's greater id does not count: parallel subgraphs save in no fixed order.

    Raises CheckpointIdOrder, CheckpointDeleted.
    """
    floor = index.floor
    existing = set(index.existing)
    greatest = dict(index.greatest)
    saved: list[CheckpointPut] = []
    for op in ops:
        namespace, checkpoint_id = op.checkpoint_ns, op.checkpoint_id
        if (namespace, checkpoint_id) not in existing:
            top = greatest.get(namespace, "")
            if isinstance(op, CheckpointPut) and fenced and checkpoint_id <= top:
                raise CheckpointIdOrder(f"{op.path}.checkpoint_id", top)
            if checkpoint_id <= top or checkpoint_id <= index.deleted_floor:
                raise CheckpointDeleted(checkpoint_id)
        if isinstance(op, CheckpointPut):
            existing.add((namespace, checkpoint_id))
            greatest[namespace] = max(checkpoint_id, greatest.get(namespace, ""))
            floor = max(floor, checkpoint_id)
            saved.append(op)
    return CheckpointDecision(floor, tuple(saved))


def staged_values(ops: Iterable[CheckpointOp]) -> list[StagedValue]:
    """The staged values that the operations name."""
    found: list[StagedValue] = []
    for op in ops:
        parts = op.channel_values if isinstance(op, CheckpointPut) else op.writes
        found += [part.staged for part in parts if part.staged is not None]
    return found


def check_staged(ops: Iterable[CheckpointOp], there: Mapping[str, StagedValue]) -> None:
    """Raises StagedValueIncomplete if a value that the operations name is not there as they say."""
    for value in staged_values(ops):
        if there.get(value.staged_id) != value:
            raise StagedValueIncomplete(value.path)


def saved_payload(put: CheckpointPut) -> dict[str, Any]:
    """The JSON payload of `threadkeep.checkpoint.saved`."""
    return {
        "checkpoint_ns": put.checkpoint_ns,
        "checkpoint_id": put.checkpoint_id,
        "parent_checkpoint_id": put.parent_checkpoint_id,
        "channels": [value.channel for value in put.channel_values],
    }


def head_payload(head: Head) -> dict[str, Any]:
    """The same for a checkpoint that became the root's head without being put."""
    return {
        "checkpoint_ns": ROOT_NAMESPACE,
        "checkpoint_id": head.checkpoint_id,
        "parent_checkpoint_id": head.parent_checkpoint_id,
        "channels": list(head.channels),
    }
