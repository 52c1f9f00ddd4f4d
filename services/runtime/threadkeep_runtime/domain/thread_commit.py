"""Decisions about ThreadCommits: the fence, the version, events, checkpoints, what becomes of the run (R1 to R4)."""

from __future__ import annotations

from threadkeep_chassis.errors import FieldInvalid, IdTaken
from threadkeep_runtime.domain.audit import AuditRecord
from threadkeep_runtime.domain.checkpoints import (
    ROOT_NAMESPACE,
    check_staged,
    decide_checkpoint_ops,
    head_payload,
    saved_payload,
)
from threadkeep_runtime.domain.commands import (
    Awaiting,
    CommitThread,
    CopyCheckpoints,
    DeleteCheckpoints,
    Ended,
    RemoveCheckpoints,
    SessionDraft,
)
from threadkeep_runtime.domain.commit import CommitDraft, Decision, NewId, View
from threadkeep_runtime.domain.errors import LeaseRequired, SessionNotFound, ThreadVersionConflict
from threadkeep_runtime.domain.messages import Counters, change_messages, source_after
from threadkeep_runtime.domain.nothing import nothing
from threadkeep_runtime.domain.runs import check_lease
from threadkeep_runtime.domain.sending import send_drafts
from threadkeep_runtime.domain.sessions import start_thread
from threadkeep_runtime.domain.state import check_batch, new_values
from threadkeep_runtime.domain.tasks import end_run, fail_run
from threadkeep_runtime.domain.tickets import open_tickets
from threadkeep_runtime.domain.values import BUILDER, END_USER, INTERNAL, LeaseRef


def commit_thread(view: View, command: CommitThread, new_id: NewId) -> Decision:
    """Applies a ThreadCommit, checked in the order that the contract gives.

    A worker may still commit after its task's cancellation was asked for: its epoch stands until it ends the run or the
    grace period is over. Raises SessionNotFound, RunNotFound, LeaseLost, LeaseRequired, ThreadVersionConflict, IdTaken,
    FieldInvalid, MessageSourceMixed, MessageNotFound, StateKeyUndeclared, StateConflict, LimitExceeded,
    CheckpointIdOrder, CheckpointDeleted, StagedValueIncomplete, DedupeKeyReused.
    """
    thread = view.thread
    creates = thread is None and command.lease is None and bool(command.ops)
    if view.is_deleted or (thread is None and not creates):
        raise SessionNotFound()
    _check_fence(view, command.lease, touches_facts=bool(command.ops or command.messages or command.state.commands))
    version = 0 if thread is None else thread.commit_sequence
    if command.expected_version is not None and command.expected_version != version:
        raise ThreadVersionConflict(version)
    commit = start_thread(view, command, SessionDraft(), new_id) if creates else CommitDraft(view, command, new_id)
    commit.is_of_run = command.lease is not None
    _append_events(view, commit, command)
    if command.audit:
        _record(view, commit, command)
    if command.ops or command.messages:
        _fix_source(commit, command)
    if command.messages:
        _write_messages(view, commit, command)
    if command.state.commands:
        _write_state(view, commit, command)
    if command.ops:
        _save_checkpoints(view, commit, command)
    if command.outbox:
        run_id, task_id = _origin(view, command.lease)
        send_drafts(view, commit, command.outbox, command.max_pending_deliveries, run_id, task_id)
    if isinstance(command.disposition, Awaiting):
        open_tickets(view, commit, command.disposition)
    elif isinstance(command.disposition, Ended):
        _end(commit, command.disposition, command.jitter)
    return commit.finish()


def delete_checkpoints(view: View, command: DeleteCheckpoints, new_id: NewId) -> Decision:
    """Removes a thread's checkpoints and writes. A thread that never was is no error.

    Raises RunNotFound, LeaseLost, LeaseRequired, SessionNotFound (a deleted session).
    """
    if view.is_deleted:
        raise SessionNotFound()
    if view.thread is None:
        return nothing(view, command)
    _check_fence(view, command.lease, touches_facts=True)
    commit = CommitDraft(view, command, new_id)
    commit.is_of_run = command.lease is not None
    thread = commit.thread
    commit.set_thread(root_checkpoint_id=None, checkpoint_floor=thread.checkpoint_top)
    commit.save(delete_all=True)
    run_id, task_id = _origin(view, command.lease)
    commit.emit("checkpoint.deleted", {}, INTERNAL, run_id=run_id, task_id=task_id)
    return commit.finish()


def remove_checkpoints(view: View, command: RemoveCheckpoints, new_id: NewId) -> Decision:
    """Removes some of a thread's checkpoints; what goes was found under the thread's lock. To find none is no error.

    Raises RunNotFound, LeaseLost, LeaseRequired, SessionNotFound (a prune of a deleted session).
    """
    removal = view.removal
    if view.is_deleted and command.run_ids is None:
        raise SessionNotFound()
    if view.thread is None or removal is None:
        return nothing(view, command)
    _check_fence(view, command.lease, touches_facts=True)
    commit = CommitDraft(view, command, new_id)
    commit.is_of_run = command.lease is not None
    if command.rule is not None:
        # Retention is no activity of the session.
        commit.set_thread(last_activity_time=view.thread.last_activity_time)
    greatest = max(checkpoint_id for _, checkpoint_id in removal.checkpoints)
    head_before = commit.thread.root_checkpoint_id
    head = None if removal.head is None else removal.head.checkpoint_id
    commit.set_thread(root_checkpoint_id=head, checkpoint_floor=max(commit.thread.checkpoint_floor, greatest))
    commit.save(removal=removal)
    run_id, task_id = _origin(view, command.lease)
    if head == head_before:
        commit.emit("checkpoint.pruned", {"count": len(removal.checkpoints)}, INTERNAL, run_id=run_id, task_id=task_id)
    else:
        # The head is gone: followers begin anew with what is the head now.
        commit.emit("checkpoint.deleted", {}, INTERNAL, run_id=run_id, task_id=task_id)
        if removal.head is not None:
            payload = head_payload(removal.head)
            commit.emit("checkpoint.saved", payload, INTERNAL, run_id=run_id, task_id=task_id)
    return commit.finish()


def copy_checkpoints(view: View, command: CopyCheckpoints, new_id: NewId) -> Decision:
    """Copies another thread's checkpoints into one that holds none, which it creates. To copy none is no error.

    Raises RunNotFound, LeaseLost, LeaseRequired, SessionNotFound (a lease and no session), IdTaken.
    """
    source = view.source
    if view.thread is None and command.lease is not None:
        raise SessionNotFound()
    if view.is_deleted:
        raise IdTaken("session", command.session_id)
    _check_fence(view, command.lease, touches_facts=True)
    if source is None:
        return nothing(view, command)
    if view.holds_checkpoints:
        raise IdTaken("session", command.session_id)
    if view.thread is None:
        commit = start_thread(view, command, SessionDraft(), new_id)
    else:
        commit = CommitDraft(view, command, new_id)
    commit.is_of_run = command.lease is not None
    commit.set_thread(
        message_source=source_after(commit.thread.message_source, bool(commit.thread.checkpoint_top), True, False),
        root_checkpoint_id=source.root_checkpoint_id,
        checkpoint_top=max(commit.thread.checkpoint_top, source.checkpoint_top),
        checkpoint_floor=max(commit.thread.checkpoint_floor, source.checkpoint_floor),
    )
    commit.save(copied_from=command.source_key)
    if view.source_head is not None:
        run_id, task_id = _origin(view, command.lease)
        payload = head_payload(view.source_head)
        commit.emit("checkpoint.saved", payload, INTERNAL, run_id=run_id, task_id=task_id)
    return commit.finish()


def _check_fence(view: View, lease: LeaseRef | None, *, touches_facts: bool) -> None:
    if lease is not None:
        check_lease(view, lease)
    elif touches_facts and view.run is not None and view.run.state == "RUNNING":
        raise LeaseRequired()


def _origin(view: View, lease: LeaseRef | None) -> tuple[str | None, str | None]:
    """The run and task that what a leased commit writes belongs to."""
    return (None, None) if lease is None or view.run is None else (view.run.run_id, view.run.task_id)


def _append_events(view: View, commit: CommitDraft, command: CommitThread) -> None:
    run_id, task_id = _origin(view, command.lease)
    named: set[str] = set()
    for event in command.events:
        if event.is_named:
            if event.event_id in named or ("event", event.event_id) in view.taken:
                raise IdTaken("event", event.event_id)
            named.add(event.event_id)
        commit.append(event._replace(run_id=run_id, task_id=task_id))


def _record(view: View, commit: CommitDraft, command: CommitThread) -> None:
    thread = commit.thread
    run_id, task_id = _origin(view, command.lease)
    commit.audit = tuple(
        AuditRecord(
            thread_key=thread.thread_key,
            audit_id=draft.audit_id,
            scope_key=thread.scope_key,
            session_id=thread.session_id,
            commit_sequence=thread.commit_sequence,
            ordinal=ordinal,
            action=draft.action,
            target=draft.target,
            actor=command.actor if draft.actor is None else draft.actor,
            details=draft.details,
            run_id=run_id,
            task_id=task_id,
            create_time=view.now,
        )
        for ordinal, draft in enumerate(command.audit, start=1)
    )


def _fix_source(commit: CommitDraft, command: CommitThread) -> None:
    thread = commit.thread
    source = source_after(thread.message_source, bool(thread.checkpoint_top), bool(command.ops), bool(command.messages))
    if source != thread.message_source:
        commit.set_thread(message_source=source)


def _write_messages(view: View, commit: CommitDraft, command: CommitThread) -> None:
    thread = commit.thread
    run_id, task_id = _origin(view, command.lease)
    commit.messages, counters = change_messages(
        command.messages,
        view.messages,
        Counters(thread.message_position, thread.message_count, thread.message_changes),
        run_id=run_id,
        task_id=task_id,
        now=view.now,
    )
    commit.set_thread(
        message_position=counters.position, message_count=counters.total, message_changes=counters.changes
    )
    for change in command.messages:
        payload = {"message_id": change.message_id} if change.kind == "remove" else {"message": change.shown}
        commit.emit(f"message.{_PAST[change.kind]}", payload, END_USER, run_id=run_id, task_id=task_id)


_PAST = {"append": "appended", "replace": "replaced", "remove": "removed"}


def _write_state(view: View, commit: CommitDraft, command: CommitThread) -> None:
    check_batch(command.state, view.state, with_lease=command.lease is not None)
    run_id, task_id = _origin(view, command.lease)
    values = new_values(
        command.state,
        view.state,
        commit_sequence=commit.thread.commit_sequence,
        run_id=run_id,
        actor=command.actor,
        now=view.now,
    )
    commit.state_values = values
    versions = {value.key: str(value.version) for value in values}
    commit.emit("state.changed", {"versions": versions}, BUILDER, run_id=run_id, task_id=task_id)


def _save_checkpoints(view: View, commit: CommitDraft, command: CommitThread) -> None:
    check_staged(command.ops, view.staged)
    judged = decide_checkpoint_ops(command.ops, view.checkpoints, fenced=command.lease is not None)
    commit.save(command.ops)
    run_id, task_id = _origin(view, command.lease)
    root = [put.checkpoint_id for put in judged.saved if put.checkpoint_ns == ROOT_NAMESPACE]
    changes: dict[str, str] = {}
    if judged.floor != commit.thread.checkpoint_top:
        changes["checkpoint_top"] = judged.floor
    if root and max(root) > (commit.thread.root_checkpoint_id or ""):
        changes["root_checkpoint_id"] = max(root)
    if changes:
        commit.set_thread(**changes)
    if root and command.lease is not None:
        commit.set_run(last_checkpoint_id=root[-1])
    for put in judged.saved:
        commit.emit("checkpoint.saved", saved_payload(put), INTERNAL, run_id=run_id, task_id=task_id)


def _end(commit: CommitDraft, ended: Ended, jitter: float) -> None:
    assert commit.task is not None
    if ended.cause == "CANCELED" and commit.task.cancel_request_time is None:
        raise FieldInvalid("commit.ended.cause", "is CANCELED only after the task's cancellation was asked for")
    if ended.failure is not None:
        fail_run(commit, ended.failure, jitter)
        return
    end_run(commit, ended.cause, result=ended.result)
