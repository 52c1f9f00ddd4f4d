"""Passes a session's feed on: committed events and live observations, for one reader (P6).

The runtime's feed is read at every visibility and of every kind, so that the end of a task is seen even by a reader who
may not see the event that says so; what a reader may not or does not want to see is left out here.
"""

from __future__ import annotations

import asyncio
import base64
from collections.abc import AsyncGenerator, AsyncIterator, Iterator
from contextlib import aclosing, contextmanager
from dataclasses import dataclass
from typing import Any

from threadkeep.common.v1 import payload_pb2
from threadkeep.projection.v1 import stream_service_pb2
from threadkeep.runtime.v1 import event_pb2, run_pb2, task_pb2
from threadkeep_chassis.canonical import JsonInvalid, parse_json
from threadkeep_chassis.cursors import THREAD_KIND, read_cursor
from threadkeep_chassis.errors import (
    CursorInvalid,
    FieldInvalid,
    ShuttingDown,
    SlowConsumer,
    ThreadkeepError,
    Unavailable,
)
from threadkeep_chassis.limits import Limits
from threadkeep_chassis.scope import Call
from threadkeep_projection.domain.errors import RunNotFound, TaskNotFound
from threadkeep_projection.domain.kinds import EVERY_KIND, LIVE_KINDS, Kind, kinds_of_event, kinds_of_live
from threadkeep_projection.domain.projector import TERMINAL_TASK_STATES, TERMINAL_TASK_TYPES
from threadkeep_projection.metrics import ProjectionMetrics
from threadkeep_projection.peers import Caller, Runtime

GRPC, SSE, A2A = "grpc", "sse", "a2a"
"""The transports that count streams."""

RUN_ENDED = "threadkeep.run.ended"
SESSION_DELETED = "threadkeep.session.deleted"

_KINDS = {stream_service_pb2.StreamKind.Value(f"STREAM_KIND_{kind.upper()}"): kind for kind in Kind}


@dataclass(frozen=True)
class Wanted:
    """What a reader asks for."""

    session_id: str
    after: bytes
    """The cursor to resume from; empty: the start."""
    level: int
    """The reader's visibility."""
    kinds: frozenset[Kind]
    committed_only: bool
    until_task_id: str | None
    until_run_id: str | None

    @property
    def wants_live(self) -> bool:
        """True if live observations can be among what is wanted."""
        return not self.committed_only and bool(self.kinds & LIVE_KINDS)

    def ends_with(self, event: event_pb2.Event) -> bool:
        """True for the event after which nothing more is sent."""
        if event.type == SESSION_DELETED:
            return True
        if self.until_task_id is not None:
            return event.task_id == self.until_task_id and event.type in TERMINAL_TASK_TYPES
        return self.until_run_id is not None and event.run_id == self.until_run_id and event.type == RUN_ENDED

    def shows(self, event: event_pb2.Event) -> bool:
        """True if the reader may see the event and wants to; the last one is always wanted."""
        if event.visibility > self.level:
            return False
        return self._wants(event) or self.ends_with(event)

    def shows_live(self, live: event_pb2.LiveObservation) -> bool:
        """True if the reader wants the observation."""
        return self._wants(live)

    def _wants(self, content: event_pb2.Event | event_pb2.LiveObservation) -> bool:
        return self.kinds == EVERY_KIND or not self.kinds.isdisjoint(kinds_of(content))


def wanted_stream(request: stream_service_pb2.SubscribeSessionRequest) -> Wanted:
    """What a request asks for. Raises FieldInvalid."""
    if request.visibility not in event_pb2.Visibility.values():
        raise FieldInvalid("visibility", "is none that this server knows")
    for index, kind in enumerate(request.kinds):
        if kind not in _KINDS:
            raise FieldInvalid(f"kinds[{index}]", "is none that this server knows")
    if request.HasField("until_task_id") and request.HasField("until_run_id"):
        raise FieldInvalid("until_run_id", "does not go together with until_task_id")
    return Wanted(
        session_id=request.session_id,
        after=request.after,
        level=request.visibility or event_pb2.VISIBILITY_INTERNAL,
        kinds=frozenset(_KINDS[kind] for kind in request.kinds) or EVERY_KIND,
        committed_only=request.committed_only,
        until_task_id=request.until_task_id if request.HasField("until_task_id") else None,
        until_run_id=request.until_run_id if request.HasField("until_run_id") else None,
    )


def kinds_of(content: event_pb2.Event | event_pb2.LiveObservation) -> tuple[Kind, ...]:
    """The kinds of an event or observation, never none."""
    if isinstance(content, event_pb2.Event):
        return kinds_of_event(content.type, lambda: _read(content.payload))
    name = event_pb2.LiveKind.Name(content.kind) if content.kind in event_pb2.LiveKind.values() else ""
    return kinds_of_live(name.removeprefix("LIVE_KIND_"), lambda: _read(content.payload))


@dataclass(frozen=True)
class Relayed:
    """A frame for the reader: what it holds, and where to resume (empty in live and gap frames)."""

    content: event_pb2.Event | event_pb2.LiveObservation | event_pb2.LiveGap | event_pb2.Bookmark
    cursor: bytes = b""
    is_last: bool = False
    """Nothing comes after it."""


class Stream:
    """One reader, as it is counted."""

    def __init__(self, metrics: ProjectionMetrics, transport: str) -> None:
        self._frames = metrics.stream_frames.labels(transport)
        self._cuts = metrics.streams_cut.labels(transport)
        self._resume = b""

    def gave(self, frame: Relayed) -> None:
        """Counts a frame that is on its way, and remembers where to resume."""
        self._frames.inc()
        self._resume = frame.cursor or self._resume

    def gave_one(self) -> None:
        """Counts a frame that is on its way and is no place to resume from."""
        self._frames.inc()

    def cut(self) -> SlowConsumer:
        """Counts that the reader was given up; gives what it is told, if it still listens."""
        self._cuts.inc()
        return SlowConsumer(resume_cursor=base64.b64encode(self._resume).decode() if self._resume else None)


class Streaming:
    """Relays sessions."""

    def __init__(
        self, runtime: Runtime, limits: Limits, metrics: ProjectionMetrics, *, patience_seconds: float
    ) -> None:
        """`patience_seconds`: how long one frame may wait for its reader."""
        self._runtime = runtime
        self._limits = limits
        self._metrics = metrics
        self._open = 0
        self.patience_seconds = patience_seconds

    @contextmanager
    def admit(self, transport: str) -> Iterator[Stream]:
        """Counts a stream of a transport while it is open. Raises LimitExceeded."""
        self._limits.check("max_subscriptions", self._open + 1)
        gauge = self._metrics.streams_open.labels(transport)
        self._open += 1
        gauge.inc()
        try:
            yield Stream(self._metrics, transport)
        finally:
            self._open -= 1
            gauge.dec()

    async def relay(self, call: Call, wanted: Wanted) -> AsyncGenerator[Relayed]:
        """Frames of the session after a cursor, until the task or run that it is asked for ends, or for ever.

        No frame at all if that has ended before the cursor. Close it when done.
        Raises SESSION_NOT_FOUND, TASK_NOT_FOUND, RUN_NOT_FOUND, CURSOR_INVALID, CURSOR_EXPIRED, CURSOR_UNKNOWN;
        SLOW_CONSUMER, SHUTTING_DOWN and PEER_UNAVAILABLE name the cursor to resume from.
        """
        caller = Caller.of(call)
        resume = wanted.after
        try:
            end = await self._known_end(caller, wanted)
            if end is not None and (_sequence(resume) if resume else 0) >= end:
                if resume:
                    await self._runtime.check_cursor(caller, resume, wanted.session_id)
                return
            feed = self._runtime.subscribe_session(caller, wanted.session_id, resume, include_live=wanted.wants_live)
            async with aclosing(until_drained(feed, call)) as frames:
                async for frame in frames:
                    for relayed in _relayed(frame, wanted):
                        resume = relayed.cursor or resume
                        yield relayed
                        if relayed.is_last:
                            return
                    if end is not None and resume and _sequence(resume) >= end:
                        # The event that ended it was purged while this was read.
                        return
        except ThreadkeepError as error:
            if error.reason == CursorInvalid.reason:
                raise CursorInvalid("after") from error
            if isinstance(error, Unavailable) and resume:
                error.metadata.setdefault("resume_cursor", base64.b64encode(resume).decode())
            raise

    async def _known_end(self, caller: Caller, wanted: Wanted) -> int | None:
        """The sequence of the event that ended the task or run, if it has ended: 0 if that event is gone.

        Raises TASK_NOT_FOUND, RUN_NOT_FOUND.
        """
        if wanted.until_task_id is not None:
            task = await self._runtime.get_task(caller, wanted.until_task_id)
            if task.session_id != wanted.session_id:
                raise TaskNotFound(wanted.until_task_id)
            if _state_name(task.state) in TERMINAL_TASK_STATES:
                return await self._runtime.sequence_of(caller, TERMINAL_TASK_TYPES, task_id=task.task_id)
        if wanted.until_run_id is not None:
            run = await self._runtime.get_run(caller, wanted.until_run_id)
            if run.session_id != wanted.session_id:
                raise RunNotFound(wanted.until_run_id)
            if run.state == run_pb2.RUN_STATE_ENDED:
                return await self._runtime.sequence_of(caller, (RUN_ENDED,), run_id=run.run_id)
        return None


def _relayed(frame: Any, wanted: Wanted) -> Iterator[Relayed]:
    """What a frame of the runtime holds for the reader; nothing after the event that ends the stream."""
    kind = frame.WhichOneof("frame")
    if kind == "events":
        hidden = b""
        for event in frame.events.events:
            is_last = wanted.ends_with(event)
            if wanted.shows(event):
                hidden = b""
                yield Relayed(event, event.cursor, is_last)
            elif is_last:
                yield Relayed(event_pb2.Bookmark(), event.cursor, is_last)
            else:
                hidden = event.cursor
            if is_last:
                return
        if hidden:
            yield Relayed(event_pb2.Bookmark(), hidden)
    elif kind == "bookmark":
        yield Relayed(frame.bookmark, frame.cursor)
    elif kind == "live":
        if wanted.shows_live(frame.live):
            yield Relayed(frame.live)
    elif kind == "gap":
        yield Relayed(frame.gap)


def _read(payload: payload_pb2.Payload) -> Any:
    if payload.content_type.partition(";")[0].strip().lower() != "application/json":
        return None
    try:
        return parse_json(payload.data)
    except JsonInvalid:
        return None


def _state_name(state: task_pb2.TaskState.ValueType) -> str:
    return task_pb2.TaskState.Name(state).removeprefix("TASK_STATE_")


def _sequence(cursor: bytes) -> int:
    read = read_cursor(cursor)
    if read.kind != THREAD_KIND or not read.positions:
        raise CursorInvalid("after")
    return read.positions[0]


async def until_drained(feed: AsyncIterator[Any], call: Call) -> AsyncGenerator[Any]:
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
