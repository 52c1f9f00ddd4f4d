"""One batch in one transaction: receipts, locks, views, decisions, statements. Synchronous; the batcher drives it.

A refused command leaves nothing and does not disturb its neighbours: it is sorted out before anything is written.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from typing import Any

import sqlalchemy as sa
from sqlalchemy.engine import Connection

from threadkeep_chassis.errors import RequestIdReused, ThreadkeepError
from threadkeep_runtime.domain.commit import Decision, NewId, View
from threadkeep_runtime.domain.decide import decide
from threadkeep_runtime.domain.errors import SessionNotFound
from threadkeep_runtime.pipeline.work import Outcome, Request, Work
from threadkeep_runtime.store.apply import Applied, Known, apply_decisions, insert_receipts
from threadkeep_runtime.store.statements import padded
from threadkeep_runtime.store.views import load_views
from threadkeep_runtime.tables import receipts

_RECEIPTS = sa.select(
    receipts.c.scope_key, receipts.c.request_id, receipts.c.fingerprint, receipts.c.response, receipts.c.is_erased
).where(sa.tuple_(receipts.c.scope_key, receipts.c.request_id).in_(sa.bindparam("pairs", expanding=True)))

Answers = dict[tuple[str, str], tuple[bytes, bytes | None]]
"""(fingerprint, response) by (receipt key, request id); without a response once the session was deleted."""


@dataclass(slots=True)
class Written:
    """What a transaction has written, still uncommitted."""

    outcomes: list[Outcome | ThreadkeepError]
    """One per piece of work, in order."""
    applied: list[Applied] = field(default_factory=list)
    transaction_id: str = ""

    @property
    def topics(self) -> set[str]:
        """Whom to wake after the commit."""
        found: set[str] = set()
        for applied in self.applied:
            thread = applied.decision.thread
            if thread is None:
                continue
            if applied.decision.ends_a_wait:
                found.add(f"tasks/{thread.thread_key}")
            if applied.decision.events:
                found.add(f"log/{applied.partition}")
            if applied.decision.run_was_queued:
                found.add("queue")
            if applied.decision.outbox:
                found.add("outbox")
        return found


class Transactor:
    """Processes batches on a connection that is inside a transaction."""

    def __init__(self, partitions: int, new_id: NewId, now: Callable[[Connection], datetime], known: Known) -> None:
        self.partitions = partitions
        self.new_id = new_id
        self.now = now
        self.known = known

    def process(self, connection: Connection, batch: Sequence[Work]) -> Written:
        """Decides and writes a batch, in which no thread and no request is twice. Raises database errors."""
        answered = find_answers(connection, [work.request for work in batch if work.request is not None])
        outcomes: list[Outcome | ThreadkeepError | None] = [answer_to(work.request, answered) for work in batch]
        pending = [index for index, outcome in enumerate(outcomes) if outcome is None]
        if not pending:
            return Written([outcome for outcome in outcomes if outcome is not None])
        views = load_views(connection, [batch[index].command for index in pending], self.partitions, self.now)
        accepted: list[int] = []
        decisions: list[Decision] = []
        for index, view in zip(pending, views, strict=True):
            try:
                decisions.append(self.judge(batch[index], view))
                accepted.append(index)
            except ThreadkeepError as refusal:
                outcomes[index] = refusal
        written = Written([])
        if decisions:
            written.applied, written.transaction_id = apply_decisions(
                connection, decisions, self.partitions, self.known
            )
            rows = []
            for index, applied in zip(accepted, written.applied, strict=True):
                work = batch[index]
                response = work.render(applied)
                outcomes[index] = Outcome(response)
                if work.request is not None:
                    rows.append(receipt_row(work.request, response, applied.decision.now))
            insert_receipts(connection, rows)
        written.outcomes = [outcome for outcome in outcomes if outcome is not None]
        return written

    def judge(self, work: Work, view: View) -> Decision:
        """Decides one command."""
        return decide(view, work.command, self.new_id)


def find_answers(connection: Connection, requests: Sequence[Request]) -> Answers:
    """What the requests were answered that were answered before."""
    if not requests:
        return {}
    pairs = padded([(request.receipt_key, request.request_id) for request in requests])
    rows = connection.execute(_RECEIPTS, {"pairs": pairs})
    return {
        (row.scope_key, row.request_id): (bytes(row.fingerprint), None if row.is_erased else bytes(row.response))
        for row in rows
    }


def answer_to(request: Request | None, answered: Answers) -> Outcome | ThreadkeepError | None:
    """What a receipt says to a request: the first response, REQUEST_ID_REUSED, or nothing (X3).

    Of a session that was deleted since it says that there is none (R19).
    """
    if request is None:
        return None
    found = answered.get((request.receipt_key, request.request_id))
    if found is None:
        return None
    fingerprint, response = found
    if fingerprint != request.fingerprint:
        return RequestIdReused()
    return SessionNotFound() if response is None else Outcome(response, replayed=True)


def receipt_row(request: Request, response: bytes, now: datetime) -> dict[str, Any]:
    """The receipt's row."""
    return {
        "scope_key": request.receipt_key,
        "request_id": request.request_id,
        "method": request.method,
        "fingerprint": request.fingerprint,
        "response": response,
        "create_time": now,
    }
