"""Decisions about tickets: open (with Awaiting), resolve, let a deadline pass (R10)."""

from __future__ import annotations

from threadkeep_chassis.errors import FieldInvalid, IdTaken
from threadkeep_runtime.domain.commands import Awaiting, PassDeadline, ResolveTicket
from threadkeep_runtime.domain.commit import CommitDraft, Decision, NewId, View
from threadkeep_runtime.domain.errors import NothingToRecover, TicketAnswerInvalid, TicketNotFound, TicketNotOpen
from threadkeep_runtime.domain.event_json import ticket_json
from threadkeep_runtime.domain.runs import requeue
from threadkeep_runtime.domain.tasks import emit_run, emit_run_as, emit_task, end_run
from threadkeep_runtime.domain.values import END_USER, SYSTEM, Failure, Ticket

DEADLINE_PASSED = "ticket_expired"


def open_tickets(view: View, commit: CommitDraft, awaiting: Awaiting) -> None:
    """Lets the leased run wait. Under a cancellation that was asked for it ends CANCELED instead, and opens nothing.

    Raises IdTaken, FieldInvalid (an interrupt twice).
    """
    run, task = commit.run, commit.task
    assert run is not None
    assert task is not None
    if task.cancel_request_time is not None:
        end_run(commit, "CANCELED")
        return
    interrupts: set[str] = set()
    ids: set[str] = set()
    for index, draft in enumerate(awaiting.tickets):
        if ("ticket", draft.ticket_id) in view.taken or draft.ticket_id in ids:
            raise IdTaken("ticket", draft.ticket_id)
        if draft.interrupt_id is not None and draft.interrupt_id in interrupts:
            raise FieldInvalid(
                f"commit.awaiting.tickets[{index}].interrupt_id", "must be unique among the run's open tickets"
            )
        ids.add(draft.ticket_id)
        interrupts.add(draft.interrupt_id or "")
        ticket = Ticket(
            thread_key=run.thread_key,
            ticket_id=draft.ticket_id,
            scope_key=run.scope_key,
            session_id=run.session_id,
            task_id=run.task_id,
            run_id=run.run_id,
            kind=draft.kind,
            state="OPEN",
            prompt=draft.prompt,
            answer_schema_json=draft.answer_schema_json,
            allowed_decisions=draft.allowed_decisions,
            deadline=draft.deadline,
            default_answer=draft.default_answer,
            assignee=draft.assignee,
            interrupt_id=draft.interrupt_id,
            create_time=view.now,
            first_event_sequence=commit.next_event_sequence,
        )
        commit.open_ticket(ticket)
        emit_run_as(commit, "ticket.opened", {"ticket_id": ticket.ticket_id, "ticket": ticket_json(ticket)}, END_USER)
    commit.set_lease(None)
    commit.set_run("AWAITING")
    emit_run(commit, "awaiting", {"ticket_ids": [ticket.ticket_id for ticket in commit.open_tickets]})
    _follow_tickets(commit)


def resolve_ticket(view: View, command: ResolveTicket, new_id: NewId) -> Decision:
    """Takes an answer; the last one queues the run again. Raises TicketNotFound, TicketNotOpen, TicketAnswerInvalid."""
    ticket = view.named_ticket
    if ticket is None:
        raise TicketNotFound()
    if ticket.state != "OPEN":
        raise TicketNotOpen(ticket.state)
    if command.problem is not None:
        raise TicketAnswerInvalid(*command.problem)
    commit = CommitDraft(view, command, new_id)
    commit.close_ticket(ticket, "RESOLVED", answer=command.answer, resolved_by=command.actor)
    _go_on(commit, ticket)
    return commit.finish()


def pass_deadline(view: View, command: PassDeadline, new_id: NewId) -> Decision:
    """Records that a deadline passed: the default answer counts, or the run ends TIMED_OUT. Raises NothingToRecover."""
    ticket = view.named_ticket
    if ticket is None or ticket.state != "OPEN" or ticket.deadline is None or ticket.deadline > view.now:
        raise NothingToRecover()
    commit = CommitDraft(view, command, new_id)
    if ticket.default_answer is not None:
        commit.close_ticket(ticket, "RESOLVED", answer=ticket.default_answer, resolved_by=SYSTEM)
        _go_on(commit, ticket)
    else:
        commit.close_ticket(ticket, "EXPIRED")
        emit_run_as(commit, "ticket.expired", {"ticket_id": ticket.ticket_id}, END_USER)
        end_run(
            commit,
            "TIMED_OUT",
            failure=_failure(ticket),
        )
    return commit.finish()


def _go_on(commit: CommitDraft, ticket: Ticket) -> None:
    """After an answer: queue the run if nothing else is waited for."""
    emit_run_as(commit, "ticket.resolved", {"ticket_id": ticket.ticket_id}, END_USER)
    if commit.open_tickets:
        _follow_tickets(commit)
        return
    commit.set_task("WORKING", open_ticket_ids=())
    emit_task(commit, "working", {})
    requeue(commit, "answered")


def _follow_tickets(commit: CommitDraft) -> None:
    """The task's state says what is still waited for: AUTH_REQUIRED while a ticket of kind AUTH is open."""
    assert commit.task is not None
    open_ids = tuple(ticket.ticket_id for ticket in commit.open_tickets)
    needs_login = any(ticket.kind == "AUTH" for ticket in commit.open_tickets)
    state = "AUTH_REQUIRED" if needs_login else "INPUT_REQUIRED"
    if commit.task.state == state:
        commit.set_task(open_ticket_ids=open_ids)
        return
    commit.set_task(state, open_ticket_ids=open_ids)
    emit_task(commit, state.lower(), {"ticket_ids": list(open_ids)})


def _failure(ticket: Ticket) -> Failure:
    return Failure(DEADLINE_PASSED, f"The deadline of ticket {ticket.ticket_id} passed without an answer.")
