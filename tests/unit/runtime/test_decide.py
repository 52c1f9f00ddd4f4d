"""What single commands come to: sessions, tasks, the fence, versions, checkpoints (R1 to R6, R20)."""

import pytest

from tests.support.one_thread import SCOPE, OneThread, event, put, recover, refused
from threadkeep_chassis.errors import IdTaken, RevisionConflict
from threadkeep_runtime.domain import commands
from threadkeep_runtime.domain.checkpoints import CheckpointDeleted, CheckpointIdOrder
from threadkeep_runtime.domain.commands import Ended, Running
from threadkeep_runtime.domain.errors import (
    LeaseLost,
    LeaseRequired,
    RunNotFound,
    SessionBusy,
    SessionNotFound,
    ThreadVersionConflict,
)
from threadkeep_runtime.domain.values import Failure, LeaseRef, Payload

SUCCEEDED = Ended("SUCCEEDED", Payload("text/plain", b"done"))
FAILED = Ended("FAILED", failure=Failure("boom", "it broke"))


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
