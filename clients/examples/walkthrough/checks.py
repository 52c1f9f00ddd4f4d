"""What must be true after a run. Pure: it takes what was told, and gives the mismatches in words."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Mapping

from reading import report as reports

from threadkeep.common.v1 import content_pb2
from threadkeep.runtime.v1 import run_pb2, task_pb2
from walkthrough.story import Told

STEPS = ("digest_text", "count_text", "rank_words", "write_report", "publish_report")


def mismatches(told: Told, expected: Mapping[str, str], *, is_live: bool) -> list[str]:
    """Everything that is not as it must be; `expected` are the facts of the report."""
    return [*_ending(told), *_effects(told, is_live=is_live), *_log(told), *_takeover(told), *_report(told, expected)]


def _ending(told: Told) -> list[str]:
    found = []
    if told.task.state != task_pb2.TASK_STATE_COMPLETED:
        state = task_pb2.TaskState.Name(told.task.state)
        found.append(f"the task ended as {state}: {told.task.failure.code} {told.task.failure.message}")
    if told.run.cause != run_pb2.RUN_END_CAUSE_SUCCEEDED:
        found.append(f"the run ended with {run_pb2.RunEndCause.Name(told.run.cause)}")
    return found


def _effects(told: Told, *, is_live: bool) -> list[str]:
    """One ledger line for each tool step, no more and no less."""
    found = []
    steps = [str(line["step"]) for line in told.lines]
    calls = Counter(str(line["call_id"]) for line in told.lines)
    twice = [call for call, count in calls.items() if count > 1]
    if twice:
        found.append(f"the effects of {', '.join(twice)} happened more than once")
    expected = [step for step in STEPS if told.approved or step != "publish_report"]
    if not is_live and steps != expected:
        found.append(f"the ledger holds {steps}, not {expected}")
    committed = [one.tool_call_id for one in told.messages if one.role == content_pb2.MESSAGE_ROLE_TOOL]
    rejected = 0 if told.approved else 1
    if len(committed) - rejected != len(told.lines) or not set(calls) <= set(committed):
        found.append(f"{len(told.lines)} ledger lines stand against {len(committed)} committed tool results")
    return found


def _log(told: Told) -> list[str]:
    """Sequences are dense, commits in order, the terminal event is the last one."""
    found = []
    sequences = [event.sequence for event in told.events]
    if sequences != list(range(1, len(sequences) + 1)):
        found.append(f"the event sequence is not dense: {sequences}")
    commits = [event.commit_sequence for event in told.events]
    if commits != sorted(commits):
        found.append(f"the events are not in the order of their commits: {commits}")
    if told.events[-1].type != "threadkeep.task.completed":
        found.append(f"the last event is {told.events[-1].type}")
    if any(event.type == "demo.late" for event in told.events):
        found.append("the late commit left an event")
    saved = [
        _content(event.payload.data)["checkpoint_id"]
        for event in told.events
        if event.type.endswith(".checkpoint.saved")
    ]
    if len(set(saved)) != len(saved):
        found.append("a checkpoint was recorded twice")
    return found


def _takeover(told: Told) -> list[str]:
    found = []
    leased = [_content(event.payload.data) for event in told.events if event.type == "threadkeep.run.leased"]
    epochs = [int(lease["epoch"]) for lease in leased]
    if epochs != sorted(set(epochs)):
        found.append(f"the epochs do not grow: {epochs}")
    expired = sum(event.type == "threadkeep.run.lease_expired" for event in told.events)
    if expired != (0 if told.struck is None else 1):
        found.append(f"{expired} leases expired")
    struck = told.struck
    if struck is None:
        return found
    if [lease["worker_id"] for lease in leased][:1] != [struck.worker_id]:
        found.append("the first lease was not the struck worker's")
    if len(leased) < 2 or leased[1]["worker_id"] == struck.worker_id:
        found.append("the other worker did not take over")
    late = [line for line in told.lines[struck.lines_before :] if line["epoch"] == struck.epoch]
    if late:
        found.append(f"{struck.worker_id} added {len(late)} ledger lines after it had lost its lease")
    if struck.refusals != ["LEASE_LOST"]:
        found.append(f"the late commit was answered with {struck.refusals}, not with LEASE_LOST")
    return found


def _report(told: Told, expected: Mapping[str, str]) -> list[str]:
    found = reports.parse(told.report)
    wrong = [
        f"the report says {name} {found.get(name)!r}, the file {value!r}"
        for name, value in expected.items()
        if found.get(name) != value
    ]
    if told.approved and told.report_labels.get("approved") != "yes":
        wrong.append("the report was approved, and is not published")
    if not told.approved and told.report_labels:
        wrong.append("the report was not approved, and is published")
    return wrong


def _content(data: bytes) -> Mapping[str, str]:
    parsed: Mapping[str, str] = json.loads(data)
    return parsed
