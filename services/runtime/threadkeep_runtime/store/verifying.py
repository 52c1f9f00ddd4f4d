"""Recomputes the chain of a thread's commits from what is stored (R17).

A part that is there is hashed again; one that is not was purged, and its hash in the commit's row stands for it.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping, Sequence
from typing import Any, NamedTuple

import sqlalchemy as sa
from sqlalchemy.engine import Connection

from threadkeep_chassis.database import contains_text
from threadkeep_runtime.domain import chain
from threadkeep_runtime.domain.errors import AuditMismatch
from threadkeep_runtime.domain.messages import Closed, MessageRow
from threadkeep_runtime.domain.values import Event, Payload, Thread, Trace
from threadkeep_runtime.store.audit import record_of
from threadkeep_runtime.store.outbox import message_of
from threadkeep_runtime.store.rows import ticket_of
from threadkeep_runtime.store.state import value_of
from threadkeep_runtime.store.statements import padded
from threadkeep_runtime.tables import (
    audit_records,
    checkpoint_blobs,
    checkpoint_writes,
    checkpoints,
    commits,
    events,
    messages,
    outbox,
    state_values,
    tickets,
)

CHUNK = 100
"""Commits looked at together."""

PARTS_AT_ONCE = 500


class Listed(NamedTuple):
    """A part as its commit lists it."""

    commit: int
    kind: str
    id: str
    hash: str


class Verified(NamedTuple):
    """What was found to be in order."""

    first_commit: int
    last_commit: int
    digest: bytes
    present_parts: int
    purged_parts: int


_COMMITS = (
    sa.select(commits)
    .where(commits.c.thread_key == sa.bindparam("thread_key"), commits.c.sequence > sa.bindparam("after"))
    .order_by(commits.c.sequence)
    .limit(sa.bindparam("count"))
)


def verify(connection: Connection, thread: Thread, after: int, count: int) -> Verified:
    """Verifies up to `count` commits behind `after`, at least from where the chain starts. Raises AuditMismatch."""
    if thread.digest is None:
        return Verified(0, 0, b"", 0, 0)
    start, head = max(after, thread.chain_start), thread.digest_sequence
    previous = chain.anchor_of(thread)
    if start > thread.chain_start:
        previous = _digest_of(connection, thread.thread_key, start)
    last, present, purged = start, 0, 0
    while last < min(head, start + count):
        bound = {"thread_key": thread.thread_key, "after": last, "count": min(CHUNK, start + count - last)}
        rows = connection.execute(_COMMITS, bound).mappings().all()
        listed: list[Listed] = []
        broken: AuditMismatch | None = None
        for row in rows:
            if row["sequence"] > head:
                break
            if row["sequence"] != last + 1 or row["digest"] is None:
                broken = AuditMismatch(last + 1)
                break
            try:
                parts = json.loads(row["parts"])
                canonical = chain.canonical_commit(facts_of(row), parts)
                of_commit = [Listed(row["sequence"], *part) for part in parts]
                previous = chain.next_digest(previous, canonical)
            except (TypeError, ValueError):
                broken = AuditMismatch(row["sequence"])
                break
            if previous != row["digest"]:
                broken = AuditMismatch(row["sequence"])
                break
            last = row["sequence"]
            listed += of_commit
        found = _check_parts(connection, thread.thread_key, listed)
        if broken is not None:
            raise broken
        if not rows:
            raise AuditMismatch(last + 1)
        present += found
        purged += len(listed) - found
    if last == head and previous != thread.digest:
        raise AuditMismatch(last)
    return Verified(min(start + 1, last), last, previous, present, purged)


def facts_of(row: Any) -> chain.CommitFacts:
    """What the canonical commit says, from the commit's row."""
    return chain.CommitFacts(*(row[name] for name in chain.CommitFacts._fields))


def _digest_of(connection: Connection, thread_key: str, sequence: int) -> bytes:
    row = connection.execute(_COMMITS, {"thread_key": thread_key, "after": sequence - 1, "count": 1}).mappings().first()
    if row is None or row["sequence"] != sequence or row["digest"] is None:
        raise AuditMismatch(sequence)
    digest: bytes = row["digest"]
    return digest


def _check_parts(connection: Connection, thread_key: str, listed: Sequence[Listed]) -> int:
    """Hashes again what is there; returns how many are. Raises AuditMismatch for the first that differs."""
    present = 0
    wrong: list[Listed] = []
    for kind, load in _LOADERS.items():
        of_kind = [part for part in listed if part.kind == kind]
        for begin in range(0, len(of_kind), PARTS_AT_ONCE):
            some = of_kind[begin : begin + PARTS_AT_ONCE]
            actual = load(connection, thread_key, some)
            for part in some:
                found = actual.get((part.commit, part.id))
                if found is None:
                    continue
                present += 1
                if part.hash not in found and not _is_rewritten(connection, thread_key, part):
                    wrong.append(part)
    if wrong:
        first = min(wrong, key=lambda part: part.commit)
        raise AuditMismatch(first.commit, first.kind, first.id)
    return present


def _is_rewritten(connection: Connection, thread_key: str, part: Listed) -> bool:
    """True if a later commit wrote the same row anew, as LangGraph does with a checkpoint that is put again."""
    if part.kind not in (chain.CHECKPOINT, chain.VALUE, chain.WRITE):
        return False
    named = json.dumps([part.kind, part.id], ensure_ascii=False, separators=(",", ":"))[:-1]
    later = sa.select(commits.c.sequence).where(
        commits.c.thread_key == thread_key, commits.c.sequence > part.commit, contains_text(commits.c.parts, named)
    )
    return connection.execute(later.limit(1)).first() is not None


Actual = Mapping[tuple[int, str], frozenset[str]]
"""By (commit, part's id): the hashes that the stored row can have. What is not there was purged."""

Loader = Callable[[Connection, str, Sequence[Listed]], Actual]


def _rows(connection: Connection, table: sa.Table, thread_key: str, keys: Sequence[str], values: Sequence[Any]) -> Any:
    """The thread's rows with these values in these columns."""
    columns = [table.c[name] for name in keys]
    owner = table.c.get("thread_key", table.c.get("thread_id"))
    assert owner is not None
    matches = (
        columns[0].in_(padded(values))
        if len(columns) == 1
        else sa.tuple_(*columns).in_([tuple(value) for value in padded(values)])
    )
    return connection.execute(sa.select(table).where(owner == thread_key, matches)).mappings()


def _one(value: str) -> frozenset[str]:
    return frozenset((value,))


def _hashed(hash_of: Callable[[Any], str], row: Any) -> frozenset[str]:
    """The row's hash; one that nothing has for a row that no commit can have written."""
    return _all_hashed(lambda row: _one(hash_of(row)), row)


def _all_hashed(hashes_of: Callable[[Any], frozenset[str]], row: Any) -> frozenset[str]:
    try:
        return hashes_of(row)
    except Exception:
        return _one("")


def _load_events(connection: Connection, thread_key: str, parts: Sequence[Listed]) -> Actual:
    rows = _rows(connection, events, thread_key, ["sequence"], [int(part.id) for part in parts])
    return {
        (row["commit_sequence"], str(row["sequence"])): _hashed(
            lambda row: chain.event_hash(_event_of(row), Trace(row["traceparent"], row["tracestate"])), row
        )
        for row in rows
    }


def _event_of(row: Any) -> Event:
    payload = None
    if row["content_type"] is not None:
        payload = Payload(row["content_type"], bytes(row["payload"]), row["attributes"])
    return Event(
        row["event_id"],
        row["is_named"],
        row["type"],
        row["visibility"],
        row["run_id"],
        row["task_id"],
        payload,
        row["schema_version"],
        row["causation_id"],
        row["correlation_id"],
    )


def _load_messages(connection: Connection, thread_key: str, parts: Sequence[Listed]) -> Actual:
    pairs = [(int(part.id), part.commit) for part in parts]
    return {
        (row["from_commit"], str(row["position"])): _hashed(_message_hash, row)
        for row in _rows(connection, messages, thread_key, ["position", "from_commit"], pairs)
    }


def _message_hash(row: Any) -> str:
    content = bytes(row["content"])
    return chain.message_hash(
        MessageRow(row["position"], row["message_id"], content, row["run_id"], row["task_id"], row["create_time"])
    )


def _load_message_ends(connection: Connection, thread_key: str, parts: Sequence[Listed]) -> Actual:
    commit_of = {part.id: part.commit for part in parts}
    pairs = [tuple(map(int, part.id.split("/"))) for part in parts]
    found = {}
    for row in _rows(connection, messages, thread_key, ["position", "from_commit"], pairs):
        name = f"{row['position']}/{row['from_commit']}"
        ended = Closed(row["position"], row["from_commit"], row["is_removed"])
        is_ended = row["to_commit"] == commit_of[name]
        found[commit_of[name], name] = _one(chain.message_end_hash(ended) if is_ended else "")
    return found


def _load_state(connection: Connection, thread_key: str, parts: Sequence[Listed]) -> Actual:
    pairs = [(part.id, part.commit) for part in parts]
    return {
        (row["commit_sequence"], row["key"]): _hashed(lambda row: chain.state_hash(value_of(row)), row)
        for row in _rows(connection, state_values, thread_key, ["key", "commit_sequence"], pairs)
    }


def _by_id(table: sa.Table, column: str, read: Callable[[Any], str]) -> Loader:
    """Rows that are found by their id alone."""

    def load(connection: Connection, thread_key: str, parts: Sequence[Listed]) -> Actual:
        commit_of = {part.id: part.commit for part in parts}
        rows = _rows(connection, table, thread_key, [column], list(commit_of))
        return {(commit_of[row[column]], row[column]): _hashed(read, row) for row in rows}

    return load


def _of_checkpoints(
    table: sa.Table, columns: Sequence[str], hashes: Callable[[Any], frozenset[str]], is_own: Callable[[Any], bool]
) -> Loader:
    """Rows of LangGraph's tables; a part's id is the JSON of their key. A row that another commit wrote first, and that
    is not written again, is not this one's."""

    def load(connection: Connection, thread_key: str, parts: Sequence[Listed]) -> Actual:
        wanted: dict[tuple[Any, ...], list[Listed]] = {}
        for part in parts:
            wanted.setdefault(tuple(json.loads(part.id)), []).append(part)
        found = {}
        for row in _rows(connection, table, thread_key, columns, list(wanted)):
            for part in wanted[tuple(row[name] for name in columns)]:
                if row["commit_sequence"] == part.commit or not is_own(row):
                    found[part.commit, part.id] = _all_hashed(hashes, row)
        return found

    return load


def _checkpoint_hashes(row: Any) -> frozenset[str]:
    if row["checkpoint_bytes"] is None or row["metadata_bytes"] is None:
        return _one("")
    return _one(
        chain.checkpoint_hash(row["parent_checkpoint_id"], bytes(row["checkpoint_bytes"]), bytes(row["metadata_bytes"]))
    )


def _data_of(row: Any) -> tuple[bytes | None, int]:
    data = None if row["blob"] is None else bytes(row["blob"])
    return data, 0 if data is None else len(data)


def _value_hashes(row: Any) -> frozenset[str]:
    data, size = _data_of(row)
    return frozenset(chain.data_hash(row["type"], data, staged) for staged in (None, size))


def _write_hashes(row: Any) -> frozenset[str]:
    data, size = _data_of(row)
    return frozenset(chain.hash_of_write(row["channel"], row["type"], data, staged) for staged in (None, size))


_LOADERS: Mapping[str, Loader] = {
    chain.EVENT: _load_events,
    chain.MESSAGE: _load_messages,
    chain.MESSAGE_END: _load_message_ends,
    chain.STATE: _load_state,
    chain.TICKET: _by_id(tickets, "ticket_id", lambda row: chain.ticket_hash(ticket_of(row))),
    chain.TICKET_END: _by_id(tickets, "ticket_id", lambda row: chain.ticket_end_hash(ticket_of(row))),
    chain.AUDIT: _by_id(audit_records, "audit_id", lambda row: chain.audit_hash(record_of(row))),
    chain.OUTBOX: _by_id(outbox, "message_id", lambda row: chain.outbox_hash(message_of(row))),
    chain.CHECKPOINT: _of_checkpoints(
        checkpoints, ["checkpoint_ns", "checkpoint_id"], _checkpoint_hashes, lambda row: False
    ),
    chain.VALUE: _of_checkpoints(
        checkpoint_blobs,
        ["checkpoint_ns", "channel", "version"],
        _value_hashes,
        lambda row: not row["version"].startswith("@"),
    ),
    chain.WRITE: _of_checkpoints(
        checkpoint_writes,
        ["checkpoint_ns", "checkpoint_id", "task_id", "idx"],
        _write_hashes,
        lambda row: row["idx"] >= 0,
    ),
}
