"""The view that a command is decided on, the Decision that comes out, and the builder in between (R1, R2, R4).

A Decision is everything that one commit writes. The store applies it as it stands and decides nothing.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from datetime import datetime
from typing import Any, Generic, NamedTuple, TypeVar

from threadkeep_runtime.domain import transitions
from threadkeep_runtime.domain.audit import AuditRecord
from threadkeep_runtime.domain.checkpoints import (
    CheckpointChange,
    CheckpointIndex,
    CheckpointOp,
    Head,
    Removal,
    StagedValue,
)
from threadkeep_runtime.domain.commands import Command
from threadkeep_runtime.domain.event_json import json_payload
from threadkeep_runtime.domain.fork_plan import ForkPlan
from threadkeep_runtime.domain.messages import FACTS, NOTHING_KNOWN, Known, MessageChanges
from threadkeep_runtime.domain.outbox import Line, OutboxMessage, notice_of, state_notices
from threadkeep_runtime.domain.retention import PurgePlan
from threadkeep_runtime.domain.snapshots import open_run_text
from threadkeep_runtime.domain.state import Held, StateValue
from threadkeep_runtime.domain.values import Actor, Event, Lease, Run, Task, Thread, Ticket, Trace

T = TypeVar("T")

NewId = Callable[[], str]

NO_CHECKPOINTS = CheckpointIndex()


@dataclass(frozen=True, slots=True, kw_only=True)
class View:
    """What a command needs to know of its thread, read under the thread's lock."""

    now: datetime
    partition: int
    """The log partition of the thread, or of the thread to come."""
    thread: Thread | None = None
    is_deleted: bool = False
    """True if there was such a thread and it was deleted: `thread` is None then, for good (R19)."""
    run: Run | None = None
    """The open run."""
    task: Task | None = None
    """The open run's task."""
    lease: Lease | None = None
    """The open run's lease."""
    open_tickets: tuple[Ticket, ...] = ()
    """Oldest first."""
    next_task: Task | None = None
    """The waiting task whose turn comes when the session has no open run; None if none waits that is due."""
    selected: tuple[Task, ...] = ()
    """The tasks that a command selects by their properties, oldest first; `next_task` is none of them."""
    named_run: Run | None = None
    """The run that the command names, open or not; None if this thread has none of that id."""
    named_task: Task | None = None
    named_ticket: Ticket | None = None
    taken: frozenset[tuple[str, str]] = frozenset()
    """("task" | "ticket" | "event", id): ids that the command wants to use and that are in use."""
    checkpoints: CheckpointIndex = NO_CHECKPOINTS
    staged: Mapping[str, StagedValue] = field(default_factory=dict)
    """The staged values that the command names, as far as they are whole."""
    root_before_task: str | None = None
    """The greatest checkpoint id of the root namespace that the open run's task did not record; for a rollback."""
    removal: Removal | None = None
    """What the command takes away; None if that is nothing."""
    purge: PurgePlan | None = None
    """What retention takes away; None if that is nothing."""
    fork: ForkPlan | None = None
    """What a fork takes over; None without a source."""
    messages: Known = NOTHING_KNOWN
    state: Mapping[str, Held] = field(default_factory=dict)
    """The state keys that the command names, as far as they are declared."""
    source: Thread | None = None
    """The thread that the command copies from, if it holds checkpoints."""
    source_head: Head | None = None
    holds_checkpoints: bool = False
    """Of a copy's target."""
    lines: Mapping[str, Line] = field(default_factory=dict)
    """By target key: of the targets that the command sends to."""


class Change(NamedTuple, Generic[T]):
    """A task or run that a commit writes."""

    value: T
    is_new: bool


@dataclass(frozen=True, slots=True, kw_only=True)
class Decision:
    """What one commit writes, and the state after it.

    `thread` is None for a commit that is none: nothing happened to any thread, and only a receipt is written.
    """

    kind: str
    now: datetime
    scope_key: str
    scope: bytes
    request_id: str | None
    receipt_key: str | None = None
    actor: Actor
    trace: Trace
    run_id: str | None = None
    """The run that the commit belongs to."""
    thread: Thread | None = None
    thread_is_new: bool = False
    deletes_thread: bool = False
    """True if this is the thread's last commit: nobody finds it afterwards."""
    metadata_changed: bool = False
    task: Task | None = None
    """The task that the commit is about, or that is at work; after the commit."""
    run: Run | None = None
    """The run that the commit is about, or that is open; after the commit."""
    tasks: tuple[Change[Task], ...] = ()
    """What is written: a commit that ends a run may open the next one."""
    runs: tuple[Change[Run], ...] = ()
    lease: Lease | None = None
    lease_before: Lease | None = None
    opened_tickets: tuple[Ticket, ...] = ()
    closed_tickets: tuple[Ticket, ...] = ()
    """Tickets that left OPEN."""
    events: tuple[Event, ...] = ()
    checkpoints: CheckpointChange | None = None
    purge: PurgePlan | None = None
    outbox: tuple[OutboxMessage, ...] = ()
    outbox_ids: tuple[str, ...] = ()
    """Of all drafts: a message that was sent before under its dedupe key is not in `outbox`."""
    manifest: tuple[str, bytes] | None = None
    """(digest, manifest) to keep."""
    messages: MessageChanges | None = None
    state_values: tuple[StateValue, ...] = ()
    audit: tuple[AuditRecord, ...] = ()
    parts: str = "[]"
    """The commit's parts as the chain lists them (see `chain`)."""
    open_run: str = "{}"
    """The run that is open after the commit, as later views read it (see `snapshots`)."""

    @property
    def first_event_sequence(self) -> int:
        """Sequence of the first event; 0 without events."""
        return self.thread.event_sequence - len(self.events) + 1 if self.events and self.thread else 0

    @property
    def last_event_sequence(self) -> int:
        """Sequence of the last event; 0 without events."""
        return self.thread.event_sequence if self.events and self.thread else 0

    @property
    def ends_a_wait(self) -> bool:
        """True if somebody may wait for this: a task is final or asks, or there is none any more (R24)."""
        return self.deletes_thread or any(
            change.value.state in transitions.WAITED_FOR_TASK_STATES for change in self.tasks
        )

    @property
    def run_was_queued(self) -> bool:
        """True if a worker can take the run now."""
        return any(change.value.state == "QUEUED" for change in self.runs)


@dataclass(slots=True)
class _Kept(Generic[T]):
    before: T | None
    after: T


def _changes(kept: Iterable[_Kept[T]]) -> tuple[Change[T], ...]:
    return tuple(Change(one.after, one.before is None) for one in kept if one.after is not one.before)


def _is_changed(before: Task, after: Task) -> bool:
    """False if nothing of the task itself is different: who is told of it is beside the task."""
    return after.webhooks is before.webhooks or replace(after, webhooks=before.webhooks) != before


def _has_ended(task: Task | None) -> bool:
    return task is not None and task.end_time is not None


class CommitDraft:
    """Builds one Decision. Every change of a state goes through the table of legal transitions."""

    def __init__(self, view: View, command: Command, new_id: NewId, *, thread: Thread | None = None) -> None:
        """`thread` is given for a new thread; else the view has one."""
        current = thread if thread is not None else view.thread
        assert current is not None
        self._command = command
        self.new_id = new_id
        self._now = view.now
        self._thread_before = None if thread is not None else current
        self.thread = replace(current, commit_sequence=current.commit_sequence + 1, last_activity_time=view.now)
        self.run = view.run
        self.task = view.task
        self.next_task = view.next_task
        self.lease = view.lease
        self._lease_before = view.lease
        self._tasks: dict[str, _Kept[Task]] = {}
        self._runs: dict[str, _Kept[Run]] = {}
        self._know(view.task, view.run)
        self._open = {ticket.ticket_id: ticket for ticket in view.open_tickets}
        self._opened: list[Ticket] = []
        self._closed: list[Ticket] = []
        self._events: list[Event] = []
        self.checkpoints: CheckpointChange | None = None
        self.outbox: list[OutboxMessage] = []
        self.outbox_ids: list[str] = []
        self.manifest: tuple[str, bytes] | None = None
        self.is_of_run = True
        """False for a commit that does not belong to the open run: it carried no lease."""
        self.metadata_changed = False
        self.messages: MessageChanges | None = None
        self.state_values: tuple[StateValue, ...] = ()
        self.audit: tuple[AuditRecord, ...] = ()
        self.deletes_thread = False
        self.purge: PurgePlan | None = None

    # -- events

    @property
    def next_event_sequence(self) -> int:
        """Where the next event will stand in the thread."""
        return self.thread.event_sequence + len(self._events) + 1

    def append(self, event: Event) -> None:
        """Appends a writer's event."""
        self._events.append(event)

    def emit(
        self,
        type_: str,
        payload: Mapping[str, Any],
        visibility: int,
        *,
        run_id: str | None = None,
        task_id: str | None = None,
    ) -> None:
        """Appends an event of the server's own."""
        if type_.startswith("checkpoint.") and self.thread.message_source == FACTS:
            # Whoever follows the conversation need not look into this checkpoint.
            payload = {**payload, "message_source": f"MESSAGE_SOURCE_{FACTS}"}
        self._events.append(
            Event(
                self.new_id(),
                False,
                "threadkeep." + type_,
                visibility,
                run_id,
                task_id,
                json_payload(payload),
                1,
                self._command.request_id,
            )
        )

    # -- state

    @property
    def open_tickets(self) -> tuple[Ticket, ...]:
        """The tickets that are open now, oldest first."""
        return tuple(self._open.values())

    def set_thread(self, **fields: Any) -> None:
        """Changes the session."""
        self.thread = replace(self.thread, **fields)

    def set_run(self, state: str | None = None, **fields: Any) -> Run:
        """Changes the run. `state` must be a legal next state."""
        assert self.run is not None
        if state is not None:
            fields["state"] = transitions.check(transitions.RUN, self.run.state, state)
        self.run = replace(self.run, **fields)
        return self.run

    def set_task(self, state: str | None = None, **fields: Any) -> Task:
        """Changes the task. `state` must be a legal next state."""
        assert self.task is not None
        if state is not None:
            fields["state"] = transitions.check(transitions.TASK, self.task.state, state)
        self.task = replace(self.task, **fields)
        return self.task

    def turn_to(self, task: Task, run: Run | None, *, task_is_new: bool = False) -> None:
        """Turns to another task, and to its new run if it has one. What was changed so far is kept."""
        self._keep()
        self._tasks.setdefault(task.task_id, _Kept(None if task_is_new else task, task))
        if run is not None:
            self._runs[run.run_id] = _Kept(None, run)
        self.task, self.run = task, run

    @contextmanager
    def aside(self) -> Iterator[None]:
        """Whatever is turned to within, the commit is about what it was about before."""
        task, run = self.task, self.run
        yield
        self._keep()
        self.task = None if task is None else self._tasks[task.task_id].after
        self.run = None if run is None else self._runs[run.run_id].after

    def _know(self, task: Task | None, run: Run | None) -> None:
        if task is not None:
            self._tasks[task.task_id] = _Kept(task, task)
        if run is not None:
            self._runs[run.run_id] = _Kept(run, run)

    def _keep(self) -> None:
        """Puts the task and run at hand back to the others."""
        if self.task is not None:
            kept = self._tasks.setdefault(self.task.task_id, _Kept(self.task, self.task))
            kept.after = self.task
        if self.run is not None:
            self._runs[self.run.run_id].after = self.run

    def set_lease(self, lease: Lease | None) -> None:
        """Gives, changes or ends the lease."""
        self.lease = lease

    def open_ticket(self, ticket: Ticket) -> None:
        """Adds an open ticket."""
        self._opened.append(ticket)
        self._open[ticket.ticket_id] = ticket

    def close_ticket(self, ticket: Ticket, state: str, **fields: Any) -> Ticket:
        """Takes a ticket out of OPEN."""
        after = replace(
            ticket, state=transitions.check(transitions.TICKET, ticket.state, state), end_time=self._now, **fields
        )
        self._closed.append(after)
        del self._open[ticket.ticket_id]
        return after

    def save(self, ops: tuple[CheckpointOp, ...] = (), **more: Any) -> None:
        """Writes, deletes or copies checkpoints; `more` are fields of CheckpointChange."""
        key, commit, scope_key = self.thread.thread_key, self.thread.commit_sequence, self.thread.scope_key
        self.checkpoints = CheckpointChange(key, commit, ops, scope_key=scope_key, time=self._now, **more)

    def finish(self) -> Decision:
        """The Decision. The builder is used up."""
        thread = replace(self.thread, event_sequence=self.thread.event_sequence + len(self._events))
        self._keep()
        for known in self._tasks.values():
            if known.before is not None and known.after is not known.before and _is_changed(known.before, known.after):
                known.after = replace(known.after, revision=known.after.revision + 1, update_time=self._now)
            if known.after.webhook is not None and known.after.end_time is not None and not _has_ended(known.before):
                self.outbox.append(notice_of(known.after, thread, self._now, self.new_id()))
            if known.after.webhooks and known.before is not None and known.after.state != known.before.state:
                self.outbox.extend(state_notices(known.after, thread, self._now, self.new_id))
        task = None if self.task is None else self._tasks[self.task.task_id].after
        run = self.run
        return Decision(
            kind=self._command.kind,
            now=self._now,
            scope_key=self._command.scope_key,
            scope=self._command.scope,
            request_id=self._command.request_id,
            receipt_key=self._command.receipt_key,
            actor=self._command.actor,
            trace=self._command.trace,
            run_id=run.run_id if run is not None and self.is_of_run else None,
            thread=thread,
            thread_is_new=self._thread_before is None,
            deletes_thread=self.deletes_thread,
            metadata_changed=self.metadata_changed,
            task=task,
            run=run,
            tasks=_changes(self._tasks.values()),
            runs=_changes(self._runs.values()),
            lease=self.lease,
            lease_before=self._lease_before,
            opened_tickets=tuple(self._opened),
            closed_tickets=tuple(self._closed),
            events=tuple(self._events),
            checkpoints=self.checkpoints,
            purge=self.purge,
            outbox=tuple(self.outbox),
            outbox_ids=tuple(self.outbox_ids),
            manifest=self.manifest,
            messages=self.messages,
            state_values=self.state_values,
            audit=self.audit,
            open_run=self._open_run(),
        )

    def _open_run(self) -> str:
        known = self._runs.get(self.thread.active_run_id or "")
        return "{}" if known is None else open_run_text(known.after, self._tasks[known.after.task_id].after)
