"""One thread in memory: gives views of it and applies decisions to it, as the store does with rows.

It checks with every commit what must hold for all histories; see `apply`.
"""

import itertools
from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

from tests.support.chain_law import check_chain
from tests.support.thread_facts import Conversation, Keys
from threadkeep_chassis.errors import ThreadkeepError
from threadkeep_runtime.domain import commands
from threadkeep_runtime.domain.checkpoints import CheckpointIndex, CheckpointPut
from threadkeep_runtime.domain.commit import Decision, View
from threadkeep_runtime.domain.decide import decide
from threadkeep_runtime.domain.transitions import TERMINAL_TASK_STATES
from threadkeep_runtime.domain.values import (
    NO_TIMEOUTS,
    Answer,
    Event,
    Lease,
    LeaseRef,
    RetryPolicy,
    Run,
    Task,
    Thread,
    Ticket,
)

START = datetime(2026, 1, 1, tzinfo=UTC)
SCOPE = "0" * 64


class OneThread:
    """The state of one thread and its history."""

    def __init__(self) -> None:
        self.now = START
        self.thread: Thread | None = None
        self.is_deleted = False
        self.tasks: dict[str, Task] = {}
        self.runs: dict[str, Run] = {}
        self.tickets: dict[str, Ticket] = {}
        self.lease: Lease | None = None
        self.events: list[Event] = []
        self.commits: list[Decision] = []
        self.checkpoints: dict[tuple[str, str], int] = {}
        """Which commit recorded each."""
        self.conversation = Conversation()
        self.keys = Keys()
        self.epochs: dict[str, list[int]] = {}
        self._numbers = itertools.count(1)

    # -- commands

    def do(self, command: commands.Command) -> Decision:
        """Decides and applies. Raises the refusal, and then nothing has changed."""
        decision = decide(self.view(command), command, lambda: f"e{next(self._numbers)}")
        self.apply(decision)
        return decision

    def submit(self, **more: Any) -> Decision:
        """Submits a task on the thread, which it creates if there is none."""
        number = next(self._numbers)
        fields: dict[str, Any] = {
            "create": commands.SessionDraft() if self.thread is None else None,
            "task_id": f"task-{number}",
            "run_id": f"run-{number}",
            "agent_name": "agent",
            "agent_revision": 1,
            "manifest_digest": "d",
            "manifest": b"{}",
            "input": b"",
            "input_json": {},
            "queue": "default",
            "priority": 0,
            "metadata": {},
            "retry": RetryPolicy(more.pop("max_attempts", 3)),
        }
        return self.do(commands.SubmitTask(**self.base(), **{**fields, **more}))

    def take(self, worker: str = "w") -> LeaseRef:
        """Leases the open run."""
        run = self.open_run
        assert run is not None
        decision = self.do(commands.LeaseRun(**self.base(), run_id=run.run_id, worker_id=worker, ttl_seconds=10))
        assert decision.lease is not None
        return LeaseRef(run.run_id, decision.lease.epoch)

    def commit(self, lease: LeaseRef | None = None, disposition: Any = None, **more: Any) -> Decision:
        """Commits, with a lease or without."""
        return self.do(commands.CommitThread(**self.base(), lease=lease, disposition=disposition, **more))

    def ask(self, lease: LeaseRef, *tickets: commands.TicketDraft) -> Decision:
        """Lets the run wait."""
        return self.commit(lease, commands.Awaiting(tickets or (draft("t"),)))

    def base(self) -> dict[str, Any]:
        """The fields that every command has."""
        return {"scope_key": SCOPE, "session_id": "s", "thread_key": "k", "request_id": f"r{next(self._numbers)}"}

    def pass_time(self, seconds: float) -> None:
        """Moves the clock."""
        self.now += timedelta(seconds=seconds)

    # -- state

    @property
    def open_run(self) -> Run | None:
        """The run that has not ended."""
        found = [run for run in self.runs.values() if run.state != "ENDED"]
        assert len(found) <= 1, "R5: one open run"
        return found[0] if found else None

    @property
    def open_tickets(self) -> tuple[Ticket, ...]:
        """The tickets that wait, oldest first."""
        return tuple(ticket for ticket in self.tickets.values() if ticket.state == "OPEN")

    @property
    def enqueued(self) -> list[Task]:
        """The tasks without a run, in the order of their turns."""
        waiting = [task for task in self.tasks.values() if task.state == "SUBMITTED" and task.run_id is None]
        return sorted(waiting, key=lambda task: (-task.priority, task.first_event_sequence))

    @property
    def due(self) -> list[Task]:
        """Those of them whose time has come."""
        return [task for task in self.enqueued if task.not_before is None or task.not_before <= self.now]

    def selected(self, command: commands.CancelTasks) -> tuple[Task, ...]:
        """What the command selects."""
        chosen = [
            task
            for task in self.tasks.values()
            if task.state not in TERMINAL_TASK_STATES
            and task.cancel_request_time is None
            and (not command.selection.states or task.state in command.selection.states)
            and command.selection.queue in (None, task.queue)
            and command.selection.agent_name in (None, task.agent_name)
        ]
        return tuple(sorted(chosen, key=lambda task: task.first_event_sequence))

    def recorded_by(self, task_id: str) -> set[tuple[str, str]]:
        """The checkpoints that the commits of the task's runs recorded."""
        its_runs = {run.run_id for run in self.runs.values() if run.task_id == task_id}
        return {key for key, commit in self.checkpoints.items() if self.commits[commit - 1].run_id in its_runs}

    def root_before(self, task_id: str) -> str | None:
        """The head of the root namespace without what the task recorded."""
        stays = set(self.checkpoints) - self.recorded_by(task_id)
        return max((checkpoint_id for namespace, checkpoint_id in stays if namespace == ""), default=None)

    @property
    def types(self) -> list[str]:
        """The types of all events, without the server's prefix."""
        return [event.type.removeprefix("threadkeep.") for event in self.events]

    def view(self, command: commands.Command) -> View:
        """What the store would load for the command."""
        run = self.open_run
        lease = getattr(command, "lease", None)
        run_id = lease.run_id if lease is not None else getattr(command, "run_id", "")
        thread = self.thread
        selected = self.selected(command) if isinstance(command, commands.CancelTasks) else ()
        waiting = [task for task in self.due if task not in selected]
        if self.is_deleted:
            return View(now=self.now, partition=0, is_deleted=True)
        return View(
            now=self.now,
            partition=0,
            thread=thread,
            run=run,
            task=None if run is None else self.tasks[run.task_id],
            lease=self.lease,
            open_tickets=self.open_tickets,
            named_run=self.runs.get(run_id),
            named_task=self.tasks.get(getattr(command, "task_id", "")),
            named_ticket=self.tickets.get(getattr(command, "ticket_id", "")),
            taken=frozenset(
                {("task", name) for name in self.tasks}
                | {("ticket", name) for name in self.tickets}
                | {("event", event.event_id) for event in self.events if event.is_named}
            ),
            next_task=waiting[0] if waiting else None,
            selected=selected,
            root_before_task=None if run is None else self.root_before(run.task_id),
            messages=self.conversation.known(command),
            state=self.keys.held(command),
            checkpoints=CheckpointIndex(
                floor=thread.checkpoint_top if thread else "",
                deleted_floor=thread.checkpoint_floor if thread else "",
                existing=frozenset(self.checkpoints),
                greatest=self._greatest(),
            ),
        )

    def _greatest(self) -> dict[str, str]:
        greatest: dict[str, str] = {}
        for namespace, checkpoint_id in self.checkpoints:
            greatest[namespace] = max(checkpoint_id, greatest.get(namespace, ""))
        return greatest

    # -- what a commit does, and what must hold for every one

    def apply(self, decision: Decision) -> None:
        """Applies a decision and checks it against the state before."""
        thread = decision.thread
        if thread is None:
            return
        before = self.thread
        assert not self.is_deleted, "R19: a deleted thread never changes again"
        # R2: dense sequences.
        assert thread.commit_sequence == (before.commit_sequence if before else 0) + 1
        assert thread.event_sequence == len(self.events) + len(decision.events)
        if decision.events:
            assert decision.first_event_sequence == len(self.events) + 1
            assert decision.last_event_sequence == thread.event_sequence
        else:
            assert (decision.first_event_sequence, decision.last_event_sequence) == (0, 0)
        self._check_finality(decision)
        check_chain(decision, self.thread)
        self.conversation.apply(decision)
        self.keys.apply(decision)
        self.thread = thread
        self.commits.append(decision)
        self.events.extend(decision.events)
        for task_change in decision.tasks:
            self.tasks[task_change.value.task_id] = task_change.value
        for run_change in decision.runs:
            self.runs[run_change.value.run_id] = run_change.value
        for ticket in (*decision.opened_tickets, *decision.closed_tickets):
            self.tickets[ticket.ticket_id] = ticket
        self._apply_lease(decision)
        if decision.checkpoints is not None:
            if decision.checkpoints.delete_all:
                self.checkpoints.clear()
            if decision.checkpoints.roll_back is not None:
                for gone in self.recorded_by(decision.checkpoints.roll_back.task_id):
                    del self.checkpoints[gone]
            for op in decision.checkpoints.ops:
                if isinstance(op, CheckpointPut):
                    self.checkpoints.setdefault((op.checkpoint_ns, op.checkpoint_id), thread.commit_sequence)
        self._check_state()
        if decision.deletes_thread:
            # R19: nothing is at work in it, and the last event says so.
            assert self.open_run is None
            assert self.lease is None
            assert not self.open_tickets
            assert self.types[-1] == "session.deleted"
            self.is_deleted = True

    def _apply_lease(self, decision: Decision) -> None:
        assert decision.lease_before == self.lease
        if decision.lease is not None and decision.lease_before is None:
            epochs = self.epochs.setdefault(decision.lease.run_id, [])
            # R8: an epoch only grows, and none is given twice.
            assert not epochs or decision.lease.epoch > epochs[-1]
            epochs.append(decision.lease.epoch)
        self.lease = decision.lease

    def _check_finality(self, decision: Decision) -> None:
        """R4: what is final does not change, and ends with its terminal event in that commit."""
        written = [("run", change.value, self.runs) for change in decision.runs]
        written += [("task", change.value, self.tasks) for change in decision.tasks]  # type: ignore[misc]
        for kind, value, table in written:
            key = value.run_id if kind == "run" else value.task_id  # type: ignore[union-attr]
            old: Any = table.get(key)  # type: ignore[union-attr]
            is_final = value.state == "ENDED" or value.state in TERMINAL_TASK_STATES
            was_final = old is not None and (old.state == "ENDED" or old.state in TERMINAL_TASK_STATES)
            if was_final:
                assert value == old, f"R4: a final {kind} changed"
            elif is_final:
                last = [event for event in decision.events if getattr(event, f"{kind}_id") == key][-1]
                assert last.type.startswith(f"threadkeep.{kind}."), "the last event of its commit is the terminal one"
                index = decision.events.index(last)
                assert value.last_event_sequence == decision.first_event_sequence + index

    def _check_state(self) -> None:
        """What the states of thread, run, task, lease and tickets have to do with each other."""
        assert self.thread is not None
        run = self.open_run
        assert self.thread.active_run_id == (run.run_id if run else None)
        assert self.thread.task_count == len(self.tasks)
        assert self.thread.run_count == len(self.runs)
        assert (self.lease is not None) == (run is not None and run.state == "RUNNING")
        if self.lease is not None and run is not None:
            assert (self.lease.run_id, self.lease.epoch) == (run.run_id, run.epoch)
            deadline = self.tasks[run.task_id].deadline
            assert deadline is None or (self.lease.attempt_deadline or deadline) <= deadline
        waits = tuple(ticket.ticket_id for ticket in self.open_tickets)
        assert bool(waits) == (run is not None and run.state == "AWAITING")
        # R5, R7: whoever has no run waits behind an open run, or for a time that had not come when it was submitted.
        assert self.thread.enqueued_count == len(self.enqueued)
        is_deleted = self.types[-1:] == ["session.deleted"]
        assert run is not None or is_deleted or all(task.not_before is not None for task in self.enqueued)
        for its in self.runs.values():
            not_before = self.tasks[its.task_id].not_before
            assert not_before is None or its.create_time >= not_before, "R24: no run opens before its task is due"
        roots = [checkpoint_id for namespace, checkpoint_id in self.checkpoints if namespace == ""]
        assert self.thread.root_checkpoint_id == max(roots, default=None)
        for task in self.tasks.values():
            if task.run_id is None:
                assert task.state in ("SUBMITTED", "CANCELED", "FAILED")
                assert task.state != "FAILED" or task.timeouts != NO_TIMEOUTS, "only a timeout fails what never ran"
                continue
            its_run = self.runs[task.run_id]
            assert (task.state in TERMINAL_TASK_STATES) == (its_run.state == "ENDED")
            its_runs = [one for one in self.runs.values() if one.task_id == task.task_id]
            assert [one.attempt for one in its_runs] == list(range(1, task.attempt + 1))
            assert all(one.cause in ("FAILED", "TIMED_OUT") for one in its_runs[:-1])
            assert [one.parent_run_id for one in its_runs] == [None, *(one.run_id for one in its_runs[:-1])]
            assert task.crash_count == sum(one.crash_count for one in its_runs)
            # R7: crashes and failures share one budget, and whoever still works has some of it left.
            assert task.spent <= task.retry.max_attempts
            if task.state not in TERMINAL_TASK_STATES and task.cancel_request_time is None:
                assert task.spent < task.retry.max_attempts
            if task.state not in TERMINAL_TASK_STATES and task.timeouts.waiting_seconds is not None:
                was_leased = any(one.epoch for one in its_runs)
                assert (task.timeout_time == task.deadline) == was_leased
            if its_run.state == "AWAITING":
                assert task.state in ("INPUT_REQUIRED", "AUTH_REQUIRED")
                assert task.open_ticket_ids == waits
            else:
                assert task.open_ticket_ids == ()
        assert len({event.event_id for event in self.events}) == len(self.events)


def draft(ticket_id: str, **more: Any) -> commands.TicketDraft:
    """A ticket that takes any value."""
    return commands.TicketDraft(ticket_id=ticket_id, is_named=True, **{"kind": "INPUT", **more})


def put(checkpoint_id: str, namespace: str = "") -> CheckpointPut:
    """A checkpoint without values."""
    return CheckpointPut(namespace, checkpoint_id, None, b"{}", b"{}")


def event(event_id: str = "", **more: Any) -> Event:
    """A writer's event; named if it has an id."""
    base = Event(event_id or "unnamed", bool(event_id), "order.placed", 2, None, None, None)
    return base._replace(**more)


def refused(error: type[ThreadkeepError], thread: OneThread, act: Callable[[], Any]) -> ThreadkeepError:
    """Asserts that the act is refused and changes nothing."""
    before = (thread.thread, dict(thread.runs), dict(thread.tasks), dict(thread.tickets), len(thread.events))
    with pytest.raises(error) as caught:
        act()
    assert before == (thread.thread, thread.runs, thread.tasks, thread.tickets, len(thread.events))
    return caught.value


def cancel(thread: OneThread, task_id: str, grace: float = 30, reason: str = "changed my mind") -> Any:
    """Asks for a cancellation."""
    return thread.do(commands.CancelTask(**thread.base(), task_id=task_id, reason=reason, grace_seconds=grace))


def cancel_all(thread: OneThread, grace: float = 30, **selection: Any) -> Any:
    """Asks for the cancellation of many."""
    chosen = commands.TaskFilter(**selection)
    return thread.do(commands.CancelTasks(**thread.base(), selection=chosen, reason="all of it", grace_seconds=grace))


def time_out(thread: OneThread, task_id: str) -> Any:
    """What the loop does for a task that took, or waited, too long."""
    return thread.do(commands.TimeOutTask(**thread.base(), task_id=task_id))


def time_out_attempt(thread: OneThread, lease: LeaseRef, jitter: float = 1.0) -> Any:
    """What the loop does for a lease that has lasted too long."""
    attempt = commands.TimeOutAttempt(**thread.base(), run_id=lease.run_id, epoch=lease.epoch, jitter=jitter)
    return thread.do(attempt)


def open_due(thread: OneThread) -> Any:
    """What the loop does for a session with a task that is due."""
    return thread.do(commands.OpenDueTask(**thread.base()))


def resolve(thread: OneThread, ticket_id: str, problem: tuple[str, str] | None = None) -> Any:
    """Answers a ticket."""
    return thread.do(
        commands.ResolveTicket(**thread.base(), ticket_id=ticket_id, answer=Answer(None, "1"), problem=problem)
    )


def recover(thread: OneThread, lease: LeaseRef) -> Any:
    """Takes a run from a silent worker."""
    return thread.do(commands.RecoverLease(**thread.base(), run_id=lease.run_id, epoch=lease.epoch))
