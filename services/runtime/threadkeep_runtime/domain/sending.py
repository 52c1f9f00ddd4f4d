"""Decisions about the outbox: what a commit sends, and what arrives in a session (R16)."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence

from threadkeep_runtime.domain.commands import DeliverMessage, DeliverTask
from threadkeep_runtime.domain.commit import CommitDraft, Decision, NewId, View
from threadkeep_runtime.domain.errors import DedupeKeyReused, SessionNotFound
from threadkeep_runtime.domain.nothing import nothing
from threadkeep_runtime.domain.outbox import NO_LINE, SESSION, OutboxDraft, check_room, message_of
from threadkeep_runtime.domain.tasks import begin_submission, submit_into
from threadkeep_runtime.domain.values import BUILDER, Event


def send_drafts(
    view: View,
    commit: CommitDraft,
    drafts: Sequence[OutboxDraft],
    max_pending: int,
    run_id: str | None,
    task_id: str | None,
) -> None:
    """Adds the messages to the commit; one whose dedupe key was used for the same message is not sent again.

    Raises DedupeKeyReused (for another message), LimitExceeded (too many wait for the target).
    """
    named: dict[tuple[str, str], tuple[str, bytes]] = {}
    sent: Counter[str] = Counter()
    for draft in drafts:
        key = draft.target.key_in(commit.thread.scope_key)
        line = view.lines.get(key, NO_LINE)
        if draft.dedupe_key is not None:
            known = named.get((key, draft.dedupe_key)) or line.known.get(draft.dedupe_key)
            if known is not None:
                if known[1] != draft.fingerprint:
                    raise DedupeKeyReused(known[0])
                commit.outbox_ids.append(known[0])
                continue
            named[key, draft.dedupe_key] = (draft.message_id, draft.fingerprint)
        check_room(line, sent[key], max_pending)
        sent[key] += 1
        commit.outbox.append(message_of(draft, commit.thread, view.now, run_id, task_id))
        commit.outbox_ids.append(draft.message_id)
        # A URL may hold a secret, so it stays out of the log (X11).
        shown = {"message_id": draft.message_id, "type": draft.type}
        if draft.target.kind == SESSION:
            shown["target_session_id"] = draft.target.address
        commit.emit("outbox.addressed", shown, BUILDER, run_id=run_id, task_id=task_id)


def deliver_message(view: View, command: DeliverMessage, new_id: NewId) -> Decision:
    """A message arrives. One that arrived before leaves nothing. Raises SessionNotFound."""
    if _arrived(view, command.inbox):
        return nothing(view, command)
    if view.thread is None:
        raise SessionNotFound()
    commit = CommitDraft(view, command, new_id)
    commit.is_of_run = False
    commit.append(command.inbox)
    return commit.finish()


def deliver_task(view: View, command: DeliverTask, new_id: NewId) -> Decision:
    """A message arrives and opens a task. One that arrived before leaves nothing.

    Raises SessionNotFound, SessionBusy, IdTaken, LimitExceeded.
    """
    if _arrived(view, command.inbox):
        return nothing(view, command)
    commit = begin_submission(view, command, new_id)
    commit.append(command.inbox)
    return submit_into(view, commit, command)


def _arrived(view: View, inbox: Event) -> bool:
    return ("event", inbox.event_id) in view.taken
