"""Delta channels' histories, gathered from a list of checkpoints that comes newest first.

An ancestor's id sorts below its child's, so that one pass over the list meets the whole chain. What is not on it
(forks) is passed over, and only the wanted channels are decoded.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from langgraph.checkpoint.base import DeltaChannelHistory
from langgraph.checkpoint.serde.base import SerializerProtocol

from threadkeep.langgraph import codec
from threadkeep.runtime.v1 import checkpoint_pb2


class History:
    """One walk up a chain of parents."""

    def __init__(self, channels: Sequence[str], parent_id: str, serde: SerializerProtocol) -> None:
        """`parent_id` is where the walk begins; empty: nowhere."""
        self._channels = list(channels)
        self._open = set(channels)
        self._next = parent_id
        self._serde = serde
        self._writes: dict[str, list[Any]] = {channel: [] for channel in channels}
        self._seeds: dict[str, Any] = {}

    def wants_more(self) -> bool:
        """True while an ancestor is left to visit, and a channel without a seed."""
        return bool(self._next and self._open)

    def ancestors(self, session_id: str, of: checkpoint_pb2.CheckpointTuple) -> dict[str, Any]:
        """The list that meets the next ancestor: all checkpoints from it downwards."""
        return {
            "session_id": session_id,
            "checkpoint_ns": of.checkpoint_ns,
            # Sorts directly behind it.
            "before_checkpoint_id": self._next + " ",
        }

    @property
    def open_channels(self) -> frozenset[str]:
        """The channels that have no seed yet: their values, and writes to them, are wanted."""
        return frozenset(self._open)

    def is_next(self, stored: checkpoint_pb2.CheckpointTuple) -> bool:
        """True if the checkpoint is the next ancestor."""
        return stored.checkpoint_id == self._next

    def visit(self, stored: checkpoint_pb2.CheckpointTuple) -> None:
        """Takes what the next ancestor has to say."""
        wanted = [write for write in stored.pending_writes if write.channel in self._open]
        for write in reversed(codec.from_writes(wanted, self._serde)):
            self._writes[write[1]].append(write)
        for channel, value in codec.values_of(stored, self._open, self._serde).items():
            self._seeds[channel] = value
            self._open.discard(channel)
        self._next = stored.parent_checkpoint_id

    def result(self) -> Mapping[str, DeltaChannelHistory]:
        """Of each channel its writes, the oldest first, and its seed if there is one."""
        found: dict[str, DeltaChannelHistory] = {}
        for channel in self._channels:
            entry: DeltaChannelHistory = {"writes": self._writes[channel][::-1]}
            if channel in self._seeds:
                entry["seed"] = self._seeds[channel]
            found[channel] = entry
        return found
