"""The demo's checks: each thing that must hold is missed when it does not."""

import json
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from threadkeep.common.v1 import content_pb2, payload_pb2
from threadkeep.projection.v1 import message_pb2
from threadkeep.runtime.v1 import event_pb2, run_pb2, task_pb2

EXAMPLES = Path(__file__).resolve().parents[3] / "clients" / "examples"
EXPECTED = {"Bytes": "3", "Lines": "1"}
REPORT = "# Report on x\n\n| Fact | Value |\n|---|---|\n| Bytes | 3 |\n| Lines | 1 |\n"


@pytest.fixture(scope="module")
def walkthrough() -> Iterator[Any]:
    """The demo's modules, which are no package of the distribution."""
    sys.path.insert(0, str(EXAMPLES))
    try:
        from walkthrough import checks, story

        yield type("Walkthrough", (), {"checks": checks, "story": story})
    finally:
        sys.path.remove(str(EXAMPLES))


def _event(sequence: int, type_: str, **content: Any) -> event_pb2.Event:
    payload = payload_pb2.Payload(content_type="application/json", data=json.dumps(content).encode())
    return event_pb2.Event(sequence=sequence, commit_sequence=sequence, type=type_, payload=payload)


def _told(walkthrough: Any) -> Any:
    steps = walkthrough.checks.STEPS
    events = [
        _event(1, "threadkeep.task.submitted"),
        _event(2, "threadkeep.run.leased", epoch=1, worker_id="a"),
        _event(3, "threadkeep.checkpoint.saved", checkpoint_id="c1"),
        _event(4, "threadkeep.run.lease_expired", epoch=1),
        _event(5, "threadkeep.run.leased", epoch=2, worker_id="b"),
        _event(6, "threadkeep.checkpoint.saved", checkpoint_id="c2"),
        _event(7, "threadkeep.task.completed"),
    ]
    lines = [
        {"step": step, "call_id": f"call-{number}", "pid": 1 if number < 2 else 2, "epoch": 1 if number < 2 else 2}
        for number, step in enumerate(steps)
    ]
    messages = [
        message_pb2.Message(role=content_pb2.MESSAGE_ROLE_TOOL, tool_call_id=f"call-{number}")
        for number in range(len(steps))
    ]
    struck = walkthrough.story.Struck("a", 1, 1, 2, ["LEASE_LOST"])
    return walkthrough.story.Told(
        strike="stop",
        task=task_pb2.Task(state=task_pb2.TASK_STATE_COMPLETED),
        run=run_pb2.Run(cause=run_pb2.RUN_END_CAUSE_SUCCEEDED),
        events=events,
        messages=messages,
        lines=lines,
        approved=True,
        report=REPORT,
        report_labels={"approved": "yes"},
        struck=struck,
    )


def test_a_good_run_has_no_mismatch(walkthrough: Any) -> None:
    assert walkthrough.checks.mismatches(_told(walkthrough), EXPECTED, is_live=False) == []


def _change(path: str, value: Any) -> Callable[[Any], None]:
    def change(told: Any) -> None:
        *way, last = path.split(".")
        for part in way:
            told = getattr(told, part)
        setattr(told, last, value)

    return change


@pytest.mark.parametrize(
    ("change", "words"),
    [
        (_change("task.state", task_pb2.TASK_STATE_FAILED), "TASK_STATE_FAILED"),
        (_change("run.cause", run_pb2.RUN_END_CAUSE_FAILED), "RUN_END_CAUSE_FAILED"),
        (lambda told: told.lines.append(dict(told.lines[2])), "more than once"),
        (lambda told: told.lines.pop(), "the ledger holds"),
        (lambda told: told.messages.pop(), "committed tool results"),
        (lambda told: told.events.pop(2), "not dense"),
        (lambda told: told.events.pop(), "the last event"),
        (lambda told: setattr(told.events[0], "commit_sequence", 9), "order of their commits"),
        (lambda told: told.events.insert(6, _event(7, "demo.late")), "left an event"),
        (lambda told: told.events[5].payload.CopyFrom(told.events[2].payload), "recorded twice"),
        (lambda told: told.events[4].payload.CopyFrom(told.events[1].payload), "did not take over"),
        (lambda told: setattr(told.events[3], "type", "other"), "0 leases expired"),
        (lambda told: told.lines[4].update(epoch=1), "after it had lost its lease"),
        (_change("struck.refusals", ["accepted"]), "not with LEASE_LOST"),
        (_change("report", ""), "the report says"),
        (_change("report_labels", {}), "is not published"),
        (_change("approved", False), "is published"),
    ],
)
def test_a_mismatch_is_seen(walkthrough: Any, change: Callable[[Any], None], words: str) -> None:
    told = _told(walkthrough)
    change(told)
    found = walkthrough.checks.mismatches(told, EXPECTED, is_live=False)
    assert any(words in one for one in found), found
