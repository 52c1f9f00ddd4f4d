"""Reads whole checkpoints: rows, values and writes in one statement, which is one snapshot on every backend.

The statement is a union of narrow branches over the picked keys. Each value is read once, however many of the picked
checkpoints share it. Of values over `inline_bytes` only the size is read.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any, NamedTuple

import sqlalchemy as sa
from sqlalchemy.engine import Connection, Row
from sqlalchemy.sql.selectable import CTE

from threadkeep_chassis.database import Bytes, json_entries, json_member
from threadkeep_runtime.checkpoints.listing import EVERY_VALUE, PageKey
from threadkeep_runtime.domain.checkpoints import ChannelValue, PendingWrite, StoredCheckpoint, unversioned_key
from threadkeep_runtime.store.statements import padded
from threadkeep_runtime.tables import checkpoint_blobs, checkpoint_writes, checkpoints, threads

_CHECKPOINT, _LINK, _BLOB, _WRITE, _FLOOR = range(5)


class FoundCheckpoint(NamedTuple):
    """What a thread answers to a read."""

    checkpoint: StoredCheckpoint | None
    floor: str
    """New ids must sort above this; empty if the thread never held a checkpoint."""


def load_checkpoint(
    connection: Connection,
    thread_key: str,
    checkpoint_ns: str,
    checkpoint_id: str | None,
    inline_bytes: int = EVERY_VALUE,
) -> FoundCheckpoint:
    """Reads one checkpoint, or the namespace's greatest if no id is given, with the thread's floor."""
    parameters = {"thread_key": thread_key, "ns": checkpoint_ns, "inline_bytes": inline_bytes}
    if checkpoint_id is None:
        rows = connection.execute(_LATEST, parameters)
    else:
        rows = connection.execute(_NAMED, {**parameters, "id": checkpoint_id})
    found, floor = _assemble(rows)
    return FoundCheckpoint(next(iter(found.values()), None), floor)


def load_checkpoints(
    connection: Connection, keys: Sequence[PageKey], inline_bytes: int = EVERY_VALUE
) -> list[StoredCheckpoint]:
    """Reads these checkpoints, in the order of the keys; those that are gone meanwhile are left out."""
    if not keys:
        return []
    wanted = [(key.thread_key, key.checkpoint_ns, key.checkpoint_id) for key in keys]
    found, _ = _assemble(connection.execute(_MANY, {"keys": padded(wanted), "inline_bytes": inline_bytes}))
    return [found[key] for key in wanted if key in found]


def _whole(picked: CTE, *, floor_of: sa.BindParameter[str] | None) -> sa.CompoundSelect[Any]:
    c, b, w = checkpoints.c, checkpoint_blobs.c, checkpoint_writes.c
    p = picked.c
    # A deleted session's checkpoints are found no more.
    is_alive = sa.and_(threads.c.thread_key == p.thread_id, threads.c.delete_time.is_(None))
    of_row = sa.and_(c.thread_id == p.thread_id, c.checkpoint_ns == p.checkpoint_ns, c.checkpoint_id == p.checkpoint_id)
    entries = json_entries(sa.func.coalesce(c.value_versions, json_member(c.checkpoint, "channel_versions")), "entries")
    links = (
        sa.select(p.thread_id, p.checkpoint_ns, p.checkpoint_id, entries.c.key, entries.c.value)
        .select_from(picked.join(checkpoints, of_row), entries)
        .cte("links")
    )
    used = sa.select(links.c.thread_id, links.c.checkpoint_ns, links.c.key, links.c.value).distinct().subquery("used")
    branches = [
        _branch(
            _CHECKPOINT,
            p.thread_id,
            p.checkpoint_ns,
            p.checkpoint_id,
            text=(c.parent_checkpoint_id, threads.c.session_id, _unless(c.checkpoint_bytes, c.checkpoint),
                  _unless(c.metadata_bytes, c.metadata)),
            number=c.commit_sequence,
            bytes_=(c.checkpoint_bytes, c.metadata_bytes),
        ).select_from(picked.join(checkpoints, of_row).join(threads, is_alive)),
        _branch(
            _LINK, links.c.thread_id, links.c.checkpoint_ns, links.c.checkpoint_id, text=(links.c.key, links.c.value)
        ),
        _branch(
            _BLOB,
            used.c.thread_id,
            used.c.checkpoint_ns,
            sa.literal_column("''"),
            text=(used.c.key, used.c.value, _value_at(used, b.type)),
            size=_value_at(used, sa.func.length(b.blob)),
            bytes_=(_value_at(used, _inline(b.blob)),),
        ),
        _branch(
            _WRITE,
            p.thread_id,
            p.checkpoint_ns,
            p.checkpoint_id,
            text=(w.task_id, w.channel, w.type, w.task_path),
            number=w.idx,
            size=sa.func.length(w.blob),
            bytes_=(_inline(w.blob),),
        ).select_from(
            picked.join(
                checkpoint_writes,
                sa.and_(
                    w.thread_id == p.thread_id,
                    w.checkpoint_ns == p.checkpoint_ns,
                    w.checkpoint_id == p.checkpoint_id,
                ),
            )
        ),
    ]  # fmt: skip
    if floor_of is not None:
        empty: sa.ColumnElement[str] = sa.literal_column("''", sa.Text())
        branches.append(
            _branch(_FLOOR, threads.c.thread_key, empty, empty, text=(threads.c.checkpoint_top,)).where(
                threads.c.thread_key == floor_of, threads.c.delete_time.is_(None)
            )
        )
    return sa.union_all(*branches)


def _value_at(used: sa.Subquery, column: sa.ColumnElement[Any]) -> sa.ScalarSelect[Any]:
    """A column of the value's row, looked up by its key: a join is planned from guesses and may read the thread."""
    b = checkpoint_blobs.c
    return (
        sa.select(column)
        .where(
            b.thread_id == used.c.thread_id,
            b.checkpoint_ns == used.c.checkpoint_ns,
            b.channel == used.c.key,
            b.version == used.c.value,
        )
        .correlate(used)
        .scalar_subquery()
    )


def _inline(blob: Any) -> Any:
    """The value, unless it is so large that a reply leaves it out."""
    return sa.case((sa.func.length(blob) <= sa.bindparam("inline_bytes", type_=sa.Integer()), blob))


def _branch(
    kind: int,
    thread_key: Any,
    namespace: Any,
    checkpoint_id: Any,
    *,
    text: tuple[Any, ...],
    number: Any = None,
    size: Any = None,
    bytes_: tuple[Any, ...] = (),
) -> sa.Select[Any]:
    """One branch of the union: all have the same columns, NULL where a branch has nothing to say."""
    texts = [*text, *[None] * (4 - len(text))]
    blobs = [*bytes_, *[None] * (2 - len(bytes_))]
    return sa.select(
        sa.literal_column(str(kind), sa.Integer()).label("kind"),
        thread_key.label("thread_key"),
        namespace.label("ns"),
        checkpoint_id.label("id"),
        *(_or_null(value, sa.Text()).label(f"t{index}") for index, value in enumerate(texts)),
        _or_null(number, sa.BigInteger()).label("number"),
        _or_null(size, sa.BigInteger()).label("size"),
        *(_or_null(value, Bytes()).label(f"b{index}") for index, value in enumerate(blobs)),
    )


def _or_null(value: Any, type_: Any) -> Any:
    return sa.cast(sa.null(), type_) if value is None else value


def _unless(exact: Any, document: Any) -> Any:
    """The document as text where its exact bytes were never stored: a row that a stock saver wrote."""
    return sa.case((exact.is_(None), sa.cast(document, sa.Text())))


def _picked(*conditions: Any, latest: bool = False) -> CTE:
    c = checkpoints.c
    statement = sa.select(c.thread_id, c.checkpoint_ns, c.checkpoint_id).where(*conditions)
    if latest:
        statement = statement.order_by(c.checkpoint_id.desc()).limit(1)
    return statement.cte("picked")


_THREAD = sa.bindparam("thread_key", type_=sa.Text())
_OF_NAMESPACE = (checkpoints.c.thread_id == _THREAD, checkpoints.c.checkpoint_ns == sa.bindparam("ns"))
_LATEST = _whole(_picked(*_OF_NAMESPACE, latest=True), floor_of=_THREAD)
_NAMED = _whole(
    _picked(*_OF_NAMESPACE, checkpoints.c.checkpoint_id == sa.bindparam("id")),
    floor_of=_THREAD,
)
_MANY = _whole(
    _picked(
        sa.tuple_(checkpoints.c.thread_id, checkpoints.c.checkpoint_ns, checkpoints.c.checkpoint_id).in_(
            sa.bindparam("keys", expanding=True)
        )
    ),
    floor_of=None,
)

Key = tuple[str, str, str]


def _assemble(rows: Iterable[Row[Any]]) -> tuple[dict[Key, StoredCheckpoint], str]:
    heads: dict[Key, Row[Any]] = {}
    links: dict[Key, list[tuple[str, str]]] = {}
    blobs: dict[tuple[str, str, str, str], tuple[str, bytes, int]] = {}
    writes: dict[Key, list[PendingWrite]] = {}
    floor = ""
    for row in rows:
        kind, thread_key, namespace, checkpoint_id, t0, t1, t2, t3, number, size, b0, _ = tuple(row)
        # What is there and was not read is deferred.
        deferred = size if size is not None and b0 is None else 0
        key = (thread_key, namespace, checkpoint_id)
        if kind == _LINK:
            links.setdefault(key, []).append((t0, t1))
        elif kind == _BLOB:
            if t2 is not None:
                blobs[thread_key, namespace, t0, t1] = (t2, bytes(b0 or b""), deferred)
        elif kind == _WRITE:
            writes.setdefault(key, []).append(
                PendingWrite(t0, number, t1, t2 or "", bytes(b0 or b""), t3, deferred_size=deferred)
            )
        elif kind == _CHECKPOINT:
            heads[key] = row
        else:
            floor = t0
    found = {}
    for key, row in heads.items():
        thread_key, namespace, checkpoint_id = key
        values = []
        for channel, version in links.get(key, ()):
            blob = blobs.get((thread_key, namespace, channel, version))
            if blob is not None:
                shown = "" if version == unversioned_key(checkpoint_id) else version
                values.append(ChannelValue(channel, shown, blob[0], blob[1], deferred_size=blob[2]))
        found[key] = StoredCheckpoint(
            session_id=row.t1,
            checkpoint_ns=namespace,
            checkpoint_id=checkpoint_id,
            parent_checkpoint_id=row.t0,
            checkpoint_json=bytes(row.b0) if row.b0 is not None else row.t2.encode(),
            metadata_json=bytes(row.b1) if row.b1 is not None else row.t3.encode(),
            channel_values=tuple(values),
            pending_writes=tuple(sorted(writes.get(key, ()), key=lambda w: (w.task_path, w.task_id, w.index))),
            commit_sequence=row.number or 0,
        )
    return found, floor
