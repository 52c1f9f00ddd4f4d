"""The stream of a task: first the task, then what becomes of it, until it is final or asks something."""

from __future__ import annotations

import json
from collections.abc import AsyncGenerator
from contextlib import aclosing
from typing import Any

from a2a.types import a2a_pb2

from threadkeep.runtime.v1 import event_pb2, task_pb2
from threadkeep_chassis.errors import CursorExpired, ThreadkeepError
from threadkeep_chassis.scope import Call
from threadkeep_projection.domain.errors import TaskNotFound, UnsupportedOperation
from threadkeep_projection.domain.projector import PREFIX, TASK_STATES, TERMINAL_TASK_STATES
from threadkeep_projection.transports.a2a.artifacts import Artifacts, Budget, result_of
from threadkeep_projection.transports.a2a.peers import ARTIFACT_SAVED, SESSION_DELETED, Work
from threadkeep_projection.transports.a2a.tasks import (
    DEFAULT_HISTORY,
    WAITING_STATES,
    Tasks,
    ends_stream,
    failure_part,
    name_of,
    questions,
    say,
    state_of,
)

Update = a2a_pb2.TaskStatusUpdateEvent | a2a_pb2.TaskArtifactUpdateEvent


class Following:
    """Follows tasks."""

    def __init__(self, work: Work, tasks: Tasks, artifacts: Artifacts) -> None:
        self._work = work
        self._tasks = tasks
        self._artifacts = artifacts

    async def until_rest(self, call: Call, task: task_pb2.Task, after: int | None) -> None:
        """Returns once the task, seen after the event `after`, is final or asks something."""
        async with aclosing(self.events(call, task, after)) as events:
            async for _ in events:
                pass

    async def updates(self, call: Call, task: task_pb2.Task, after: int | None) -> AsyncGenerator[Update]:
        """What becomes of the task after the event `after`, until it is final or asks something."""
        async with aclosing(self.events(call, task, after)) as events:
            async for event in events:
                for update in await self.shown(call, event):
                    yield update

    async def subscribed(self, call: Call, task: task_pb2.Task) -> AsyncGenerator[a2a_pb2.StreamResponse]:
        """The task as it is, then what becomes of it. Raises UnsupportedOperation if it has ended meanwhile."""
        async with aclosing(self._work.follow(call, task.session_id, None)) as frames:
            # The first frame says that nothing after it is missed; what the task is now may already tell of it.
            first = await anext(frames, None)
            known = await self._work.task(call, task.task_id)
            refuse_ended(known)
            yield a2a_pb2.StreamResponse(task=await self._tasks.shown(call, known, DEFAULT_HISTORY))
            while first is not None:
                for event in first.events:
                    if event.type == SESSION_DELETED:
                        raise TaskNotFound(task.task_id)
                    if event.task_id != task.task_id:
                        continue
                    for update in await self.shown(call, event):
                        yield response_of(update)
                    if ends_stream(state_name(event) or ""):
                        await self._tasks.settle(call, event.session_id, event.sequence)
                        return
                first = await anext(frames, None)

    async def events(self, call: Call, task: task_pb2.Task, after: int | None) -> AsyncGenerator[event_pb2.Event]:
        """The task's own events after the event `after`. Ends where streams of A2A end. Raises TaskNotFound."""
        try:
            async with aclosing(self._work.follow(call, task.session_id, after)) as frames:
                async for frame in frames:
                    for event in frame.events:
                        if event.type == SESSION_DELETED:
                            raise TaskNotFound(task.task_id)
                        if event.task_id != task.task_id:
                            continue
                        yield event
                        if ends_stream(state_name(event) or ""):
                            await self._tasks.settle(call, event.session_id, event.sequence)
                            return
        except ThreadkeepError as error:
            if error.reason != CursorExpired.reason:
                raise
        # The task is so old that its first events are gone; a task keeps its last state.
        known = await self._work.task(call, task.task_id)
        if not ends_stream(name_of(known.state)):
            async with aclosing(self.events(call, known, None)) as rest:
                async for event in rest:
                    yield event

    async def shown(self, call: Call, event: event_pb2.Event) -> list[Update]:
        """What an event of a task tells an A2A client; the result comes before the state that has it."""
        task_id, session_id = event.task_id, event.session_id
        if event.type == ARTIFACT_SAVED:
            artifact = await self._artifacts.of_event(call, event, Budget())
            return [] if artifact is None else [_artifact_update(task_id, session_id, artifact)]
        state = state_name(event)
        if state is None:
            return []
        status = a2a_pb2.TaskStatus(state=state_of(state), timestamp=event.create_time)
        updates: list[Update] = []
        payload = _object(event)
        if state in WAITING_STATES:
            asked = set(payload.get("ticket_ids") or ())
            tickets = [one for one in await self._work.tickets(call, task_id) if one.ticket_id in asked]
            say(status, task_id, session_id, questions(tickets))
        elif state == "FAILED":
            failure = payload.get("failure")
            if isinstance(failure, dict):
                code, text = str(failure.get("code") or ""), str(failure.get("message") or "")
                say(status, task_id, session_id, [failure_part(code, text)])
        elif state == "COMPLETED":
            result = result_of(await self._work.task(call, task_id))
            if result is not None:
                updates.append(_artifact_update(task_id, session_id, result))
        updates.append(a2a_pb2.TaskStatusUpdateEvent(task_id=task_id, context_id=session_id, status=status))
        return updates


def refuse_ended(task: task_pb2.Task) -> None:
    """Raises UnsupportedOperation for a task that has ended."""
    if name_of(task.state) in TERMINAL_TASK_STATES:
        raise UnsupportedOperation("The task has ended: there is nothing more to follow. GetTask shows it.")


def state_name(event: event_pb2.Event) -> str | None:
    """The state that an event brings its task into; None if it brings it into none."""
    area = f"{PREFIX}task."
    return TASK_STATES.get(event.type.removeprefix(area)) if event.type.startswith(area) else None


def response_of(update: Update) -> a2a_pb2.StreamResponse:
    """An update as a frame."""
    if isinstance(update, a2a_pb2.TaskStatusUpdateEvent):
        return a2a_pb2.StreamResponse(status_update=update)
    return a2a_pb2.StreamResponse(artifact_update=update)


def _artifact_update(task_id: str, session_id: str, artifact: a2a_pb2.Artifact) -> a2a_pb2.TaskArtifactUpdateEvent:
    return a2a_pb2.TaskArtifactUpdateEvent(
        task_id=task_id, context_id=session_id, artifact=artifact, append=False, last_chunk=True
    )


def _object(event: event_pb2.Event) -> dict[str, Any]:
    try:
        value = json.loads(event.payload.data)
    except ValueError:
        return {}
    return value if isinstance(value, dict) else {}
