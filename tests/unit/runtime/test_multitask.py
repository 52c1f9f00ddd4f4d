"""What a task does in a busy session: it waits, interrupts, or rolls back (R5)."""

import pytest

from tests.support.one_thread import OneThread, cancel, draft, put, recover, refused
from threadkeep_chassis.errors import LimitExceeded
from threadkeep_runtime.domain import commands
from threadkeep_runtime.domain.checkpoints import CheckpointDeleted
from threadkeep_runtime.domain.commands import Ended
from threadkeep_runtime.domain.errors import LeaseLost, TaskTerminal
from threadkeep_runtime.domain.values import Failure

SUCCEEDED = Ended("SUCCEEDED")
FAILED = Ended("FAILED", failure=Failure("boom", "it broke"))


@pytest.fixture
def thread() -> OneThread:
    return OneThread()


@pytest.mark.rule("R5", "R7")
@pytest.mark.case("B61")
def test_an_enqueued_task_gets_its_run_in_the_commit_that_ends_the_one_before(thread: OneThread) -> None:
    thread.submit(task_id="first")
    held = thread.take()
    second = thread.submit(task_id="second", strategy="ENQUEUE")
    assert second.task is not None
    assert (second.task.state, second.task.run_id, second.run) == ("SUBMITTED", None, None)
    assert not second.run_was_queued
    ended = thread.commit(held, SUCCEEDED)
    assert ended.task is not None
    assert ended.task.task_id == "first", "the commit is about the run that it ends"
    assert ended.run_was_queued
    run = thread.open_run
    assert run is not None
    assert (run.task_id, thread.tasks["second"].run_id, run.state) == ("second", run.run_id, "QUEUED")
    assert thread.types[-3:] == ["run.ended", "task.completed", "run.queued"]
    thread.commit(thread.take(), SUCCEEDED)
    assert thread.tasks["second"].state == "COMPLETED"


@pytest.mark.rule("R5")
@pytest.mark.parametrize("how", ["succeed", "fail", "cancel", "crash", "grace", "deadline", "release"])
def test_whatever_ends_a_run_lets_the_next_task_go_on(thread: OneThread, how: str) -> None:
    thread.submit(task_id="first", max_attempts=1)
    held = thread.take()
    thread.submit(task_id="second", strategy="ENQUEUE")
    if how in ("succeed", "fail"):
        thread.commit(held, SUCCEEDED if how == "succeed" else FAILED)
    elif how == "crash":
        thread.pass_time(11)
        recover(thread, held)
    elif how == "deadline":
        thread.ask(held, draft("t", deadline=thread.now))
        thread.do(commands.PassDeadline(**thread.base(), ticket_id="t"))
    else:
        cancel(thread, "first", 0 if how == "cancel" else 5)
        thread.pass_time(6)
        if how == "grace":
            thread.do(commands.EndCanceled(**thread.base(), run_id=held.run_id, epoch=held.epoch))
        elif how == "release":
            thread.do(commands.ReleaseRun(**thread.base(), lease=held))
    run = thread.open_run
    assert run is not None
    assert (run.task_id, run.state) == ("second", "QUEUED")


@pytest.mark.rule("R5", "R24")
def test_the_highest_priority_is_next_and_then_the_oldest(thread: OneThread) -> None:
    thread.submit(task_id="first")
    for name, priority in (("b", 0), ("a", 0), ("urgent", 5)):
        thread.submit(task_id=name, priority=priority, strategy="ENQUEUE")
    done = []
    for _ in range(4):
        run = thread.open_run
        assert run is not None
        done.append(run.task_id)
        thread.commit(thread.take(), SUCCEEDED)
    assert done == ["first", "urgent", "b", "a"]


@pytest.mark.rule("R5", "R9")
def test_an_enqueued_task_is_canceled_at_once_and_never_runs(thread: OneThread) -> None:
    thread.submit(task_id="first")
    held = thread.take()
    thread.submit(task_id="second", strategy="ENQUEUE")
    canceled = cancel(thread, "second")
    assert (canceled.task.task_id, canceled.task.state) == ("second", "CANCELED")
    assert thread.types[-2:] == ["task.cancel_requested", "task.canceled"]
    refused(TaskTerminal, thread, lambda: cancel(thread, "second"))
    thread.commit(held, SUCCEEDED)
    assert thread.open_run is None


@pytest.mark.rule("R5", "X9")
def test_too_many_enqueued_tasks_are_refused(thread: OneThread) -> None:
    thread.submit()
    thread.submit(strategy="ENQUEUE", max_enqueued=1)
    error = refused(LimitExceeded, thread, lambda: thread.submit(strategy="ENQUEUE", max_enqueued=1))
    assert error.metadata["limit"] == "max_enqueued_tasks"


@pytest.mark.rule("R5", "R3")
@pytest.mark.case("B61")
@pytest.mark.parametrize(("strategy", "cause"), [("INTERRUPT", "CANCELED"), ("ROLLBACK", "SUPERSEDED")])
def test_a_task_that_breaks_in_ends_the_open_run_and_takes_its_lease(
    thread: OneThread, strategy: str, cause: str
) -> None:
    thread.submit(task_id="first")
    held = thread.take()
    thread.submit(task_id="enqueued", strategy="ENQUEUE")
    decision = thread.submit(task_id="second", run_id="its-run", strategy=strategy)
    assert decision.task is not None
    assert (decision.task.task_id, decision.task.run_id, decision.run_id) == ("second", "its-run", "its-run")
    first = thread.tasks["first"]
    assert (thread.runs[held.run_id].cause, first.state) == (cause, "CANCELED")
    assert "second" in (first.cancel_reason or "")
    assert "its-run" in (first.cancel_reason or "")
    refused(LeaseLost, thread, lambda: thread.commit(held, SUCCEEDED, ops=(put("9"),)))
    thread.commit(thread.take(), SUCCEEDED)
    run = thread.open_run
    assert run is not None
    assert run.task_id == "enqueued"


@pytest.mark.rule("R5", "R10")
@pytest.mark.parametrize("strategy", ["INTERRUPT", "ROLLBACK"])
def test_a_task_that_breaks_in_closes_the_open_tickets(thread: OneThread, strategy: str) -> None:
    thread.submit()
    thread.ask(thread.take(), draft("t"))
    thread.submit(strategy=strategy)
    assert thread.tickets["t"].state == "CLOSED"


@pytest.mark.rule("R5", "R20")
@pytest.mark.case("B61")
def test_a_rollback_takes_back_what_the_runs_commits_recorded_and_nothing_else(thread: OneThread) -> None:
    thread.submit()
    thread.commit(thread.take(), SUCCEEDED, ops=(put("1"), put("1", "sub")))
    thread.submit(task_id="second")
    thread.commit(ops=(put("2"),))
    held = thread.take()
    thread.commit(held, ops=(put("3"), put("3", "sub")))
    thread.submit(strategy="ROLLBACK")
    assert set(thread.checkpoints) == {("", "1"), ("sub", "1"), ("", "2")}
    assert thread.thread is not None
    assert (thread.thread.root_checkpoint_id, thread.thread.checkpoint_top) == ("2", "3")
    fresh = thread.take()
    refused(CheckpointDeleted, thread, lambda: thread.commit(fresh, ops=(put("3"),)))
    thread.commit(fresh, ops=(put("4"),))


@pytest.mark.rule("R5")
@pytest.mark.case("B61")
def test_an_interruption_keeps_the_checkpoints(thread: OneThread) -> None:
    thread.submit()
    thread.commit(thread.take(), ops=(put("1"),))
    thread.submit(strategy="INTERRUPT")
    assert set(thread.checkpoints) == {("", "1")}
