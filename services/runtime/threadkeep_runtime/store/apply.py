"""Writes the decisions of a batch: one statement per table, rows in key order, the log's counters last (R1, R2, R14).

Everything that a decision says is written as it stands. The order of statements is the order of locks: whoever writes
the same tables in another order risks deadlocks.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

import sqlalchemy as sa
from sqlalchemy.engine import Connection

from threadkeep_chassis.database import insert_or_ignore, transaction_id, write_rows
from threadkeep_runtime.checkpoints import apply_changes
from threadkeep_runtime.domain.commit import Decision
from threadkeep_runtime.domain.values import Task
from threadkeep_runtime.store.apply_work import write_work
from threadkeep_runtime.store.audit import write_audit
from threadkeep_runtime.store.deleting import write_deletions
from threadkeep_runtime.store.messages import write_messages
from threadkeep_runtime.store.outbox import write_outbox
from threadkeep_runtime.store.purging import write_purges
from threadkeep_runtime.store.rows import (
    event_columns,
    thread_row,
)
from threadkeep_runtime.store.state import write_values
from threadkeep_runtime.store.statements import keyed, update_by
from threadkeep_runtime.tables import (
    commits,
    events,
    log_partitions,
    manifests,
    receipts,
    scopes,
    session_metadata,
    threads,
)

# What any commit may change of a thread, and what only its owner's update changes.
_COUNTERS = (
    "commit_sequence",
    "event_sequence",
    "task_count",
    "run_count",
    "enqueued_count",
    "active_run_id",
    "latest_run_id",
    "latest_task_id",
    "root_checkpoint_id",
    "checkpoint_top",
    "checkpoint_floor",
    "message_source",
    "message_position",
    "message_count",
    "message_changes",
    "digest",
    "digest_sequence",
    "chain_start",
    "chain_anchor",
    "last_activity_time",
)
_OWNED = ("title", "agent_name", "metadata", "settings", "revision", "update_time")


_UPDATE_THREAD = update_by(threads, "thread_key")
_UPDATE_SESSION = update_by(threads, "thread_key")
_DELETE_METADATA = sa.delete(session_metadata).where(session_metadata.c.thread_key == sa.bindparam("key_thread_key"))
_ADD_MANIFEST = insert_or_ignore(manifests, ["digest"])
_ADD_SCOPE = insert_or_ignore(scopes, ["scope_key"])
_COUNT_EVENTS = (
    sa.update(log_partitions)
    .where(log_partitions.c.partition == sa.bindparam("key_partition"))
    .values(position=log_partitions.c.position + sa.bindparam("count"))
    .returning(log_partitions.c.position, log_partitions.c.incarnation, transaction_id())
)
_INSERT_THREAD = sa.insert(threads)
_INSERT_METADATA = sa.insert(session_metadata)
_INSERT_COMMIT = sa.insert(commits)
_INSERT_EVENT = sa.insert(events)
_INSERT_RECEIPT = sa.insert(receipts)


@dataclass(frozen=True, slots=True)
class Applied:
    """A decision that was written, and its place in the log."""

    decision: Decision
    partition: int = 0
    partitions: int = 1
    position: int = 0
    """Position of the commit's last event in its partition; of the event before it if the commit has none."""
    incarnation: str = ""

    def with_task(self, task: Task) -> Applied:
        """The same, with a task that was read again (its input, say)."""
        return replace(self, decision=replace(self.decision, task=task))


class Known:
    """Manifests and scopes that are certainly stored, so that they need not be written again. Bounded; forgets all."""

    def __init__(self, capacity: int = 10_000) -> None:
        self._capacity = capacity
        self._manifests: set[str] = set()
        self._scopes: set[str] = set()

    def has_manifest(self, digest: str) -> bool:
        """True if it is stored."""
        return digest in self._manifests

    def has_scope(self, scope_key: str) -> bool:
        """True if it is stored."""
        return scope_key in self._scopes

    def learn(self, decisions: Sequence[Decision]) -> None:
        """Remembers what a committed batch wrote."""
        if len(self._manifests) + len(self._scopes) > self._capacity:
            self._manifests.clear()
            self._scopes.clear()
        for decision in decisions:
            if decision.manifest is not None:
                self._manifests.add(decision.manifest[0])
            if decision.thread_is_new:
                self._scopes.add(decision.scope_key)


def apply_decisions(
    connection: Connection, decisions: Sequence[Decision], partitions: int, known: Known
) -> tuple[list[Applied], str]:
    """Writes everything but the receipts. Returns what became of each, in order, and the transaction's id."""
    writing = sorted(
        (decision for decision in decisions if decision.thread is not None),
        key=lambda decision: decision.thread.thread_key if decision.thread else "",
    )
    _write_shared(connection, writing, known)
    _write_threads(connection, writing)
    write_work(connection, writing)
    write_messages(connection, writing)
    write_values(connection, writing)
    write_audit(connection, writing)
    write_deletions(connection, writing)
    write_purges(connection, writing)
    changes = [decision.checkpoints for decision in writing if decision.checkpoints is not None]
    if changes:
        apply_changes(connection, changes)
    write_outbox(connection, writing)
    places, xid = _append_events(connection, writing, partitions)
    return [places.get(id(decision)) or Applied(decision) for decision in decisions], xid


def insert_receipts(connection: Connection, rows: Sequence[dict[str, Any]]) -> None:
    """Writes receipts in key order, so that two batches can't deadlock. A taken key is a unique violation (X3)."""
    if rows:
        write_rows(connection, _INSERT_RECEIPT, sorted(rows, key=lambda row: (row["scope_key"], row["request_id"])))


def _write_shared(connection: Connection, writing: Sequence[Decision], known: Known) -> None:
    new_manifests = {
        decision.manifest[0]: decision
        for decision in writing
        if decision.manifest is not None and not known.has_manifest(decision.manifest[0])
    }
    write_rows(
        connection,
        _ADD_MANIFEST,
        [
            {"digest": digest, "manifest": decision.manifest[1], "create_time": decision.now}
            for digest, decision in sorted(new_manifests.items())
            if decision.manifest is not None
        ],
    )
    new_scopes = {
        decision.scope_key: decision.scope
        for decision in writing
        if decision.thread_is_new and not known.has_scope(decision.scope_key)
    }
    write_rows(
        connection, _ADD_SCOPE, [{"scope_key": key, "scope": scope} for key, scope in sorted(new_scopes.items())]
    )


def _write_threads(connection: Connection, writing: Sequence[Decision]) -> None:
    rows = [(decision, thread_row(decision.thread)) for decision in writing if decision.thread is not None]
    write_rows(connection, _INSERT_THREAD, [row for decision, row in rows if decision.thread_is_new])
    write_rows(
        connection,
        _UPDATE_THREAD,
        [keyed(row, ["thread_key"], _COUNTERS) for decision, row in rows if not decision.thread_is_new],
    )
    write_rows(
        connection,
        _UPDATE_SESSION,
        [keyed(row, ["thread_key"], _OWNED) for decision, row in rows if decision.kind == "update_session"],
    )
    changed = [(decision, row) for decision, row in rows if decision.metadata_changed]
    write_rows(
        connection,
        _DELETE_METADATA,
        [{"key_thread_key": row["thread_key"]} for decision, row in changed if not decision.thread_is_new],
    )
    write_rows(
        connection,
        _INSERT_METADATA,
        [
            {"thread_key": row["thread_key"], "scope_key": row["scope_key"], "name": name, "value": value}
            for _, row in changed
            for name, value in row["metadata"].items()
        ],
    )
    write_rows(
        connection,
        _INSERT_COMMIT,
        [
            {
                "thread_key": row["thread_key"],
                "sequence": row["commit_sequence"],
                "kind": decision.kind,
                "request_id": decision.request_id,
                "receipt_key": decision.receipt_key,
                "run_id": decision.run_id,
                "actor_kind": decision.actor.kind,
                "actor_id": decision.actor.id,
                "first_event_sequence": decision.first_event_sequence,
                "event_count": len(decision.events),
                "create_time": decision.now,
                "open_run": decision.open_run,
                "root_checkpoint_id": row["root_checkpoint_id"],
                "message_position": row["message_position"],
                "parts": decision.parts,
                "digest": row["digest"],
            }
            for decision, row in rows
        ],
    )


def _append_events(
    connection: Connection, writing: Sequence[Decision], partitions: int
) -> tuple[dict[int, Applied], str]:
    """Takes positions from the partitions' counters, which stay locked until the transaction ends, and appends."""
    by_partition: dict[int, list[Decision]] = {}
    for decision in writing:
        assert decision.thread is not None
        by_partition.setdefault(decision.thread.partition, []).append(decision)
    places: dict[int, Applied] = {}
    rows: list[dict[str, Any]] = []
    xid = ""
    for partition, decisions in sorted(by_partition.items()):
        count = sum(len(decision.events) for decision in decisions)
        last, incarnation, xid = connection.execute(_COUNT_EVENTS, {"key_partition": partition, "count": count}).one()
        position = last - count
        for decision in decisions:
            rows.extend(_event_rows(decision, position))
            position += len(decision.events)
            places[id(decision)] = Applied(decision, partition, partitions, position, incarnation)
    write_rows(connection, _INSERT_EVENT, rows)
    return places, xid


def _event_rows(decision: Decision, position: int) -> list[dict[str, Any]]:
    thread = decision.thread
    assert thread is not None
    first = thread.event_sequence - len(decision.events) + 1
    return [
        {
            "thread_key": thread.thread_key,
            "sequence": first + index,
            "partition": thread.partition,
            "position": position + index + 1,
            "scope_key": thread.scope_key,
            "session_id": thread.session_id,
            "commit_sequence": thread.commit_sequence,
            "traceparent": decision.trace.traceparent,
            "tracestate": decision.trace.tracestate,
            "create_time": decision.now,
            **event_columns(event),
        }
        for index, event in enumerate(decision.events)
    ]
