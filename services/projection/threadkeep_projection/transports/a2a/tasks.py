"""A task for an A2A client: where it stands, what was said, what it made.

The state is the runtime's, which is never behind; what was said is the projection's, which is waited for a moment.
"""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime

from a2a.types import a2a_pb2
from google.protobuf.timestamp_pb2 import Timestamp

from threadkeep.runtime.v1 import task_pb2, ticket_pb2
from threadkeep_chassis.scope import Call
from threadkeep_projection.commands.freshness import Freshness
from threadkeep_projection.commands.reading import Reading
from threadkeep_projection.domain.projector import TERMINAL_TASK_STATES
from threadkeep_projection.domain.values import ASSISTANT, USER, Message, Task
from threadkeep_projection.transports.a2a.answers import question_part
from threadkeep_projection.transports.a2a.artifacts import Artifacts, Budget
from threadkeep_projection.transports.a2a.parts import a2a_parts, struct_of
from threadkeep_projection.transports.a2a.peers import Work, session_or_none

WAITING_STATES = frozenset(("INPUT_REQUIRED", "AUTH_REQUIRED"))

DEFAULT_HISTORY = 100
MOST_HISTORY = 1000
MOST_HISTORY_BYTES = 2 * 1024 * 1024

SETTLE_SECONDS = 1.0
"""How long an answer waits for the projection. It is right without it, only shorter."""

_ROLES = {USER: a2a_pb2.ROLE_USER, ASSISTANT: a2a_pb2.ROLE_AGENT}


class Tasks:
    """Renders tasks."""

    def __init__(self, work: Work, artifacts: Artifacts, reading: Reading, freshness: Freshness) -> None:
        self._work = work
        self._artifacts = artifacts
        self._reading = reading
        self._freshness = freshness

    async def shown(self, call: Call, task: task_pb2.Task, history: int, *, is_settled: bool = False) -> a2a_pb2.Task:
        """The task with its last `history` messages and its artifacts. `is_settled`: the projection knows it all."""
        if history and not is_settled:
            await self.settle(call, task.session_id)
        return a2a_pb2.Task(
            id=task.task_id,
            context_id=task.session_id,
            status=await self.status(call, task),
            artifacts=await self._artifacts.of_task(call, task, Budget()),
            history=await self.history(call, task.session_id, task.task_id, history),
            metadata=struct_of(dict(task.metadata)) if task.metadata else None,
        )

    async def listed(self, call: Call, task: Task, history: int, budget: Budget | None) -> a2a_pb2.Task:
        """A task of a list, as the projection knows it; its artifacts only with a budget."""
        shown = a2a_pb2.Task(
            id=task.task_id,
            context_id=task.session_id,
            status=a2a_pb2.TaskStatus(state=state_of(task.state), timestamp=_timestamp(task.update_time)),
            history=await self.history(call, task.session_id, task.task_id, history),
            metadata=struct_of(dict(task.metadata)) if task.metadata else None,
        )
        if task.failure is not None:
            say(shown.status, task.task_id, task.session_id, [failure_part(*task.failure)])
        if budget is not None:
            known = await self._work.task(call, task.task_id)
            shown.artifacts.extend(await self._artifacts.of_task(call, known, budget))
        return shown

    async def status(self, call: Call, task: task_pb2.Task) -> a2a_pb2.TaskStatus:
        """Where the task stands: with what it asks, or what went wrong."""
        state = name_of(task.state)
        status = a2a_pb2.TaskStatus(state=state_of(state), timestamp=task.update_time)
        parts = []
        if state in WAITING_STATES:
            parts = questions(await self._work.tickets(call, task.task_id, only_open=True))
        elif state == "FAILED" and task.HasField("failure"):
            parts = [failure_part(task.failure.code, task.failure.message)]
        elif state == "CANCELED" and task.cancel_reason:
            parts = [a2a_pb2.Part(text=task.cancel_reason)]
        say(status, task.task_id, task.session_id, parts)
        return status

    async def history(self, call: Call, session_id: str, task_id: str, length: int) -> list[a2a_pb2.Message]:
        """What was said for the task by user and agent, its last messages, oldest first; bounded in bytes too."""
        if not length:
            return []
        found = await self._reading.task_messages(call.scope_key, session_id, task_id, tuple(_ROLES), length)
        kept: list[a2a_pb2.Message] = []
        left = MOST_HISTORY_BYTES
        for message in reversed(found):
            shown = _message(session_id, task_id, message)
            left -= shown.ByteSize()
            if kept and left < 0:
                break
            if shown.parts:
                kept.append(shown)
        return kept[::-1]

    async def settle(self, call: Call, session_id: str, sequence: int | None = None) -> None:
        """Waits a moment until the projection knows the session up to this event, or up to its last."""
        if sequence is None:
            session = await session_or_none(self._work, call, session_id)
            if session is None:
                return
            sequence = session.latest_event_sequence
        await self._freshness.settle(call, session_id, sequence, SETTLE_SECONDS)


def questions(tickets: Sequence[ticket_pb2.Ticket]) -> list[a2a_pb2.Part]:
    """What open tickets ask, the oldest first."""
    return [question_part(ticket) for ticket in reversed(tickets)]


def name_of(state: task_pb2.TaskState.ValueType) -> str:
    """A state's name without prefix; of a newer runtime's, WORKING."""
    try:
        return task_pb2.TaskState.Name(state).removeprefix("TASK_STATE_")
    except ValueError:
        return "WORKING"


def state_of(name: str) -> str:
    """The same state in A2A."""
    return f"TASK_STATE_{name}"


def ends_stream(name: str) -> bool:
    """True for the states after which A2A streams and waits end."""
    return name in TERMINAL_TASK_STATES or name in WAITING_STATES


def say(status: a2a_pb2.TaskStatus, task_id: str, session_id: str, parts: Sequence[a2a_pb2.Part]) -> None:
    """Gives a status its message, if there is anything to say: none of the conversation, under an id of its own."""
    if parts:
        status.message.CopyFrom(
            a2a_pb2.Message(
                message_id=f"status-{task_id}-{status.timestamp.ToMicroseconds()}",
                context_id=session_id,
                task_id=task_id,
                role=a2a_pb2.ROLE_AGENT,
                parts=parts,
            )
        )


def failure_part(code: str, text: str) -> a2a_pb2.Part:
    """What went wrong."""
    return a2a_pb2.Part(text=text or code, metadata=struct_of({"code": code}))


def _message(session_id: str, task_id: str, message: Message) -> a2a_pb2.Message:
    assert message.content is not None
    return a2a_pb2.Message(
        message_id=message.message_id,
        context_id=session_id,
        task_id=task_id,
        role=_ROLES[message.content.role],
        parts=a2a_parts(message.content.parts),
    )


def _timestamp(time: datetime) -> Timestamp:
    found = Timestamp()
    found.FromDatetime(time)
    return found
