"""Decisions about tasks: submit, cancel (R5, R6, R9); and how a run's end becomes its task's (R4)."""

from __future__ import annotations

from dataclasses import replace
from datetime import timedelta
from typing import Any

from threadkeep_chassis.errors import IdTaken
from threadkeep_runtime.domain.commands import CancelTask, SubmitTask
from threadkeep_runtime.domain.commit import CommitDraft, Decision, NewId, View
from threadkeep_runtime.domain.errors import SessionBusy, SessionNotFound, TaskNotFound, TaskTerminal
from threadkeep_runtime.domain.event_json import failure_json, run_json, task_json
from threadkeep_runtime.domain.sessions import start_thread
from threadkeep_runtime.domain.transitions import TASK_STATE_OF_CAUSE, TERMINAL_TASK_STATES
from threadkeep_runtime.domain.values import BUILDER, END_USER, Failure, Payload, Run, Task


def submit_task(view: View, command: SubmitTask, new_id: NewId) -> Decision:
    """Submits a task and opens its run, in a new session when asked to.

    Raises IdTaken (session or task), SessionNotFound, SessionBusy.
    """
    if command.create is not None:
        commit = start_thread(view, command, command.create, new_id)
    else:
        if view.thread is None:
            raise SessionNotFound()
        if view.run is not None:
            raise SessionBusy(view.run.run_id)
        commit = CommitDraft(view, command, new_id)
    if ("task", command.task_id) in view.taken:
        raise IdTaken("task", command.task_id)
    submitted = commit.next_event_sequence
    task = Task(
        thread_key=command.thread_key,
        task_id=command.task_id,
        scope_key=command.scope_key,
        session_id=command.session_id,
        agent_name=command.agent_name,
        agent_revision=command.agent_revision,
        manifest_digest=command.manifest_digest,
        state="SUBMITTED",
        input=command.input,
        queue=command.queue,
        priority=command.priority,
        metadata=command.metadata,
        max_attempts=command.max_attempts,
        run_id=command.run_id,
        create_time=view.now,
        update_time=view.now,
        first_event_sequence=submitted,
    )
    run = Run(
        thread_key=command.thread_key,
        run_id=command.run_id,
        scope_key=command.scope_key,
        session_id=command.session_id,
        task_id=command.task_id,
        agent_name=command.agent_name,
        state="QUEUED",
        queue=command.queue,
        priority=command.priority,
        create_time=view.now,
        first_event_sequence=submitted + 1,
    )
    commit.open_task(task, run)
    commit.manifest = (command.manifest_digest, command.manifest)
    thread = commit.thread
    commit.set_thread(
        task_count=thread.task_count + 1,
        run_count=thread.run_count + 1,
        active_run_id=run.run_id,
        latest_run_id=run.run_id,
        latest_task_id=task.task_id,
    )
    emit_task(commit, "submitted", {"task": task_json(task, command.input_json)})
    emit_run(commit, "queued", {"reason": "submitted", "run": run_json(run)})
    return commit.finish()


def cancel_task(view: View, command: CancelTask, new_id: NewId) -> Decision:
    """Records the intent, and ends the run at once unless a worker has it and there is a grace period.

    A second request keeps the first one's time and reason, and can only shorten the grace. Raises TaskNotFound,
    TaskTerminal.
    """
    task = view.named_task
    if view.thread is None or task is None:
        raise TaskNotFound()
    if task.state in TERMINAL_TASK_STATES:
        raise TaskTerminal()
    assert view.task is not None, "a task that has not ended has the open run"
    assert view.run is not None
    commit = CommitDraft(view, command, new_id)
    if task.cancel_request_time is None:
        commit.set_task(cancel_request_time=view.now, cancel_reason=command.reason)
    emit_task(commit, "cancel_requested", {"reason": command.reason})
    if view.run.state != "RUNNING" or command.grace_seconds <= 0:
        end_run(commit, "CANCELED")
        return commit.finish()
    if view.lease is not None:
        deadline = view.now + timedelta(seconds=command.grace_seconds)
        if view.lease.cancel_deadline is not None:
            deadline = min(deadline, view.lease.cancel_deadline)
        assert commit.task is not None
        commit.set_lease(replace(view.lease, cancel_deadline=deadline, cancel_reason=commit.task.cancel_reason or ""))
    return commit.finish()


def end_run(commit: CommitDraft, cause: str, *, result: Payload | None = None, failure: Failure | None = None) -> None:
    """Ends the open run and its task: open tickets close, the lease goes, and both terminal events are in this commit.

    The run's events end with `run.ended`, the task's with its own terminal event: a feed of either stops there.
    """
    for ticket in commit.open_tickets:
        commit.close_ticket(ticket, "CLOSED")
        emit_run_as(commit, "ticket.closed", {"ticket_id": ticket.ticket_id}, END_USER)
    commit.set_lease(None)
    commit.set_run(
        "ENDED",
        cause=cause,
        failure=failure,
        end_time=commit.thread.last_activity_time,
        last_event_sequence=commit.next_event_sequence,
    )
    ended: dict[str, Any] = {"cause": f"RUN_END_CAUSE_{cause}"}
    if failure is not None:
        ended["failure"] = failure_json(failure)
    emit_run(commit, "ended", ended)
    state = TASK_STATE_OF_CAUSE[cause]
    commit.set_task(
        state,
        result=result,
        failure=failure,
        open_ticket_ids=(),
        end_time=commit.thread.last_activity_time,
        last_event_sequence=commit.next_event_sequence,
    )
    emit_task(commit, state.lower(), {"failure": failure_json(failure)} if failure is not None else {})
    commit.set_thread(active_run_id=None)


def emit_task(commit: CommitDraft, name: str, payload: dict[str, Any]) -> None:
    """An event of the task. It names no run: the run's feed has ended when the task's terminal event comes."""
    assert commit.task is not None
    commit.emit("task." + name, payload, END_USER, task_id=commit.task.task_id)


def emit_run(commit: CommitDraft, name: str, payload: dict[str, Any]) -> None:
    """An event of the run, and so of its task."""
    emit_run_as(commit, "run." + name, payload, BUILDER)


def emit_run_as(commit: CommitDraft, type_: str, payload: dict[str, Any], visibility: int) -> None:
    """An event of any type that belongs to the run and its task."""
    assert commit.run is not None
    commit.emit(type_, payload, visibility, run_id=commit.run.run_id, task_id=commit.run.task_id)
