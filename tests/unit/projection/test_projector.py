"""What events do to summaries, and what is left when checkpoints are deleted (P3, P4)."""

from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

from threadkeep_projection.domain.projector import Draft, apply, wanted_checkpoint
from threadkeep_projection.domain.values import Channel, Content, Entry, Event, Part, Usage

START = datetime(2026, 1, 1, tzinfo=UTC)


class Log:
    """Makes the events of one thread, dense from 1, a minute apart, and applies them."""

    def __init__(self) -> None:
        self.draft = Draft("s")
        self.events: list[tuple[Event, Channel | None]] = []

    def add(self, kind: str, payload: Any = None, *, of: int = 0, channel: Channel | None = None) -> Event:
        sequence = len(self.events) + 1
        task_id, run_id = (f"task-{of}", f"run-{of}") if of else (None, None)
        event = Event(
            sequence, f"threadkeep.{kind}", START + timedelta(minutes=sequence), task_id, run_id, payload or {}
        )
        self.events.append((event, channel))
        assert apply(self.draft, event, channel)
        return event

    def submit(self, number: int, *texts: str) -> None:
        messages = [
            {"message_id": f"in-{number}-{index}", "role": "MESSAGE_ROLE_USER", "parts": [{"text": text}]}
            for index, text in enumerate(texts)
        ]
        task = {
            "task_id": f"task-{number}",
            "run_id": f"run-{number}",
            "agent_name": "clerk",
            "metadata": {"order": "7"},
            "input": {"messages": {"messages": messages}},
        }
        self.add("task.submitted", {"task": task}, of=number)
        self.add("run.queued", {"reason": "submitted"}, of=number)

    def save(self, *ids: str, of: int = 0, tokens: int = 0) -> None:
        usage = Usage(0, tokens, tokens) if tokens else None
        channel = tuple(Entry(Content("ASSISTANT", (Part(one),), usage=usage), one) for one in ids)
        payload = {"checkpoint_ns": "", "checkpoint_id": f"c{len(self.events)}", "channels": ["messages"]}
        self.add("checkpoint.saved", payload, of=of, channel=channel)

    @property
    def order(self) -> list[str]:
        live = [message for message in self.draft.messages.values() if message.position is not None]
        return [message.message_id for message in sorted(live, key=lambda message: message.position or 0)]


@pytest.mark.rule("P4")
def test_a_task_is_followed_from_submission_to_its_end() -> None:
    log = Log()
    log.add("session.created", {"session": {"title": "Orders", "agent_name": "clerk", "metadata": {"shop": "1"}}})
    log.submit(1, "hello")
    session = log.draft.session
    assert session is not None
    assert (session.title, session.agent_name, session.metadata) == ("Orders", "clerk", (("shop", "1"),))
    assert (session.status, session.task_count, session.run_count, session.message_count) == ("QUEUED", 1, 1, 1)

    log.add("run.leased", {"epoch": "1", "worker_id": "w"}, of=1)
    log.add("task.working", of=1)
    log.save("in-1-0", "a", of=1, tokens=5)
    log.add("ticket.opened", {"ticket_id": "t"}, of=1)
    log.add("run.awaiting", of=1)
    log.add("task.input_required", {"ticket_ids": ["t"]}, of=1)
    assert log.draft.session is not None
    assert log.draft.session.status == "AWAITING"
    task, run = log.draft.tasks["task-1"], log.draft.runs["run-1"]
    assert (task.state, task.ticket_count, task.agent_name, task.metadata) == (
        "INPUT_REQUIRED",
        1,
        "clerk",
        (("order", "7"),),
    )
    assert (run.state, run.lease_count, run.step_count, run.agent_name) == ("AWAITING", 1, 1, "clerk")

    log.add("run.queued", {"reason": "ticket_resolved"}, of=1)
    log.add("run.leased", {"epoch": "2", "worker_id": "w"}, of=1)
    ended = log.add("run.ended", {"cause": "RUN_END_CAUSE_FAILED"}, of=1)
    failed = log.add("task.failed", {"failure": {"code": "tool_error", "message": "no"}}, of=1)
    task, run = log.draft.tasks["task-1"], log.draft.runs["run-1"]
    assert (task.state, task.failure, task.end_time) == ("FAILED", ("tool_error", "no"), failed.time)
    assert (run.state, run.cause, run.lease_count, run.end_time) == ("ENDED", "FAILED", 2, ended.time)
    assert run.start_time == START + timedelta(minutes=4)
    assert log.draft.session is not None
    assert (log.draft.session.status, log.draft.session.event_sequence) == ("IDLE", len(log.events))


@pytest.mark.rule("P4")
def test_tokens_count_for_session_task_and_run_also_after_their_message_was_taken_out() -> None:
    log = Log()
    log.submit(1, "x")
    log.save("in-1-0", "a", of=1, tokens=5)
    log.save("b", of=1, tokens=5)
    assert log.order == ["b"]
    assert log.draft.session_usage == Usage(0, 15, 15)
    assert log.draft.task_usage == {"task-1": Usage(0, 15, 15)}
    assert log.draft.run_usage == {"run-1": Usage(0, 15, 15)}


@pytest.mark.rule("P1")
def test_an_event_that_was_applied_changes_nothing_when_it_comes_again() -> None:
    log = Log()
    log.submit(1, "x")
    log.save("in-1-0", "a", of=1, tokens=5)
    messages, runs, usage = dict(log.draft.messages), dict(log.draft.runs), log.draft.session_usage
    for event, channel in log.events:
        assert not apply(log.draft, event, channel)
    assert (dict(log.draft.messages), dict(log.draft.runs), log.draft.session_usage) == (messages, runs, usage)


@pytest.mark.rule("P3")
def test_after_a_deletion_nothing_depends_on_whether_the_checkpoints_could_still_be_read() -> None:
    """The live follower read them in time, the rebuild finds them gone: both end in the same rows."""
    live, late = Log(), Log()
    live.submit(1, "one")
    live.save("in-1-0", "a", of=1, tokens=5)
    live.add("run.ended", {"cause": "RUN_END_CAUSE_SUCCEEDED"}, of=1)
    live.add("task.completed", of=1)
    live.submit(2, "two", "three")
    live.save("in-1-0", "a", "in-2-0", of=2)
    live.add("checkpoint.deleted")
    assert live.order == ["in-2-0", "in-2-1"], "the inputs of the task that is still open"
    live.save("in-2-0", "b", of=2)

    late.events = list(live.events)
    for event, channel in live.events:
        is_gone = event.sequence < 9
        apply(late.draft, event, None if is_gone and channel is not None else channel)
    assert late.draft.messages == live.draft.messages
    assert late.draft.session == live.draft.session
    assert late.draft.session_usage == live.draft.session_usage


def test_a_checkpoint_that_could_not_be_decoded_leaves_the_conversation_as_it_is() -> None:
    log = Log()
    log.submit(1, "x")
    log.save("in-1-0", "a", of=1)
    log.add("checkpoint.saved", {"checkpoint_ns": "", "checkpoint_id": "c", "channels": ["messages"]}, of=1)
    assert log.order == ["in-1-0", "a"]
    assert log.draft.runs["run-1"].step_count == 2


@pytest.mark.parametrize(
    ("payload", "wanted"),
    [
        ({"checkpoint_ns": "", "checkpoint_id": "c", "channels": ["messages", "x"]}, "c"),
        ({"checkpoint_ns": "sub", "checkpoint_id": "c", "channels": ["messages"]}, None),
        ({"checkpoint_ns": "", "checkpoint_id": "c", "channels": ["x"]}, None),
        (None, None),
        (["not", "an", "object"], None),
    ],
)
def test_only_checkpoints_of_the_root_that_bring_messages_are_read(payload: Any, wanted: str | None) -> None:
    assert wanted_checkpoint(Event(1, "threadkeep.checkpoint.saved", START, payload=payload)) == wanted


def test_events_of_applications_and_of_newer_runtimes_only_move_the_sequence() -> None:
    log = Log()
    log.submit(1, "x")
    before = log.draft.tasks["task-1"]
    log.add("task.celebrated", of=1)
    log.add("garden.planted", of=1)
    assert apply(log.draft, Event(99, "order.placed", START, "task-1", "run-1", None))
    assert log.draft.tasks["task-1"].state == before.state
    assert log.draft.session is not None
    assert log.draft.session.event_sequence == 99


@pytest.mark.rule("P3", "R5")
def test_a_rollback_leaves_the_conversation_as_the_head_that_stays_has_it() -> None:
    log = Log()
    log.submit(1, "hello")
    log.save("in-1-0", "answer", of=1, tokens=5)
    introduced = log.draft.messages["answer"].introduction
    log.add("run.ended", {"cause": "RUN_END_CAUSE_SUCCEEDED"}, of=1)
    log.add("task.completed", of=1)
    log.submit(2, "wrong")
    log.save("in-2-0", "nonsense", of=2, tokens=7)
    log.submit(3, "later")
    head = tuple(Entry(Content("ASSISTANT", (Part(one),)), one) for one in ("in-1-0", "answer"))
    rolled = log.add("checkpoint.rolled_back", {"root_checkpoint_id": "c2"}, of=2, channel=head)
    assert wanted_checkpoint(rolled) == "c2"
    assert log.order == ["in-1-0", "answer", "in-3-0"]
    assert set(log.draft.messages) == {"in-1-0", "answer", "in-3-0"}, "nothing is left of what nobody can rebuild"
    assert log.draft.messages["answer"].introduction == introduced
    assert log.draft.forgets_messages


@pytest.mark.rule("P3", "R5")
def test_a_rollback_of_all_checkpoints_leaves_the_other_tasks_inputs() -> None:
    log = Log()
    log.submit(1, "hello")
    log.save("in-1-0", "answer", of=1)
    log.submit(2, "next")
    rolled = log.add("checkpoint.rolled_back", {"root_checkpoint_id": None}, of=1)
    assert wanted_checkpoint(rolled) is None
    assert log.order == ["in-2-0"]


@pytest.mark.rule("P4", "R5")
def test_an_enqueued_task_gets_its_run_when_that_opens() -> None:
    log = Log()
    log.add("task.submitted", {"task": {"task_id": "task-1", "agent_name": "clerk"}}, of=0)
    assert log.draft.tasks["task-1"].run_id == ""
    log.add("run.queued", {"reason": "dequeued"}, of=1)
    assert log.draft.tasks["task-1"].run_id == "run-1"
    assert log.draft.runs["run-1"].agent_name == "clerk"
