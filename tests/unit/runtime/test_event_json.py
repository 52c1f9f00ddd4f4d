"""The payloads of the server's own events are proto3 JSON of the records, as protobuf itself writes it (R13)."""

import json
from datetime import UTC, datetime
from typing import Any

import pytest
from google.protobuf import json_format

from threadkeep.runtime.v1 import run_pb2, session_pb2, task_pb2, ticket_pb2
from threadkeep_runtime.domain.event_json import json_payload, run_json, session_json, task_json, ticket_json
from threadkeep_runtime.domain.values import (
    Actor,
    Answer,
    Failure,
    Payload,
    RetryPolicy,
    Run,
    Task,
    Thread,
    Ticket,
    Timeouts,
    Webhook,
)
from threadkeep_runtime.service.render import run_to_proto, session_to_proto, task_to_proto, ticket_to_proto

T0 = datetime(2026, 3, 4, 5, 6, 7, tzinfo=UTC)
T1 = datetime(2026, 3, 4, 5, 6, 7, 120_000, tzinfo=UTC)
T2 = datetime(2026, 3, 4, 5, 6, 7, 123_456, tzinfo=UTC)
INPUT = task_pb2.TaskInput()
INPUT.messages.messages.add(message_id="m1", role=1).parts.add(text='"quoted" \x00 ünï')

BARE_RUN: dict[str, Any] = {
    "thread_key": "k",
    "run_id": "r",
    "scope_key": "s",
    "session_id": "session",
    "task_id": "t",
    "agent_name": "a",
    "state": "QUEUED",
    "queue": "q",
    "priority": 0,
    "create_time": T0,
    "first_event_sequence": 1,
}
FULL_RUN = BARE_RUN | {
    "state": "ENDED",
    "cause": "FAILED",
    "epoch": 2**40,
    "crash_count": 2,
    "worker_id": "w",
    "last_checkpoint_id": "c",
    "failure": Failure("code", "text\x00", retryable=True),
    "attempt": 2,
    "parent_run_id": "before",
    "due_time": T2,
    "priority": -3,
    "start_time": T1,
    "end_time": T2,
}
BARE_TASK: dict[str, Any] = {
    "thread_key": "k",
    "task_id": "t",
    "scope_key": "s",
    "session_id": "session",
    "agent_name": "a",
    "agent_revision": 7,
    "manifest_digest": "d",
    "state": "SUBMITTED",
    "input": INPUT.SerializeToString(),
    "queue": "q",
    "priority": 0,
    "metadata": {},
    "retry": RetryPolicy(3, 0.25, 7.5, 1.5, ("busy", "later")),
    "attempt": 2,
    "run_id": "r",
    "create_time": T0,
    "update_time": T1,
    "first_event_sequence": 1,
}
FULL_TASK = BARE_TASK | {
    "state": "FAILED",
    "priority": 2**31 - 1,
    "metadata": {"k": "v", "empty": ""},
    "crash_count": 3,
    "open_ticket_ids": ("x", "y"),
    "not_before": T1,
    "retry_of": "before",
    "schedule_id": "daily",
    "timeouts": Timeouts(90.5, 30.0, None),
    "deadline": T2,
    "cancel_request_time": T2,
    "cancel_reason": "why",
    "result": Payload("application/octet-stream", b"\x00\xff", {"encryption": "aes"}),
    "failure": Failure("code", ""),
    "end_time": T2,
    "webhook": Webhook("https://example.com/hook", "s"),
    "revision": 9,
}
BARE_TICKET: dict[str, Any] = {
    "thread_key": "k",
    "ticket_id": "t",
    "scope_key": "s",
    "session_id": "session",
    "task_id": "task",
    "run_id": "r",
    "kind": "INPUT",
    "state": "OPEN",
    "create_time": T0,
    "first_event_sequence": 1,
}
FULL_TICKET = BARE_TICKET | {
    "kind": "APPROVAL",
    "state": "RESOLVED",
    "prompt": Payload("application/json", b"{}"),
    "answer_schema_json": '{"type": "object"}',
    "allowed_decisions": ("yes", "no"),
    "deadline": T1,
    "default_answer": Answer(None, ""),
    "assignee": "ops",
    "interrupt_id": "i",
    "answer": Answer("yes", "null"),
    "resolved_by": Actor("USER", "u"),
    "end_time": T2,
}
BARE_THREAD: dict[str, Any] = {
    "thread_key": "k",
    "scope_key": "s",
    "session_id": "session",
    "partition": 0,
    "metadata": {},
    "settings": {},
    "create_time": T0,
    "update_time": T1,
    "last_activity_time": T2,
}
FULL_THREAD = BARE_THREAD | {
    "commit_sequence": 2**40,
    "event_sequence": 5,
    "title": "A title",
    "agent_name": "a",
    "metadata": {"k": "v"},
    "settings": {"model": "m", "max_steps": 25},
    "task_count": 1,
    "run_count": 2,
    "active_run_id": "r",
    "latest_run_id": "r",
    "latest_task_id": "t",
    "revision": 3,
}


def as_protobuf_reads_it(message_type: type, written: dict[str, Any]) -> Any:
    """The message that the event's bytes stand for; unknown fields are refused."""
    return json_format.Parse(json_payload(written).data, message_type())


@pytest.mark.rule("R13")
@pytest.mark.parametrize("fields", [BARE_RUN, FULL_RUN])
def test_a_run_is_written_as_protobuf_writes_it(fields: dict[str, Any]) -> None:
    run = Run(**fields)
    expected = run_to_proto(run, None)
    written = run_json(run)
    assert json.loads(json.dumps(written)) == json_format.MessageToDict(expected, preserving_proto_field_name=True)
    assert as_protobuf_reads_it(run_pb2.Run, written) == expected


@pytest.mark.rule("R13")
@pytest.mark.parametrize("fields", [BARE_TASK, FULL_TASK])
def test_a_task_is_written_as_protobuf_writes_it(fields: dict[str, Any]) -> None:
    task = Task(**fields)
    expected = task_to_proto(task)
    written = task_json(task, json_format.MessageToDict(INPUT, preserving_proto_field_name=True))
    assert json.loads(json.dumps(written)) == json_format.MessageToDict(expected, preserving_proto_field_name=True)
    assert as_protobuf_reads_it(task_pb2.Task, written) == expected


@pytest.mark.rule("R13")
@pytest.mark.parametrize("fields", [BARE_TICKET, FULL_TICKET])
def test_a_ticket_is_written_as_protobuf_writes_it(fields: dict[str, Any]) -> None:
    ticket = Ticket(**fields)
    expected = ticket_to_proto(ticket)
    written = ticket_json(ticket)
    assert json.loads(json.dumps(written)) == json_format.MessageToDict(expected, preserving_proto_field_name=True)
    assert as_protobuf_reads_it(ticket_pb2.Ticket, written) == expected


@pytest.mark.rule("R13")
@pytest.mark.parametrize("fields", [BARE_THREAD, FULL_THREAD])
def test_a_session_is_written_as_protobuf_writes_it(fields: dict[str, Any]) -> None:
    thread = Thread(**fields)
    expected = session_to_proto(thread, Run(**BARE_RUN) if thread.active_run_id else None)
    written = session_json(thread, Run(**BARE_RUN) if thread.active_run_id else None)
    assert json.loads(json.dumps(written)) == json_format.MessageToDict(expected, preserving_proto_field_name=True)
    assert as_protobuf_reads_it(session_pb2.Session, written) == expected
