"""The decision that takes from a thread what its scope's policy no longer keeps (R19)."""

from __future__ import annotations

from threadkeep_runtime.domain.commands import PurgeThread
from threadkeep_runtime.domain.commit import CommitDraft, Decision, NewId, View
from threadkeep_runtime.domain.errors import NothingToRecover
from threadkeep_runtime.domain.event_json import session_json
from threadkeep_runtime.domain.retention import SESSION_PURGED
from threadkeep_runtime.domain.values import INTERNAL


def purge_thread(view: View, command: PurgeThread, new_id: NewId) -> Decision:
    """Takes what is due. It is no activity of the session. Raises NothingToRecover if nothing is."""
    thread, plan = view.thread, view.purge
    if thread is None or plan is None:
        raise NothingToRecover()
    commit = CommitDraft(view, command, new_id)
    commit.is_of_run = False
    commit.set_thread(
        event_floor=plan.event_floor,
        commit_floor=plan.commit_floor,
        latest_task_id=None if thread.latest_task_id in plan.task_ids else thread.latest_task_id,
        latest_run_id=None if thread.latest_run_id in plan.run_ids else thread.latest_run_id,
        last_activity_time=thread.last_activity_time,
    )
    if plan.anchor is not None:
        commit.set_thread(chain_start=plan.commit_floor, chain_anchor=plan.anchor)
    commit.purge = plan
    payload = {
        "session_id": thread.session_id,
        "event_floor": str(plan.event_floor),
        "task_ids": list(plan.task_ids),
        "session": session_json(commit.thread, commit.run),
    }
    commit.emit(SESSION_PURGED.removeprefix("threadkeep."), payload, INTERNAL)
    return commit.finish()
