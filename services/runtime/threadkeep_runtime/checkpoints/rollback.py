"""Takes back what a task's runs recorded: checkpoints, writes, and the values that nothing else refers to (R5, R20).

What a run recorded is told by its commits alone, never by what the metadata says.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any

import sqlalchemy as sa
from sqlalchemy.engine import Connection

from threadkeep_chassis.database import json_entries, json_member
from threadkeep_runtime.domain.checkpoints import ROOT_NAMESPACE, RollBack
from threadkeep_runtime.store.statements import padded
from threadkeep_runtime.tables import checkpoint_blobs, checkpoint_writes, checkpoints, commits, events, runs

KEYS_AT_ONCE = 256

_THREAD = sa.bindparam("thread_key", type_=sa.Text())
_FIRST = sa.func.coalesce(
    sa.select(events.c.commit_sequence)
    .where(events.c.thread_key == _THREAD, events.c.sequence == sa.bindparam("first_event"))
    .scalar_subquery(),
    0,
)
_COMMITS = sa.select(commits.c.sequence).where(
    commits.c.thread_key == _THREAD,
    commits.c.sequence >= _FIRST,
    commits.c.run_id.in_(
        sa.select(runs.c.run_id).where(runs.c.thread_key == _THREAD, runs.c.task_id == sa.bindparam("task_id"))
    ),
)
_ROOT_BEFORE = sa.select(sa.func.max(checkpoints.c.checkpoint_id)).where(
    checkpoints.c.thread_id == _THREAD,
    checkpoints.c.checkpoint_ns == ROOT_NAMESPACE,
    sa.or_(checkpoints.c.commit_sequence.is_(None), checkpoints.c.commit_sequence.not_in(_COMMITS)),
)
_RECORDED = sa.select(checkpoints.c.checkpoint_ns, checkpoints.c.checkpoint_id).where(
    checkpoints.c.thread_id == _THREAD, checkpoints.c.commit_sequence.in_(_COMMITS)
)
_VALUES = sa.select(checkpoint_blobs.c.checkpoint_ns, checkpoint_blobs.c.channel, checkpoint_blobs.c.version).where(
    checkpoint_blobs.c.thread_id == _THREAD, checkpoint_blobs.c.commit_sequence.in_(_COMMITS)
)
_entries = json_entries(
    sa.func.coalesce(checkpoints.c.value_versions, json_member(checkpoints.c.checkpoint, "channel_versions")), "entries"
)
# Only what was recorded since the task began can refer to its values. A stock saver's rows don't say when that was.
_REFERRED = (
    sa.select(checkpoints.c.checkpoint_ns, _entries.c.key, _entries.c.value)
    .select_from(checkpoints, _entries)
    .where(
        checkpoints.c.thread_id == _THREAD,
        sa.or_(checkpoints.c.commit_sequence.is_(None), checkpoints.c.commit_sequence >= _FIRST),
    )
    .distinct()
)
_DELETE_CHECKPOINTS = sa.delete(checkpoints).where(
    checkpoints.c.thread_id == _THREAD, checkpoints.c.commit_sequence.in_(_COMMITS)
)
_DELETE_WRITES = sa.delete(checkpoint_writes).where(
    checkpoint_writes.c.thread_id == _THREAD, checkpoint_writes.c.commit_sequence.in_(_COMMITS)
)


def _by_keys(table: sa.Table, *columns: str) -> sa.Delete:
    return sa.delete(table).where(
        table.c.thread_id == _THREAD,
        sa.tuple_(*(table.c[name] for name in columns)).in_(sa.bindparam("keys", expanding=True)),
    )


_DELETE_WRITES_OF = _by_keys(checkpoint_writes, "checkpoint_ns", "checkpoint_id")
_DELETE_VALUES = _by_keys(checkpoint_blobs, "checkpoint_ns", "channel", "version")


def load_root_before(connection: Connection, thread_key: str, roll_back: RollBack) -> str | None:
    """The greatest checkpoint id of the root namespace that stays after the rollback; None if none does."""
    found: str | None = connection.scalar(_ROOT_BEFORE, _of(thread_key, roll_back))
    return found


def apply_rollback(connection: Connection, thread_key: str, roll_back: RollBack) -> None:
    """Deletes what the task's runs recorded."""
    task = _of(thread_key, roll_back)
    gone = [tuple(row) for row in connection.execute(_RECORDED, task)]
    connection.execute(_DELETE_CHECKPOINTS, task)
    connection.execute(_DELETE_WRITES, task)
    _delete(connection, _DELETE_WRITES_OF, thread_key, gone)
    values = {tuple(row) for row in connection.execute(_VALUES, task)}
    if values:
        referred = {tuple(row) for row in connection.execute(_REFERRED, task)}
        _delete(connection, _DELETE_VALUES, thread_key, sorted(values - referred))


def _of(thread_key: str, roll_back: RollBack) -> dict[str, Any]:
    return {
        "thread_key": thread_key,
        "task_id": roll_back.task_id,
        "first_event": roll_back.first_event_sequence,
    }


def _delete(connection: Connection, statement: sa.Delete, thread_key: str, keys: Sequence[tuple[Any, ...]]) -> None:
    for some in _chunks(keys):
        connection.execute(statement, {"thread_key": thread_key, "keys": padded(some)})


def _chunks(keys: Sequence[tuple[Any, ...]]) -> Iterable[Sequence[tuple[Any, ...]]]:
    return (keys[start : start + KEYS_AT_ONCE] for start in range(0, len(keys), KEYS_AT_ONCE))
