"""Reads of a thread as of a commit (R12), and the list of its commits."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import replace
from datetime import datetime
from typing import Any, NamedTuple

import sqlalchemy as sa
from sqlalchemy.engine import Connection

from threadkeep_chassis.errors import FieldInvalid
from threadkeep_runtime.domain.chain import canonical_commit
from threadkeep_runtime.domain.errors import CommitCompacted, SessionNotFound
from threadkeep_runtime.domain.snapshots import OpenRun, open_run_of
from threadkeep_runtime.domain.values import Actor, Thread, Ticket
from threadkeep_runtime.store import reads
from threadkeep_runtime.store.rows import ticket_of
from threadkeep_runtime.store.statements import one_of, padded
from threadkeep_runtime.store.verifying import facts_of
from threadkeep_runtime.tables import commits, threads, tickets


class CommitRow(NamedTuple):
    """A commit, as lists show it."""

    sequence: int
    kind: str
    request_id: str | None
    run_id: str | None
    actor: Actor
    first_event_sequence: int
    event_count: int
    create_time: datetime
    digest: bytes | None
    canonical: bytes
    """Empty without a digest."""


class Moment(NamedTuple):
    """Where a view stands: a commit, and what it keeps of the thread around it."""

    thread: Thread
    commit: CommitRow
    open_run: OpenRun | None
    root_checkpoint_id: str | None
    message_position: int
    """The last place in the conversation that was given by then."""

    @property
    def is_head(self) -> bool:
        """True if nothing was committed since."""
        return self.commit.sequence == self.thread.commit_sequence


_OPEN_TASK_TICKETS = sa.select(tickets.c.ticket_id).where(
    tickets.c.thread_key == sa.bindparam("thread_key"), tickets.c.state == sa.literal_column("'OPEN'")
)
_COMMIT = sa.select(commits).where(
    commits.c.thread_key == sa.bindparam("thread_key"), commits.c.sequence == sa.bindparam("sequence")
)
_OLDEST = sa.select(sa.func.min(commits.c.sequence)).where(
    commits.c.thread_key == sa.bindparam("thread_key"),
    commits.c.sequence > sa.bindparam("floor"),
    commits.c.open_run.is_not(None),
)
_COMMITS = (
    sa.select(commits)
    .join(threads, threads.c.thread_key == commits.c.thread_key)
    .where(
        commits.c.thread_key == sa.bindparam("thread_key"),
        commits.c.sequence < sa.bindparam("before"),
        commits.c.sequence > threads.c.commit_floor,
    )
    .order_by(commits.c.sequence.desc())
    .limit(sa.bindparam("count"))
)
_HAS_THREAD = sa.select(threads.c.commit_sequence).where(
    threads.c.thread_key == sa.bindparam("thread_key"), threads.c.delete_time.is_(None)
)
_TICKETS = sa.select(tickets).where(
    tickets.c.thread_key == sa.bindparam("thread_key"), one_of(tickets.c.ticket_id, "ticket_ids")
)


def find_moment(connection: Connection, thread_key: str, sequence: int | None) -> Moment:
    """The thread after that commit; at its head if none is named.

    Raises SessionNotFound, FieldInvalid (no such commit yet), CommitCompacted.
    """
    found = reads.find_session(connection, thread_key)
    if found is None:
        raise SessionNotFound()
    thread = found.thread
    wanted = thread.commit_sequence if sequence is None else sequence
    if wanted > thread.commit_sequence:
        raise FieldInvalid("commit_sequence", "names a commit that the thread does not have yet")
    row = None
    if wanted > thread.commit_floor:
        row = connection.execute(_COMMIT, {"thread_key": thread_key, "sequence": wanted}).mappings().first()
    if row is not None and row["open_run"] is not None:
        open_run = open_run_of(row["open_run"])
        return Moment(thread, commit_of(row), open_run, row["root_checkpoint_id"], row["message_position"])
    if wanted < thread.commit_sequence or row is None:
        oldest = connection.scalar(_OLDEST, {"thread_key": thread_key, "floor": thread.commit_floor})
        raise CommitCompacted(thread.commit_sequence if oldest is None else oldest)
    # The last commit from before commits kept what is around them: the thread is still as it was then.
    run = found.open_run
    open_run = None
    if run is not None:
        waiting = connection.scalars(_OPEN_TASK_TICKETS, {"thread_key": thread_key}).all()
        open_run = OpenRun(
            run.run_id,
            run.state,
            run.epoch,
            run.crash_count,
            run.worker_id,
            run.last_checkpoint_id,
            run.start_time,
            tuple(waiting),
        )
    return Moment(thread, commit_of(row), open_run, thread.root_checkpoint_id, thread.message_position)


def run_at(connection: Connection, moment: Moment) -> reads.RunRow | None:
    """The run that was open, as it stood then. Its lease shows at the head only. Raises CommitCompacted if it went."""
    if moment.open_run is None:
        return None
    found = reads.find_run(connection, moment.thread.scope_key, moment.open_run.run_id)
    if found is None:
        # Retention took the run with its task: this moment can't be shown any more.
        raise CommitCompacted(moment.thread.commit_sequence)
    return reads.RunRow(moment.open_run.at(found.run), found.lease_expire_time if moment.is_head else None)


def tickets_at(connection: Connection, moment: Moment, after: str, count: int) -> list[Ticket]:
    """The tickets that were open, as they were asked, by id, behind `after`."""
    if moment.open_run is None:
        return []
    wanted = sorted(ticket_id for ticket_id in moment.open_run.ticket_ids if ticket_id > after)[:count]
    if not wanted:
        return []
    bound = {"thread_key": moment.thread.thread_key, "ticket_ids": padded(wanted)}
    found = {row["ticket_id"]: ticket_of(row) for row in connection.execute(_TICKETS, bound).mappings()}
    return [as_asked(found[ticket_id]) for ticket_id in wanted if ticket_id in found]


def as_asked(ticket: Ticket) -> Ticket:
    """The ticket as it was while it was open."""
    return replace(ticket, state="OPEN", answer=None, resolved_by=None, end_time=None)


def list_commits(connection: Connection, thread_key: str, before: int | None, count: int) -> Sequence[CommitRow]:
    """The thread's commits, newest first. Raises SessionNotFound."""
    head = connection.scalar(_HAS_THREAD, {"thread_key": thread_key})
    if head is None:
        raise SessionNotFound()
    bound = {"thread_key": thread_key, "before": head + 1 if before is None else before, "count": count}
    return [commit_of(row) for row in connection.execute(_COMMITS, bound).mappings()]


def commit_of(row: Any) -> CommitRow:
    """A commit from its row."""
    return CommitRow(
        row["sequence"],
        row["kind"],
        row["request_id"],
        row["run_id"],
        Actor(row["actor_kind"], row["actor_id"]),
        row["first_event_sequence"],
        row["event_count"],
        row["create_time"],
        None if row["digest"] is None else bytes(row["digest"]),
        b"" if row["digest"] is None else canonical_commit(facts_of(row), json.loads(row["parts"])),
    )
