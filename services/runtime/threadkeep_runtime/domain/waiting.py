"""Decisions about tasks that wait for their time or their turn, and about many tasks at once (R5, R7, R9, R24)."""

from __future__ import annotations

from threadkeep_runtime.domain.commands import CancelTasks, OpenDueTask
from threadkeep_runtime.domain.commit import CommitDraft, Decision, NewId, View
from threadkeep_runtime.domain.errors import NothingToRecover
from threadkeep_runtime.domain.tasks import cancel_open_run, emit_task, end_waiting_task, open_next
from threadkeep_runtime.domain.thread_commit import nothing


def open_due_task(view: View, command: OpenDueTask, new_id: NewId) -> Decision:
    """Opens the run of the task whose turn it is. Raises NothingToRecover if the session is busy, or none is due."""
    if view.thread is None or view.run is not None or view.next_task is None:
        raise NothingToRecover()
    commit = CommitDraft(view, command, new_id)
    open_next(commit, "due")
    return commit.finish()


def cancel_tasks(view: View, command: CancelTasks, new_id: NewId) -> Decision:
    """Asks for the cancellation of all that the view has selected; none is no error.

    Those that wait end at once. For the one that has the open run it is as if it were canceled alone.
    """
    if view.thread is None or not view.selected:
        return nothing(view, command)
    commit = CommitDraft(view, command, new_id)
    open_task = None if view.task is None else view.task.task_id
    for task in view.selected:
        if task.task_id != open_task:
            with commit.aside():
                commit.turn_to(task, None)
                _ask(view, commit, command.reason)
                end_waiting_task(commit, "CANCELED")
    if any(task.task_id == open_task for task in view.selected):
        _ask(view, commit, command.reason)
        cancel_open_run(view, commit, command.grace_seconds)
    return commit.finish()


def _ask(view: View, commit: CommitDraft, reason: str) -> None:
    commit.set_task(cancel_request_time=view.now, cancel_reason=reason)
    emit_task(commit, "cancel_requested", {"reason": reason})
