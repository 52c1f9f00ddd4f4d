"""Between rows and domain values. A row's columns are a value's fields, but for payloads, answers and failures."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import fields
from operator import attrgetter
from typing import Any

import sqlalchemy as sa

from threadkeep.common.v1 import payload_pb2
from threadkeep_runtime import tables
from threadkeep_runtime.domain.values import (
    NO_TIMEOUTS,
    Actor,
    Answer,
    Event,
    Failure,
    Lease,
    Payload,
    RetryPolicy,
    Run,
    Task,
    TaskWebhook,
    Thread,
    Ticket,
    Timeouts,
    Webhook,
)

Row = Any
"""A row that is read by column name: sqlalchemy.RowMapping."""


def columns_of(value_type: type, table: sa.Table, prefix: str = "") -> list[sa.Label[Any]]:
    """The columns that `value_type` is read from, each labelled with the prefix, so that several can be joined."""
    names = {field.name for field in fields(value_type)} & set(table.c.keys())
    return [column.label(prefix + column.key) for column in table.c if column.key in names]


THREAD_COLUMNS = tuple(field.name for field in fields(Thread))
TASK_COLUMNS = tuple(column.key for column in tables.tasks.c)
_RETRY_COLUMNS = tuple(field.name for field in fields(RetryPolicy))
_TIMEOUT_COLUMNS = tuple(field.name for field in fields(Timeouts))
RUN_COLUMNS = tuple(column.key for column in tables.runs.c)
LEASE_COLUMNS = tuple(column.key for column in tables.leases.c)
TICKET_COLUMNS = tuple(column.key for column in tables.tickets.c)

_TASK_FIELDS = tuple(name for name in TASK_COLUMNS if name not in (*_RETRY_COLUMNS, *_TIMEOUT_COLUMNS))
_task_values = attrgetter(*_TASK_FIELDS)
_run_values = attrgetter(*RUN_COLUMNS)
_thread_values = attrgetter(*THREAD_COLUMNS)
_lease_values = attrgetter(*LEASE_COLUMNS)


def thread_of(row: Row) -> Thread:
    """A thread from its whole row."""
    return Thread(**{name: row[name] for name in THREAD_COLUMNS})


def thread_row(thread: Thread) -> dict[str, Any]:
    """The row of a thread."""
    return dict(zip(THREAD_COLUMNS, _thread_values(thread), strict=True))


def task_of(row: Row, prefix: str = "") -> Task:
    """A task. Without the columns `input` and `result` in the row these are empty."""
    found = {name: row[prefix + name] for name in _TASK_FIELDS if prefix + name in row}
    retry = {name: row[prefix + name] for name in _RETRY_COLUMNS}
    listed = {name: tuple(retry[name]) for name in ("retryable_codes", "retry_causes")}
    found["retry"] = RetryPolicy(**{**retry, **listed})
    bounds = {name: row[prefix + name] for name in _TIMEOUT_COLUMNS}
    found["timeouts"] = Timeouts(**bounds) if any(bounds.values()) else NO_TIMEOUTS
    found.setdefault("input", b"")
    found["run_id"] = found["run_id"] or None
    found["open_ticket_ids"] = tuple(found["open_ticket_ids"])
    found["result"] = payload_of(found.get("result"))
    found["failure"] = failure_of(found["failure"])
    found["webhook"] = None if found["webhook"] is None else Webhook(**found["webhook"])
    found["webhooks"] = tuple(TaskWebhook(**one) for one in found["webhooks"] or ())
    return Task(**found)


def task_row(task: Task) -> dict[str, Any]:
    """The row of a task."""
    row = dict(zip(_TASK_FIELDS, _task_values(task), strict=True))
    row.update({name: getattr(task.retry, name) for name in _RETRY_COLUMNS})
    row["retryable_codes"] = list(task.retry.retryable_codes)
    row["retry_causes"] = list(task.retry.retry_causes)
    row.update({name: getattr(task.timeouts, name) for name in _TIMEOUT_COLUMNS})
    row["run_id"] = task.run_id or ""
    row["open_ticket_ids"] = list(task.open_ticket_ids)
    row["result"] = payload_bytes(task.result)
    row["failure"] = failure_value(task.failure)
    row["webhook"] = None if task.webhook is None else _set_fields(task.webhook)
    row["webhooks"] = [_set_fields(one) for one in task.webhooks] or None
    return row


def run_of(row: Row, prefix: str = "") -> Run:
    """A run."""
    found = {name: row[prefix + name] for name in RUN_COLUMNS}
    found["failure"] = failure_of(found["failure"])
    return Run(**found)


def run_row(run: Run) -> dict[str, Any]:
    """The row of a run."""
    row = dict(zip(RUN_COLUMNS, _run_values(run), strict=True))
    row["failure"] = failure_value(run.failure)
    return row


def lease_of(row: Row, prefix: str = "") -> Lease | None:
    """A lease; None if an outer join found none."""
    if row[prefix + "run_id"] is None:
        return None
    return Lease(**{name: row[prefix + name] for name in LEASE_COLUMNS})


def lease_row(lease: Lease) -> dict[str, Any]:
    """The row of a lease."""
    return dict(zip(LEASE_COLUMNS, _lease_values(lease), strict=True))


def ticket_of(row: Row) -> Ticket:
    """A ticket."""
    resolved_by = row["resolved_by_kind"]
    return Ticket(
        thread_key=row["thread_key"],
        ticket_id=row["ticket_id"],
        scope_key=row["scope_key"],
        session_id=row["session_id"],
        task_id=row["task_id"],
        run_id=row["run_id"],
        kind=row["kind"],
        state=row["state"],
        prompt=payload_of(row["prompt"]),
        answer_schema_json=row["answer_schema_json"],
        allowed_decisions=tuple(row["allowed_decisions"]),
        deadline=row["deadline"],
        default_answer=_answer_of(row["default_decision"], row["default_value_json"]),
        assignee=row["assignee"],
        interrupt_id=row["interrupt_id"],
        answer=_answer_of(row["decision"], row["value_json"]),
        resolved_by=None if resolved_by is None else Actor(resolved_by, row["resolved_by_id"]),
        create_time=row["create_time"],
        end_time=row["end_time"],
        first_event_sequence=row["first_event_sequence"],
    )


def ticket_row(ticket: Ticket) -> dict[str, Any]:
    """The row of a ticket."""
    default, answer, resolved_by = ticket.default_answer, ticket.answer, ticket.resolved_by
    return {
        "thread_key": ticket.thread_key,
        "ticket_id": ticket.ticket_id,
        "scope_key": ticket.scope_key,
        "session_id": ticket.session_id,
        "task_id": ticket.task_id,
        "run_id": ticket.run_id,
        "kind": ticket.kind,
        "state": ticket.state,
        "prompt": payload_bytes(ticket.prompt),
        "answer_schema_json": ticket.answer_schema_json,
        "allowed_decisions": list(ticket.allowed_decisions),
        "deadline": ticket.deadline,
        "default_decision": None if default is None else default.decision,
        "default_value_json": None if default is None else default.value_json,
        "assignee": ticket.assignee,
        "interrupt_id": ticket.interrupt_id,
        "decision": None if answer is None else answer.decision,
        "value_json": None if answer is None else answer.value_json,
        "resolved_by_kind": None if resolved_by is None else resolved_by.kind,
        "resolved_by_id": None if resolved_by is None else resolved_by.id,
        "create_time": ticket.create_time,
        "end_time": ticket.end_time,
        "first_event_sequence": ticket.first_event_sequence,
    }


def event_columns(event: Event) -> dict[str, Any]:
    """The part of an event's row that the event itself says."""
    payload = event.payload
    return {
        "event_id": event.event_id,
        "is_named": event.is_named,
        "type": event.type,
        "visibility": event.visibility,
        "run_id": event.run_id,
        "task_id": event.task_id,
        "content_type": None if payload is None else payload.content_type,
        "payload": None if payload is None else payload.data,
        "attributes": None if payload is None else dict(payload.attributes) if payload.attributes else None,
        "schema_version": event.schema_version,
        "causation_id": event.causation_id,
        "correlation_id": event.correlation_id,
    }


def payload_bytes(payload: Payload | None) -> bytes | None:
    """A serialized Payload message."""
    if payload is None:
        return None
    return payload_pb2.Payload(
        content_type=payload.content_type, data=payload.data, attributes=dict(payload.attributes or {})
    ).SerializeToString(deterministic=True)


def payload_of(stored: bytes | None) -> Payload | None:
    """Reads what `payload_bytes` wrote."""
    if stored is None:
        return None
    message = payload_pb2.Payload.FromString(bytes(stored))
    return Payload(message.content_type, message.data, dict(message.attributes) or None)


def _set_fields(value: Webhook | TaskWebhook) -> dict[str, Any]:
    return {name: text for name, text in value._asdict().items() if text is not None}


def failure_of(stored: Mapping[str, Any] | None) -> Failure | None:
    """Reads what `failure_value` wrote."""
    return None if stored is None else Failure(stored["code"], stored["message"], bool(stored.get("retryable")))


def failure_value(failure: Failure | None) -> dict[str, Any] | None:
    """A failure as a JSON object."""
    return None if failure is None else failure._asdict()


def _answer_of(decision: str | None, value_json: str | None) -> Answer | None:
    """An answer has a decision, a value or both, so that neither means none."""
    return None if decision is None and value_json is None else Answer(decision, value_json)
