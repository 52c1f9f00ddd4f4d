"""What must hold of every commit's digest, and of what it keeps for later views (R12, R17)."""

import json

from threadkeep_runtime.domain.chain import CommitFacts, canonical_commit, genesis, next_digest
from threadkeep_runtime.domain.commit import Decision
from threadkeep_runtime.domain.snapshots import open_run_of
from threadkeep_runtime.domain.values import Thread


def check_chain(decision: Decision, before: Thread | None) -> None:
    """R17: a commit's digest follows from the one before and from what it says."""
    thread = decision.thread
    assert thread is not None
    previous = genesis(thread.scope_key, thread.session_id) if before is None else before.digest
    facts = CommitFacts(
        thread.commit_sequence,
        decision.kind,
        decision.request_id,
        decision.run_id,
        decision.actor.kind,
        decision.actor.id,
        decision.first_event_sequence,
        len(decision.events),
        decision.now,
        decision.open_run,
        thread.root_checkpoint_id,
        thread.message_position,
    )
    assert previous is not None
    assert thread.digest == next_digest(previous, canonical_commit(facts, json.loads(decision.parts)))
    assert (thread.digest_sequence, thread.chain_start, thread.chain_anchor) == (thread.commit_sequence, 0, None)
    listed = [kind for kind, _, _ in json.loads(decision.parts)]
    assert listed.count("event") == len(decision.events)
    # R12: what a later view needs to know of the run that is open.
    opened = open_run_of(decision.open_run)
    assert (opened.run_id if opened else None) == thread.active_run_id
