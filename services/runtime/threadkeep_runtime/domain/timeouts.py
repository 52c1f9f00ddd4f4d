"""Decisions about tasks and attempts that have taken as long as they may (R7, R24)."""

from __future__ import annotations

from threadkeep_runtime.domain.commands import TimeOutAttempt, TimeOutTask
from threadkeep_runtime.domain.commit import CommitDraft, Decision, NewId, View
from threadkeep_runtime.domain.errors import NothingToRecover
from threadkeep_runtime.domain.tasks import end_run, end_waiting_task, fail_run
from threadkeep_runtime.domain.transitions import TERMINAL_TASK_STATES
from threadkeep_runtime.domain.values import Failure, Task

TASK_TIMEOUT = Failure("task_timeout", "The task took longer than its total timeout.")
WAITING_TIMEOUT = Failure("waiting_timeout", "No worker took the task within its waiting timeout.")
ATTEMPT_TIMEOUT = Failure("attempt_timeout", "The attempt took longer than the task's attempt timeout.", retryable=True)


def time_out_attempt(view: View, command: TimeOutAttempt, new_id: NewId) -> Decision:
    """Takes the run from a worker that has had it too long; the policy says whether the task is tried again.

    Raises NothingToRecover if the run is no longer under this epoch, or has time left.
    """
    run, lease, task = view.run, view.lease, view.task
    if run is None or task is None or lease is None or run.run_id != command.run_id or lease.epoch != command.epoch:
        raise NothingToRecover()
    if lease.attempt_deadline is None or lease.attempt_deadline > view.now:
        raise NothingToRecover()
    commit = CommitDraft(view, command, new_id)
    if _is_over(task, view) or task.cancel_request_time is not None:
        _end(commit)
    else:
        fail_run(commit, ATTEMPT_TIMEOUT, command.jitter, "TIMED_OUT")
    return commit.finish()


def time_out_task(view: View, command: TimeOutTask, new_id: NewId) -> Decision:
    """Fails a task that took, or waited, too long. Raises NothingToRecover if it ended, or has time left."""
    task = view.named_task
    if task is None or task.state in TERMINAL_TASK_STATES or task.timeout_time is None or task.timeout_time > view.now:
        raise NothingToRecover()
    commit = CommitDraft(view, command, new_id)
    if task.run_id is None:
        commit.turn_to(task, None)
        end_waiting_task(commit, "FAILED", TASK_TIMEOUT if _is_over(task, view) else WAITING_TIMEOUT)
    else:
        _end(commit, TASK_TIMEOUT if _is_over(task, view) else WAITING_TIMEOUT)
    return commit.finish()


def _is_over(task: Task, view: View) -> bool:
    return task.deadline is not None and task.deadline <= view.now


def _end(commit: CommitDraft, failure: Failure = TASK_TIMEOUT) -> None:
    """Ends the open run, and with it the task: CANCELED if that was asked for before."""
    assert commit.task is not None
    if commit.task.cancel_request_time is not None:
        end_run(commit, "CANCELED")
    else:
        end_run(commit, "TIMED_OUT", failure=failure)
