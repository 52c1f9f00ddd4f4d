"""Writes of many threads' checkpoint operations: a statement per table, inside the commit's transaction (R1, R20).

A key that is there already gets LangGraph's own answer: a checkpoint is updated, a blob stays (a version has one
value), an ordinary write stays, and a special channel's write (negative index) is replaced (B26).
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple

import sqlalchemy as sa
from sqlalchemy.engine import Connection

from threadkeep_chassis.database import upsert, write_rows
from threadkeep_runtime.checkpoints.removing import copy, remove
from threadkeep_runtime.checkpoints.rollback import apply_rollback
from threadkeep_runtime.checkpoints.staging import discard_staged, staged_data
from threadkeep_runtime.domain.checkpoints import (
    ChannelValue,
    CheckpointChange,
    CheckpointPut,
    CheckpointWrites,
    PendingWrite,
    staged_values,
    unversioned_key,
)
from threadkeep_runtime.store.statements import padded
from threadkeep_runtime.tables import checkpoint_blobs, checkpoint_writes, checkpoints

NO_VALUE = "empty"
"""LangGraph's type tag of a channel without a value; its blob is NULL."""

_PUT = upsert(
    checkpoints,
    ["thread_id", "checkpoint_ns", "checkpoint_id"],
    update=["checkpoint", "metadata", "checkpoint_bytes", "metadata_bytes", "value_versions"],
)
# A value without a version belongs to its checkpoint, and is updated with it.
_PUT_BLOB = upsert(
    checkpoint_blobs,
    ["thread_id", "checkpoint_ns", "channel", "version"],
    update=["type", "blob"],
    where=sa.func.substr(checkpoint_blobs.c.version, 1, 1) == "@",
)
_PUT_WRITE = upsert(
    checkpoint_writes,
    ["thread_id", "checkpoint_ns", "checkpoint_id", "task_id", "idx"],
    update=["channel", "type", "blob"],
    where=checkpoint_writes.c.idx < 0,
)


class _Staged(NamedTuple):
    """Stands for a value that is read when its row is written."""

    scope_key: str
    staged_id: str


_DELETES = tuple(
    sa.delete(table).where(table.c.thread_id.in_(sa.bindparam("threads", expanding=True)))
    for table in (checkpoints, checkpoint_blobs, checkpoint_writes)
)


def apply_changes(connection: Connection, changes: Sequence[CheckpointChange]) -> None:
    """Writes the changes of different threads: copies of what was there, deletes, then their operations in order."""
    for change in changes:
        if change.copied_from is not None:
            copy(connection, change)
    for change in changes:
        if change.removal is not None:
            remove(connection, change.thread_key, change.removal)
    deleted = [change.thread_key for change in changes if change.delete_all]
    if deleted:
        for statement in _DELETES:
            connection.execute(statement, {"threads": padded(deleted)})
    for change in changes:
        if change.roll_back is not None:
            apply_rollback(connection, change.thread_key, change.roll_back)
    rows: list[dict[str, Any]] = []
    blobs: list[dict[str, Any]] = []
    writes: list[dict[str, Any]] = []
    for change in changes:
        for op in change.ops:
            if isinstance(op, CheckpointPut):
                rows.append(_row(change, op))
                blobs += _blobs(change, op)
            else:
                writes += _writes(change, op)
    _write(connection, _PUT_BLOB, blobs)
    write_rows(connection, _PUT, rows)
    _write(connection, _PUT_WRITE, writes)
    for change in changes:
        used_up = [value.staged_id for value in staged_values(change.ops)]
        if used_up:
            discard_staged(connection, change.scope_key, used_up)


def _write(connection: Connection, statement: sa.Executable, rows: Sequence[dict[str, Any]]) -> None:
    """Writes rows in order, many with one statement; a staged value alone, since it is large."""
    together: list[dict[str, Any]] = []
    for row in rows:
        blob = row["blob"]
        if not isinstance(blob, _Staged):
            together.append(row)
            continue
        write_rows(connection, statement, together)
        together = []
        write_rows(connection, statement, [{**row, "blob": staged_data(connection, *blob)}])
    write_rows(connection, statement, together)


def _row(change: CheckpointChange, put: CheckpointPut) -> dict[str, Any]:
    return {
        "thread_id": change.thread_key,
        "checkpoint_ns": put.checkpoint_ns,
        "checkpoint_id": put.checkpoint_id,
        "parent_checkpoint_id": put.parent_checkpoint_id,
        "checkpoint": put.checkpoint_json.decode(),
        "metadata": put.metadata_json.decode(),
        "checkpoint_bytes": put.checkpoint_json,
        "metadata_bytes": put.metadata_json,
        "value_versions": put.value_versions,
        "commit_sequence": change.commit_sequence,
        "create_time": change.time,
    }


def _blobs(change: CheckpointChange, put: CheckpointPut) -> list[dict[str, Any]]:
    return [
        {
            "thread_id": change.thread_key,
            "checkpoint_ns": put.checkpoint_ns,
            "channel": value.channel,
            "version": value.version or unversioned_key(put.checkpoint_id),
            "type": value.type,
            "blob": None if value.type == NO_VALUE else _blob(change, value),
            "commit_sequence": change.commit_sequence,
        }
        for value in put.channel_values
    ]


def _writes(change: CheckpointChange, op: CheckpointWrites) -> list[dict[str, Any]]:
    return [
        {
            "thread_id": change.thread_key,
            "checkpoint_ns": op.checkpoint_ns,
            "checkpoint_id": op.checkpoint_id,
            "task_id": write.task_id,
            "idx": write.index,
            "channel": write.channel,
            "type": write.type,
            "blob": _blob(change, write),
            "task_path": write.task_path,
            "commit_sequence": change.commit_sequence,
        }
        for write in op.writes
    ]


def _blob(change: CheckpointChange, value: ChannelValue | PendingWrite) -> bytes | _Staged:
    return value.data if value.staged is None else _Staged(change.scope_key, value.staged.staged_id)
