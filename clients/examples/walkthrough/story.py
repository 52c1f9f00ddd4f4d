"""One run of the agent: submitted, interrupted in the middle, approved, finished."""

from __future__ import annotations

import signal
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from reading import ledger as ledgers

from threadkeep import errors
from threadkeep.common.v1 import content_pb2, payload_pb2
from threadkeep.projection.v1.message_pb2 import Message
from threadkeep.runtime.v1 import commit_pb2, event_pb2, run_pb2, task_pb2, ticket_pb2
from walkthrough.processes import Trouble, wait_for
from walkthrough.stage import Say, Stage

AGENT = "reader"
STEPS_BEFORE_THE_STRIKE = 2
WAIT_SECONDS = 180.0

Approve = Callable[[ticket_pb2.Ticket], bool]

FINAL = (task_pb2.TASK_STATE_COMPLETED, task_pb2.TASK_STATE_FAILED, task_pb2.TASK_STATE_CANCELED)


@dataclass
class Told:
    """What happened in one run, for the checks and for people."""

    strike: str
    task: task_pb2.Task
    run: run_pb2.Run
    events: Sequence[event_pb2.Event]
    messages: Sequence[Message]
    lines: Sequence[dict[str, object]]
    """The ledger's lines of this run."""
    approved: bool
    report: str
    """The report as it was published, or as it was written if nobody approved it."""
    report_labels: dict[str, str]
    struck: Struck | None = None


@dataclass
class Struck:
    """The lease holder that was stopped or killed."""

    worker_id: str
    pid: int
    epoch: int
    lines_before: int
    """The run's ledger lines at that moment."""
    refusals: list[str] = field(default_factory=list)
    """How its late commits were refused."""


def play(stage: Stage, path: Path, strike: str, approve: Approve, say: Say) -> Told:
    """Plays one run from its submission to its end."""
    client = stage.client
    for gate in ("held", "go"):
        (stage.gates / gate).unlink(missing_ok=True)
    if strike == "none":
        (stage.gates / "go").touch()
    task = client.tasks.submit(str(path), agent_name=AGENT, max_attempts=3).task
    say(f"submitted {path.name} to the agent `{AGENT}`: task {task.task_id}")
    struck = None if strike == "none" else _strike(stage, task, strike, say)
    approved = _answer_questions(stage, task.task_id, approve, say)
    if struck is not None and strike == "stop":
        _wake(stage, task, struck, say)
    if struck is not None:
        _commit_late(stage, task, struck, say)
    return _told(stage, task.task_id, strike, struck, approved)


def _strike(stage: Stage, task: task_pb2.Task, strike: str, say: Say) -> Struck:
    """Stops or kills the lease holder, between its second tool step and the next one."""
    held = stage.gates / "held"
    # The model's next call is open, and waits at the gate: no effect is in flight.
    wait_for("the model's call after the second tool step", lambda: held.exists() or _ended(stage, task.task_id))
    run = stage.client.runs.get(task.run_id)
    _check_acknowledged(stage, task)
    lines = _lines(stage, task.run_id)
    worker = stage.workers[run.worker_id]
    struck = Struck(run.worker_id, worker.pid, run.epoch, len(lines))
    number = signal.SIGSTOP if strike == "stop" else signal.SIGKILL
    worker.signal(number)
    say(f"{run.worker_id} holds the lease (epoch {run.epoch}), its second tool step is acknowledged: {number.name}")
    # Whoever plays the call again is not held.
    (stage.gates / "go").touch()
    return struck


def _check_acknowledged(stage: Stage, task: task_pb2.Task) -> None:
    """Both tool steps are in the log, so they are committed, not only done."""
    client = stage.client
    last = [*client.events.list(session_id=task.session_id)][-1]
    messages = [*client.messages.list(task.session_id, at_least=last.cursor, max_wait=30.0)]
    results = sum(one.role == content_pb2.MESSAGE_ROLE_TOOL for one in messages)
    if results != STEPS_BEFORE_THE_STRIKE:
        raise Trouble(f"{results} tool results are committed at the strike, not {STEPS_BEFORE_THE_STRIKE}")


def _answer_questions(stage: Stage, task_id: str, approve: Approve, say: Say) -> bool:
    """Answers each ticket until the task is final; True if every answer was yes."""
    client = stage.client
    approved = False
    while True:
        task = client.tasks.wait(task_id, timeout=WAIT_SECONDS)
        if task.state in FINAL:
            return approved
        for ticket_id in task.open_ticket_ids:
            ticket = client.tickets.get(ticket_id)
            approved = approve(ticket)
            decision = "approve" if approved else "reject"
            actor = payload_pb2.Actor(kind=payload_pb2.ACTOR_KIND_USER, id="demo")
            client.tickets.resolve(ticket_id, decision=decision, actor=actor)
            say(f"ticket {ticket_id} asks for approval: answered with {decision}")


def _wake(stage: Stage, task: task_pb2.Task, struck: Struck, say: Say) -> None:
    """Lets the stopped worker go on, and waits until it has given up its run."""
    worker = stage.workers[struck.worker_id]
    worker.signal(signal.SIGCONT)
    say(f"{struck.worker_id} wakes up: SIGCONT")
    gave_up = rf"run {task.run_id} .*(not ours|LEASE_LOST|lease)"
    wait_for(f"{struck.worker_id} to give up", lambda: worker.logged(gave_up))


def _commit_late(stage: Stage, task: task_pb2.Task, struck: Struck, say: Say) -> None:
    """Commits with the run id and epoch that the first worker had: what it would have sent."""
    commit = commit_pb2.ThreadCommit(
        session_id=task.session_id,
        lease=commit_pb2.Lease(run_id=task.run_id, epoch=struck.epoch),
        running=commit_pb2.RunRunning(),
        events=[event_pb2.EventDraft(type="demo.late")],
    )
    try:
        stage.client.threads.commit(commit)
    except errors.ThreadkeepError as error:
        struck.refusals.append(error.reason)
        say(f"a late commit under its lease (epoch {struck.epoch}): {error.reason}")
    else:
        struck.refusals.append("accepted")


def _told(stage: Stage, task_id: str, strike: str, struck: Struck | None, approved: bool) -> Told:
    client = stage.client
    task = client.tasks.get(task_id)
    events = [*client.events.list(session_id=task.session_id, page_size=100)]
    messages = [*client.messages.list(task.session_id, at_least=events[-1].cursor, max_wait=30.0)]
    found = [*client.artifacts.list(run_id=task.run_id, type="report")]
    report = client.artifacts.read(found[0].artifact_id).decode() if len(found) == 1 else ""
    labels = dict(found[0].metadata.labels) if len(found) == 1 else {}
    run = client.runs.get(task.run_id)
    return Told(strike, task, run, events, messages, _lines(stage, task.run_id), approved, report, labels, struck)


def _lines(stage: Stage, run_id: str) -> list[dict[str, object]]:
    return [line for line in ledgers.read(stage.ledger) if line["run_id"] == run_id]


def _ended(stage: Stage, task_id: str) -> bool:
    task = stage.client.tasks.get(task_id)
    if task.state in FINAL:
        raise Trouble(f"the task ended before the strike: {task.failure.code} {task.failure.message}")
    return False
