"""Decisions about sessions: create, change (R23)."""

from __future__ import annotations

from typing import Any

from threadkeep_chassis.errors import IdTaken, RevisionConflict
from threadkeep_runtime.domain.commands import Command, CreateSession, SessionDraft, UpdateSession
from threadkeep_runtime.domain.commit import CommitDraft, Decision, NewId, View
from threadkeep_runtime.domain.errors import SessionNotFound
from threadkeep_runtime.domain.event_json import session_json
from threadkeep_runtime.domain.values import END_USER, Thread


def new_thread(view: View, command: Command, draft: SessionDraft) -> Thread:
    """A thread that has committed nothing yet."""
    return Thread(
        thread_key=command.thread_key,
        scope_key=command.scope_key,
        session_id=command.session_id,
        partition=view.partition,
        title=draft.title,
        agent_name=draft.agent_name,
        metadata=draft.metadata,
        settings=draft.settings,
        message_source=draft.message_source,
        create_time=view.now,
        update_time=view.now,
        last_activity_time=view.now,
    )


def start_thread(view: View, command: Command, draft: SessionDraft, new_id: NewId) -> CommitDraft:
    """Begins the commit that creates the session. Raises IdTaken when the id is, or was, in use in this scope."""
    if view.thread is not None or view.is_deleted:
        raise IdTaken("session", command.session_id)
    commit = CommitDraft(view, command, new_id, thread=new_thread(view, command, draft))
    commit.metadata_changed = bool(draft.metadata)
    emit_session(commit, "session.created")
    return commit


def create_session(view: View, command: CreateSession, new_id: NewId) -> Decision:
    """Creates a session. Raises IdTaken."""
    return start_thread(view, command, command.draft, new_id).finish()


def update_session(view: View, command: UpdateSession, new_id: NewId) -> Decision:
    """Changes what the caller decides. Raises SessionNotFound, RevisionConflict.

    The revision is compared under the thread's lock, in the transaction that writes (X4). Values that are the same as
    before are a commit all the same: the caller asked for one and gets its receipt.
    """
    thread = view.thread
    if thread is None:
        raise SessionNotFound()
    if command.expected_revision is not None and command.expected_revision != thread.revision:
        raise RevisionConflict(thread.revision)
    commit = CommitDraft(view, command, new_id)
    changes: dict[str, Any] = dict(command.changes)
    commit.metadata_changed = "metadata" in changes and changes["metadata"] != thread.metadata
    commit.set_thread(**changes, revision=thread.revision + 1, update_time=view.now)
    emit_session(commit, "session.updated")
    return commit.finish()


def emit_session(commit: CommitDraft, type_: str) -> None:
    commit.emit(
        type_,
        {"session_id": commit.thread.session_id, "session": session_json(commit.thread, commit.run)},
        END_USER,
    )
