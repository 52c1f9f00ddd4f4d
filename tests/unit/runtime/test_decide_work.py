"""What single commands come to: cancellations, leases, budgets, tickets (R7 to R10)."""

import pytest

from tests.support.one_thread import OneThread, cancel, draft, put, recover, refused, resolve
from threadkeep_chassis.errors import FieldInvalid, IdTaken
from threadkeep_runtime.domain import commands
from threadkeep_runtime.domain.commands import Ended, Running
from threadkeep_runtime.domain.errors import (
    LeaseLost,
    NothingToRecover,
    RunNotQueued,
    TaskNotFound,
    TaskTerminal,
    TicketAnswerInvalid,
    TicketNotFound,
    TicketNotOpen,
)
from threadkeep_runtime.domain.values import Answer, Failure, Payload

SUCCEEDED = Ended("SUCCEEDED", Payload("text/plain", b"done"))
FAILED = Ended("FAILED", failure=Failure("boom", "it broke"))


@pytest.fixture
def thread() -> OneThread:
    return OneThread()


@pytest.mark.rule("R9")
def test_a_worker_may_not_cancel_what_nobody_wanted_canceled(thread: OneThread) -> None:
    thread.submit()
    lease = thread.take()
    refused(FieldInvalid, thread, lambda: thread.commit(lease, Ended("CANCELED")))


@pytest.mark.rule("R9")
@pytest.mark.parametrize("state", ["queued", "awaiting"])
def test_a_task_without_a_leased_run_is_canceled_at_once(thread: OneThread, state: str) -> None:
    task = thread.submit().task
    assert task is not None
    if state == "awaiting":
        thread.ask(thread.take(), draft("t1"), draft("t2"))
    cancel(thread, task.task_id)
    assert thread.tasks[task.task_id].state == "CANCELED"
    assert [ticket.state for ticket in thread.tickets.values()] == (["CLOSED"] * 2 if state == "awaiting" else [])
    assert thread.types[-2:] == ["run.ended", "task.canceled"]


@pytest.mark.rule("R9")
def test_a_leased_run_gets_the_intent_and_may_still_commit_until_it_ends(thread: OneThread) -> None:
    task = thread.submit().task
    assert task is not None
    lease = thread.take()
    cancel(thread, task.task_id)
    assert thread.lease is not None
    assert thread.lease.cancel_reason == "changed my mind"
    thread.commit(lease, Running(), ops=(put("1"),))
    thread.commit(lease, Ended("CANCELED"))
    assert thread.tasks[task.task_id].state == "CANCELED"


@pytest.mark.rule("R9")
def test_a_worker_that_was_faster_than_the_cancellation_completes_the_task(thread: OneThread) -> None:
    task = thread.submit().task
    assert task is not None
    lease = thread.take()
    cancel(thread, task.task_id)
    thread.commit(lease, SUCCEEDED)
    assert thread.tasks[task.task_id].state == "COMPLETED"


@pytest.mark.rule("R9")
def test_without_grace_the_lease_is_gone_at_once(thread: OneThread) -> None:
    task = thread.submit().task
    assert task is not None
    lease = thread.take()
    cancel(thread, task.task_id, grace=0)
    assert thread.tasks[task.task_id].state == "CANCELED"
    refused(LeaseLost, thread, lambda: thread.commit(lease, SUCCEEDED))


@pytest.mark.rule("R9")
def test_a_second_cancellation_can_only_shorten_the_grace(thread: OneThread) -> None:
    task = thread.submit().task
    assert task is not None
    thread.take()
    cancel(thread, task.task_id, grace=60)
    assert thread.lease is not None
    first = thread.lease.cancel_deadline
    cancel(thread, task.task_id, grace=600, reason="again")
    assert thread.lease.cancel_deadline == first
    cancel(thread, task.task_id, grace=5, reason="now")
    assert thread.lease.cancel_deadline is not None
    assert first is not None
    assert thread.lease.cancel_deadline < first
    assert thread.tasks[task.task_id].cancel_reason == "changed my mind"


@pytest.mark.rule("R9")
def test_a_finished_task_can_not_be_canceled(thread: OneThread) -> None:
    task = thread.submit().task
    assert task is not None
    thread.commit(thread.take(), SUCCEEDED)
    refused(TaskTerminal, thread, lambda: cancel(thread, task.task_id))
    refused(TaskNotFound, thread, lambda: cancel(thread, "never"))


@pytest.mark.rule("R9")
def test_the_grace_period_ends_a_silent_worker_once(thread: OneThread) -> None:
    task = thread.submit().task
    assert task is not None
    lease = thread.take()
    end = commands.EndCanceled(**thread.base(), run_id=lease.run_id, epoch=lease.epoch)
    refused(NothingToRecover, thread, lambda: thread.do(end))
    cancel(thread, task.task_id, grace=5)
    refused(NothingToRecover, thread, lambda: thread.do(end))
    thread.pass_time(5)
    thread.do(end)
    assert thread.tasks[task.task_id].state == "CANCELED"
    refused(NothingToRecover, thread, lambda: thread.do(end))


@pytest.mark.rule("R9")
@pytest.mark.case("B56", "B62")
@pytest.mark.parametrize("way", ["expired", "released", "awaiting"])
def test_a_canceled_task_never_goes_back_to_the_queue(thread: OneThread, way: str) -> None:
    task = thread.submit().task
    assert task is not None
    lease = thread.take()
    cancel(thread, task.task_id, grace=600)
    if way == "expired":
        thread.pass_time(11)
        recover(thread, lease)
    elif way == "released":
        thread.do(commands.ReleaseRun(**thread.base(), lease=lease))
    else:
        assert thread.ask(lease).opened_tickets == ()
    assert thread.tasks[task.task_id].state == "CANCELED"
    assert thread.lease is None
    assert thread.open_run is None


@pytest.mark.rule("R7", "R8")
@pytest.mark.case("B57")
def test_crashes_spend_the_budget_and_then_the_task_fails_and_the_session_is_free(thread: OneThread) -> None:
    task = thread.submit(max_attempts=3).task
    assert task is not None
    for crash in (1, 2, 3):
        lease = thread.take()
        thread.pass_time(10)
        recover(thread, lease)
        assert thread.tasks[task.task_id].crash_count == crash
    run = thread.runs[task.run_id]
    assert (run.state, run.cause, run.epoch) == ("ENDED", "INDETERMINATE", 3)
    assert thread.tasks[task.task_id].state == "FAILED"
    assert thread.tasks[task.task_id].failure == run.failure
    thread.submit()


@pytest.mark.rule("R7", "R8")
def test_a_release_spends_nothing(thread: OneThread) -> None:
    task = thread.submit(max_attempts=1).task
    assert task is not None
    for _ in range(5):
        thread.do(commands.ReleaseRun(**thread.base(), lease=thread.take()))
    assert thread.tasks[task.task_id].crash_count == 0
    assert thread.tasks[task.task_id].state == "WORKING"


@pytest.mark.rule("R7")
def test_answers_spend_nothing(thread: OneThread) -> None:
    task = thread.submit(max_attempts=1).task
    assert task is not None
    for number in range(5):
        thread.ask(thread.take(), draft(f"t{number}"))
        resolve(thread, f"t{number}")
    assert thread.tasks[task.task_id].crash_count == 0


@pytest.mark.rule("R8")
def test_a_lease_that_was_renewed_is_not_recovered(thread: OneThread) -> None:
    thread.submit()
    lease = thread.take()
    refused(NothingToRecover, thread, lambda: recover(thread, lease))


@pytest.mark.rule("R8")
def test_an_expired_lease_is_recovered_once(thread: OneThread) -> None:
    thread.submit()
    lease = thread.take()
    thread.pass_time(10)
    recover(thread, lease)
    refused(NothingToRecover, thread, lambda: recover(thread, lease))


@pytest.mark.rule("R8")
def test_a_run_is_leased_to_one_worker(thread: OneThread) -> None:
    thread.submit()
    lease = thread.take()
    again = commands.LeaseRun(**thread.base(), run_id=lease.run_id, worker_id="other", ttl_seconds=10)
    refused(RunNotQueued, thread, lambda: thread.do(again))


@pytest.mark.rule("R10")
def test_a_run_is_queued_again_with_its_last_answer(thread: OneThread) -> None:
    task = thread.submit().task
    assert task is not None
    thread.ask(thread.take(), draft("t1"), draft("t2", kind="AUTH"))
    assert thread.tasks[task.task_id].state == "AUTH_REQUIRED"
    assert not resolve(thread, "t2").run_was_queued
    assert thread.tasks[task.task_id].state == "INPUT_REQUIRED"
    assert resolve(thread, "t1").run_was_queued
    assert thread.tasks[task.task_id].state == "WORKING"


@pytest.mark.rule("R10")
def test_a_ticket_is_answered_once(thread: OneThread) -> None:
    thread.submit()
    thread.ask(thread.take(), draft("t"))
    refused(TicketAnswerInvalid, thread, lambda: resolve(thread, "t", ("answer.value_json", "must be a number")))
    resolve(thread, "t")
    refused(TicketNotOpen, thread, lambda: resolve(thread, "t"))
    refused(TicketNotOpen, thread, lambda: resolve(thread, "t", ("answer.value_json", "must be a number")))
    refused(TicketNotFound, thread, lambda: resolve(thread, "never"))


@pytest.mark.rule("R10")
def test_ticket_ids_and_interrupts_are_unique(thread: OneThread) -> None:
    thread.submit()
    lease = thread.take()
    refused(IdTaken, thread, lambda: thread.ask(lease, draft("t"), draft("t")))
    refused(FieldInvalid, thread, lambda: thread.ask(lease, draft("t", interrupt_id="i"), draft("u", interrupt_id="i")))
    thread.ask(lease, draft("t", interrupt_id="i"), draft("u"), draft("v"))
    for name in ("t", "u", "v"):
        resolve(thread, name)
    lease = thread.take()
    refused(IdTaken, thread, lambda: thread.ask(lease, draft("t")))
    thread.ask(lease, draft("w", interrupt_id="i"))


@pytest.mark.rule("R10")
@pytest.mark.parametrize("default", [None, Answer(None, "42")])
def test_a_passed_deadline_is_a_fact_with_the_tickets_default(thread: OneThread, default: Answer | None) -> None:
    task = thread.submit().task
    assert task is not None
    deadline = thread.now.replace(hour=1)
    thread.ask(thread.take(), draft("t", deadline=deadline, default_answer=default))
    passed = commands.PassDeadline(**thread.base(), ticket_id="t")
    refused(NothingToRecover, thread, lambda: thread.do(passed))
    thread.pass_time(3600)
    thread.do(passed)
    run = thread.runs[task.run_id]
    if default is None:
        assert (thread.tickets["t"].state, run.cause) == ("EXPIRED", "TIMED_OUT")
        assert thread.tasks[task.task_id].state == "FAILED"
    else:
        assert (thread.tickets["t"].state, thread.tickets["t"].answer) == ("RESOLVED", default)
        assert run.state == "QUEUED"
    refused(NothingToRecover, thread, lambda: thread.do(passed))
