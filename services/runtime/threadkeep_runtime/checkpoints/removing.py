"""What a prune or delete_for_runs takes away, found under the thread's lock; and copies of whole threads."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime
from typing import Any

import sqlalchemy as sa
from sqlalchemy.engine import Connection

from threadkeep_chassis.database import insert_or_ignore, json_entries, json_member, json_text_at
from threadkeep_runtime.domain.checkpoints import ROOT_NAMESPACE, CheckpointChange, Head, Removal
from threadkeep_runtime.domain.pruning import Kept, Name, beyond, keep, keep_latest, latest
from threadkeep_runtime.domain.retention import Rule
from threadkeep_runtime.store.statements import padded
from threadkeep_runtime.tables import checkpoint_blobs, checkpoint_writes, checkpoints, threads

CHUNK = 500

_C, _B, _W = checkpoints.c, checkpoint_blobs.c, checkpoint_writes.c
_THREAD = sa.bindparam("thread_key", type_=sa.Text())
_RUN = json_text_at(_C.metadata, "run_id")
_OF_RUNS = _RUN.in_(sa.bindparam("run_ids", expanding=True))
_inline = json_entries(json_member(_C.checkpoint, "channel_values"), "inline")
_versions = json_entries(
    sa.func.coalesce(_C.value_versions, json_member(_C.checkpoint, "channel_versions")), "versions"
)

_ROWS = sa.select(_C.checkpoint_ns, _C.checkpoint_id, _C.parent_checkpoint_id).where(_C.thread_id == _THREAD)
_NAMED = sa.select(_C.checkpoint_ns, _C.checkpoint_id).where(_C.thread_id == _THREAD, _OF_RUNS)
_INLINE = (
    sa.select(_C.checkpoint_ns, _C.checkpoint_id, _inline.c.key)
    .select_from(checkpoints, _inline)
    .where(_C.thread_id == _THREAD)
)
_LINKS = (
    sa.select(_C.checkpoint_ns, _C.checkpoint_id, _versions.c.key, _versions.c.value)
    .select_from(checkpoints, _versions)
    .where(_C.thread_id == _THREAD)
)
_VALUES = sa.select(_B.checkpoint_ns, _B.channel, _B.version, _B.type).where(_B.thread_id == _THREAD)
_WRITES = (
    sa.select(_W.checkpoint_ns, _W.checkpoint_id, _W.channel).where(_W.thread_id == _THREAD).distinct()
)  # fmt: skip
_TIMES = (
    sa.select(_C.checkpoint_ns, _C.checkpoint_id, sa.func.coalesce(_C.create_time, threads.c.create_time))
    .join(threads, threads.c.thread_key == _C.thread_id)
    .where(_C.thread_id == _THREAD)
)
_HOLDS = sa.select(_C.checkpoint_id).where(_C.thread_id == _THREAD).limit(1)
_SESSIONS = (
    sa.select(threads.c.session_id)
    .where(
        threads.c.scope_key == sa.bindparam("scope_key"),
        threads.c.delete_time.is_(None),
        sa.exists().where(_C.thread_id == threads.c.thread_key, _OF_RUNS),
    )
    .order_by(threads.c.session_id)
)


def _delete(table: sa.Table, *keys: str) -> sa.Delete:
    return sa.delete(table).where(
        table.c.thread_id == _THREAD,
        sa.tuple_(*(table.c[key] for key in keys)).in_(sa.bindparam("keys", expanding=True)),
    )


_REMOVE = tuple(_delete(table, "checkpoint_ns", "checkpoint_id") for table in (checkpoints, checkpoint_writes))
_REMOVE_VALUES = _delete(checkpoint_blobs, "checkpoint_ns", "channel", "version")


def sessions_of_runs(connection: Connection, scope_key: str, run_ids: Sequence[str]) -> list[str]:
    """The scope's sessions that hold checkpoints of these runs, in order."""
    return list(connection.scalars(_SESSIONS, {"scope_key": scope_key, "run_ids": padded(run_ids)}))


def load_removal(
    connection: Connection, thread_key: str, run_ids: Sequence[str] | None, rule: Rule | None, now: datetime
) -> Removal | None:
    """What goes when these runs' checkpoints go, or (None) all that a prune or the rule does not keep.

    None if that is nothing. Of a rule the oldest go first, a bounded number.
    """
    thread = {"thread_key": thread_key}
    rows = {(row[0], row[1]): Kept(row[2]) for row in connection.execute(_ROWS, thread)}
    if run_ids is not None:
        gone = {(row[0], row[1]) for row in connection.execute(_NAMED, {**thread, "run_ids": padded(run_ids)})}
        if not gone:
            return None
    values = {(row[0], row[1], row[2]): row[3] for row in connection.execute(_VALUES, thread)}
    links: dict[Name, list[tuple[str, str]]] = {}
    for namespace, checkpoint_id, channel, version in connection.execute(_LINKS, thread):
        if (namespace, channel, version) in values:
            links.setdefault((namespace, checkpoint_id), []).append((channel, version))
    if run_ids is None:
        _describe(connection, thread, rows, links, values)
        gone = set(rows) - (keep_latest(rows) if rule is None else _kept_by(connection, thread_key, rows, rule, now))
        if rule is not None:
            gone = set(sorted(gone, key=lambda name: name[1])[:CHUNK])
        if not gone:
            return None
    left = [name for name in rows if name not in gone]
    used = {(name[0], channel, version) for name in left for channel, version in links.get(name, ())}
    lost = {(name[0], channel, version) for name in gone for channel, version in links.get(name, ())} - used
    head_id = latest(left).get(ROOT_NAMESPACE)
    return Removal(
        tuple(sorted(gone)),
        tuple(sorted(lost)),
        None if head_id is None else _head(head_id, rows, links),
    )


def _kept_by(connection: Connection, thread_key: str, rows: dict[Name, Kept], rule: Rule, now: datetime) -> set[Name]:
    cutoff = rule.cutoff(now)
    times = {(row[0], row[1]): row[2] for row in connection.execute(_TIMES, {"thread_key": thread_key})}

    def is_due(name: Name, rank: int) -> bool:
        too_many = rule.max_count is not None and rank >= rule.max_count
        return too_many or (cutoff is not None and times[name] < cutoff)

    kept, _ = beyond(rows, rule.keep_latest, is_due)
    return keep(rows, kept)


def _head(checkpoint_id: str, rows: dict[Name, Kept], links: dict[Name, list[tuple[str, str]]]) -> Head:
    name = (ROOT_NAMESPACE, checkpoint_id)
    channels = tuple(sorted(channel for channel, _ in links.get(name, ())))
    return Head(checkpoint_id, rows[name].parent_checkpoint_id, channels)


def _describe(
    connection: Connection,
    thread: dict[str, str],
    rows: dict[Name, Kept],
    links: dict[Name, list[tuple[str, str]]],
    values: dict[tuple[str, str, str], str],
) -> None:
    for namespace, checkpoint_id, channel in connection.execute(_INLINE, thread):
        rows[namespace, checkpoint_id].stored.add(channel)
    for name, pairs in links.items():
        rows[name].stored.update(channel for channel, version in pairs if values[name[0], channel, version] != "empty")
    for namespace, checkpoint_id, channel in connection.execute(_WRITES, thread):
        kept = rows.get((namespace, checkpoint_id))
        if kept is not None:
            kept.written.add(channel)


def holds_checkpoints(connection: Connection, thread_key: str) -> bool:
    """True if the thread holds any."""
    return connection.scalar(_HOLDS, {"thread_key": thread_key}) is not None


def load_head(connection: Connection, thread_key: str, checkpoint_id: str) -> Head | None:
    """The root's checkpoint of that id."""
    thread = {"thread_key": thread_key}
    at = (_C.checkpoint_ns == ROOT_NAMESPACE, _C.checkpoint_id == checkpoint_id)
    row = connection.execute(_ROWS.where(*at), thread).first()
    if row is None:
        return None
    links = connection.execute(_LINKS.where(*at), thread).all()
    pairs = [(channel, version) for _, _, channel, version in links]
    if not pairs:
        return Head(checkpoint_id, row[2], ())
    stored = connection.execute(
        _VALUES.where(
            _B.checkpoint_ns == ROOT_NAMESPACE,
            sa.tuple_(_B.channel, _B.version).in_(sa.bindparam("pairs", expanding=True)),
        ),
        {**thread, "pairs": padded(pairs)},
    )
    return Head(checkpoint_id, row[2], tuple(sorted(one.channel for one in stored)))


def remove(connection: Connection, thread_key: str, removal: Removal) -> None:
    """Deletes the rows."""
    for statement in _REMOVE:
        _in_chunks(connection, statement, thread_key, removal.checkpoints)
    _in_chunks(connection, _REMOVE_VALUES, thread_key, removal.values)


def _in_chunks(connection: Connection, statement: sa.Delete, thread_key: str, keys: Sequence[Any]) -> None:
    for start in range(0, len(keys), CHUNK):
        chunk = [*keys[start : start + CHUNK]]
        connection.execute(statement, {"thread_key": thread_key, "keys": padded(chunk)})


def copy(connection: Connection, change: CheckpointChange) -> None:
    """Copies rows, undecoded: every one, or those of commits up to one. Both threads are locked."""
    for table in (checkpoint_blobs, checkpoints, checkpoint_writes):
        replaced: dict[str, Any] = {
            "thread_id": sa.literal(change.thread_key, sa.Text()),
            "commit_sequence": sa.literal(change.commit_sequence, sa.BigInteger()),
        }
        names = [column.name for column in table.c]
        rows = sa.select(*(replaced.get(name, table.c[name]) for name in names))
        rows = rows.where(table.c.thread_id == change.copied_from)
        if change.copied_upto is not None:
            unknown: list[sa.ColumnElement[bool]] = [table.c.commit_sequence.is_(None)]
            if table is not checkpoint_blobs:
                unknown.append(table.c.checkpoint_id <= change.copied_below)
            rows = rows.where(sa.or_(table.c.commit_sequence <= change.copied_upto, sa.and_(*unknown)))
        connection.execute(insert_or_ignore(table).from_select(names, rows))
