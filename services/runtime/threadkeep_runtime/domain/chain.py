"""The chain of a thread's commits: each has SHA-256(previous digest, canonical commit) (R17).

The canonical commit is canonical JSON (RFC 8785: an array of texts and small integers, so no two encoders differ).
It lists the commit's parts as [kind, id, SHA-256]; a part's own hash is over canonical JSON too, in which contents
stand as their SHA-256. Shared vectors: clients/vectors/commit_chain.json.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterator, Sequence
from datetime import UTC, datetime, timedelta
from typing import Any, NamedTuple

from threadkeep_runtime.domain.audit import AuditRecord
from threadkeep_runtime.domain.checkpoints import ChannelValue, CheckpointPut, CheckpointWrites, PendingWrite
from threadkeep_runtime.domain.checkpoints import unversioned_key as unversioned
from threadkeep_runtime.domain.commit import Decision
from threadkeep_runtime.domain.messages import Closed, MessageRow
from threadkeep_runtime.domain.outbox import OutboxMessage
from threadkeep_runtime.domain.state import StateValue
from threadkeep_runtime.domain.values import Event, Payload, Thread, Ticket, Trace

VERSION = "threadkeep.commit.v1"

EVENT, MESSAGE, MESSAGE_END, STATE = "event", "message", "message_end", "state"
TICKET, TICKET_END, OUTBOX, AUDIT = "ticket", "ticket_end", "outbox", "audit"
CHECKPOINT, VALUE, WRITE = "checkpoint", "value", "write"

NO_VALUE = "empty"
"""LangGraph's type tag of a channel without a value."""

_START = datetime(1970, 1, 1, tzinfo=UTC)
_MICROSECOND = timedelta(microseconds=1)
_encode = json.JSONEncoder(ensure_ascii=False, separators=(",", ":")).encode

Part = tuple[str, str, str]
"""(kind, id, SHA-256 in hexadecimal)."""


class CommitFacts(NamedTuple):
    """What the canonical commit says beside its parts."""

    sequence: int
    kind: str
    request_id: str | None
    run_id: str | None
    actor_kind: str
    actor_id: str | None
    first_event_sequence: int
    event_count: int
    create_time: datetime
    open_run: str
    root_checkpoint_id: str | None
    message_position: int


def genesis(scope_key: str, session_id: str) -> bytes:
    """What stands for the digest before a thread's first commit."""
    return hashlib.sha256(_encode([VERSION, scope_key, session_id]).encode()).digest()


def canonical_commit(facts: CommitFacts, parts: Sequence[Any]) -> bytes:
    """The canonical commit."""
    *before, moment, open_run, root, position = facts
    return _encode([VERSION, *before, microseconds(moment), open_run, root, position, parts]).encode()


def next_digest(previous: bytes, canonical: bytes) -> bytes:
    """The commit's digest."""
    return hashlib.sha256(previous + canonical).digest()


def microseconds(moment: datetime | None) -> int | None:
    """Microseconds since 1970."""
    return None if moment is None else (moment - _START) // _MICROSECOND


def seal(decision: Decision) -> Decision:
    """Gives a new decision its parts, and its thread the new digest. A chain that an older server left off begins anew.

    The decision is completed in place: nobody has seen it yet, and copies cost more than the digest.
    """
    thread = decision.thread
    if thread is None:
        return decision
    parts = list(parts_of(decision))
    before = thread.commit_sequence - 1
    goes_on = thread.digest is not None and thread.digest_sequence == before
    previous = thread.digest if goes_on else genesis(thread.scope_key, thread.session_id)
    assert previous is not None
    facts = CommitFacts(
        thread.commit_sequence,
        decision.kind,
        decision.request_id,
        decision.run_id,
        decision.actor.kind,
        decision.actor.id,
        decision.first_event_sequence,
        len(decision.events),
        decision.now,
        decision.open_run,
        thread.root_checkpoint_id,
        thread.message_position,
    )
    _complete(thread, digest=next_digest(previous, canonical_commit(facts, parts)), digest_sequence=facts.sequence)
    if not goes_on:
        _complete(thread, chain_start=before, chain_anchor=None)
    _complete(decision, parts=_encode(parts))
    return decision


def _complete(value: Thread | Decision, **fields: Any) -> None:
    for name, field in fields.items():
        object.__setattr__(value, name, field)


def parts_of(decision: Decision) -> Iterator[Part]:
    """The commit's parts, in the order in which they are listed."""
    thread = decision.thread
    assert thread is not None
    first = thread.event_sequence - len(decision.events) + 1
    for index, event in enumerate(decision.events):
        yield EVENT, str(first + index), event_hash(event, decision.trace)
    if decision.messages is not None:
        for closed in decision.messages.closed:
            yield MESSAGE_END, f"{closed.position}/{closed.from_commit}", message_end_hash(closed)
        for row in decision.messages.rows:
            yield MESSAGE, str(row.position), message_hash(row)
    for value in decision.state_values:
        yield STATE, value.key, state_hash(value)
    for ticket in decision.opened_tickets:
        yield TICKET, ticket.ticket_id, ticket_hash(ticket)
    for ticket in decision.closed_tickets:
        yield TICKET_END, ticket.ticket_id, ticket_end_hash(ticket)
    for record in decision.audit:
        yield AUDIT, record.audit_id, audit_hash(record)
    for message in decision.outbox:
        yield OUTBOX, message.message_id, outbox_hash(message)
    if decision.checkpoints is not None:
        for op in decision.checkpoints.ops:
            yield from _checkpoint_parts(op)


def _checkpoint_parts(op: CheckpointPut | CheckpointWrites) -> Iterator[Part]:
    namespace = op.checkpoint_ns
    if isinstance(op, CheckpointWrites):
        for write in op.writes:
            name = _encode([namespace, op.checkpoint_id, write.task_id, write.index])
            yield WRITE, name, write_hash(write)
        return
    yield (
        CHECKPOINT,
        _encode([namespace, op.checkpoint_id]),
        checkpoint_hash(op.parent_checkpoint_id, op.checkpoint_json, op.metadata_json),
    )
    for value in op.channel_values:
        version = value.version or unversioned(op.checkpoint_id)
        yield VALUE, _encode([namespace, value.channel, version]), value_hash(value)


def event_hash(event: Event, trace: Trace) -> str:
    """Of an event."""
    return _hash(
        [
            event.event_id,
            event.type,
            event.visibility,
            event.run_id,
            event.task_id,
            event.schema_version,
            event.causation_id,
            event.correlation_id,
            trace.traceparent,
            trace.tracestate,
            _payload(event.payload),
        ]
    )


def message_hash(row: MessageRow) -> str:
    """Of a message's content."""
    return _hash([row.message_id, content_hash(row.content), row.run_id, row.task_id, microseconds(row.create_time)])


def message_end_hash(closed: Closed) -> str:
    """Of the end of a message's content."""
    return _hash([closed.is_removed])


def state_hash(value: StateValue) -> str:
    """Of a key's value."""
    return _hash([value.version, value.schema_version, content_hash(value.value), value.run_id, *value.actor])


def ticket_hash(ticket: Ticket) -> str:
    """Of what was asked."""
    default = ticket.default_answer
    return _hash(
        [
            ticket.task_id,
            ticket.run_id,
            ticket.kind,
            _payload(ticket.prompt),
            ticket.answer_schema_json,
            list(ticket.allowed_decisions),
            microseconds(ticket.deadline),
            None if default is None else list(default),
            ticket.assignee,
            ticket.interrupt_id,
        ]
    )


def ticket_end_hash(ticket: Ticket) -> str:
    """Of what was answered."""
    answer, resolved_by = ticket.answer, ticket.resolved_by
    return _hash(
        [
            ticket.state,
            None if answer is None else list(answer),
            None if resolved_by is None else list(resolved_by),
            microseconds(ticket.end_time),
        ]
    )


def audit_hash(record: AuditRecord) -> str:
    """Of an audit record."""
    return _hash(
        [
            record.ordinal,
            record.action,
            record.target,
            *record.actor,
            _payload(record.details),
            record.run_id,
            record.task_id,
            microseconds(record.create_time),
        ]
    )


def outbox_hash(message: OutboxMessage) -> str:
    """Of a message to elsewhere; what becomes of it is not part of the commit."""
    return _hash(
        [
            message.kind,
            message.target,
            message.secret,
            message.type,
            _payload(message.payload),
            content_hash(message.arrival),
            message.dedupe_key,
            message.correlation_id,
            message.run_id,
            message.task_id,
        ]
    )


def checkpoint_hash(parent: str | None, checkpoint_json: bytes, metadata_json: bytes) -> str:
    """Of a checkpoint without its values."""
    return _hash([parent, content_hash(checkpoint_json), content_hash(metadata_json)])


def value_hash(value: ChannelValue) -> str:
    """Of a channel's value."""
    data = None if value.type == NO_VALUE else value.data
    return data_hash(value.type, data, None if value.staged is None else value.staged.size)


def write_hash(write: PendingWrite) -> str:
    """Of a pending write."""
    staged_size = None if write.staged is None else write.staged.size
    return hash_of_write(write.channel, write.type, write.data, staged_size)


def hash_of_write(channel: str, type_: str | None, data: bytes | None, staged_size: int | None) -> str:
    """The same of what is stored."""
    return _hash([channel, type_, content_hash(data) if staged_size is None else staged_size])


def data_hash(type_: str | None, data: bytes | None, staged_size: int | None) -> str:
    """Of a dumped value. Of one that came in chunks only the size is known here."""
    return _hash([type_, content_hash(data) if staged_size is None else staged_size])


def content_hash(content: bytes | None) -> str | None:
    """SHA-256 of a content."""
    return None if content is None else hashlib.sha256(content).hexdigest()


def _payload(payload: Payload | None) -> list[Any] | None:
    if payload is None:
        return None
    attributes = sorted(payload.attributes.items()) if payload.attributes else []
    return [payload.content_type, content_hash(payload.data), [list(pair) for pair in attributes]]


def _hash(fields: list[Any]) -> str:
    return hashlib.sha256(_encode(fields).encode()).hexdigest()


def anchor_of(thread: Thread) -> bytes:
    """The digest before the first commit of the chain that is kept."""
    return genesis(thread.scope_key, thread.session_id) if thread.chain_anchor is None else thread.chain_anchor
