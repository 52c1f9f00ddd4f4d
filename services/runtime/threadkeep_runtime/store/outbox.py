"""Writes and reads of the outbox by commits and lists; what relays do is in `relay` (R16).

Whoever writes messages locks their lines first, in key order. In a commit that comes behind the threads and before the
log's counters.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, fields
from datetime import datetime
from typing import Any

import sqlalchemy as sa
from sqlalchemy.engine import Connection

from threadkeep_chassis.database import insert, write_rows
from threadkeep_chassis.paging import after_key
from threadkeep_runtime.domain.commands import Command, CommitThread
from threadkeep_runtime.domain.commit import Decision
from threadkeep_runtime.domain.outbox import Line, OutboxMessage
from threadkeep_runtime.store.reads import ListQuery
from threadkeep_runtime.store.rows import payload_bytes, payload_of
from threadkeep_runtime.store.statements import one_of, padded
from threadkeep_runtime.tables import outbox, outbox_lines

_FIELDS = tuple(field.name for field in fields(OutboxMessage))
_INSERT = sa.insert(outbox)
_taken = insert(outbox_lines)
_TAKE_PLACES = _taken.on_conflict_do_update(
    index_elements=["target_key"],
    set_={
        "sequence": outbox_lines.c.sequence + _taken.excluded.sequence,
        "pending": outbox_lines.c.pending + _taken.excluded.pending,
        "due_time": sa.func.coalesce(outbox_lines.c.due_time, _taken.excluded.due_time),
        "update_time": _taken.excluded.update_time,
    },
).returning(outbox_lines.c.target_key, outbox_lines.c.sequence)
# Locks a line, adds so many places to it, and makes it due if nothing waited; gives the last place.
_PENDING = sa.select(outbox_lines.c.target_key, outbox_lines.c.pending).where(
    one_of(outbox_lines.c.target_key, "target_keys")
)
_KNOWN = sa.select(outbox.c.target_key, outbox.c.dedupe_key, outbox.c.message_id, outbox.c.fingerprint).where(
    sa.tuple_(outbox.c.target_key, outbox.c.dedupe_key).in_(sa.bindparam("pairs", expanding=True)),
    outbox.c.dedupe_key.is_not(None),
)


def message_of(row: Any) -> OutboxMessage:
    """A message from its whole row."""
    found = {name: row[name] for name in _FIELDS if name != "payload"}
    found["fingerprint"] = bytes(found["fingerprint"])
    found["arrival"] = None if found["arrival"] is None else bytes(found["arrival"])
    return OutboxMessage(**found, payload=payload_of(row["payload"]))


def load_lines(connection: Connection, batch: Sequence[Command]) -> dict[str, Line]:
    """What the batch's senders need to know of their targets' lines. No statement if nobody sends."""
    drafts = [
        (draft.target.key_in(command.scope_key), draft)
        for command in batch
        if isinstance(command, CommitThread)
        for draft in command.outbox
    ]
    if not drafts:
        return {}
    keys = padded(sorted({key for key, _ in drafts}))
    pending = {row.target_key: row.pending for row in connection.execute(_PENDING, {"target_keys": keys})}
    known: dict[str, dict[str, tuple[str, bytes]]] = {}
    pairs = sorted({(key, draft.dedupe_key) for key, draft in drafts if draft.dedupe_key is not None})
    if pairs:
        for row in connection.execute(_KNOWN, {"pairs": padded(pairs)}):
            known.setdefault(row.target_key, {})[row.dedupe_key] = (row.message_id, bytes(row.fingerprint))
    return {key: Line(pending.get(key, 0), known.get(key, {})) for key in {key for key, _ in drafts}}


def write_outbox(connection: Connection, writing: Sequence[Decision]) -> None:
    """Puts the messages of a batch into their lines. No statement if there are none."""
    messages = [message for decision in writing for message in decision.outbox]
    if not messages:
        return
    places = take_places(connection, messages, messages[0].create_time)
    rows = []
    for message in messages:
        row = {name: getattr(message, name) for name in _FIELDS}
        row["sequence"] = next(places[message.target_key])
        row["payload"] = payload_bytes(message.payload)
        row["payload_size"] = 0 if message.payload is None else len(message.payload.data)
        rows.append(row)
    write_rows(connection, _INSERT, rows)


def take_places(connection: Connection, messages: Sequence[Any], now: datetime) -> Mapping[str, Iterator[int]]:
    """Locks the messages' lines in key order and takes a place for each message: iterators of places by target key.

    `messages` have target_key, scope_key and kind.
    """
    counts: dict[str, list[Any]] = {}
    for message in messages:
        counts.setdefault(message.target_key, []).append(message)
    rows = [
        {
            "target_key": key,
            "scope_key": waiting[0].scope_key,
            "kind": waiting[0].kind,
            "sequence": len(waiting),
            "pending": len(waiting),
            "due_time": now,
            "epoch": 0,
            "update_time": now,
        }
        for key, waiting in sorted(counts.items())
    ]
    ends = {row.target_key: row.sequence for row in connection.execute(_TAKE_PLACES, rows)}
    return {key: iter(range(last - len(counts[key]) + 1, last + 1)) for key, last in ends.items()}


@dataclass(frozen=True, slots=True)
class DeliveryQuery(ListQuery):
    """What a list of messages wants, within one scope; key (create_time, message_id)."""

    with_payload: bool = False


_SHORT = [column for column in outbox.c if column.key not in ("payload", "arrival", "fingerprint")]


def list_deliveries(connection: Connection, query: DeliveryQuery) -> list[Any]:
    """Rows of messages, newest first; `payload` is NULL unless it was asked for."""
    payload = outbox.c.payload if query.with_payload else sa.null().label("payload")
    statement = sa.select(*_SHORT, payload).where(outbox.c.scope_key == query.scope_key)
    if query.thread_key is not None:
        statement = statement.where(outbox.c.thread_key == query.thread_key)
    if query.states:
        # A literal, so that the partial index of dead letters is found.
        names: list[sa.ColumnElement[str]] = [sa.literal_column(f"'{state}'") for state in query.states]
        statement = statement.where(outbox.c.state == names[0] if len(names) == 1 else outbox.c.state.in_(names))
    if query.after is not None:
        statement = statement.where(
            after_key([outbox.c.create_time, outbox.c.message_id], query.after, descending=True)
        )
    statement = statement.order_by(outbox.c.create_time.desc(), outbox.c.message_id.desc()).limit(query.count)
    return list(connection.execute(statement).mappings())
