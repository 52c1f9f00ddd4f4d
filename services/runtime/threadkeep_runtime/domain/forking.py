"""The decision that forks a session: a new one that begins as another one was after a commit (R18)."""

from __future__ import annotations

from dataclasses import replace

from threadkeep_chassis.errors import IdTaken
from threadkeep_runtime.domain.checkpoints import head_payload
from threadkeep_runtime.domain.commands import ForkSession, SessionDraft
from threadkeep_runtime.domain.commit import CommitDraft, Decision, NewId, View
from threadkeep_runtime.domain.errors import SessionNotFound
from threadkeep_runtime.domain.messages import CHECKPOINTS, FACTS, MessageChanges, MessageRow
from threadkeep_runtime.domain.sessions import emit_session, new_thread
from threadkeep_runtime.domain.values import BUILDER, END_USER, INTERNAL, Thread


def fork_session(view: View, command: ForkSession, new_id: NewId) -> Decision:
    """Creates the session, with what its source was. What is at work in the source does not come along.

    Raises SessionNotFound (the source), what the plan says, IdTaken.
    """
    source, plan = view.source, view.fork
    if view.is_deleted:
        raise IdTaken("session", command.session_id)
    if source is None or plan is None:
        raise SessionNotFound()
    if plan.refusal is not None:
        raise plan.refusal
    if view.thread is not None:
        raise IdTaken("session", command.session_id)
    draft = _draft(command.draft, source)
    thread = replace(
        new_thread(view, command, draft),
        forked_from_session_id=source.session_id,
        forked_from_commit=plan.commit_sequence,
        message_source=FACTS if plan.messages else CHECKPOINTS if plan.checkpoint_top else "",
        message_position=len(plan.messages),
        message_count=len(plan.messages),
        message_changes=len(plan.messages),
        root_checkpoint_id=None if plan.head is None else plan.head.checkpoint_id,
        checkpoint_top=plan.checkpoint_top,
        checkpoint_floor=min(source.checkpoint_floor, plan.checkpoint_top),
    )
    commit = CommitDraft(view, command, new_id, thread=thread)
    commit.metadata_changed = bool(draft.metadata)
    emit_session(commit, "session.created")
    if plan.messages:
        rows = [
            MessageRow(place, one.message_id, one.content, None, None, one.create_time)
            for place, one in enumerate(plan.messages, start=1)
        ]
        commit.messages = MessageChanges(rows=tuple(rows), calls=plan.calls)
        for one in plan.messages:
            commit.emit("message.appended", {"message": one.shown}, END_USER)
    commit.state_values = tuple(
        replace(value, commit_sequence=commit.thread.commit_sequence, run_id=None) for value in plan.state
    )
    if commit.state_values:
        versions = {value.key: str(value.version) for value in commit.state_values}
        commit.emit("state.changed", {"versions": versions}, BUILDER)
    if plan.checkpoint_top:
        commit.save(copied_from=source.thread_key, copied_upto=plan.commit_sequence, copied_below=plan.checkpoint_top)
    if plan.head is not None:
        commit.emit("checkpoint.saved", head_payload(plan.head), INTERNAL)
    return commit.finish()


def _draft(given: SessionDraft, source: Thread) -> SessionDraft:
    """What the caller leaves open is as it is in the source."""
    return SessionDraft(
        title=given.title or source.title,
        agent_name=given.agent_name or source.agent_name,
        metadata=given.metadata or source.metadata,
        settings=given.settings or source.settings,
    )
