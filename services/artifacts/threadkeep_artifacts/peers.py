"""Calls to the runtime: who holds a run's lease (A6), and which sessions were deleted (A7)."""

from __future__ import annotations

from collections.abc import AsyncIterator
from dataclasses import dataclass

import grpc

from threadkeep.runtime.v1 import (
    event_pb2,
    event_service_pb2,
    event_service_pb2_grpc,
    run_pb2,
    run_service_pb2,
    run_service_pb2_grpc,
)
from threadkeep_chassis.canonical import parse_json
from threadkeep_chassis.clock import Clock
from threadkeep_chassis.peers import Peers, call_metadata, peer_error
from threadkeep_chassis.scope import ALL_SCOPES, Call, Scope

RUNTIME = "runtime"
SESSION_DELETED = "threadkeep.session.deleted"
POLICY_DELETE = "ARTIFACT_POLICY_DELETE"

_READ_SECONDS = 10.0
_MOST_REMEMBERED = 10_000


@dataclass(frozen=True)
class HeldLease:
    """A lease that the runtime confirmed."""

    session_id: str
    run_id: str


class Leases:
    """Asks the runtime whether a lease is held, and remembers a yes for a moment."""

    def __init__(self, peers: Peers | None, clock: Clock, *, remembered_seconds: float) -> None:
        """Without peers (no runtime is known) nobody holds a lease."""
        self._peers = peers
        self._clock = clock
        self._remembered = remembered_seconds
        self._held: dict[tuple[str, str, int], tuple[float, HeldLease]] = {}

    async def held(self, call: Call, run_id: str, epoch: int) -> HeldLease | None:
        """The lease, if the run is leased under this epoch now. Raises PeerUnavailable."""
        key = (call.scope_key, run_id, epoch)
        now = self._clock.monotonic()
        known = self._held.get(key)
        if known is not None and now < known[0]:
            return known[1]
        if self._peers is None:
            return None
        run = await self._read(self._peers, call, run_id)
        if run is None or run.state != run_pb2.RUN_STATE_RUNNING or run.epoch != epoch:
            return None
        if len(self._held) >= _MOST_REMEMBERED:
            self._held.clear()
        lease = HeldLease(run.session_id, run_id)
        self._held[key] = (now + self._remembered, lease)
        return lease

    async def _read(self, peers: Peers, call: Call, run_id: str) -> run_pb2.Run | None:
        stub = run_service_pb2_grpc.RunServiceStub(peers.channel(RUNTIME))
        metadata = call_metadata(call.scope, call.named_grant, call.trace)
        try:
            request = run_service_pb2.GetRunRequest(run_id=run_id)
            return (await stub.GetRun(request, metadata=metadata, timeout=_READ_SECONDS)).run
        except grpc.RpcError as error:
            if error.code() is grpc.StatusCode.NOT_FOUND:
                return None
            raise peer_error(error, RUNTIME) from error


@dataclass(frozen=True)
class DeletedSession:
    """A session that is gone."""

    scope_key: str
    session_id: str
    deletes_artifacts: bool
    """What its owner chose for its artifacts: True to delete them, False to keep them."""


@dataclass(frozen=True)
class LogFrame:
    """What arrives together (nothing in a bookmark), and the log's cursor after it."""

    sessions: tuple[DeletedSession, ...]
    cursor: bytes


class DeletedSessions:
    """The runtime's log of all scopes, as far as sessions were deleted."""

    def __init__(self, peers: Peers) -> None:
        self._peers = peers

    async def follow(self, after: bytes) -> AsyncIterator[LogFrame]:
        """The log after a cursor (empty: from its start), without end.

        Raises CursorUnknown, CursorExpired, CursorInvalid (as a ThreadkeepError of that reason), Unavailable.
        """
        request = event_service_pb2.SubscribeEventsRequest(
            filter=event_service_pb2.EventFilter(types=[SESSION_DELETED])
        )
        if after:
            request.after = after
        else:
            request.from_start = True
        stub = event_service_pb2_grpc.EventServiceStub(self._peers.channel(RUNTIME))
        call = stub.SubscribeEvents(request, metadata=call_metadata(grant=ALL_SCOPES))
        try:
            async for frame in call:
                kind = frame.WhichOneof("frame")
                if kind in ("events", "bookmark") and frame.cursor:
                    events = frame.events.events if kind == "events" else ()
                    yield LogFrame(tuple(_deleted(event) for event in events), frame.cursor)
        except grpc.RpcError as error:
            raise peer_error(error, RUNTIME) from error
        finally:
            call.cancel()


def _deleted(event: event_pb2.Event) -> DeletedSession:
    payload = parse_json(event.payload.data)
    policy = payload.get("artifact_policy") if isinstance(payload, dict) else None
    return DeletedSession(Scope(dict(event.scope.values)).key, event.session_id, policy == POLICY_DELETE)
