"""Calls to the runtime: its log, its checkpoints, and the streams that are passed on. Errors come back as our own."""

from __future__ import annotations

from collections.abc import AsyncIterator, Iterable, Sequence
from dataclasses import dataclass
from datetime import UTC
from typing import Any

import grpc

from threadkeep.runtime.v1 import (
    checkpoint_pb2,
    checkpoint_service_pb2,
    checkpoint_service_pb2_grpc,
    event_pb2,
    event_service_pb2,
    event_service_pb2_grpc,
    run_pb2,
    run_service_pb2,
    run_service_pb2_grpc,
    session_service_pb2,
    session_service_pb2_grpc,
    task_pb2,
    task_service_pb2,
    task_service_pb2_grpc,
)
from threadkeep_chassis.canonical import JsonInvalid, parse_json
from threadkeep_chassis.cursors import read_cursor, selection_of
from threadkeep_chassis.errors import Internal, ThreadkeepError, Unavailable
from threadkeep_chassis.peers import Metadata, Peers, call_metadata, peer_error
from threadkeep_chassis.scope import ALL_SCOPES, EMPTY_SCOPE, Call, Scope
from threadkeep_projection.domain.projector import MESSAGES_CHANNEL, PREFIX
from threadkeep_projection.domain.values import Event

RUNTIME = "runtime"

VALUE_GONE = "CHECKPOINT_VALUE_NOT_FOUND"

_READ_SECONDS = 30.0
"""How long a read of the runtime may take."""


@dataclass(frozen=True)
class FedEvent:
    """An event of the granted feed, with the thread that it belongs to."""

    scope: Scope
    session_id: str
    event: Event
    cursor: bytes
    """The log's cursor just after it."""


@dataclass(frozen=True)
class LogFrame:
    """What arrives together: events in order (none in a bookmark), and the cursor after them."""

    events: tuple[FedEvent, ...]
    cursor: bytes


@dataclass(frozen=True)
class Caller:
    """On whose behalf a call is made: its metadata, and the scope."""

    scope: Scope
    """The scope; for a call over a grant, without meaning."""
    metadata: Metadata

    @classmethod
    def everywhere(cls) -> Caller:
        """The projection itself, reading over every scope."""
        return cls(EMPTY_SCOPE, call_metadata(grant=ALL_SCOPES))

    @classmethod
    def of(cls, call: Call) -> Caller:
        """Whoever made the call, with the same scope and grant."""
        return cls(call.scope, call_metadata(call.scope, call.named_grant, call.trace))

    @classmethod
    def operator(cls, scope: Scope) -> Caller:
        """The projection itself, at work in a scope that a granted feed named."""
        return cls(scope, call_metadata(scope, ALL_SCOPES))


class Runtime:
    """The runtime, as the projection knows it."""

    def __init__(self, peers: Peers) -> None:
        self._peers = peers

    async def partition_count(self) -> int:
        """How many partitions the log has; 1 of a runtime that does not say. Raises Unavailable."""
        request = event_service_pb2.ListEventsRequest(page_size=1)
        response = await self._unary(self._events().ListEvents, request, call_metadata(grant=ALL_SCOPES))
        return max(1, response.partition_count)

    async def follow_log(self, after: bytes, partitions: Sequence[int] = ()) -> AsyncIterator[LogFrame]:
        """The log of every scope after a cursor (empty: from its start), without end; of these partitions, or of all.

        Raises CursorUnknown, CursorExpired, CursorInvalid (as a ThreadkeepError of that reason), Unavailable.
        """
        selected = frozenset(partitions) or None
        wanted = event_service_pb2.EventFilter(partitions=partitions)
        request = event_service_pb2.SubscribeEventsRequest(filter=wanted)
        if after:
            request.after = after
        else:
            request.from_start = True
        metadata = call_metadata(grant=ALL_SCOPES)
        async for frame in self._stream(self._events().SubscribeEvents(request, metadata=metadata)):
            kind = frame.WhichOneof("frame")
            if kind in ("events", "bookmark") and frame.cursor:
                if selection_of(read_cursor(frame.cursor).subject)[1] != selected:
                    raise Unavailable("The runtime does not know how to select partitions.")
                events = tuple(fed_event(event) for event in frame.events.events) if kind == "events" else ()
                yield LogFrame(events, frame.cursor)

    async def messages_channel(self, caller: Caller, session_id: str, checkpoint_id: str) -> tuple[str, bytes] | None:
        """The (type tag, value) of the `messages` channel in a checkpoint of the root namespace.

        None if the checkpoint is gone, or holds no value of the channel.
        """
        request = checkpoint_service_pb2.GetCheckpointRequest(session_id=session_id, checkpoint_id=checkpoint_id)
        stub = checkpoint_service_pb2_grpc.CheckpointServiceStub(self._channel())
        response = await self._unary(stub.GetCheckpoint, request, caller.metadata)
        for value in response.checkpoint.channel_values:
            if value.channel == MESSAGES_CHANNEL:
                if not value.deferred_size:
                    return value.type, value.data
                data = await self._large_value(caller, response.checkpoint, value)
                return None if data is None else (value.type, data)
        return None

    async def _large_value(
        self, caller: Caller, checkpoint: checkpoint_pb2.CheckpointTuple, value: checkpoint_pb2.ChannelValue
    ) -> bytes | None:
        """A value that the checkpoint's reply left out; None if it is gone by now."""
        request = checkpoint_service_pb2.ReadValueRequest(
            session_id=checkpoint.session_id,
            checkpoint_id=checkpoint.checkpoint_id,
            channel=checkpoint_service_pb2.ChannelValueName(channel=value.channel, version=value.version),
        )
        stub = checkpoint_service_pb2_grpc.CheckpointServiceStub(self._channel())
        try:
            frames = self._stream(stub.ReadValue(request, metadata=caller.metadata, timeout=_READ_SECONDS))
            return b"".join([frame.data async for frame in frames])
        except ThreadkeepError as error:
            if error.reason != VALUE_GONE:
                raise
            return None

    async def session_events(self, caller: Caller, session_id: str, after: int) -> AsyncIterator[list[Event]]:
        """The session's events with a sequence above `after`, page by page. Raises SESSION_NOT_FOUND."""
        request = event_service_pb2.ListEventsRequest(
            filter=event_service_pb2.EventFilter(session_id=session_id), page_size=1000
        )
        while True:
            response = await self._unary(self._events().ListEvents, request, caller.metadata)
            events = [domain_event(event) for event in response.events if event.sequence > after]
            if events:
                yield events
            if not response.next_page_token:
                return
            request.page_token = response.next_page_token

    async def log_sessions(self, caller: Caller) -> AsyncIterator[list[tuple[Scope | None, str]]]:
        """The sessions that the log names, from its start to its end, page by page, each at least once.

        With its scope where the caller reads over a grant, else None.
        """
        request = event_service_pb2.ListEventsRequest(page_size=1000)
        while True:
            response = await self._unary(self._events().ListEvents, request, caller.metadata)
            named = {
                (Scope(dict(event.scope.values)) if event.HasField("scope") else None, event.session_id): None
                for event in response.events
            }
            yield list(named)
            if not response.next_page_token:
                return
            request.page_token = response.next_page_token

    async def check_cursor(
        self, caller: Caller, cursor: bytes, session_id: str | None, partitions: Iterable[int] = ()
    ) -> None:
        """Asks whether the runtime gave this cursor. Raises what ListEvents says of it (CURSOR_INVALID, ...)."""
        request = event_service_pb2.ListEventsRequest(after=cursor, page_size=1)
        request.filter.partitions.extend(partitions)
        if session_id is not None:
            request.filter.session_id = session_id
        await self._unary(self._events().ListEvents, request, caller.metadata)

    async def get_task(self, caller: Caller, task_id: str) -> task_pb2.Task:
        """The task. Raises TASK_NOT_FOUND."""
        stub = task_service_pb2_grpc.TaskServiceStub(self._channel())
        request = task_service_pb2.GetTaskRequest(task_id=task_id)
        return (await self._unary(stub.GetTask, request, caller.metadata)).task

    async def get_run(self, caller: Caller, run_id: str) -> run_pb2.Run:
        """The run. Raises RUN_NOT_FOUND."""
        stub = run_service_pb2_grpc.RunServiceStub(self._channel())
        request = run_service_pb2.GetRunRequest(run_id=run_id)
        return (await self._unary(stub.GetRun, request, caller.metadata)).run

    async def latest_event_sequence(self, caller: Caller, session_id: str) -> int:
        """Sequence of the session's last event. Raises SESSION_NOT_FOUND."""
        stub = session_service_pb2_grpc.SessionServiceStub(self._channel())
        request = session_service_pb2.GetSessionRequest(session_id=session_id)
        response = await self._unary(stub.GetSession, request, caller.metadata)
        return int(response.session.latest_event_sequence)

    async def sequence_of(self, caller: Caller, types: Iterable[str], **extent: Any) -> int:
        """The sequence of the first event of these types in an extent (`task_id=...`, `run_id=...`); 0 if gone."""
        wanted = event_service_pb2.EventFilter(types=sorted(types), **extent)
        request = event_service_pb2.ListEventsRequest(filter=wanted, page_size=1)
        response = await self._unary(self._events().ListEvents, request, caller.metadata)
        return next((int(event.sequence) for event in response.events), 0)

    def subscribe_session(
        self, caller: Caller, session_id: str, after: bytes, *, include_live: bool
    ) -> AsyncIterator[event_service_pb2.SubscribeEventsResponse]:
        """The session's feed after a cursor (empty: from the start), of every visibility, without end.

        Close it when done: it holds a call.
        """
        request = event_service_pb2.SubscribeEventsRequest(
            filter=event_service_pb2.EventFilter(session_id=session_id), include_live=include_live
        )
        if after:
            request.after = after
        else:
            request.from_start = True
        return self._stream(self._events().SubscribeEvents(request, metadata=caller.metadata))

    def _channel(self) -> grpc.aio.Channel:
        return self._peers.channel(RUNTIME)

    def _events(self) -> Any:
        return event_service_pb2_grpc.EventServiceStub(self._channel())

    async def _unary(self, method: Any, request: Any, metadata: Metadata) -> Any:
        try:
            return await method(request, metadata=metadata, timeout=_READ_SECONDS)
        except grpc.RpcError as error:
            raise peer_error(error, RUNTIME) from error

    async def _stream(self, call: Any) -> AsyncIterator[Any]:
        try:
            async for frame in call:
                yield frame
        except grpc.RpcError as error:
            raise peer_error(error, RUNTIME) from error
        finally:
            call.cancel()


def fed_event(event: event_pb2.Event) -> FedEvent:
    """An event of a granted feed. Raises Internal if it names no scope."""
    if not event.HasField("scope"):
        raise Internal("The runtime's feed names no scope.")
    return FedEvent(Scope(dict(event.scope.values)), event.session_id, domain_event(event), event.cursor)


def domain_event(event: event_pb2.Event) -> Event:
    """What the projection reads of an event: payloads of the server's own types only."""
    payload = None
    if event.type.startswith(PREFIX) and event.HasField("payload"):
        try:
            payload = parse_json(event.payload.data)
        except JsonInvalid:
            # Not written by a runtime of ours; the event still counts.
            payload = None
    return Event(
        sequence=event.sequence,
        type=event.type,
        time=event.create_time.ToDatetime(tzinfo=UTC),
        task_id=event.task_id if event.HasField("task_id") else None,
        run_id=event.run_id if event.HasField("run_id") else None,
        payload=payload,
    )
