"""State of any size: what does not fit into one message is staged in chunks, and what a reply left out is read (B92).

Pure: says which calls to make; the savers and the queue make them.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator
from dataclasses import dataclass
from typing import Any

from threadkeep._api import threads
from threadkeep._rpc.method import Call, new_request_id
from threadkeep.common.v1 import server_info_service_pb2
from threadkeep.errors import LimitExceeded
from threadkeep.runtime.v1 import checkpoint_pb2, checkpoint_service_pb2

ALWAYS_FITS = 256 * 1024
"""Bytes up to which nobody asks how large a message may be."""
CHUNK_BYTES = 4 * 1024 * 1024
"""Most bytes of a chunk; less where messages are smaller."""
_ENVELOPE = 4096
"""Bytes that a request may have beside its operations."""

Value = checkpoint_pb2.ChannelValue | checkpoint_pb2.PendingWrite
Operation = checkpoint_pb2.CheckpointPut | checkpoint_pb2.CheckpointWrites
Staging = Call[checkpoint_service_pb2.StageChunkResponse]


def message_limit(info: server_info_service_pb2.GetServerInfoResponse) -> int:
    """The largest message that a server takes, in bytes."""
    return next((int(one.value) for one in info.limits if one.name == "max_message_bytes"), 16 * 1024 * 1024)


def check_result(size: int, info: server_info_service_pb2.GetServerInfoResponse) -> None:
    """Raises LimitExceeded for a result that the server would refuse. A state has no such bound: it is staged."""
    limit = next((int(one.value) for one in info.limits if one.name == "max_task_result_bytes"), message_limit(info))
    if size > limit:
        advice = "Store the content as an artifact and name it in the result."
        raise LimitExceeded(
            f"max_task_result_bytes is {limit}, this is {size}. {advice}",
            metadata={
                "limit": "max_task_result_bytes", "maximum": str(limit), "actual": str(size), "advice": advice
            },
        )  # fmt: skip


def stage(operations: Collection[Operation], limit: int) -> Iterator[Staging]:
    """The calls that stage values, the largest first, until the rest fits into one message of `limit` bytes.

    The operations change: they name the staged values. A value is changed once its chunks have been given out, so that
    a caller who stops on the way has operations that are whole.
    """
    size = sum(operation.ByteSize() for operation in operations) + _ENVELOPE
    values: list[Value] = [value for operation in operations for value in _values(operation)]
    chunk_bytes = max(1, min(CHUNK_BYTES, limit // 2))
    for value in sorted(values, key=lambda value: len(value.data), reverse=True):
        if size <= limit or not value.data:
            return
        staged_id, data = new_request_id(), value.data
        starts = range(0, len(data), chunk_bytes)
        for index, start in enumerate(starts):
            yield threads.stage_chunk(staged_id, index, data[start : start + chunk_bytes])
        value.staged.staged_id, value.staged.chunk_count, value.staged.size = staged_id, len(starts), len(data)
        value.data = b""
        size -= len(data)


def _values(operation: Operation) -> list[Value]:
    if isinstance(operation, checkpoint_pb2.CheckpointPut):
        return list(operation.channel_values)
    return list(operation.writes)


@dataclass(frozen=True)
class Missing:
    """A value that a reply left out, and the place that it is read from."""

    value: Value
    place: tuple[Any, ...]
    """The arguments of `checkpoints.read_value`."""
    key: tuple[Any, ...]


class Reading:
    """The large values of a list's checkpoints: one that the checkpoint before had as well is not read again."""

    def __init__(self) -> None:
        self._before: dict[tuple[Any, ...], bytes] = {}
        self._now: dict[tuple[Any, ...], bytes] = {}

    def missing(
        self, stored: checkpoint_pb2.CheckpointTuple, channels: Collection[str] | None = None
    ) -> Iterator[Missing]:
        """What is to be read of the next checkpoint, of some channels or (None) all. `fill` each before going on."""
        self._before, self._now = self._now or self._before, {}
        values: list[Value] = [*stored.channel_values, *stored.pending_writes]
        for value in values:
            if not value.deferred_size or (channels is not None and value.channel not in channels):
                continue
            if isinstance(value, checkpoint_pb2.PendingWrite):
                of: tuple[Any, ...] = (stored.checkpoint_id, value.task_id, value.index)
            else:
                of = (value.channel, value.version or stored.checkpoint_id)
            missing = Missing(
                value,
                (stored.session_id, stored.checkpoint_ns, stored.checkpoint_id, value),
                (stored.session_id, stored.checkpoint_ns, *of),
            )
            known = self._before.get(missing.key)
            if known is None:
                yield missing
            else:
                self.fill(missing, known)

    def fill(self, missing: Missing, data: bytes) -> None:
        """Puts the value where it belongs."""
        self._now[missing.key] = data
        missing.value.data, missing.value.deferred_size = data, 0
