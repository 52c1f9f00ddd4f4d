"""A client's view of the runtime, for tests: what applications and workers call, as short as it can be said."""

import asyncio
import json
from typing import Any

from google.protobuf.duration_pb2 import Duration

from tests.support.calls import Metadata
from tests.support.descriptors import fresh_id
from tests.support.examples.world import CALL_SECONDS, HasChannels, World, text_input
from threadkeep.common.v1 import payload_pb2
from threadkeep.runtime.v1 import (
    commit_pb2,
    event_pb2,
    event_service_pb2,
    run_pb2,
    run_service_pb2,
    session_pb2,
    session_service_pb2,
    state_pb2,
    task_pb2,
    task_service_pb2,
    thread_service_pb2,
    ticket_pb2,
    ticket_service_pb2,
    worker_service_pb2,
)

SUCCEEDED = commit_pb2.RunEnded(cause=run_pb2.RUN_END_CAUSE_SUCCEEDED)
CANCELED = commit_pb2.RunEnded(cause=run_pb2.RUN_END_CAUSE_CANCELED)
RUNNING = commit_pb2.RunRunning()


def failed(code: str = "boom") -> commit_pb2.RunEnded:
    """A run that failed."""
    return commit_pb2.RunEnded(
        cause=run_pb2.RUN_END_CAUSE_FAILED, failure=run_pb2.Failure(code=code, message="it broke")
    )


def text(data: bytes = b"hello") -> payload_pb2.Payload:
    """An opaque value."""
    return payload_pb2.Payload(content_type="text/plain", data=data)


def event(type_: str = "order.placed", **more: Any) -> event_pb2.EventDraft:
    """An event to append."""
    return event_pb2.EventDraft(type=type_, **more)


def awaiting(*drafts: ticket_pb2.TicketDraft) -> commit_pb2.RunAwaiting:
    """A run that waits; for any value, if nothing is said."""
    return commit_pb2.RunAwaiting(tickets=drafts or (ticket_pb2.TicketDraft(),))


class Runtime:
    """One scope of a running suite."""

    def __init__(self, suite: HasChannels, **values: str) -> None:
        self.world = World(suite, **values)
        self._agent: str | None = None

    @property
    def metadata(self) -> Metadata:
        """The metadata of calls in this scope."""
        return self.world.metadata

    async def call(self, name: str, request: Any, metadata: Metadata | None = None) -> Any:
        """Calls a unary RPC, in this scope unless other metadata is given."""
        return await self.world.bind(name)(request, metadata=metadata or self.metadata, timeout=CALL_SECONDS)

    async def agent(self) -> str:
        """This scope's agent."""
        if self._agent is None:
            self._agent = await self.world.agent()
        return self._agent

    async def create(self, session_id: str | None = None, **draft: Any) -> session_pb2.Session:
        """A new session."""
        request = session_service_pb2.CreateSessionRequest(
            request_id=fresh_id(),
            session=session_service_pb2.SessionDraft(session_id=session_id or fresh_id("session"), **draft),
        )
        return (await self.call("SessionService.CreateSession", request)).session

    async def session(self, session_id: str) -> session_pb2.Session:
        """Reads a session."""
        request = session_service_pb2.GetSessionRequest(session_id=session_id)
        return (await self.call("SessionService.GetSession", request)).session

    async def submission(self, session_id: str | None = None, **more: Any) -> task_service_pb2.SubmitTaskRequest:
        """A request that submits a task, on a new session if none is named."""
        where: dict[str, Any] = (
            {"create_session": session_service_pb2.SessionDraft()}
            if session_id is None and "create_session" not in more
            else {"session_id": session_id}
            if session_id is not None
            else {}
        )
        fields = {
            "request_id": fresh_id(),
            "agent_name": await self.agent(),
            "input": text_input("hello"),
            "queue": fresh_id("queue"),
        }
        return task_service_pb2.SubmitTaskRequest(**where, **{**fields, **more})

    async def submit(self, session_id: str | None = None, **more: Any) -> task_pb2.Task:
        """Submits a task, on a new session if none is named, in a queue of its own if none is."""
        request = await self.submission(session_id, **more)
        return (await self.call("TaskService.SubmitTask", request)).task

    async def task(self, task_id: str) -> task_pb2.Task:
        """Reads a task."""
        return (await self.call("TaskService.GetTask", task_service_pb2.GetTaskRequest(task_id=task_id))).task

    async def run(self, run_id: str) -> run_pb2.Run:
        """Reads a run."""
        return (await self.call("RunService.GetRun", run_service_pb2.GetRunRequest(run_id=run_id))).run

    async def cancel(self, task_id: str, **more: Any) -> task_pb2.Task:
        """Asks for a task's cancellation."""
        request = task_service_pb2.CancelTaskRequest(request_id=fresh_id(), task_id=task_id, **more)
        return (await self.call("TaskService.CancelTask", request)).task

    async def wait(self, task_id: str, seconds: float = 20) -> task_pb2.Task:
        """Waits for a task."""
        timeout = Duration()
        timeout.FromMilliseconds(int(seconds * 1000))
        request = task_service_pb2.WaitTaskRequest(task_id=task_id, timeout=timeout)
        return (await self.call("TaskService.WaitTask", request)).task

    async def acquire(
        self, *queues: str, wait: float = 20, ttl: float = 600, metadata: Metadata | None = None, **more: Any
    ) -> worker_service_pb2.AcquiredRun | None:
        """Leases a run of these queues, or gives None when there is none in time."""
        request = acquisition(*queues, wait=wait, ttl=ttl, **more)
        response = await self.call("WorkerService.AcquireRun", request, metadata)
        return response.acquired if response.HasField("acquired") else None

    async def lease(self, ttl: float = 600, **more: Any) -> worker_service_pb2.AcquiredRun:
        """A submitted task whose run is leased."""
        task = await self.submit(**more)
        held = await self.acquire(task.queue, ttl=ttl)
        assert held is not None
        return held

    async def again(self, held: worker_service_pb2.AcquiredRun, **more: Any) -> worker_service_pb2.AcquiredRun:
        """Leases the next run of the same queue."""
        found = await self.acquire(held.run.queue, **more)
        assert found is not None
        return found

    async def heartbeat(self, lease: commit_pb2.Lease) -> worker_service_pb2.HeartbeatResponse:
        """Renews a lease."""
        return await self.call("WorkerService.Heartbeat", worker_service_pb2.HeartbeatRequest(lease=lease))

    async def release(self, lease: commit_pb2.Lease) -> worker_service_pb2.ReleaseRunResponse:
        """Gives a lease back."""
        request = worker_service_pb2.ReleaseRunRequest(request_id=fresh_id(), lease=lease)
        return await self.call("WorkerService.ReleaseRun", request)

    async def commit(self, session_id: str, **parts: Any) -> thread_service_pb2.CommitResponse:
        """Applies a ThreadCommit with these parts."""
        return await self.call("ThreadService.Commit", commit(session_id, **parts))

    async def declare(self, *declarations: state_pb2.StateKeyDeclaration) -> list[state_pb2.StateKey]:
        """Declares state keys."""
        request = thread_service_pb2.DeclareStateKeysRequest(request_id=fresh_id(), declarations=declarations)
        return [*(await self.call("ThreadService.DeclareStateKeys", request)).keys]

    async def view(self, session_id: str, at: int | None = None, **more: Any) -> list[Any]:
        """The pages of a thread's view."""
        request = thread_service_pb2.GetThreadViewRequest(session_id=session_id, commit_sequence=at, **more)
        pages = []
        while True:
            pages.append(await self.call("ThreadService.GetThreadView", request))
            if not pages[-1].next_page_token:
                return pages
            request.page_token = pages[-1].next_page_token

    async def state(self, session_id: str, at: int | None = None, **more: Any) -> dict[str, Any]:
        """The values of a thread's state keys, parsed."""
        pages = await self.view(session_id, at, **more)
        return {value.key: json.loads(value.value_json) for page in pages for value in page.state}

    async def work(self, held: worker_service_pb2.AcquiredRun, **parts: Any) -> thread_service_pb2.CommitResponse:
        """Applies a ThreadCommit under a lease."""
        return await self.commit(held.run.session_id, lease=held.lease, **parts)

    async def ticket(self, ticket_id: str) -> ticket_pb2.Ticket:
        """Reads a ticket."""
        request = ticket_service_pb2.GetTicketRequest(ticket_id=ticket_id)
        return (await self.call("TicketService.GetTicket", request)).ticket

    async def resolve(self, ticket_id: str, **answer: Any) -> ticket_pb2.Ticket:
        """Answers a ticket; `null` if nothing is said."""
        request = ticket_service_pb2.ResolveTicketRequest(
            request_id=fresh_id(),
            ticket_id=ticket_id,
            answer=ticket_pb2.TicketAnswer(**answer or {"value_json": "null"}),
        )
        return (await self.call("TicketService.ResolveTicket", request)).ticket

    async def events(self, session_id: str) -> list[event_pb2.Event]:
        """All events of a session, page by page."""
        found: list[event_pb2.Event] = []
        request = event_service_pb2.ListEventsRequest(
            filter=event_service_pb2.EventFilter(session_id=session_id), page_size=1000
        )
        while True:
            page = await self.call("EventService.ListEvents", request)
            found += page.events
            if not page.next_page_token:
                return found
            request.page_token = page.next_page_token

    async def types(self, session_id: str) -> list[str]:
        """The types of a session's events, without the server's prefix."""
        return [one.type.removeprefix("threadkeep.") for one in await self.events(session_id)]


def commit(session_id: str, **parts: Any) -> thread_service_pb2.CommitRequest:
    """A request that commits."""
    return thread_service_pb2.CommitRequest(
        request_id=parts.pop("request_id", None) or fresh_id(),
        commit=commit_pb2.ThreadCommit(session_id=session_id, **parts),
    )


def acquisition(*queues: str, wait: float = 20, ttl: float = 600, **more: Any) -> worker_service_pb2.AcquireRunRequest:
    """A request that asks for a run."""
    wait_time, lease_ttl = Duration(), Duration()
    wait_time.FromMilliseconds(int(wait * 1000))
    lease_ttl.FromMilliseconds(int(ttl * 1000))
    fields = {"request_id": fresh_id(), "worker_id": "worker"}
    return worker_service_pb2.AcquireRunRequest(
        **{**fields, **more}, queues=queues, wait=wait_time, lease_ttl=lease_ttl
    )


async def together(*calls: Any) -> list[Any]:
    """Starts all calls at once and gives their outcomes, errors included."""
    return list(await asyncio.gather(*calls, return_exceptions=True))
