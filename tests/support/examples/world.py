"""A scope of its own in a running suite, with helpers that make the records which an example request needs.

Everything goes through the API, as a client would do it.
"""

import hashlib
from typing import Any, Protocol

import grpc
from google.protobuf.duration_pb2 import Duration
from google.protobuf.message import Message

from tests.support.calls import Metadata, scope
from tests.support.descriptors import fresh_id, rpc
from threadkeep.artifacts.v1 import artifact_pb2, artifact_service_pb2, transfer_pb2
from threadkeep.common.v1 import content_pb2, payload_pb2
from threadkeep.config.v1 import config_service_pb2, entity_pb2
from threadkeep.runtime.v1 import (
    commit_pb2,
    event_service_pb2,
    session_service_pb2,
    task_pb2,
    task_service_pb2,
    thread_service_pb2,
    ticket_pb2,
    ticket_service_pb2,
    worker_service_pb2,
)

CALL_SECONDS = 30.0


class HasChannels(Protocol):
    """What a world needs of a suite."""

    def channel(self, service: str) -> grpc.aio.Channel:
        """The channel to that service."""


class World:
    """One scope of a suite."""

    def __init__(self, suite: HasChannels, **values: str) -> None:
        self.suite = suite
        self.values = values or {"tenant": fresh_id("tenant")}

    @property
    def metadata(self) -> Metadata:
        """The metadata of calls in this scope."""
        return scope(**self.values)

    def bind(self, name: str) -> Any:
        """The callable of an RPC, such as `TaskService.SubmitTask`."""
        one = rpc(name)
        service = "runtime" if one.service == "common" else one.service
        return one.bind(self.suite.channel(service))

    async def call(self, name: str, request: Message) -> Any:
        """Calls a unary RPC in this scope."""
        return await self.bind(name)(request, metadata=self.metadata, timeout=CALL_SECONDS)

    async def agent(self) -> str:
        """The name of a new agent that needs no provider."""
        name = fresh_id("agent")
        await self.put_entity(agent_key(name), agent_definition("first"))
        return name

    async def put_entity(
        self, key: config_service_pb2.EntityKey, definition: entity_pb2.Definition
    ) -> entity_pb2.Entity:
        """Puts an entity and gives it back."""
        request = config_service_pb2.PutEntityRequest(request_id=fresh_id(), key=key, definition=definition)
        return (await self.call("ConfigService.PutEntity", request)).entity

    async def session(self) -> session_service_pb2.CreateSessionResponse:
        """A new session without tasks."""
        draft = session_service_pb2.SessionDraft(title="A session", metadata={"topic": "ships"})
        request = session_service_pb2.CreateSessionRequest(request_id=fresh_id(), session=draft)
        return await self.call("SessionService.CreateSession", request)

    async def submit(self, queue: str | None = None) -> task_service_pb2.SubmitTaskResponse:
        """A new task on a new session, its run waiting in `queue` (default: a queue of its own)."""
        request = task_service_pb2.SubmitTaskRequest(
            request_id=fresh_id(),
            create_session=session_service_pb2.SessionDraft(),
            agent_name=await self.agent(),
            input=text_input("hello"),
            queue=queue or fresh_id("queue"),
        )
        return await self.call("TaskService.SubmitTask", request)

    async def lease(self) -> worker_service_pb2.AcquiredRun:
        """A new task whose run this caller holds."""
        queue = fresh_id("queue")
        await self.submit(queue)
        response = await self.call("WorkerService.AcquireRun", acquire(queue))
        assert response.HasField("acquired")
        return response.acquired

    async def commit(self, **parts: Any) -> thread_service_pb2.CommitResponse:
        """Applies a ThreadCommit with these parts."""
        request = thread_service_pb2.CommitRequest(request_id=fresh_id(), commit=commit_pb2.ThreadCommit(**parts))
        return await self.call("ThreadService.Commit", request)

    async def ticket(self) -> ticket_pb2.Ticket:
        """An open ticket that takes `approve` or `reject`."""
        held = await self.lease()
        draft = ticket_pb2.TicketDraft(
            kind=ticket_pb2.TICKET_KIND_APPROVAL,
            prompt=json_payload(b'{"question":"go on?"}'),
            allowed_decisions=["approve", "reject"],
        )
        committed = await self.commit(
            session_id=held.run.session_id, lease=held.lease, awaiting=commit_pb2.RunAwaiting(tickets=[draft])
        )
        asked = ticket_service_pb2.GetTicketRequest(ticket_id=committed.ticket_ids[0])
        return (await self.call("TicketService.GetTicket", asked)).ticket

    async def artifact(self, session_id: str | None = None) -> artifact_pb2.ArtifactVersion:
        """A new artifact of one version."""
        upload = self.bind("ArtifactService.UploadVersion")
        frames = upload_frames(session_id=session_id)
        return (await upload(iter(frames), metadata=self.metadata, timeout=CALL_SECONDS)).version

    async def effect_count(self, service: str) -> int:
        """How many effects a service has recorded in this scope: events, revisions, versions; 0 for the projection."""
        if service == "runtime":
            return len(await self._all("EventService.ListEvents", event_service_pb2.ListEventsRequest(), "events"))
        if service == "config":
            entities = await self._all(
                "ConfigService.ListEntities", config_service_pb2.ListEntitiesRequest(), "entities"
            )
            keys = [config_service_pb2.EntityKey(type=entity.type, name=entity.name) for entity in entities]
            requests = [config_service_pb2.ListRevisionsRequest(key=key) for key in keys]
            return sum([len(await self._all("ConfigService.ListRevisions", one, "revisions")) for one in requests])
        if service == "artifacts":
            listing = artifact_service_pb2.ListArtifactsRequest()
            artifacts = await self._all("ArtifactService.ListArtifacts", listing, "artifacts")
            versions = [artifact_service_pb2.ListVersionsRequest(artifact_id=one.artifact_id) for one in artifacts]
            return sum([len(await self._all("ArtifactService.ListVersions", one, "versions")) for one in versions])
        return 0

    async def _all(self, name: str, request: Any, rows: str) -> list[Any]:
        found: list[Any] = []
        while True:
            page = await self.call(name, request)
            found += getattr(page, rows)
            if not page.next_page_token:
                return found
            request.page_token = page.next_page_token


def json_payload(data: bytes = b"{}") -> payload_pb2.Payload:
    """A JSON payload."""
    return payload_pb2.Payload(content_type="application/json", data=data)


def text_input(text: str) -> task_pb2.TaskInput:
    """Input of one user message."""
    message = content_pb2.InputMessage(
        role=content_pb2.MESSAGE_ROLE_USER, parts=[content_pb2.ContentPart(text=text)], message_id=fresh_id("message")
    )
    return task_pb2.TaskInput(messages=task_pb2.InputMessages(messages=[message]))


def acquire(queue: str) -> worker_service_pb2.AcquireRunRequest:
    """Asks for a run of a queue, waiting a little."""
    return worker_service_pb2.AcquireRunRequest(
        request_id=fresh_id(),
        worker_id=fresh_id("worker"),
        queues=[queue],
        wait=Duration(seconds=20),
        lease_ttl=Duration(seconds=600),
    )


def agent_key(name: str) -> config_service_pb2.EntityKey:
    """The key of an agent in the caller's scope."""
    return config_service_pb2.EntityKey(type=entity_pb2.ENTITY_TYPE_AGENT, name=name)


def agent_definition(description: str) -> entity_pb2.Definition:
    """An agent without provider and tools."""
    return entity_pb2.Definition(agent=entity_pb2.Agent(description=description, system_prompt="You are brief."))


def upload_frames(content: bytes = b"content", session_id: str | None = None) -> list[Message]:
    """The frames of an upload that creates an artifact."""
    metadata = artifact_pb2.ArtifactMetadata(name="report.md", type="report", media_type="text/markdown")
    if session_id is not None:
        metadata.session_id = session_id
    header = transfer_pb2.UploadHeader(request_id=fresh_id(), create_only=True, metadata=metadata)
    trailer = transfer_pb2.UploadTrailer(size=len(content), sha256=hashlib.sha256(content).hexdigest())
    return [
        transfer_pb2.UploadVersionRequest(header=header),
        transfer_pb2.UploadVersionRequest(chunk=content),
        transfer_pb2.UploadVersionRequest(trailer=trailer),
    ]
