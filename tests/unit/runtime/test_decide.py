"""What single commands come to: the law of threads, without a database."""

from collections.abc import Callable
from typing import Any

import pytest

from tests.support.one_thread import SCOPE, OneThread, draft, event, put
from threadkeep_chassis.errors import FieldInvalid, IdTaken, LimitExceeded, RevisionConflict, ThreadkeepError
from threadkeep_runtime.domain import commands
from threadkeep_runtime.domain.checkpoints import CheckpointDeleted, CheckpointIdOrder
from threadkeep_runtime.domain.commands import Ended, Running
from threadkeep_runtime.domain.errors import (
    LeaseLost,
    LeaseRequired,
    NothingToRecover,
    RunNotFound,
    RunNotQueued,
    SessionBusy,
    SessionNotFound,
    TaskNotFound,
    TaskTerminal,
    ThreadVersionConflict,
    TicketAnswerInvalid,
    TicketNotFound,
    TicketNotOpen,
)
from threadkeep_runtime.domain.values import Answer, Failure, LeaseRef, Payload

SUCCEEDED = Ended("SUCCEEDED", Payload("text/plain", b"done"))
FAILED = Ended("FAILED", failure=Failure("boom", "it broke"))


def refused(error: type[ThreadkeepError], thread: OneThread, act: Callable[[], Any]) -> ThreadkeepError:
    """Asserts that the act is refused and changes nothing."""
    before = (thread.thread, dict(thread.runs), dict(thread.tasks), dict(thread.tickets), len(thread.events))
    with pytest.raises(error) as caught:
        act()
    assert before == (thread.thread, thread.runs, thread.tasks, thread.tickets, len(thread.events))
    return caught.value


def cancel(thread: OneThread, task_id: str, grace: float = 30, reason: str = "changed my mind") -> Any:
    return thread.do(commands.CancelTask(**thread.base(), task_id=task_id, reason=reason, grace_seconds=grace))


def resolve(thread: OneThread, ticket_id: str, problem: tuple[str, str] | None = None) -> Any:
    return thread.do(
        commands.ResolveTicket(**thread.base(), ticket_id=ticket_id, answer=Answer(None, "1"), problem=problem)
    )


def recover(thread: OneThread, lease: LeaseRef) -> Any:
    return thread.do(commands.RecoverLease(**thread.base(), run_id=lease.run_id, epoch=lease.epoch))


@pytest.fixture
def thread() -> OneThread:
    return OneThread()


@pytest.mark.rule("R6", "R13")
def test_a_submitted_task_has_a_queued_run_and_both_are_announced(thread: OneThread) -> None:
    decision = thread.submit()
    assert thread.types == ["session.created", "task.submitted", "run.queued"]
    assert decision.run_was_queued
    assert decision.task is not None
    assert (decision.task.state, decision.task.first_event_sequence) == ("SUBMITTED", 2)


@pytest.mark.rule("R5")
@pytest.mark.case("B61")
def test_a_busy_session_refuses_a_second_task(thread: OneThread) -> None:
    thread.submit()
    error = refused(SessionBusy, thread, thread.submit)
    run = thread.open_run
    assert run is not None
    assert error.metadata == {"active_run_id": run.run_id}


@pytest.mark.rule("R5")
def test_an_open_ticket_counts_as_an_open_run(thread: OneThread) -> None:
    thread.submit()
    thread.ask(thread.take())
    refused(SessionBusy, thread, thread.submit)


@pytest.mark.rule("R5")
def test_a_failed_run_does_not_end_its_session(thread: OneThread) -> None:
    thread.submit()
    thread.commit(thread.take(), FAILED)
    assert thread.submit().task is not None


@pytest.mark.rule("R3")
def test_a_stale_epoch_is_refused(thread: OneThread) -> None:
    thread.submit()
    stale = thread.take()
    thread.pass_time(11)
    recover(thread, stale)
    fresh = thread.take()
    assert fresh.epoch == stale.epoch + 1
    for disposition in (Running(), SUCCEEDED, None):
        refused(LeaseLost, thread, lambda disposition=disposition: thread.commit(stale, disposition, ops=(put("1"),)))  # type: ignore[misc]
    thread.commit(fresh, SUCCEEDED)


@pytest.mark.rule("R3")
def test_an_epoch_that_was_never_given_is_refused(thread: OneThread) -> None:
    thread.submit()
    lease = thread.take()
    refused(LeaseLost, thread, lambda: thread.commit(lease._replace(epoch=lease.epoch + 1), SUCCEEDED))
    refused(LeaseLost, thread, lambda: thread.commit(lease._replace(epoch=0), SUCCEEDED))


@pytest.mark.rule("R3")
@pytest.mark.parametrize("after", ["released", "awaiting", "ended"])
def test_a_lease_ends_with_the_run_leaving_running(thread: OneThread, after: str) -> None:
    thread.submit()
    lease = thread.take()
    if after == "released":
        thread.do(commands.ReleaseRun(**thread.base(), lease=lease))
    elif after == "awaiting":
        thread.ask(lease)
    else:
        thread.commit(lease, SUCCEEDED)
    refused(LeaseLost, thread, lambda: thread.commit(lease, Running(), events=(event(),)))


@pytest.mark.rule("R3")
def test_a_lease_of_another_thread_is_no_lease_here(thread: OneThread) -> None:
    thread.submit()
    thread.take()
    refused(RunNotFound, thread, lambda: thread.commit(LeaseRef("elsewhere", 1), Running()))


@pytest.mark.rule("R3")
def test_checkpoints_need_the_lease_while_a_run_is_leased(thread: OneThread) -> None:
    thread.submit()
    thread.commit(ops=(put("1"),))
    lease = thread.take()
    refused(LeaseRequired, thread, lambda: thread.commit(ops=(put("2"),)))
    refused(LeaseRequired, thread, lambda: thread.do(commands.DeleteCheckpoints(**thread.base())))
    thread.commit(lease, ops=(put("2"),))
    thread.ask(lease)
    thread.commit(ops=(put("3"),))


@pytest.mark.rule("R3")
def test_events_without_the_lease_are_welcome_while_a_run_is_leased(thread: OneThread) -> None:
    thread.submit()
    thread.take()
    decision = thread.commit(events=(event("order-1"),))
    assert decision.run_id is None
    assert thread.events[-1].run_id is None


@pytest.mark.rule("R2")
def test_a_stale_thread_version_is_refused_and_names_the_current_one(thread: OneThread) -> None:
    thread.submit()
    assert thread.thread is not None
    thread.commit(expected_version=1, events=(event(),))
    error = refused(ThreadVersionConflict, thread, lambda: thread.commit(expected_version=1, events=(event(),)))
    assert error.metadata == {"current_thread_version": "2"}


@pytest.mark.rule("R1")
def test_a_first_checkpoint_creates_the_session(thread: OneThread) -> None:
    decision = thread.commit(ops=(put("1"),), expected_version=0)
    assert decision.thread_is_new
    assert thread.types == ["session.created", "checkpoint.saved"]


@pytest.mark.rule("R1")
def test_anything_else_on_an_unused_session_is_refused(thread: OneThread) -> None:
    refused(SessionNotFound, thread, lambda: thread.commit(events=(event(),)))
    refused(SessionNotFound, thread, lambda: thread.commit(LeaseRef("r", 1), ops=(put("1"),)))
    refused(SessionNotFound, thread, lambda: thread.submit(create=None))


@pytest.mark.rule("R2", "R13")
def test_a_commits_events_come_before_those_of_its_disposition(thread: OneThread) -> None:
    thread.submit()
    lease = thread.take()
    thread.commit(lease, SUCCEEDED, events=(event("a"), event("b")), ops=(put("1"),))
    assert thread.types[-5:] == ["order.placed", "order.placed", "checkpoint.saved", "run.ended", "task.completed"]
    assert [one.run_id for one in thread.events[-5:]] == [lease.run_id] * 4 + [None]


@pytest.mark.rule("R13")
def test_an_event_id_is_taken_once_in_its_thread(thread: OneThread) -> None:
    thread.submit()
    thread.commit(events=(event("a"),))
    refused(IdTaken, thread, lambda: thread.commit(events=(event("a"),)))
    refused(IdTaken, thread, lambda: thread.commit(events=(event("b"), event("b"))))


@pytest.mark.rule("R4")
def test_a_run_ends_its_task_in_the_same_commit(thread: OneThread) -> None:
    for disposition, state in ((SUCCEEDED, "COMPLETED"), (FAILED, "FAILED")):
        decision = thread.submit()
        assert decision.task is not None
        thread.commit(thread.take(), disposition)
        task = thread.tasks[decision.task.task_id]
        assert (task.state, task.end_time) == (state, thread.now)
        assert (task.result, task.failure) == (disposition.result, disposition.failure)


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


@pytest.mark.rule("R19", "R20")
def test_deleted_checkpoints_do_not_come_back(thread: OneThread) -> None:
    thread.commit(ops=(put("5"), put("6", "child")))
    thread.do(commands.DeleteCheckpoints(**thread.base()))
    assert thread.types[-1] == "checkpoint.deleted"
    for gone in (put("5"), put("6", "child"), put("4")):
        refused(CheckpointDeleted, thread, lambda gone=gone: thread.commit(ops=(gone,)))  # type: ignore[misc]
    thread.commit(ops=(put("7"),))
    assert thread.thread is not None
    assert (thread.thread.root_checkpoint_id, thread.thread.checkpoint_top) == ("7", "7")


@pytest.mark.rule("R20")
def test_a_fenced_put_sorts_above_its_namespace(thread: OneThread) -> None:
    thread.submit()
    lease = thread.take()
    thread.commit(lease, ops=(put("5"),))
    refused(CheckpointIdOrder, thread, lambda: thread.commit(lease, ops=(put("4"),)))
    thread.commit(lease, ops=(put("4", "child"),))
    assert thread.runs[lease.run_id].last_checkpoint_id == "5"


@pytest.mark.rule("R20")
def test_deleting_the_checkpoints_of_an_unused_thread_is_no_error_and_no_commit(thread: OneThread) -> None:
    assert thread.do(commands.DeleteCheckpoints(**thread.base())).thread is None
    assert thread.thread is None


@pytest.mark.rule("X4", "R23")
def test_a_session_changes_under_its_revision(thread: OneThread) -> None:
    thread.do(commands.CreateSession(**thread.base(), draft=commands.SessionDraft(title="one")))
    refused(IdTaken, thread, lambda: thread.do(commands.CreateSession(**thread.base(), draft=commands.SessionDraft())))
    thread.do(commands.UpdateSession(**thread.base(), changes={"title": "two"}, expected_revision=1))
    error = refused(
        RevisionConflict,
        thread,
        lambda: thread.do(commands.UpdateSession(**thread.base(), changes={"title": "x"}, expected_revision=1)),
    )
    assert error.metadata == {"current_revision": "2"}
    assert thread.thread is not None
    assert thread.thread.title == "two"


@pytest.mark.rule("R6")
def test_a_task_id_is_taken_once(thread: OneThread) -> None:
    thread.submit(task_id="mine", names_task=True)
    thread.commit(thread.take(), SUCCEEDED)
    refused(IdTaken, thread, lambda: thread.submit(task_id="mine", names_task=True))
    assert SCOPE in {task.scope_key for task in thread.tasks.values()}


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
