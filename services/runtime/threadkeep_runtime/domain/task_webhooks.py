"""Webhooks that are told of a task's states: put on, taken off (R16). What they are told is in `outbox`."""

from __future__ import annotations

from threadkeep_chassis.errors import LimitExceeded
from threadkeep_runtime.domain.commands import SetTaskWebhook
from threadkeep_runtime.domain.commit import CommitDraft, Decision, NewId, View
from threadkeep_runtime.domain.errors import TaskNotFound


def set_task_webhook(view: View, command: SetTaskWebhook, new_id: NewId) -> Decision:
    """The task's webhooks with this one, or without it. Raises TaskNotFound, LimitExceeded."""
    task = view.named_task
    if view.thread is None or task is None:
        raise TaskNotFound()
    others = [one for one in task.webhooks if one.webhook_id != command.webhook_id]
    if command.webhook is not None and len(others) >= command.max_webhooks:
        raise LimitExceeded(
            "max_task_webhooks", command.max_webhooks, len(others) + 1, "Per task. Delete some of its webhooks."
        )
    kept = others if command.webhook is None else [*others, command.webhook]
    commit = CommitDraft(view, command, new_id)
    commit.is_of_run = False
    if commit.task is None or commit.task.task_id != task.task_id:
        commit.turn_to(task, None)
    commit.set_task(webhooks=tuple(sorted(kept, key=lambda one: one.webhook_id)))
    return commit.finish()
