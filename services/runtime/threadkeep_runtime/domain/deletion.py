"""The decision that ends a session (R19): its open run ends, and one event tells the followers."""

from __future__ import annotations

from threadkeep_chassis.errors import RevisionConflict
from threadkeep_runtime.domain.commands import DeleteSession
from threadkeep_runtime.domain.commit import CommitDraft, Decision, NewId, View
from threadkeep_runtime.domain.errors import NothingToRecover, SessionNotFound
from threadkeep_runtime.domain.feeds import SESSION_DELETED
from threadkeep_runtime.domain.tasks import end_run
from threadkeep_runtime.domain.values import END_USER

KEEP, DELETE = "KEEP", "DELETE"
"""What becomes of a deleted session's artifacts."""


def delete_session(view: View, command: DeleteSession, new_id: NewId) -> Decision:
    """Deletes the session. A worker at its run is not waited for. Raises SessionNotFound, RevisionConflict,
    NothingToRecover (retention, and the session is active).

    Enqueued tasks end without a word: the event that the session is gone speaks for everything in it, and it is the
    last one that any of its feeds sees.
    """
    thread = view.thread
    if thread is None:
        raise SessionNotFound()
    if command.idle_since is not None and (
        view.run is not None or thread.enqueued_count or thread.last_activity_time != command.idle_since
    ):
        raise NothingToRecover()
    if command.expected_revision is not None and command.expected_revision != thread.revision:
        raise RevisionConflict(thread.revision)
    commit = CommitDraft(view, command, new_id)
    if view.run is not None:
        end_run(commit, "CANCELED", opens_next=False)
    chosen = command.artifact_policy or thread.settings.get("artifact_policy", "").removeprefix(POLICY) or DELETE
    commit.emit(
        SESSION_DELETED.removeprefix("threadkeep."),
        {"session_id": thread.session_id, "artifact_policy": POLICY + chosen},
        END_USER,
    )
    commit.deletes_thread = True
    return commit.finish()


POLICY = "ARTIFACT_POLICY_"
"""What the contract's names of artifact policies begin with."""
