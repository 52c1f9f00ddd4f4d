"""Checkpoint messages to domain values and back, with the checks that the descriptors can't say (R20).

What a backend could not hold is refused here, before the transaction and on every backend alike.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any

from threadkeep.runtime.v1 import checkpoint_pb2
from threadkeep_chassis.canonical import exact_text, parse_json
from threadkeep_chassis.errors import FieldInvalid
from threadkeep_chassis.limits import Limits
from threadkeep_runtime.domain.checkpoints import (
    ChannelValue,
    CheckpointOp,
    CheckpointPut,
    CheckpointWrites,
    PendingWrite,
    StagedValue,
    StoredCheckpoint,
    check_key,
    unversioned_key,
)

_NUL_ESCAPE = b"\\u0000"


def ops_from_proto(ops: Sequence[checkpoint_pb2.CheckpointOp], path: str, limits: Limits) -> tuple[CheckpointOp, ...]:
    """A commit's operations; `path` is the field that holds them. Raises FieldInvalid, LimitExceeded."""
    return tuple(_op(op, f"{path}[{index}]", limits) for index, op in enumerate(ops))


def _op(op: checkpoint_pb2.CheckpointOp, path: str, limits: Limits) -> CheckpointOp:
    which = op.WhichOneof("op")
    if which == "put":
        return put_from_proto(op.put, f"{path}.put", limits)
    if which == "writes":
        return writes_from_proto(op.writes, f"{path}.writes", limits)
    raise FieldInvalid(path, "needs put or writes")


def put_from_proto(put: checkpoint_pb2.CheckpointPut, path: str, limits: Limits) -> CheckpointPut:
    """A checkpoint to store. Raises FieldInvalid, LimitExceeded."""
    _check_text(put.checkpoint_ns, f"{path}.checkpoint_ns")
    checkpoint = _document(put.checkpoint_json, f"{path}.checkpoint_json")
    if not isinstance(checkpoint.get("channel_values", {}), dict):
        raise FieldInvalid(f"{path}.checkpoint_json", "channel_values must be an object")
    _document(put.metadata_json, f"{path}.metadata_json")
    namespace, identity = (f"{path}.checkpoint_ns", put.checkpoint_ns), (f"{path}.checkpoint_id", put.checkpoint_id)
    check_key(checkpoint_ns=namespace, checkpoint_id=identity)
    values = []
    for index, value in enumerate(put.channel_values):
        at = f"{path}.channel_values[{index}]"
        _check_text(value.channel, f"{at}.channel")
        _check_text(value.version, f"{at}.version")
        _check_text(value.type, f"{at}.type")
        # A value without a version lies under its checkpoint's id.
        version = (f"{at}.version", value.version or unversioned_key(put.checkpoint_id))
        check_key(checkpoint_ns=namespace, channel=(f"{at}.channel", value.channel), version=version)
        staged = _staged(value, at, limits)
        values.append(ChannelValue(value.channel, value.version, value.type, value.data, staged))
    return CheckpointPut(
        checkpoint_ns=put.checkpoint_ns,
        checkpoint_id=put.checkpoint_id,
        parent_checkpoint_id=put.parent_checkpoint_id if put.HasField("parent_checkpoint_id") else None,
        checkpoint_json=put.checkpoint_json,
        metadata_json=put.metadata_json,
        channel_values=tuple(values),
        value_versions=_value_versions(checkpoint, values, put.checkpoint_id, path),
        path=path,
    )


def writes_from_proto(writes: checkpoint_pb2.CheckpointWrites, path: str, limits: Limits) -> CheckpointWrites:
    """Pending writes to store. Raises FieldInvalid, LimitExceeded."""
    _check_text(writes.checkpoint_ns, f"{path}.checkpoint_ns")
    namespace = (f"{path}.checkpoint_ns", writes.checkpoint_ns)
    identity = (f"{path}.checkpoint_id", writes.checkpoint_id)
    pending = []
    for index, write in enumerate(writes.writes):
        at = f"{path}.writes[{index}]"
        _check_text(write.task_id, f"{at}.task_id")
        _check_text(write.channel, f"{at}.channel")
        _check_text(write.type, f"{at}.type")
        _check_text(write.task_path, f"{at}.task_path")
        check_key(checkpoint_ns=namespace, checkpoint_id=identity, task_id=(f"{at}.task_id", write.task_id))
        staged = _staged(write, at, limits)
        pending.append(
            PendingWrite(write.task_id, write.index, write.channel, write.type, write.data, write.task_path, staged)
        )
    return CheckpointWrites(writes.checkpoint_ns, writes.checkpoint_id, tuple(pending), path)


def _staged(
    value: checkpoint_pb2.ChannelValue | checkpoint_pb2.PendingWrite, path: str, limits: Limits
) -> StagedValue | None:
    if value.deferred_size:
        raise FieldInvalid(f"{path}.deferred_size", "stands for a value that was not read; ReadValue gives it")
    if not value.HasField("staged"):
        return None
    if value.data:
        raise FieldInvalid(f"{path}.data", "must be empty, since the value is staged")
    if value.type == "empty":
        raise FieldInvalid(f"{path}.type", "is that of a channel without a value, and a value is staged")
    limits.check("max_checkpoint_value_bytes", value.staged.size)
    return StagedValue(value.staged.staged_id, value.staged.chunk_count, value.staged.size, f"{path}.staged")


def metadata_filter(document: str) -> str | None:
    """A filter's JSON object, or None if nothing can match it (it holds NUL). Raises FieldInvalid."""
    value = parse_json(document)
    if not isinstance(value, dict):
        raise FieldInvalid("metadata_filter_json", "must be a JSON object")
    return None if _NUL_ESCAPE.decode() in document and _holds_nul(value) else document


def checkpoint_to_proto(stored: StoredCheckpoint, most_bytes: int) -> checkpoint_pb2.CheckpointTuple:
    """A stored checkpoint. Values of more than `most_bytes` together are left out, the largest first."""
    shown = checkpoint_pb2.CheckpointTuple(
        session_id=stored.session_id,
        checkpoint_ns=stored.checkpoint_ns,
        checkpoint_id=stored.checkpoint_id,
        parent_checkpoint_id=stored.parent_checkpoint_id,
        checkpoint_json=stored.checkpoint_json,
        metadata_json=stored.metadata_json,
        channel_values=[
            checkpoint_pb2.ChannelValue(
                channel=value.channel,
                version=value.version,
                type=value.type,
                data=value.data,
                deferred_size=value.deferred_size,
            )
            for value in stored.channel_values
        ],
        pending_writes=[
            checkpoint_pb2.PendingWrite(
                task_id=write.task_id,
                index=write.index,
                channel=write.channel,
                type=write.type,
                data=write.data,
                task_path=write.task_path,
                deferred_size=write.deferred_size,
            )
            for write in stored.pending_writes
        ],
        commit_sequence=stored.commit_sequence,
    )
    values: list[checkpoint_pb2.ChannelValue | checkpoint_pb2.PendingWrite]
    values = [*shown.channel_values, *shown.pending_writes]
    excess = sum(len(value.data) for value in values) - most_bytes
    if excess > 0:
        for value in sorted(values, key=lambda value: len(value.data), reverse=True):
            value.deferred_size = len(value.data)
            value.data = b""
            excess -= value.deferred_size
            if excess <= 0:
                break
    return shown


def _document(document: bytes, path: str) -> dict[str, Any]:
    """The JSON object; NaN, lone surrogates and the like were refused by the field's rule already."""
    value = parse_json(document)
    if not isinstance(value, dict):
        raise FieldInvalid(path, "must be a JSON object")
    if _NUL_ESCAPE in document and _holds_nul(value):
        raise FieldInvalid(path, "must hold no NUL character; a value that does belongs into channel_values")
    return value


def _holds_nul(value: Any) -> bool:
    pending = [value]
    while pending:
        item = pending.pop()
        if isinstance(item, str):
            if "\x00" in item:
                return True
        elif isinstance(item, dict):
            pending.extend(item)
            pending.extend(item.values())
        elif isinstance(item, list):
            pending.extend(item)
    return False


def _check_text(text: str, path: str) -> None:
    if "\x00" in text:
        raise FieldInvalid(path, "must hold no NUL character")


def _value_versions(
    checkpoint: dict[str, Any], values: Iterable[ChannelValue], checkpoint_id: str, path: str
) -> str | None:
    """Where the checkpoint's values lie, if its channel_versions, all texts, do not say it."""
    versions = checkpoint.get("channel_versions", {})
    at = f"{path}.checkpoint_json"
    if not isinstance(versions, dict):
        raise FieldInvalid(at, "channel_versions must be an object")
    unversioned = [value.channel for value in values if not value.version]
    if any(channel in versions for channel in unversioned):
        raise FieldInvalid(f"{path}.channel_values", "a channel of channel_versions needs its version here")
    if not unversioned and all(isinstance(version, str) for version in versions.values()):
        return None
    shown = {channel: text for channel, version in versions.items() if (text := _version_text(version, at)) is not None}
    shown.update((channel, unversioned_key(checkpoint_id)) for channel in unversioned)
    return exact_text(shown)


def _version_text(version: Any, path: str) -> str | None:
    if isinstance(version, str):
        return version
    if version is None:
        return None
    if isinstance(version, bool) or not isinstance(version, (int, float)):
        raise FieldInvalid(path, "channel_versions holds texts and numbers")
    return exact_text(version)
