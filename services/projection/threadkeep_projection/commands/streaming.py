"""Passes a session's feed on: committed events and live observations, for one reader (P6).

The runtime's feed is read at every visibility, so that the end of a task is seen even by a reader who may not see the
event that says so; what lies above the reader's level is left out here.
"""

from __future__ import annotations

import asyncio
import base64
from collections.abc import AsyncIterator
from dataclasses import dataclass
from typing import Any

from threadkeep.runtime.v1 import event_pb2, task_pb2
from threadkeep_chassis.cursors import read_cursor
from threadkeep_chassis.errors import CursorInvalid, ShuttingDown, ThreadkeepError, Unavailable
from threadkeep_chassis.scope import Call
from threadkeep_projection.domain.errors import TaskNotFound
from threadkeep_projection.domain.projector import TERMINAL_TASK_STATES, TERMINAL_TASK_TYPES
from threadkeep_projection.peers import Caller, Runtime


@dataclass(frozen=True)
class Relayed:
    """A frame for the reader: what it holds, and where to resume (empty in live and gap frames)."""

    content: event_pb2.Event | event_pb2.LiveObservation | event_pb2.LiveGap | event_pb2.Bookmark
    cursor: bytes = b""


class Streaming:
    """Relays sessions."""

    def __init__(self, runtime: Runtime) -> None:
        self._runtime = runtime

    async def relay(
        self,
        call: Call,
        session_id: str,
        *,
        after: bytes,
        visibility: int,
        committed_only: bool,
        until_task_id: str | None,
    ) -> AsyncIterator[Relayed]:
        """Frames of the session after a cursor. With `until_task_id` it ends after the event that ends the task.

        Raises SESSION_NOT_FOUND, TASK_NOT_FOUND, CURSOR_INVALID, CURSOR_EXPIRED, CURSOR_UNKNOWN; SLOW_CONSUMER,
        SHUTTING_DOWN and PEER_UNAVAILABLE name the cursor to resume from.
        """
        caller = Caller.of(call)
        level = visibility or event_pb2.VISIBILITY_INTERNAL
        end = await self._known_end(caller, session_id, until_task_id)
        feed = self._runtime.subscribe_session(caller, session_id, after, include_live=not committed_only)
        resume = after
        try:
            async for frame in until_drained(feed, call):
                kind = frame.WhichOneof("frame")
                if kind == "events":
                    hidden = b""
                    for event in frame.events.events:
                        if event.visibility <= level:
                            resume, hidden = event.cursor, b""
                            yield Relayed(event, event.cursor)
                        else:
                            hidden = event.cursor
                        if _ends(event, until_task_id):
                            return
                    if hidden:
                        resume = hidden
                        yield Relayed(event_pb2.Bookmark(), hidden)
                elif kind == "bookmark":
                    resume = frame.cursor
                    yield Relayed(frame.bookmark, frame.cursor)
                elif kind == "live":
                    yield Relayed(frame.live)
                elif kind == "gap":
                    yield Relayed(frame.gap)
                if end is not None and resume and _sequence(resume) >= end:
                    # The task ended before the point where this reader began.
                    return
        except ThreadkeepError as error:
            if error.reason == CursorInvalid.reason:
                raise CursorInvalid("after") from error
            if isinstance(error, Unavailable) and resume:
                error.metadata.setdefault("resume_cursor", base64.b64encode(resume).decode())
            raise

    async def _known_end(self, caller: Caller, session_id: str, task_id: str | None) -> int | None:
        """The sequence by which the task has ended, if it has. Raises TASK_NOT_FOUND."""
        if task_id is None:
            return None
        # Read the task first: what ended it then lies at or below the session's last event.
        task = await self._runtime.get_task(caller, task_id)
        if task.session_id != session_id:
            raise TaskNotFound(task_id)
        if _state_name(task.state) not in TERMINAL_TASK_STATES:
            return None
        return await self._runtime.latest_event_sequence(caller, session_id)


def _ends(event: event_pb2.Event, task_id: str | None) -> bool:
    return task_id is not None and event.task_id == task_id and event.type in TERMINAL_TASK_TYPES


def _state_name(state: task_pb2.TaskState.ValueType) -> str:
    return task_pb2.TaskState.Name(state).removeprefix("TASK_STATE_")


def _sequence(cursor: bytes) -> int:
    return read_cursor(cursor).positions[0]


async def until_drained(feed: AsyncIterator[Any], call: Call) -> AsyncIterator[Any]:
    """The feed's frames, until it ends or the server stops. Raises ShuttingDown. Closes the feed in any case."""
    draining = asyncio.ensure_future(call.draining.wait())
    try:
        while True:
            coming = asyncio.ensure_future(anext(feed, None))
            try:
                await asyncio.wait({coming, draining}, return_when=asyncio.FIRST_COMPLETED)
            except asyncio.CancelledError:
                coming.cancel()
                await asyncio.gather(coming, return_exceptions=True)
                raise
            if not coming.done():
                coming.cancel()
                await asyncio.gather(coming, return_exceptions=True)
                raise ShuttingDown()
            frame = coming.result()
            if frame is None:
                return
            yield frame
    finally:
        draining.cancel()
        await feed.aclose()  # type: ignore[attr-defined]
