"""Decisions about tasks: submit, cancel (R5, R6, R9); how a run's end becomes its task's, and whose turn it is (R4)."""

from __future__ import annotations

from dataclasses import replace
from datetime import datetime, timedelta
from typing import Any

from threadkeep_chassis.errors import FieldInvalid, IdTaken, LimitExceeded
from threadkeep_runtime.domain.checkpoints import RollBack
from threadkeep_runtime.domain.commands import CancelTask, SubmitTask
from threadkeep_runtime.domain.commit import CommitDraft, Decision, NewId, View
from threadkeep_runtime.domain.errors import SessionBusy, SessionNotFound, TaskNotFound, TaskTerminal
from threadkeep_runtime.domain.event_json import failure_json, run_json, task_json
from threadkeep_runtime.domain.sessions import start_thread
from threadkeep_runtime.domain.transitions import TASK_STATE_OF_CAUSE, TERMINAL_TASK_STATES
from threadkeep_runtime.domain.values import BUILDER, END_USER, INTERNAL, Failure, Payload, Run, Task


def submit_task(view: View, command: SubmitTask, new_id: NewId) -> Decision:
    """Submits a task and opens its run, in a new session when asked to; in a busy one the strategy decides (R5).

    One that is not yet due gets no run, and does not care what the session does meanwhile (R7). Raises IdTaken (session
    or task), SessionNotFound, SessionBusy, LimitExceeded (too many wait), FieldInvalid (a strategy for later).
    """
    return submit_into(view, begin_submission(view, command, new_id), command)


def begin_submission(view: View, command: SubmitTask, new_id: NewId) -> CommitDraft:
    """The commit that the task goes into. Raises IdTaken, SessionNotFound, SessionBusy, FieldInvalid."""
    is_early = _is_early(view, command)
    if is_early and command.strategy in ("INTERRUPT", "ROLLBACK"):
        raise FieldInvalid("multitask_strategy", "is REJECT or ENQUEUE when not_before is yet to come")
    create = command.create
    if create is None and view.thread is None:
        create = command.if_missing
    if create is not None:
        return start_thread(view, command, create, new_id)
    if view.thread is None:
        raise SessionNotFound()
    if view.run is not None and command.strategy == "REJECT" and not is_early:
        raise SessionBusy(view.run.run_id)
    return CommitDraft(view, command, new_id)


def _is_early(view: View, command: SubmitTask) -> bool:
    return command.not_before is not None and command.not_before > view.now


def submit_into(view: View, commit: CommitDraft, command: SubmitTask) -> Decision:
    """Adds the task to the commit and finishes it. Raises IdTaken, LimitExceeded."""
    if ("task", command.task_id) in view.taken:
        raise IdTaken("task", command.task_id)
    waits = _is_early(view, command) or (commit.run is not None and command.strategy == "ENQUEUE")
    if waits and commit.thread.enqueued_count >= command.max_enqueued:
        raise LimitExceeded(
            "max_enqueued_tasks",
            command.max_enqueued,
            commit.thread.enqueued_count + 1,
            "Wait for the session's tasks, or cancel some.",
        )
    if commit.run is not None and not waits:
        _give_way(view, commit, command)
    starts = max(view.now, command.not_before or view.now)
    deadline = after_seconds(starts, command.timeouts.total_seconds)
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
        retry=command.retry,
        not_before=command.not_before,
        retry_of=command.retry_of,
        schedule_id=command.schedule_id,
        timeouts=command.timeouts,
        deadline=deadline,
        timeout_time=earlier(deadline, after_seconds(starts, command.timeouts.waiting_seconds)),
        run_id=None if waits else command.run_id,
        webhook=command.webhook,
        webhooks=command.webhooks,
        create_time=view.now,
        update_time=view.now,
        first_event_sequence=commit.next_event_sequence,
    )
    thread = commit.thread
    commit.set_thread(task_count=thread.task_count + 1, latest_task_id=task.task_id)
    commit.turn_to(task, None, task_is_new=True)
    commit.manifest = (command.manifest_digest, command.manifest)
    emit_task(commit, "submitted", {"task": task_json(task, command.input_json)})
    if waits:
        commit.set_thread(enqueued_count=thread.enqueued_count + 1)
    else:
        open_run(commit, command.run_id, "submitted")
    return commit.finish()


def _give_way(view: View, commit: CommitDraft, command: SubmitTask) -> None:
    """Ends the open run for the task that is submitted; with ROLLBACK what the ended task recorded goes too."""
    run, task = commit.run, commit.task
    assert run is not None
    assert task is not None
    verb = "Interrupted by" if command.strategy == "INTERRUPT" else "Rolled back for"
    reason = f"{verb} task {command.task_id} (run {command.run_id})."
    if task.cancel_request_time is None:
        commit.set_task(cancel_request_time=view.now, cancel_reason=reason)
    emit_task(commit, "cancel_requested", {"reason": reason})
    if command.strategy == "INTERRUPT":
        end_run(commit, "CANCELED", opens_next=False)
        return
    root = view.root_before_task
    commit.save(roll_back=RollBack(task.task_id, task.first_event_sequence))
    commit.set_thread(root_checkpoint_id=root, checkpoint_floor=commit.thread.checkpoint_top)
    commit.set_run(last_checkpoint_id=None)
    emit_run_as(commit, "checkpoint.rolled_back", {"root_checkpoint_id": root}, INTERNAL)
    end_run(commit, "SUPERSEDED", opens_next=False)


def cancel_task(view: View, command: CancelTask, new_id: NewId) -> Decision:
    """Records the intent, and ends the run at once unless a worker has it and there is a grace period.

    An enqueued task ends at once. A second request keeps the first one's time and reason, and can only shorten the
    grace. Raises TaskNotFound, TaskTerminal.
    """
    task = view.named_task
    if view.thread is None or task is None:
        raise TaskNotFound()
    if task.state in TERMINAL_TASK_STATES:
        raise TaskTerminal()
    commit = CommitDraft(view, command, new_id)
    if task.run_id is None:
        commit.turn_to(task, None)
    if task.cancel_request_time is None:
        commit.set_task(cancel_request_time=view.now, cancel_reason=command.reason)
    emit_task(commit, "cancel_requested", {"reason": command.reason})
    if task.run_id is None:
        end_waiting_task(commit, "CANCELED")
    else:
        cancel_open_run(view, commit, command.grace_seconds)
    return commit.finish()


def end_waiting_task(commit: CommitDraft, state: str, failure: Failure | None = None) -> None:
    """Ends the task at hand, which has no run."""
    end_task(commit, state, failure=failure)
    commit.set_thread(enqueued_count=commit.thread.enqueued_count - 1)


def cancel_open_run(view: View, commit: CommitDraft, grace_seconds: float) -> None:
    """Ends the open run, or lets its worker know that it shall end; the wish is on the task already."""
    assert view.run is not None, "a task that has a run and has not ended has the open run"
    if view.run.state != "RUNNING" or grace_seconds <= 0:
        end_run(commit, "CANCELED")
        return
    if view.lease is not None:
        deadline = view.now + timedelta(seconds=grace_seconds)
        if view.lease.cancel_deadline is not None:
            deadline = min(deadline, view.lease.cancel_deadline)
        assert commit.task is not None
        commit.set_lease(replace(view.lease, cancel_deadline=deadline, cancel_reason=commit.task.cancel_reason or ""))


def open_run(commit: CommitDraft, run_id: str, reason: str, *, after: Run | None = None, wait: float = 0.0) -> None:
    """Opens a run of the task at hand, which has none open. `reason` goes into the event.

    `after` is the attempt before: the new one goes on from its last checkpoint, in `wait` seconds at the earliest.
    """
    task = commit.task
    assert task is not None
    now = commit.thread.last_activity_time
    run = Run(
        thread_key=task.thread_key,
        run_id=run_id,
        scope_key=task.scope_key,
        session_id=task.session_id,
        task_id=task.task_id,
        agent_name=task.agent_name,
        state="QUEUED",
        attempt=task.attempt + 1,
        parent_run_id=None if after is None else after.run_id,
        due_time=now + timedelta(seconds=wait) if wait > 0 else None,
        last_checkpoint_id=None if after is None else after.last_checkpoint_id,
        queue=task.queue,
        priority=task.priority,
        create_time=now,
        first_event_sequence=commit.next_event_sequence,
    )
    task = commit.set_task(run_id=run_id, attempt=task.attempt + 1)
    commit.turn_to(task, run)
    commit.set_thread(run_count=commit.thread.run_count + 1, active_run_id=run_id, latest_run_id=run_id)
    emit_run(commit, "queued", {"reason": reason, "run": run_json(run)})


def end_run(
    commit: CommitDraft,
    cause: str,
    *,
    result: Payload | None = None,
    failure: Failure | None = None,
    opens_next: bool = True,
) -> None:
    """Ends the open run and its task: both terminal events are in this commit.

    The run's events end with `run.ended`, the task's with its own terminal event: a feed of either stops there. The
    waiting task whose turn it is gets its run in the same commit.
    """
    _close_run(commit, cause, failure)
    end_task(commit, TASK_STATE_OF_CAUSE[cause], result=result, failure=failure)
    commit.set_thread(active_run_id=None)
    if opens_next:
        open_next(commit, "dequeued")


def open_next(commit: CommitDraft, reason: str) -> None:
    """Opens the run of the waiting task whose turn it is, if one waits; the session has no open run."""
    following = commit.next_task
    if following is not None:
        with commit.aside():
            commit.turn_to(following, None)
            commit.set_thread(enqueued_count=commit.thread.enqueued_count - 1)
            open_run(commit, commit.new_id(), reason)


def after_seconds(start: datetime, seconds: float | None) -> datetime | None:
    """So much later; None if there is no bound."""
    return None if seconds is None else start + timedelta(seconds=seconds)


def earlier(one: datetime | None, other: datetime | None) -> datetime | None:
    """The earlier of two bounds."""
    return min((bound for bound in (one, other) if bound is not None), default=None)


def fail_run(commit: CommitDraft, failure: Failure, jitter: float, cause: str = "FAILED") -> None:
    """Ends the open run FAILED, or TIMED_OUT. If the policy allows another attempt, the task's next run opens (R7).

    A task whose cancellation was asked for is not tried again.
    """
    run, task = commit.run, commit.task
    assert run is not None
    assert task is not None
    retries = task.retry.retries(failure) if cause == "FAILED" else task.retry.allows("TIMEOUT")
    again = retries and task.spent + 1 < task.retry.max_attempts
    if not again or task.cancel_request_time is not None:
        end_run(commit, cause, failure=failure)
        return
    _close_run(commit, cause, failure)
    wait = task.retry.backoff_seconds(task.attempt, jitter)
    with commit.aside():
        open_run(commit, commit.new_id(), "retried", after=run, wait=wait)


def _close_run(commit: CommitDraft, cause: str, failure: Failure | None) -> None:
    """Ends the open run, not its task: open tickets close, the lease goes."""
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


def end_task(commit: CommitDraft, state: str, *, result: Payload | None = None, failure: Failure | None = None) -> None:
    """Ends the task at hand."""
    commit.set_task(
        state,
        result=result,
        failure=failure,
        open_ticket_ids=(),
        end_time=commit.thread.last_activity_time,
        last_event_sequence=commit.next_event_sequence,
    )
    emit_task(commit, state.lower(), {"failure": failure_json(failure)} if failure is not None else {})


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
