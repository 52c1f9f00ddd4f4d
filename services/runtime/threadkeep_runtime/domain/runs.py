"""Decisions about runs and their leases: lease, release, recover, end what was canceled (R7, R8, R9)."""

from __future__ import annotations

from datetime import timedelta

from threadkeep_runtime.domain.commands import EndCanceled, LeaseRun, RecoverLease, ReleaseRun, SetAside
from threadkeep_runtime.domain.commit import CommitDraft, Decision, NewId, View
from threadkeep_runtime.domain.errors import LeaseLost, NothingToRecover, RunNotFound, RunNotQueued
from threadkeep_runtime.domain.event_json import run_json
from threadkeep_runtime.domain.tasks import after_seconds, earlier, emit_run, emit_task, end_run
from threadkeep_runtime.domain.values import Failure, Lease, LeaseRef

UNREADABLE = Failure("task_unreadable", "What is stored of the task can't be read; its run was taken out of the queue.")
CRASHED = Failure("lease_expired", "The workers stopped answering until the task's budget was spent.")


def check_lease(view: View, lease: LeaseRef) -> None:
    """The fence (R3): passes only the run's current epoch, while the run is leased.

    What counts is the epoch, not the clock: a lease past its time is good until somebody recovers it. Raises
    RunNotFound, LeaseLost.
    """
    if view.named_run is None:
        raise RunNotFound()
    if view.named_run.state != "RUNNING" or view.named_run.epoch != lease.epoch:
        raise LeaseLost()


def lease_run(view: View, command: LeaseRun, new_id: NewId) -> Decision:
    """Gives a queued run to a worker, with an epoch one higher than ever. Raises RunNotQueued."""
    run, task = view.run, view.task
    if run is None or task is None or run.run_id != command.run_id or run.state != "QUEUED":
        raise RunNotQueued()
    commit = CommitDraft(view, command, new_id)
    commit.set_run("RUNNING", epoch=run.epoch + 1, worker_id=command.worker_id, start_time=run.start_time or view.now)
    commit.set_lease(
        Lease(
            thread_key=run.thread_key,
            run_id=run.run_id,
            scope_key=run.scope_key,
            epoch=run.epoch + 1,
            worker_id=command.worker_id,
            ttl_seconds=command.ttl_seconds,
            expire_time=view.now + timedelta(seconds=command.ttl_seconds),
            attempt_deadline=earlier(task.deadline, after_seconds(view.now, task.timeouts.attempt_seconds)),
        )
    )
    emit_run(commit, "leased", {"epoch": str(run.epoch + 1), "worker_id": command.worker_id})
    if task.state == "SUBMITTED":
        # From now on only the total timeout counts: a worker has it.
        commit.set_task("WORKING", timeout_time=task.deadline)
        emit_task(commit, "working", {})
    return commit.finish()


def release_run(view: View, command: ReleaseRun, new_id: NewId) -> Decision:
    """Queues the run again without spending the budget; a run whose cancellation was asked for ends CANCELED instead.

    Raises RunNotFound, LeaseLost.
    """
    check_lease(view, command.lease)
    commit = CommitDraft(view, command, new_id)
    emit_run(commit, "released", {})
    requeue(commit, "released")
    return commit.finish()


def recover_lease(view: View, command: RecoverLease, new_id: NewId) -> Decision:
    """Takes the run from a worker that let its lease expire. Spends one of the task's attempts.

    Raises NothingToRecover if the lease was renewed, or the run is no longer under this epoch.
    """
    run = view.run
    if run is None or run.run_id != command.run_id or run.state != "RUNNING" or run.epoch != command.epoch:
        raise NothingToRecover()
    if view.lease is not None and view.lease.expire_time > view.now:
        raise NothingToRecover()
    commit = CommitDraft(view, command, new_id)
    assert commit.task is not None
    emit_run(commit, "lease_expired", {"epoch": str(run.epoch)})
    commit.set_run(crash_count=run.crash_count + 1)
    task = commit.set_task(crash_count=commit.task.crash_count + 1)
    is_last = task.spent >= task.retry.max_attempts or not task.retry.allows("CRASH")
    if task.cancel_request_time is None and is_last:
        end_run(commit, "INDETERMINATE", failure=CRASHED)
    else:
        requeue(commit, "lease_expired")
    return commit.finish()


def set_aside(view: View, command: SetAside, new_id: NewId) -> Decision:
    """Takes a run out of the queue that no worker can be given (B65). Raises NothingToRecover if it is not queued."""
    run = view.run
    if run is None or run.run_id != command.run_id or run.state != "QUEUED":
        raise NothingToRecover()
    commit = CommitDraft(view, command, new_id)
    end_run(commit, "FAILED", failure=UNREADABLE)
    return commit.finish()


def end_canceled(view: View, command: EndCanceled, new_id: NewId) -> Decision:
    """Ends a run whose worker did not end it within the grace period. Raises NothingToRecover."""
    run, lease = view.run, view.lease
    if run is None or run.run_id != command.run_id or run.state != "RUNNING" or run.epoch != command.epoch:
        raise NothingToRecover()
    if lease is None or lease.cancel_deadline is None or lease.cancel_deadline > view.now:
        raise NothingToRecover()
    commit = CommitDraft(view, command, new_id)
    end_run(commit, "CANCELED")
    return commit.finish()


def requeue(commit: CommitDraft, reason: str) -> None:
    """Puts the open run back into the queue, or ends it if its task's cancellation was asked for (B56, B62).

    The task stays WORKING: a worker had it, and the next one goes on from its last checkpoint.
    """
    assert commit.task is not None
    if commit.task.cancel_request_time is not None:
        end_run(commit, "CANCELED")
        return
    commit.set_lease(None)
    run = commit.set_run("QUEUED")
    emit_run(commit, "queued", {"reason": reason, "run": run_json(run)})
