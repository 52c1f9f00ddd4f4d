"""What A2A asks of the other services: work of the runtime, definitions of config, content of artifacts.

Every call is made in its caller's name; errors come back as our own.
"""

from __future__ import annotations

from collections.abc import AsyncGenerator, AsyncIterator, Sequence
from dataclasses import dataclass
from typing import Any

import grpc

from threadkeep.artifacts.v1 import artifact_service_pb2, artifact_service_pb2_grpc, transfer_pb2
from threadkeep.config.v1 import config_service_pb2, config_service_pb2_grpc, entity_pb2
from threadkeep.runtime.v1 import (
    event_pb2,
    event_service_pb2,
    event_service_pb2_grpc,
    session_pb2,
    session_service_pb2,
    session_service_pb2_grpc,
    task_pb2,
    task_service_pb2,
    task_service_pb2_grpc,
    ticket_pb2,
    ticket_service_pb2,
    ticket_service_pb2_grpc,
    webhook_pb2,
)
from threadkeep_chassis.canonical import canonical_json
from threadkeep_chassis.errors import ThreadkeepError
from threadkeep_chassis.ids import new_id
from threadkeep_chassis.peers import Metadata, Peers, call_metadata, peer_error
from threadkeep_chassis.scope import REPLAY_TRAILER, Call
from threadkeep_projection.commands.streaming import until_drained
from threadkeep_projection.domain.errors import SessionNotFound, UnsupportedOperation
from threadkeep_projection.peers import RUNTIME

CONFIG, ARTIFACTS = "config", "artifacts"
ARTIFACT_SAVED = "artifact.saved"
SESSION_DELETED = "threadkeep.session.deleted"
TASK_EVENTS = "threadkeep.task.*"

_READER = "threadkeep-reader-bin"
_SECONDS = 30.0
_GONE = frozenset(("ARTIFACT_NOT_FOUND", "SESSION_NOT_FOUND", "TASK_NOT_FOUND"))


@dataclass(frozen=True)
class Frame:
    """Events of a session that arrived together (none in a bookmark)."""

    events: Sequence[event_pb2.Event]


class Work:
    """The runtime: tasks, tickets, sessions, events."""

    def __init__(self, peers: Peers) -> None:
        self._peers = peers

    async def submit(self, call: Call, request: task_service_pb2.SubmitTaskRequest) -> Any:
        """Submits a task; a replay is marked in the call's trailing metadata. Raises what SubmitTask says."""
        stub = task_service_pb2_grpc.TaskServiceStub(self._channel())
        return await _asked(stub.SubmitTask, request, call, RUNTIME)

    async def task(self, call: Call, task_id: str) -> task_pb2.Task:
        """The task. Raises TASK_NOT_FOUND."""
        stub = task_service_pb2_grpc.TaskServiceStub(self._channel())
        request = task_service_pb2.GetTaskRequest(task_id=task_id)
        return (await _asked(stub.GetTask, request, call, RUNTIME)).task

    async def cancel(self, call: Call, task_id: str, reason: str) -> Any:
        """Asks for the task's cancellation. Raises TASK_NOT_FOUND, TASK_TERMINAL."""
        stub = task_service_pb2_grpc.TaskServiceStub(self._channel())
        request = task_service_pb2.CancelTaskRequest(request_id=new_id(), task_id=task_id, reason=reason)
        return await _asked(stub.CancelTask, request, call, RUNTIME)

    async def session(self, call: Call, session_id: str) -> session_pb2.Session:
        """The session. Raises SESSION_NOT_FOUND."""
        stub = session_service_pb2_grpc.SessionServiceStub(self._channel())
        request = session_service_pb2.GetSessionRequest(session_id=session_id)
        return (await _asked(stub.GetSession, request, call, RUNTIME)).session

    async def tickets(self, call: Call, task_id: str, *, only_open: bool = False) -> Sequence[ticket_pb2.Ticket]:
        """The task's last 200 tickets, newest first."""
        stub = ticket_service_pb2_grpc.TicketServiceStub(self._channel())
        states = [ticket_pb2.TICKET_STATE_OPEN] if only_open else []
        request = ticket_service_pb2.ListTicketsRequest(task_id=task_id, states=states, page_size=200)
        return (await _asked(stub.ListTickets, request, call, RUNTIME)).tickets

    async def answer(self, call: Call, request: ticket_service_pb2.ResolveTicketRequest) -> Any:
        """Answers a ticket; a replay is marked. Raises what ResolveTicket says."""
        stub = ticket_service_pb2_grpc.TicketServiceStub(self._channel())
        return await _asked(stub.ResolveTicket, request, call, RUNTIME)

    async def put_webhook(
        self, call: Call, task_id: str, draft: webhook_pb2.TaskWebhookDraft
    ) -> webhook_pb2.TaskWebhook:
        """Puts a webhook on a task. Raises TASK_NOT_FOUND, FIELD_INVALID (the address), LIMIT_EXCEEDED."""
        stub = task_service_pb2_grpc.TaskServiceStub(self._channel())
        request = task_service_pb2.PutTaskWebhookRequest(request_id=new_id(), task_id=task_id, webhook=draft)
        return (await _asked(stub.PutTaskWebhook, request, call, RUNTIME)).webhook

    async def webhooks(self, call: Call, task_id: str, page_size: int, page_token: str) -> Any:
        """A page of a task's webhooks. Raises TASK_NOT_FOUND, PAGE_TOKEN_INVALID."""
        stub = task_service_pb2_grpc.TaskServiceStub(self._channel())
        request = task_service_pb2.ListTaskWebhooksRequest(task_id=task_id, page_size=page_size, page_token=page_token)
        return await _asked(stub.ListTaskWebhooks, request, call, RUNTIME)

    async def delete_webhook(self, call: Call, task_id: str, webhook_id: str) -> None:
        """Takes a webhook off a task. Raises TASK_NOT_FOUND."""
        stub = task_service_pb2_grpc.TaskServiceStub(self._channel())
        request = task_service_pb2.DeleteTaskWebhookRequest(request_id=new_id(), task_id=task_id, webhook_id=webhook_id)
        await _asked(stub.DeleteTaskWebhook, request, call, RUNTIME)

    async def artifact_events(self, call: Call, task_id: str) -> Sequence[event_pb2.Event]:
        """The first 1,000 events that announce artifacts of the task, in order."""
        stub = event_service_pb2_grpc.EventServiceStub(self._channel())
        wanted = event_service_pb2.EventFilter(task_id=task_id, types=[ARTIFACT_SAVED])
        request = event_service_pb2.ListEventsRequest(filter=wanted, page_size=1000)
        return (await _asked(stub.ListEvents, request, call, RUNTIME)).events

    async def follow(self, call: Call, session_id: str, after: int | None) -> AsyncGenerator[Frame]:
        """The session's events about tasks and artifacts, after a sequence (None: from now), until it is deleted.

        The first frame says that it is live. Close it when done: it holds a call. Raises SESSION_NOT_FOUND,
        CURSOR_EXPIRED, ShuttingDown.
        """
        stub = event_service_pb2_grpc.EventServiceStub(self._channel())
        wanted = event_service_pb2.EventFilter(
            session_id=session_id, types=[TASK_EVENTS, ARTIFACT_SAVED, SESSION_DELETED]
        )
        request = event_service_pb2.SubscribeEventsRequest(filter=wanted)
        if after is None:
            request.from_now = True
        else:
            request.after_sequence = after
        feed = until_drained(_streamed(stub.SubscribeEvents(request, metadata=_metadata(call)), RUNTIME), call)
        try:
            async for frame in feed:
                yield Frame(frame.events.events)
        finally:
            await feed.aclose()

    def _channel(self) -> grpc.aio.Channel:
        return self._peers.channel(RUNTIME)


class Definitions:
    """Config: agents and their skills."""

    def __init__(self, peers: Peers) -> None:
        self._peers = peers

    async def agent(self, call: Call, name: str) -> entity_pb2.Entity:
        """The agent that counts in the caller's scope. Raises ENTITY_NOT_FOUND."""
        request = config_service_pb2.ResolveRequest(type=entity_pb2.ENTITY_TYPE_AGENT, name=name)
        return (await _asked(self._stub().Resolve, request, call, CONFIG)).entity

    async def skills(self, call: Call, names: Sequence[str]) -> list[entity_pb2.Entity]:
        """The skills that count, in this order; those that don't resolve are left out."""
        found: list[entity_pb2.Entity] = []
        for start in range(0, len(names), 100):
            request = config_service_pb2.ResolveManyRequest(
                references=[
                    config_service_pb2.EntityReference(type=entity_pb2.ENTITY_TYPE_SKILL, name=name)
                    for name in names[start : start + 100]
                ]
            )
            response = await _asked(self._stub().ResolveMany, request, call, CONFIG)
            found += [one.entity for one in response.resolutions if one.HasField("entity")]
        return found

    async def only_agent(self, call: Call) -> str | None:
        """The name of the one agent that the caller's scope has; None if it has none, or several."""
        request = config_service_pb2.ListEntitiesRequest(
            types=[entity_pb2.ENTITY_TYPE_AGENT], include_inherited=True, page_size=50
        )
        response = await _asked(self._stub().ListEntities, request, call, CONFIG)
        names = {entity.name for entity in response.entities}
        if len(names) != 1 or response.next_page_token:
            return None
        return names.pop()

    def _stub(self) -> Any:
        if not self._peers.knows(CONFIG):
            raise UnsupportedOperation("This server was not told where the config service is (--config-address).")
        return config_service_pb2_grpc.ConfigServiceStub(self._peers.channel(CONFIG))


class Contents:
    """Artifacts: what they hold, read as a reader of the session.

    Where nobody said where the artifacts service is, nothing is read: clients get addresses.
    """

    def __init__(self, peers: Peers) -> None:
        self._peers = peers

    async def read(self, call: Call, session_id: str, artifact_id: str, version: int, most: int) -> bytes | None:
        """A version's content, if it has at most so many bytes. None if it can't be read, or is larger."""
        if not self._peers.knows(ARTIFACTS):
            return None
        request = transfer_pb2.DownloadVersionRequest(artifact_id=artifact_id, version=version, length=most + 1)
        chunks: list[bytes] = []
        try:
            stub = self._stub()
            stream = stub.DownloadVersion(request, metadata=_reading(call, session_id), timeout=_SECONDS)
            async for frame in _streamed(stream, ARTIFACTS):
                if frame.HasField("version") and frame.version.size > most:
                    return None
                chunks.append(frame.chunk)
        except ThreadkeepError as error:
            if error.reason not in _GONE:
                raise
            return None
        return b"".join(chunks)

    async def is_there(self, call: Call, session_id: str, artifact_id: str, version: int) -> bool:
        """True if the version can be read."""
        if not self._peers.knows(ARTIFACTS):
            return True
        request = artifact_service_pb2.GetArtifactRequest(artifact_id=artifact_id, version=version)
        try:
            await self._stub().GetArtifact(request, metadata=_reading(call, session_id), timeout=_SECONDS)
        except grpc.RpcError as failure:
            error = peer_error(failure, ARTIFACTS)
            if error.reason in _GONE:
                return False
            raise error from failure
        return True

    async def signed_url(self, call: Call, session_id: str, artifact_id: str, version: int) -> str | None:
        """An address from which the whole content can be had, where there is one."""
        if not self._peers.knows(ARTIFACTS):
            return None
        request = transfer_pb2.SignDownloadRequest(artifact_id=artifact_id, version=version)
        try:
            response = await self._stub().SignDownload(request, metadata=_reading(call, session_id), timeout=_SECONDS)
        except grpc.RpcError as failure:
            raise peer_error(failure, ARTIFACTS) from failure
        return response.parts[0].url if len(response.parts) == 1 and not response.next_part else None

    def _stub(self) -> Any:
        return artifact_service_pb2_grpc.ArtifactServiceStub(self._peers.channel(ARTIFACTS))


async def session_or_none(work: Work, call: Call, session_id: str) -> session_pb2.Session | None:
    """The session, or None."""
    try:
        return await work.session(call, session_id)
    except ThreadkeepError as error:
        if error.reason != SessionNotFound.reason:
            raise
        return None


def _metadata(call: Call) -> Metadata:
    return call_metadata(call.scope, call.named_grant, call.trace)


def _reading(call: Call, session_id: str) -> Metadata:
    return (*_metadata(call), (_READER, canonical_json({"session_id": session_id})))


async def _asked(method: Any, request: Any, call: Call, peer: str) -> Any:
    asking = method(request, metadata=_metadata(call), timeout=_SECONDS)
    try:
        response = await asking
        if any(key == REPLAY_TRAILER for key, _ in await asking.trailing_metadata() or ()):
            call.mark_replay()
        return response
    except grpc.RpcError as error:
        raise peer_error(error, peer) from error


async def _streamed(stream: Any, peer: str) -> AsyncIterator[Any]:
    try:
        async for frame in stream:
            yield frame
    except grpc.RpcError as error:
        raise peer_error(error, peer) from error
    finally:
        stream.cancel()
