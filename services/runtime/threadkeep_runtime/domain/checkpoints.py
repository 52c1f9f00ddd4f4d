"""LangGraph checkpoints as the domain sees them: opaque values with ids that sort (R20).

What a checkpoint means is the saver's business. Here only ids, namespaces and the thread's floors decide.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import NamedTuple

ROOT_NAMESPACE = ""


class ChannelValue(NamedTuple):
    """One channel's value that is not inline, as the serialiser dumped it."""

    channel: str
    version: str
    type: str
    data: bytes


class PendingWrite(NamedTuple):
    """One pending write of a LangGraph task."""

    task_id: str
    index: int
    channel: str
    type: str
    data: bytes
    task_path: str


@dataclass(frozen=True, slots=True)
class CheckpointPut:
    """A checkpoint to store. The JSON fields are documents in UTF-8 that were checked at the edge."""

    checkpoint_ns: str
    checkpoint_id: str
    parent_checkpoint_id: str | None
    checkpoint_json: bytes
    metadata_json: bytes
    channel_values: tuple[ChannelValue, ...]


@dataclass(frozen=True, slots=True)
class CheckpointWrites:
    """Pending writes of the checkpoint that they name, which may arrive later."""

    checkpoint_ns: str
    checkpoint_id: str
    writes: tuple[PendingWrite, ...]


CheckpointOp = CheckpointPut | CheckpointWrites


@dataclass(frozen=True, slots=True)
class CheckpointFacts:
    """What the tables say about the checkpoints that a command names (loaded only where the thread row can't tell)."""

    existing: frozenset[tuple[str, str]] = frozenset()
    """(checkpoint_ns, checkpoint_id) of those asked for that are stored."""
    greatest: Mapping[str, str] = field(default_factory=dict)
    """Greatest stored id of each namespace asked for; a namespace without checkpoints is absent."""


@dataclass(frozen=True, slots=True)
class CheckpointChange:
    """What one commit does to the checkpoint tables."""

    thread_key: str
    commit_sequence: int
    ops: tuple[CheckpointOp, ...] = ()
    delete_all: bool = False
    """Remove everything of the thread first: checkpoints, blobs and writes."""
