"""decide(view, command) -> Decision: the one door to every change of a thread.

Pure and total: it returns what the commit writes, or raises the refusal. Without a database it can be run by thousands
of generated cases.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from threadkeep_runtime.domain import commands
from threadkeep_runtime.domain.chain import seal
from threadkeep_runtime.domain.commit import Decision, NewId, View
from threadkeep_runtime.domain.deletion import delete_session
from threadkeep_runtime.domain.forking import fork_session
from threadkeep_runtime.domain.purging import purge_thread
from threadkeep_runtime.domain.runs import end_canceled, lease_run, recover_lease, release_run, set_aside
from threadkeep_runtime.domain.sending import deliver_message, deliver_task
from threadkeep_runtime.domain.sessions import create_session, update_session
from threadkeep_runtime.domain.task_webhooks import set_task_webhook
from threadkeep_runtime.domain.tasks import cancel_task, submit_task
from threadkeep_runtime.domain.thread_commit import (
    commit_thread,
    copy_checkpoints,
    delete_checkpoints,
    remove_checkpoints,
)
from threadkeep_runtime.domain.tickets import pass_deadline, resolve_ticket
from threadkeep_runtime.domain.timeouts import time_out_attempt, time_out_task
from threadkeep_runtime.domain.waiting import cancel_tasks, open_due_task

_DECIDERS: Mapping[type[commands.Command], Callable[[View, Any, NewId], Decision]] = {
    commands.CreateSession: create_session,
    commands.UpdateSession: update_session,
    commands.DeleteSession: delete_session,
    commands.PurgeThread: purge_thread,
    commands.ForkSession: fork_session,
    commands.SubmitTask: submit_task,
    commands.CancelTask: cancel_task,
    commands.SetTaskWebhook: set_task_webhook,
    commands.CancelTasks: cancel_tasks,
    commands.OpenDueTask: open_due_task,
    commands.ResolveTicket: resolve_ticket,
    commands.CommitThread: commit_thread,
    commands.DeleteCheckpoints: delete_checkpoints,
    commands.RemoveCheckpoints: remove_checkpoints,
    commands.CopyCheckpoints: copy_checkpoints,
    commands.LeaseRun: lease_run,
    commands.ReleaseRun: release_run,
    commands.RecoverLease: recover_lease,
    commands.EndCanceled: end_canceled,
    commands.PassDeadline: pass_deadline,
    commands.SetAside: set_aside,
    commands.TimeOutAttempt: time_out_attempt,
    commands.TimeOutTask: time_out_task,
    commands.DeliverMessage: deliver_message,
    commands.DeliverTask: deliver_task,
}


def decide(view: View, command: commands.Command, new_id: NewId) -> Decision:
    """What the command comes to on this view. `new_id` makes the ids of the server's own events, and of runs."""
    return seal(_DECIDERS[type(command)](view, command, new_id))
