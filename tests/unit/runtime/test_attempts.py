"""What becomes of a task whose run failed, or crashed: the next attempt, and where the budget ends (R7)."""

from datetime import timedelta

import pytest

from tests.support.one_thread import OneThread, cancel, draft, put, recover, resolve
from threadkeep_runtime.domain.commands import Ended
from threadkeep_runtime.domain.values import Failure, LeaseRef, RetryPolicy

FOR_NOW = Failure("busy", "later", retryable=True)
FOR_GOOD = Failure("broken", "never")


@pytest.fixture
def thread() -> OneThread:
    return OneThread()


def fail(thread: OneThread, lease: LeaseRef, failure: Failure = FOR_NOW, jitter: float = 1.0) -> None:
    thread.commit(lease, Ended("FAILED", failure=failure), jitter=jitter)


@pytest.mark.rule("R7")
def test_a_retryable_failure_opens_the_next_run_in_the_same_commit(thread: OneThread) -> None:
    thread.submit(task_id="t", retry=RetryPolicy(3, initial_backoff_seconds=2.0))
    first = thread.take()
    thread.commit(first, ops=(put("1"),))
    fail(thread, first)
    before, run = thread.runs[first.run_id], thread.open_run
    assert run is not None
    assert (before.state, before.cause, before.failure) == ("ENDED", "FAILED", FOR_NOW)
    assert (run.attempt, run.parent_run_id, run.state, run.task_id) == (2, before.run_id, "QUEUED", "t")
    assert run.last_checkpoint_id == "1", "it goes on where the attempt before it ended"
    assert run.due_time == thread.now + timedelta(seconds=2)
    task = thread.tasks["t"]
    assert (task.state, task.run_id, task.attempt, task.failure) == ("WORKING", run.run_id, 2, None)
    assert thread.types[-2:] == ["run.ended", "run.queued"]
    thread.commit(thread.take(), Ended("SUCCEEDED"))
    assert thread.tasks["t"].state == "COMPLETED"


@pytest.mark.rule("R7")
def test_the_failure_that_spends_the_budget_fails_the_task(thread: OneThread) -> None:
    thread.submit(task_id="t", max_attempts=3)
    for _ in range(3):
        fail(thread, thread.take())
    assert thread.open_run is None
    assert len(thread.runs) == 3
    assert {run.cause for run in thread.runs.values()} == {"FAILED"}
    assert (thread.tasks["t"].state, thread.tasks["t"].failure) == ("FAILED", FOR_NOW)
    thread.submit()


@pytest.mark.rule("R7")
@pytest.mark.case("B57")
@pytest.mark.parametrize("last", ["crash", "failure"])
def test_crashes_and_failures_spend_one_budget(thread: OneThread, last: str) -> None:
    thread.submit(task_id="t", max_attempts=3)
    fail(thread, thread.take())
    held = thread.take()
    thread.pass_time(11)
    recover(thread, held)
    held = thread.take()
    if last == "crash":
        thread.pass_time(11)
        recover(thread, held)
    else:
        fail(thread, held)
    assert thread.open_run is None
    assert thread.runs[held.run_id].cause == ("INDETERMINATE" if last == "crash" else "FAILED")
    assert thread.tasks["t"].state == "FAILED"


@pytest.mark.rule("R7")
def test_answers_spend_nothing(thread: OneThread) -> None:
    thread.submit(task_id="t", max_attempts=2)
    for name in ("t1", "t2", "t3"):
        thread.ask(thread.take(), draft(name))
        resolve(thread, name)
    fail(thread, thread.take())
    assert thread.open_run is not None


@pytest.mark.rule("R7")
def test_a_failure_that_is_not_retryable_ends_the_task_at_once(thread: OneThread) -> None:
    thread.submit(task_id="t")
    fail(thread, thread.take(), FOR_GOOD)
    assert thread.tasks["t"].state == "FAILED"


@pytest.mark.rule("R7")
def test_the_policys_codes_are_retryable_whatever_the_worker_says(thread: OneThread) -> None:
    thread.submit(task_id="t", retry=RetryPolicy(2, retryable_codes=("broken",)))
    fail(thread, thread.take(), FOR_GOOD)
    assert thread.open_run is not None


@pytest.mark.rule("R7", "R9")
@pytest.mark.case("B62")
def test_a_task_whose_cancellation_was_asked_for_is_not_tried_again(thread: OneThread) -> None:
    thread.submit(task_id="t")
    held = thread.take()
    cancel(thread, "t", 30)
    fail(thread, held)
    assert thread.open_run is None
    assert thread.tasks["t"].state == "FAILED"


@pytest.mark.rule("R7", "R9")
def test_a_task_that_waits_for_its_next_attempt_is_canceled_at_once(thread: OneThread) -> None:
    thread.submit(task_id="t")
    fail(thread, thread.take())
    cancel(thread, "t", 30)
    assert thread.tasks["t"].state == "CANCELED"
    assert thread.open_run is None


@pytest.mark.rule("R5", "R7")
def test_an_enqueued_task_waits_for_every_attempt(thread: OneThread) -> None:
    thread.submit(task_id="t", max_attempts=2)
    held = thread.take()
    thread.submit(task_id="next", strategy="ENQUEUE")
    fail(thread, held)
    run = thread.open_run
    assert run is not None
    assert run.task_id == "t"
    fail(thread, thread.take())
    run = thread.open_run
    assert run is not None
    assert run.task_id == "next"


@pytest.mark.rule("R5", "R20", "R7")
@pytest.mark.case("B61")
def test_a_rollback_takes_back_what_every_attempt_recorded(thread: OneThread) -> None:
    thread.submit()
    held = thread.take()
    thread.commit(held, ops=(put("1"),))
    fail(thread, held)
    thread.commit(thread.take(), ops=(put("2"),))
    thread.submit(strategy="ROLLBACK")
    assert thread.checkpoints == {}


@pytest.mark.rule("R7")
def test_the_pause_grows_up_to_its_bound_and_leaves_half_to_chance() -> None:
    policy = RetryPolicy(10, initial_backoff_seconds=1.0, max_backoff_seconds=10.0, multiplier=3.0)
    assert [policy.backoff_seconds(attempt, 1.0) for attempt in (1, 2, 3, 4, 1000)] == [1, 3, 9, 10, 10]
    assert [policy.backoff_seconds(2, jitter) for jitter in (0.0, 0.5, 1.0)] == [1.5, 2.25, 3]
    assert RetryPolicy(10, 0.0).backoff_seconds(1000, 1.0) == 0
