"""Tasks and attempts that take too long, as decisions (R7, R24)."""

from datetime import timedelta

import pytest

from tests.support.one_thread import (
    OneThread,
    cancel,
    draft,
    open_due,
    put,
    recover,
    refused,
    resolve,
    time_out,
    time_out_attempt,
)
from threadkeep_runtime.domain.commands import Ended, ReleaseRun
from threadkeep_runtime.domain.errors import LeaseLost, NothingToRecover
from threadkeep_runtime.domain.values import Failure, LeaseRef, RetryPolicy, Timeouts


@pytest.fixture
def thread() -> OneThread:
    return OneThread()


# In total


@pytest.mark.rule("R24", "R3")
def test_a_task_that_takes_too_long_fails_and_its_worker_is_fenced_off(thread: OneThread) -> None:
    thread.submit(task_id="t", timeouts=Timeouts(total_seconds=10))
    thread.submit(task_id="next", strategy="ENQUEUE")
    held = thread.take()
    thread.pass_time(9.9)
    refused(NothingToRecover, thread, lambda: time_out(thread, "t"))
    thread.pass_time(0.1)
    time_out(thread, "t")
    task, run = thread.tasks["t"], thread.runs[held.run_id]
    assert (task.state, run.state, run.cause) == ("FAILED", "ENDED", "TIMED_OUT")
    assert task.failure is not None
    assert (task.failure.code, run.failure) == ("task_timeout", task.failure)
    refused(LeaseLost, thread, lambda: thread.commit(held, Ended("SUCCEEDED")))
    refused(NothingToRecover, thread, lambda: time_out(thread, "t"))
    following = thread.open_run
    assert following is not None
    assert following.task_id == "next"


@pytest.mark.rule("R24", "R10")
def test_the_total_timeout_counts_while_an_answer_is_waited_for(thread: OneThread) -> None:
    thread.submit(task_id="t", timeouts=Timeouts(total_seconds=10))
    thread.ask(thread.take(), draft("asked"))
    thread.pass_time(10)
    time_out(thread, "t")
    assert thread.tickets["asked"].state == "CLOSED"
    assert (thread.tasks["t"].state, thread.open_run) == ("FAILED", None)


@pytest.mark.rule("R24", "R7")
def test_the_total_timeout_covers_all_attempts(thread: OneThread) -> None:
    thread.submit(task_id="t", timeouts=Timeouts(total_seconds=10), retry=RetryPolicy(9, 60.0))
    thread.commit(thread.take(), Ended("FAILED", failure=Failure("busy", "", retryable=True)))
    thread.pass_time(10)
    time_out(thread, "t")
    assert [run.cause for run in thread.runs.values()] == ["FAILED", "TIMED_OUT"]


@pytest.mark.rule("R24")
def test_time_begins_when_the_task_may_start(thread: OneThread) -> None:
    later = thread.now + timedelta(seconds=100)
    thread.submit(task_id="t", not_before=later, timeouts=Timeouts(total_seconds=10, waiting_seconds=5))
    assert thread.tasks["t"].deadline == later + timedelta(seconds=10)
    thread.pass_time(100)
    refused(NothingToRecover, thread, lambda: time_out(thread, "t"))
    open_due(thread)
    thread.pass_time(5)
    time_out(thread, "t")
    failure = thread.tasks["t"].failure
    assert failure is not None
    assert failure.code == "waiting_timeout"


@pytest.mark.rule("R24", "R9")
def test_a_task_that_was_canceled_before_it_timed_out_is_canceled(thread: OneThread) -> None:
    for total, attempt in ((10, None), (None, 10)):
        thread.submit(task_id=f"t{total}", timeouts=Timeouts(total, attempt))
        held = thread.take()
        cancel(thread, f"t{total}", grace=60)
        thread.pass_time(10)
        if total:
            time_out(thread, f"t{total}")
        else:
            time_out_attempt(thread, held)
        assert thread.tasks[f"t{total}"].state == "CANCELED"


# Until a worker has it


@pytest.mark.rule("R24")
def test_a_task_that_no_worker_takes_in_time_fails(thread: OneThread) -> None:
    thread.submit(task_id="t", timeouts=Timeouts(waiting_seconds=5))
    thread.pass_time(5)
    time_out(thread, "t")
    assert (thread.tasks["t"].state, thread.open_run) == ("FAILED", None)


@pytest.mark.rule("R24", "R5")
def test_a_task_that_waits_for_its_turn_too_long_fails_without_a_run(thread: OneThread) -> None:
    thread.submit(task_id="busy")
    held = thread.take()
    thread.submit(task_id="t", strategy="ENQUEUE", timeouts=Timeouts(total_seconds=9, waiting_seconds=5))
    thread.pass_time(5)
    time_out(thread, "t")
    task = thread.tasks["t"]
    assert (task.state, task.run_id) == ("FAILED", None)
    thread.commit(held, Ended("SUCCEEDED"))
    assert thread.open_run is None


@pytest.mark.rule("R24")
def test_who_has_begun_waits_no_more(thread: OneThread) -> None:
    thread.submit(task_id="t", timeouts=Timeouts(waiting_seconds=5))
    held = thread.take()
    thread.do(ReleaseRun(**thread.base(), lease=held))
    thread.pass_time(100)
    refused(NothingToRecover, thread, lambda: time_out(thread, "t"))


# One attempt


@pytest.mark.rule("R24", "R7")
def test_an_attempt_that_takes_too_long_is_tried_again_from_its_last_checkpoint(thread: OneThread) -> None:
    thread.submit(task_id="t", timeouts=Timeouts(attempt_seconds=10), retry=RetryPolicy(2, 2.0))
    held = thread.take()
    thread.commit(held, ops=(put("1"),))
    thread.pass_time(9)
    refused(NothingToRecover, thread, lambda: time_out_attempt(thread, held))
    thread.pass_time(1)
    time_out_attempt(thread, held)
    run = thread.open_run
    assert run is not None
    assert (run.attempt, run.parent_run_id, run.last_checkpoint_id) == (2, held.run_id, "1")
    assert run.due_time == thread.now + timedelta(seconds=2)
    assert thread.runs[held.run_id].cause == "TIMED_OUT"
    refused(LeaseLost, thread, lambda: thread.commit(held, Ended("SUCCEEDED")))
    again = thread.take()
    thread.pass_time(10)
    time_out_attempt(thread, again)
    task = thread.tasks["t"]
    assert task.failure is not None
    assert (task.state, task.failure.code) == ("FAILED", "attempt_timeout")
    assert thread.runs[again.run_id].cause == "TIMED_OUT"


@pytest.mark.rule("R24")
def test_each_lease_has_its_own_time_and_questions_cost_none(thread: OneThread) -> None:
    thread.submit(task_id="t", timeouts=Timeouts(attempt_seconds=10))
    held = thread.take()
    thread.pass_time(9)
    thread.ask(held, draft("asked"))
    thread.pass_time(1000)
    refused(NothingToRecover, thread, lambda: time_out_attempt(thread, held))
    resolve(thread, "asked")
    again = thread.take()
    thread.pass_time(9)
    refused(NothingToRecover, thread, lambda: time_out_attempt(thread, again))
    refused(NothingToRecover, thread, lambda: time_out_attempt(thread, LeaseRef(again.run_id, held.epoch)))
    thread.commit(again, Ended("SUCCEEDED"))


@pytest.mark.rule("R24")
def test_no_lease_outlasts_the_tasks_deadline(thread: OneThread) -> None:
    thread.submit(task_id="t", timeouts=Timeouts(total_seconds=15, attempt_seconds=10))
    thread.pass_time(8)
    held = thread.take()
    assert thread.lease is not None
    assert thread.lease.attempt_deadline == thread.tasks["t"].deadline
    thread.pass_time(7)
    time_out_attempt(thread, held)
    task = thread.tasks["t"]
    assert task.failure is not None
    assert (task.state, task.failure.code, thread.open_run) == ("FAILED", "task_timeout", None)


# What is tried again


@pytest.mark.rule("R7")
@pytest.mark.parametrize("cause", ["CRASH", "FAILURE", "TIMEOUT"])
@pytest.mark.parametrize("allowed", ["CRASH", "FAILURE", "TIMEOUT"])
def test_a_policy_is_for_the_causes_that_it_names(thread: OneThread, cause: str, allowed: str) -> None:
    policy = RetryPolicy(3, retry_causes=(allowed,))
    thread.submit(task_id="t", timeouts=Timeouts(attempt_seconds=20), retry=policy)
    held = thread.take()
    if cause == "FAILURE":
        thread.commit(held, Ended("FAILED", failure=Failure("busy", "", retryable=True)))
    else:
        thread.pass_time(20)
        (recover if cause == "CRASH" else time_out_attempt)(thread, held)
    ends = {"CRASH": "INDETERMINATE", "FAILURE": "FAILED", "TIMEOUT": "TIMED_OUT"}
    if cause == allowed:
        assert thread.open_run is not None
    else:
        assert (thread.tasks["t"].state, thread.runs[held.run_id].cause) == ("FAILED", ends[cause])
