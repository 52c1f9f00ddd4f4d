"""Generated histories of one thread: whatever is asked in whatever order, the law holds after every commit.

The checks are in `OneThread.apply`: dense sequences, one open run, finality, epochs that grow, states that agree.
"""

from datetime import timedelta
from typing import Any

import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule

from tests.support.one_thread import OneThread, cancel_all, draft, event, open_due, put, time_out, time_out_attempt
from threadkeep_chassis.errors import FieldInvalid, IdTaken, Internal, ThreadkeepError
from threadkeep_runtime.domain import commands
from threadkeep_runtime.domain.commands import Ended, Running
from threadkeep_runtime.domain.errors import LeaseLost, NothingToRecover, SessionBusy, SessionNotFound
from threadkeep_runtime.domain.transitions import TERMINAL_TASK_STATES
from threadkeep_runtime.domain.values import Answer, Failure, LeaseRef, RetryPolicy, Timeouts


class Histories(RuleBasedStateMachine):
    """Clients, workers, zombies and loops act on one thread."""

    def __init__(self) -> None:
        super().__init__()
        self.thread = OneThread()
        self.leases: list[LeaseRef] = []
        self.names = 0

    def attempt(self, act: Any) -> Any:
        """Acts; a refusal is fine, a fault of ours is not."""
        before = (self.thread.thread, len(self.thread.events))
        try:
            return act()
        except Internal:
            raise
        except ThreadkeepError as refusal:
            assert before == (self.thread.thread, len(self.thread.events))
            return refusal

    def name(self) -> str:
        """A new name."""
        self.names += 1
        return f"{self.names:06d}"

    @rule(
        attempts=st.integers(1, 3),
        strategy=st.sampled_from(["REJECT", "ENQUEUE", "INTERRUPT", "ROLLBACK"]),
        priority=st.integers(0, 1),
        delay=st.sampled_from([None, None, -1, 5, 15]),
        bounds=st.sampled_from([(None, None, None)] * 3 + [(20, None, None), (None, 4, None), (30, 8, 10)]),
        causes=st.sampled_from([(), (), ("CRASH",), ("FAILURE",), ("TIMEOUT", "FAILURE")]),
    )
    def submit(
        self,
        attempts: int,
        strategy: str,
        priority: int,
        delay: int | None,
        bounds: tuple[int | None, int | None, int | None],
        causes: tuple[str, ...],
    ) -> None:
        before = self.thread.open_run
        recorded = self.thread.recorded_by(before.task_id) if before is not None else set()
        held = set(self.thread.checkpoints)
        not_before = None if delay is None else self.thread.now + timedelta(seconds=delay)
        outcome = self.attempt(
            lambda: self.thread.submit(
                retry=RetryPolicy(attempts, retry_causes=causes),
                strategy=strategy,
                priority=priority,
                max_enqueued=3,
                not_before=not_before,
                timeouts=Timeouts(*bounds),
            )
        )
        is_early = not_before is not None and not_before > self.thread.now
        if is_early:
            assert self.thread.open_run == before, "what is not due makes no session busy and ends nothing"
            assert isinstance(outcome, FieldInvalid) == (strategy in ("INTERRUPT", "ROLLBACK"))
        if self.thread.is_deleted:
            assert isinstance(outcome, SessionNotFound | FieldInvalid)
        if is_early or self.thread.is_deleted:
            return
        if before is not None and strategy == "REJECT":
            assert isinstance(outcome, SessionBusy)
        if before is not None and strategy in ("INTERRUPT", "ROLLBACK"):
            after = self.thread.runs[before.run_id]
            assert after.cause == ("CANCELED" if strategy == "INTERRUPT" else "SUPERSEDED")
            assert set(self.thread.checkpoints) == held - (recorded if strategy == "ROLLBACK" else set())

    @rule()
    def take(self) -> None:
        run = self.thread.open_run
        if run is not None:
            taken = self.attempt(self.thread.take)
            if isinstance(taken, LeaseRef):
                self.leases.append(taken)

    def held(self, index: int) -> LeaseRef:
        """A lease that was given at some time: the current one, or a zombie's."""
        return self.leases[index % len(self.leases)]

    @precondition(lambda self: self.leases)
    @rule(
        index=st.integers(0, 5),
        what=st.sampled_from(["running", "ask", "ask_login", "succeed", "fail", "fail_for_now", "cancel", "nothing"]),
        with_checkpoint=st.booleans(),
    )
    def work(self, index: int, what: str, with_checkpoint: bool) -> None:
        lease = self.held(index)
        disposition: Any = {
            "running": Running(),
            "ask": commands.Awaiting((draft(self.name()), draft(self.name()))),
            "ask_login": commands.Awaiting((draft(self.name(), kind="AUTH"),)),
            "succeed": Ended("SUCCEEDED"),
            "fail": Ended("FAILED", failure=Failure("code", "text")),
            "fail_for_now": Ended("FAILED", failure=Failure("code", "text", retryable=True)),
            "cancel": Ended("CANCELED"),
            "nothing": None,
        }[what]
        run = self.thread.runs[lease.run_id]
        is_current = run.state == "RUNNING" and run.epoch == lease.epoch
        ops = (put(self.name()),) if with_checkpoint else ()
        outcome = self.attempt(
            lambda: self.thread.commit(lease, disposition, events=(event()._replace(event_id=self.name()),), ops=ops)
        )
        assert isinstance(outcome, SessionNotFound if self.thread.is_deleted else LeaseLost) == (not is_current)

    @precondition(lambda self: self.leases)
    @rule(index=st.integers(0, 5))
    def release(self, index: int) -> None:
        self.attempt(lambda: self.thread.do(commands.ReleaseRun(**self.thread.base(), lease=self.held(index))))

    @precondition(lambda self: self.thread.tasks)
    @rule(index=st.integers(0, 3), grace=st.sampled_from([0, 5, 60]))
    def cancel(self, index: int, grace: int) -> None:
        task_id = sorted(self.thread.tasks)[index % len(self.thread.tasks)]
        self.attempt(
            lambda: self.thread.do(
                commands.CancelTask(**self.thread.base(), task_id=task_id, reason="", grace_seconds=grace)
            )
        )

    @precondition(lambda self: self.thread.tasks)
    @rule(grace=st.sampled_from([0, 5]), states=st.sampled_from([(), ("SUBMITTED",), ("WORKING", "INPUT_REQUIRED")]))
    def cancel_many(self, grace: int, states: tuple[str, ...]) -> None:
        leased = self.thread.lease is not None and grace > 0
        self.attempt(lambda: cancel_all(self.thread, grace, states=states))
        if not states and not self.thread.is_deleted:
            left = [task for task in self.thread.tasks.values() if task.state not in TERMINAL_TASK_STATES]
            assert all(task.cancel_request_time is not None for task in left)
            assert len(left) <= int(leased or self.thread.lease is not None)

    @precondition(lambda self: self.thread.tasks)
    @rule(index=st.integers(0, 3))
    def retry(self, index: int) -> None:
        old = self.thread.tasks[sorted(self.thread.tasks)[index % len(self.thread.tasks)]]
        if old.state in TERMINAL_TASK_STATES:
            self.attempt(lambda: self.thread.submit(retry_of=old.task_id, strategy="ENQUEUE", max_enqueued=3))

    @precondition(lambda self: self.thread.tickets)
    @rule(index=st.integers(0, 3))
    def resolve(self, index: int) -> None:
        ticket_id = sorted(self.thread.tickets)[-1 - index % len(self.thread.tickets)]
        answer = commands.ResolveTicket(
            **self.thread.base(), ticket_id=ticket_id, answer=Answer(None, "null"), problem=None
        )
        self.attempt(lambda: self.thread.do(answer))

    @rule(seconds=st.sampled_from([1, 6, 11]))
    def loops(self, seconds: int) -> None:
        """Time passes and every loop looks, with what it may have read long ago."""
        self.thread.pass_time(seconds)
        self.time_outs()
        was_open, waited = self.thread.open_run, self.thread.due
        opened = self.attempt(lambda: open_due(self.thread))
        if was_open is None and waited and not self.thread.is_deleted:
            run = self.thread.open_run
            assert run is not None
            assert run.task_id == waited[0].task_id
        else:
            assert isinstance(opened, NothingToRecover)
        for lease in self.leases[-3:]:
            for kind in (commands.EndCanceled, commands.RecoverLease):
                due = kind(**self.thread.base(), run_id=lease.run_id, epoch=lease.epoch)
                self.attempt(lambda due=due: self.thread.do(due))

    def time_outs(self) -> None:
        """Whatever took too long ends or is tried again, and nothing else."""
        for lease in self.leases[-3:]:
            held, now = self.thread.lease, self.thread.now
            is_over = (
                held is not None
                and (held.run_id, held.epoch) == lease
                and held.attempt_deadline is not None
                and held.attempt_deadline <= now
            )
            outcome = self.attempt(lambda lease=lease: time_out_attempt(self.thread, lease))
            assert isinstance(outcome, NothingToRecover) != is_over
            if is_over:
                assert self.thread.runs[lease.run_id].cause in ("TIMED_OUT", "CANCELED")
        for task in list(self.thread.tasks.values()):
            task = self.thread.tasks[task.task_id]
            is_late = task.timeout_time is not None and task.timeout_time <= self.thread.now
            # In a deleted session nothing ends any more: enqueued tasks went with it, without a word (R19).
            ends = is_late and task.state not in TERMINAL_TASK_STATES and not self.thread.is_deleted
            outcome = self.attempt(lambda task=task: time_out(self.thread, task.task_id))
            assert isinstance(outcome, NothingToRecover) != ends
            if ends:
                assert self.thread.tasks[task.task_id].state in ("FAILED", "CANCELED")
        for task in self.thread.tasks.values():
            late = task.deadline is not None and task.deadline <= self.thread.now
            assert not late or task.state in TERMINAL_TASK_STATES or self.thread.is_deleted

    @rule()
    def save_without_a_run(self) -> None:
        self.attempt(lambda: self.thread.commit(ops=(put(self.name()),)))

    @rule()
    def delete_checkpoints(self) -> None:
        self.attempt(lambda: self.thread.do(commands.DeleteCheckpoints(**self.thread.base())))

    @precondition(lambda self: len(self.thread.commits) > 12)
    @rule()
    def delete(self) -> None:
        """The end: whatever is asked afterwards, nothing is committed any more."""
        outcome = self.attempt(lambda: self.thread.do(commands.DeleteSession(**self.thread.base())))
        assert isinstance(outcome, SessionNotFound) or self.thread.is_deleted

    @precondition(lambda self: self.thread.is_deleted)
    @rule(create=st.booleans())
    def come_back(self, create: bool) -> None:
        """The id does not return, neither by a session nor by a task that makes one."""
        outcome = self.attempt(
            (lambda: self.thread.do(commands.CreateSession(**self.thread.base(), draft=commands.SessionDraft())))
            if create
            else (lambda: self.thread.submit(create=commands.SessionDraft()))
        )
        assert isinstance(outcome, IdTaken)

    @invariant()
    def commits_count_every_version(self) -> None:
        if self.thread.thread is not None:
            assert self.thread.thread.commit_sequence == len(self.thread.commits)


Histories.TestCase.settings = settings(max_examples=60, stateful_step_count=40, deadline=None)


@pytest.mark.rule("R2", "R3", "R4", "R5", "R7", "R8", "R19")
class TestHistories(Histories.TestCase):
    """See Histories."""
