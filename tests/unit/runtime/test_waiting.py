"""Tasks that wait for their time, and many tasks at once, as decisions (R5, R7, R9, R24)."""

from datetime import timedelta

import pytest

from tests.support.one_thread import OneThread, cancel, cancel_all, open_due, refused
from threadkeep_chassis.errors import FieldInvalid, LimitExceeded
from threadkeep_runtime.domain.commands import Ended, SessionDraft
from threadkeep_runtime.domain.errors import NothingToRecover, SessionBusy, SessionNotFound


@pytest.fixture
def thread() -> OneThread:
    return OneThread()


def later(thread: OneThread, seconds: float = 10) -> dict[str, object]:
    return {"not_before": thread.now + timedelta(seconds=seconds)}


@pytest.mark.rule("R7", "R24")
def test_a_task_that_is_not_due_has_no_run_and_makes_nobody_wait(thread: OneThread) -> None:
    thread.submit(task_id="later", **later(thread))
    assert thread.open_run is None
    assert (thread.tasks["later"].state, thread.tasks["later"].run_id) == ("SUBMITTED", None)
    thread.submit(task_id="now")
    assert thread.open_run is not None
    thread.commit(thread.take(), Ended("SUCCEEDED"))
    assert thread.open_run is None, "its time has not come"
    refused(NothingToRecover, thread, lambda: open_due(thread))


@pytest.mark.rule("R24")
def test_a_due_task_gets_its_run_once(thread: OneThread) -> None:
    thread.submit(task_id="later", **later(thread))
    thread.pass_time(10)
    open_due(thread)
    run = thread.open_run
    assert run is not None
    assert (run.task_id, run.state, run.due_time) == ("later", "QUEUED", None)
    refused(NothingToRecover, thread, lambda: open_due(thread))
    thread.commit(thread.take(), Ended("SUCCEEDED"))
    assert thread.tasks["later"].state == "COMPLETED"
    refused(NothingToRecover, thread, lambda: open_due(thread))


@pytest.mark.rule("R5", "R24")
def test_a_due_task_of_a_busy_session_takes_its_turn(thread: OneThread) -> None:
    thread.submit(task_id="busy")
    held = thread.take()
    thread.submit(task_id="later", **later(thread))
    thread.submit(task_id="much later", priority=9, **later(thread, 100))
    thread.pass_time(10)
    refused(NothingToRecover, thread, lambda: open_due(thread))
    thread.commit(held, Ended("SUCCEEDED"))
    run = thread.open_run
    assert run is not None
    assert run.task_id == "later", "one whose time has not come is passed by, whatever its priority"


@pytest.mark.rule("R5", "R24")
@pytest.mark.parametrize("strategy", ["INTERRUPT", "ROLLBACK"])
def test_nobody_is_interrupted_for_a_task_that_is_not_due(thread: OneThread, strategy: str) -> None:
    thread.submit()
    refused(FieldInvalid, thread, lambda: thread.submit(strategy=strategy, **later(thread)))


@pytest.mark.rule("R24")
def test_a_time_that_has_passed_is_at_once(thread: OneThread) -> None:
    thread.submit(not_before=thread.now)
    refused(SessionBusy, thread, lambda: thread.submit(not_before=thread.now))


@pytest.mark.rule("R5", "X9")
def test_tasks_that_are_not_due_count_among_those_that_wait(thread: OneThread) -> None:
    for _ in range(2):
        thread.submit(max_enqueued=2, **later(thread))
    error = refused(LimitExceeded, thread, lambda: thread.submit(max_enqueued=2, **later(thread)))
    assert error.metadata["limit"] == "max_enqueued_tasks"
    thread.submit(max_enqueued=2)


@pytest.mark.rule("R9", "R24")
def test_a_task_that_is_not_due_can_be_canceled(thread: OneThread) -> None:
    thread.submit(task_id="later", **later(thread))
    cancel(thread, "later")
    thread.pass_time(10)
    refused(NothingToRecover, thread, lambda: open_due(thread))
    assert thread.tasks["later"].state == "CANCELED"


@pytest.mark.rule("R9")
def test_many_are_canceled_in_one_commit_and_the_others_go_on(thread: OneThread) -> None:
    thread.submit(task_id="open")
    for name, queue in (("a", "q"), ("b", "other"), ("c", "q")):
        thread.submit(task_id=name, queue=queue, strategy="ENQUEUE")
    before = len(thread.commits)
    decision = cancel_all(thread, queue="q")
    assert len(thread.commits) == before + 1
    assert sorted(change.value.task_id for change in decision.tasks) == ["a", "c"]
    assert [thread.tasks[name].state for name in "abc"] == ["CANCELED", "SUBMITTED", "CANCELED"]
    decision = cancel_all(thread, states=("SUBMITTED",))
    assert {name: task.state for name, task in thread.tasks.items()} == dict.fromkeys("abc", "CANCELED") | {
        "open": "CANCELED"
    }
    assert thread.open_run is None


@pytest.mark.rule("R9", "R5")
def test_who_is_not_selected_gets_the_turn_of_who_is(thread: OneThread) -> None:
    thread.submit(task_id="open")
    thread.submit(task_id="first", queue="q", priority=9, strategy="ENQUEUE")
    thread.submit(task_id="second", strategy="ENQUEUE")
    thread.submit(task_id="third", queue="q", strategy="ENQUEUE")
    cancel_all(thread, agent_name="nobody")
    thread.take()
    decision = cancel_all(thread, 0, states=("WORKING", "SUBMITTED"), queue="default")
    assert {change.value.task_id for change in decision.tasks} == {"open", "second", "first"}
    run = thread.open_run
    assert run is not None
    assert run.task_id == "first"


@pytest.mark.rule("R9")
def test_a_leased_run_gets_its_grace_and_is_asked_once(thread: OneThread) -> None:
    thread.submit(task_id="open")
    held = thread.take()
    cancel_all(thread, 30)
    assert thread.lease is not None
    assert thread.lease.cancel_deadline == thread.now + timedelta(seconds=30)
    before = len(thread.commits)
    assert cancel_all(thread, 30).thread is None, "nothing is left to ask for"
    assert len(thread.commits) == before
    thread.commit(held, Ended("CANCELED"))
    assert thread.tasks["open"].state == "CANCELED"


@pytest.mark.rule("R5")
@pytest.mark.case("B63")
def test_a_missing_session_is_created_if_the_caller_says_so(thread: OneThread) -> None:
    refused(SessionNotFound, thread, lambda: thread.submit(create=None))
    thread.submit(create=None, if_missing=SessionDraft(agent_name="agent"))
    assert thread.thread is not None
    assert thread.thread.agent_name == "agent"
    refused(SessionBusy, thread, lambda: thread.submit(create=None, if_missing=SessionDraft(title="no")))
    thread.submit(create=None, if_missing=SessionDraft(title="no"), strategy="ENQUEUE")
    assert thread.thread.title == ""
