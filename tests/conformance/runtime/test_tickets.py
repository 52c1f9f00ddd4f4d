"""Tickets: opened by a run that waits, answered once, or decided by their deadline (R10)."""

from typing import Any

import grpc
import pytest
from google.protobuf.timestamp_pb2 import Timestamp

from tests.support.calls import refused
from tests.support.descriptors import fresh_id
from tests.support.examples.world import json_payload
from tests.support.runtime import SUCCEEDED, Runtime, awaiting, together
from tests.support.suite import Suite
from threadkeep.common.v1 import payload_pb2
from threadkeep.runtime.v1 import run_pb2, task_pb2, ticket_pb2, ticket_service_pb2, worker_service_pb2

pb = ticket_service_pb2
SHORT = {"runtime": {"recovery_interval_seconds": 0.05}}
NUMBER = '{"type": "object", "properties": {"n": {"type": "integer"}}, "required": ["n"]}'


def draft(**more: Any) -> ticket_pb2.TicketDraft:
    return ticket_pb2.TicketDraft(**more)


@pytest.fixture
def runtime(shared_suite: Suite) -> Runtime:
    return Runtime(shared_suite)


@pytest.fixture
async def held(runtime: Runtime) -> worker_service_pb2.AcquiredRun:
    """A leased run."""
    return await runtime.lease()


async def ask(runtime: Runtime, held: worker_service_pb2.AcquiredRun, *drafts: ticket_pb2.TicketDraft) -> list[str]:
    """Lets the run wait, and gives the tickets' ids."""
    return list((await runtime.work(held, awaiting=awaiting(*drafts))).ticket_ids)


@pytest.mark.rule("R10")
async def test_a_ticket_comes_back_as_it_was_opened(runtime: Runtime, held: worker_service_pb2.AcquiredRun) -> None:
    opened = draft(
        ticket_id="ticket-ü",
        kind=ticket_pb2.TICKET_KIND_APPROVAL,
        prompt=json_payload(b'{"question": "go on?"}'),
        answer_schema_json='{ "type" : "object" }',
        allowed_decisions=["yes", "no"],
        deadline=Timestamp(seconds=4_000_000_000),
        default_answer=ticket_pb2.TicketAnswer(decision="no"),
        assignee="ops",
        interrupt_id="i1",
    )
    committed = await runtime.work(held, awaiting=awaiting(opened))
    assert committed.ticket_ids == ["ticket-ü"]
    assert committed.run.state == run_pb2.RUN_STATE_AWAITING
    ticket = await runtime.ticket("ticket-ü")
    for field in opened.DESCRIPTOR.fields:
        assert getattr(ticket, field.name) == getattr(opened, field.name), field.name
    assert (ticket.session_id, ticket.task_id, ticket.run_id) == (
        held.run.session_id,
        held.task.task_id,
        held.run.run_id,
    )
    assert (ticket.state, ticket.HasField("answer")) == (ticket_pb2.TICKET_STATE_OPEN, False)
    task = await runtime.task(held.task.task_id)
    assert (task.state, task.open_ticket_ids) == (task_pb2.TASK_STATE_INPUT_REQUIRED, ["ticket-ü"])


@pytest.mark.rule("R10")
async def test_waiting_ends_the_lease(runtime: Runtime, held: worker_service_pb2.AcquiredRun) -> None:
    await ask(runtime, held)
    assert (await refused(runtime.work(held, ended=SUCCEEDED))).reason == "LEASE_LOST"
    assert (await refused(runtime.heartbeat(held.lease))).reason == "LEASE_LOST"
    assert await runtime.acquire(held.run.queue, wait=0) is None


@pytest.mark.rule("R10")
@pytest.mark.case("B71")
async def test_the_answer_reaches_the_next_lease_as_it_was_given(
    runtime: Runtime, held: worker_service_pb2.AcquiredRun
) -> None:
    (name,) = await ask(runtime, held, draft(interrupt_id="i1"))
    actor = payload_pb2.Actor(kind=payload_pb2.ACTOR_KIND_USER, id="ann")
    request = pb.ResolveTicketRequest(
        request_id=fresh_id(), ticket_id=name, answer=ticket_pb2.TicketAnswer(value_json="null"), actor=actor
    )
    resolved = await runtime.call("TicketService.ResolveTicket", request)
    assert resolved.ticket.state == ticket_pb2.TICKET_STATE_RESOLVED
    assert (resolved.ticket.answer.value_json, resolved.ticket.resolved_by) == ("null", actor)
    again = await runtime.again(held)
    assert list(again.answered_tickets) == [resolved.ticket]
    assert again.lease.epoch == 2
    assert (await runtime.task(held.task.task_id)).state == task_pb2.TASK_STATE_WORKING


@pytest.mark.rule("R10")
async def test_the_run_is_queued_with_the_last_answer_only(
    runtime: Runtime, held: worker_service_pb2.AcquiredRun
) -> None:
    names = await ask(runtime, held, draft(), draft(kind=ticket_pb2.TICKET_KIND_AUTH), draft())
    assert (await runtime.task(held.task.task_id)).state == task_pb2.TASK_STATE_AUTH_REQUIRED
    await runtime.resolve(names[1])
    assert (await runtime.task(held.task.task_id)).state == task_pb2.TASK_STATE_INPUT_REQUIRED
    await runtime.resolve(names[0])
    assert await runtime.acquire(held.run.queue, wait=0) is None
    await runtime.resolve(names[2])
    again = await runtime.again(held)
    assert [ticket.ticket_id for ticket in again.answered_tickets] == names


@pytest.mark.rule("R10")
async def test_answers_of_earlier_waits_are_all_there_oldest_first(
    runtime: Runtime, held: worker_service_pb2.AcquiredRun
) -> None:
    names = []
    for _ in range(3):
        (name,) = await ask(runtime, held)
        names.append(name)
        await runtime.resolve(name)
        held = await runtime.again(held)
    assert [ticket.ticket_id for ticket in held.answered_tickets] == names


@pytest.mark.rule("R10")
@pytest.mark.parametrize(
    ("opened", "answer", "field"),
    [
        ({"answer_schema_json": NUMBER}, {"value_json": '{"n": "1"}'}, "answer.value_json"),
        ({"answer_schema_json": NUMBER}, {"value_json": "null"}, "answer.value_json"),
        ({"allowed_decisions": ["yes"]}, {"decision": "no"}, "answer.decision"),
        ({"allowed_decisions": ["yes"]}, {"value_json": "1"}, "answer.decision"),
        ({}, {"decision": "yes"}, "answer.decision"),
        ({}, {}, "answer.value_json"),
    ],
)
async def test_an_answer_that_does_not_match_is_refused_and_the_ticket_stays_open(
    runtime: Runtime, held: worker_service_pb2.AcquiredRun, opened: dict[str, Any], answer: dict[str, Any], field: str
) -> None:
    (name,) = await ask(runtime, held, draft(**opened))
    request = pb.ResolveTicketRequest(request_id=fresh_id(), ticket_id=name, answer=ticket_pb2.TicketAnswer(**answer))
    details = await refused(runtime.call("TicketService.ResolveTicket", request))
    assert (details.code, details.reason) == (grpc.StatusCode.INVALID_ARGUMENT, "TICKET_ANSWER_INVALID")
    assert list(details.violations) == [field]
    assert (await runtime.ticket(name)).state == ticket_pb2.TICKET_STATE_OPEN


@pytest.mark.rule("R10", "X3")
async def test_of_many_answers_one_counts(runtime: Runtime, held: worker_service_pb2.AcquiredRun) -> None:
    (name,) = await ask(runtime, held)
    outcomes = await together(*(runtime.resolve(name, value_json=str(number)) for number in range(8)))
    won = [outcome for outcome in outcomes if isinstance(outcome, ticket_pb2.Ticket)]
    assert len(won) == 1
    assert await runtime.ticket(name) == won[0]
    details = await refused(runtime.resolve(name))
    assert (details.code, details.reason) == (grpc.StatusCode.FAILED_PRECONDITION, "TICKET_NOT_OPEN")
    assert details.metadata["ticket_state"] == "RESOLVED"
    assert (await runtime.types(held.run.session_id)).count("ticket.resolved") == 1


@pytest.mark.rule("R10", "R9")
async def test_a_canceled_task_closes_its_tickets(runtime: Runtime, held: worker_service_pb2.AcquiredRun) -> None:
    names = await ask(runtime, held, draft(), draft())
    await runtime.cancel(held.task.task_id)
    for name in names:
        assert (await runtime.ticket(name)).state == ticket_pb2.TICKET_STATE_CLOSED
        assert (await refused(runtime.resolve(name))).reason == "TICKET_NOT_OPEN"
    assert (await runtime.types(held.run.session_id))[-5:] == [
        "task.cancel_requested",
        "ticket.closed",
        "ticket.closed",
        "run.ended",
        "task.canceled",
    ]


@pytest.mark.rule("R10")
@pytest.mark.suite(settings=SHORT, services=["config", "runtime"], topologies=["embedded"])
async def test_a_passed_deadline_is_a_fact(suite: Suite) -> None:
    runtime = Runtime(suite)
    passed = Timestamp(seconds=1)
    first = await runtime.lease()
    default = ticket_pb2.TicketAnswer(value_json="42")
    (answered,) = await ask(runtime, first, draft(deadline=passed, default_answer=default))
    again = await runtime.again(first)
    ticket = await runtime.ticket(answered)
    assert (ticket.state, ticket.answer) == (ticket_pb2.TICKET_STATE_RESOLVED, default)
    assert ticket.resolved_by.kind == payload_pb2.ACTOR_KIND_SYSTEM
    assert list(again.answered_tickets) == [ticket]

    second = await runtime.lease()
    expired, other = await ask(runtime, second, draft(deadline=passed), draft())
    task = await runtime.wait(second.task.task_id)
    if task.state != task_pb2.TASK_STATE_FAILED:
        # WaitTask also returns while the ticket is still open.
        from tests.support.waiting import eventually

        async def failed() -> bool:
            return (await runtime.task(task.task_id)).state == task_pb2.TASK_STATE_FAILED

        await eventually(failed)
    assert (await runtime.ticket(expired)).state == ticket_pb2.TICKET_STATE_EXPIRED
    assert (await runtime.ticket(other)).state == ticket_pb2.TICKET_STATE_CLOSED
    run = await runtime.run(second.run.run_id)
    assert (run.cause, run.failure.code) == (run_pb2.RUN_END_CAUSE_TIMED_OUT, "ticket_expired")
    assert (await refused(runtime.resolve(expired))).reason == "TICKET_NOT_OPEN"


@pytest.mark.rule("R10", "X8")
@pytest.mark.parametrize(
    ("fields", "field"),
    [
        ({"answer_schema_json": '{"type": "number?"}'}, "answer_schema_json"),
        ({"answer_schema_json": "{"}, "answer_schema_json"),
        ({"allowed_decisions": ["yes", "yes"]}, "allowed_decisions"),
        ({"allowed_decisions": ["yes"], "default_answer": {"decision": "no"}}, "default_answer.decision"),
        ({"answer_schema_json": NUMBER, "default_answer": {"value_json": "1"}}, "default_answer.value_json"),
        ({"kind": 99}, "kind"),
    ],
)
async def test_a_ticket_that_makes_no_sense_is_not_opened(
    runtime: Runtime, held: worker_service_pb2.AcquiredRun, fields: dict[str, Any], field: str
) -> None:
    details = await refused(ask(runtime, held, draft(**fields)))
    assert list(details.violations) == [f"commit.awaiting.tickets[0].{field}"]
    assert (await runtime.run(held.run.run_id)).state == run_pb2.RUN_STATE_RUNNING


@pytest.mark.rule("R10", "X2")
async def test_ticket_ids_are_taken_once_in_their_scope(runtime: Runtime, shared_suite: Suite) -> None:
    elsewhere = Runtime(shared_suite)
    await ask(runtime, await runtime.lease(), draft(ticket_id="mine"))
    assert (await refused(ask(runtime, await runtime.lease(), draft(ticket_id="mine")))).reason == "ID_TAKEN"
    foreign, unused = await refused(elsewhere.resolve("mine")), await refused(elsewhere.resolve("never"))
    assert foreign.reason == "TICKET_NOT_FOUND"
    assert foreign.raw == unused.raw
    await ask(elsewhere, await elsewhere.lease(), draft(ticket_id="mine"))


@pytest.mark.rule("R10", "X5")
async def test_tickets_are_listed_newest_first_and_filtered(runtime: Runtime) -> None:
    first, second = await runtime.lease(), await runtime.lease()
    names = [*await ask(runtime, first), *await ask(runtime, second)]
    await runtime.resolve(names[0])

    async def listed(**query: Any) -> list[str]:
        page = await runtime.call("TicketService.ListTickets", pb.ListTicketsRequest(**query))
        return [ticket.ticket_id for ticket in page.tickets]

    assert await listed() == names[::-1]
    assert await listed(states=[ticket_pb2.TICKET_STATE_OPEN]) == names[1:]
    assert await listed(session_id=first.run.session_id) == names[:1]
    assert await listed(task_id=second.task.task_id) == names[1:]
    assert await listed(page_size=1) == names[1:]
