"""Conversations for tests of the projection: a worker's commits with real checkpoints, and what is projected of them.

Also a projection of its own beside a suite's: on a new database it builds everything anew, on the same one it is a
second replica.
"""

from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from typing import Any

import grpc
from google.protobuf.duration_pb2 import Duration
from google.protobuf.json_format import MessageToDict
from langgraph.checkpoint.serde.jsonplus import JsonPlusSerializer

from tests.support.descriptors import fresh_id
from tests.support.examples.world import World, acquire, json_payload
from tests.support.suite import Suite
from threadkeep.common.v1 import content_pb2
from threadkeep.projection.v1 import message_pb2, message_service_pb2, summary_pb2, summary_service_pb2
from threadkeep.runtime.v1 import (
    checkpoint_pb2,
    checkpoint_service_pb2,
    commit_pb2,
    event_service_pb2,
    run_pb2,
    session_service_pb2,
    task_pb2,
    task_service_pb2,
    ticket_pb2,
    ticket_service_pb2,
    worker_service_pb2,
)

SERIALIZER = JsonPlusSerializer()


def fresh(receipt: commit_pb2.CommitReceipt | bytes) -> message_service_pb2.Freshness:
    """As fresh as that commit, or as that cursor."""
    cursor = receipt if isinstance(receipt, bytes) else receipt.cursor
    return message_service_pb2.Freshness(at_least=cursor, max_wait=Duration(seconds=20))


class Talk:
    """A session with its tasks, in a world. Every call remembers the last receipt, so that reads are fresh."""

    def __init__(self, world: World, agent: str, session_id: str | None = None) -> None:
        self.world = world
        self.agent = agent
        self.session_id = session_id or fresh_id("session")
        self.receipt = commit_pb2.CommitReceipt()
        self.lease: commit_pb2.Lease | None = None
        self.task_ids: list[str] = []
        self.run_ids: list[str] = []
        self.number = 0
        """How many checkpoints it put."""
        self._is_created = session_id is not None

    @classmethod
    async def begin(cls, world: World) -> "Talk":
        """A talk with an agent of its own; the session comes with the first task or checkpoint."""
        return cls(world, await world.agent())

    async def submit(
        self, *inputs: tuple[str, str], metadata: dict[str, str] | None = None, strategy: Any = None
    ) -> task_pb2.Task:
        """Submits a task with messages (id, text)."""
        messages = [
            content_pb2.InputMessage(
                message_id=message_id,
                role=content_pb2.MESSAGE_ROLE_USER,
                parts=[content_pb2.ContentPart(text=text)],
            )
            for message_id, text in inputs
        ]
        request = task_service_pb2.SubmitTaskRequest(
            request_id=fresh_id(),
            agent_name=self.agent,
            input=task_pb2.TaskInput(messages=task_pb2.InputMessages(messages=messages)),
            queue=f"queue-{self.session_id}",
            metadata=metadata or {},
            multitask_strategy=strategy,
        )
        if self._is_created:
            request.session_id = self.session_id
        else:
            request.create_session.CopyFrom(session_service_pb2.SessionDraft(session_id=self.session_id))
            self._is_created = True
        made = await self.world.call("TaskService.SubmitTask", request)
        self.receipt = made.receipt
        self.task_ids.append(made.task.task_id)
        self.run_ids.append(made.task.run_id)
        if made.task.HasField("run_id"):
            self.lease = None
        return made.task

    async def work(self) -> worker_service_pb2.AcquiredRun:
        """Takes the lease of the open run."""
        response = await self.world.call("WorkerService.AcquireRun", acquire(f"queue-{self.session_id}"))
        assert response.HasField("acquired")
        self.lease = response.acquired.lease
        return response.acquired

    async def step(self, *messages: Any, value: checkpoint_pb2.ChannelValue | None = None, ns: str = "") -> None:
        """Commits a superstep whose checkpoint holds these LangChain messages, or the given value."""
        put = self.checkpoint(*messages, value=value, ns=ns)
        await self._commit(running=commit_pb2.RunRunning(), checkpoint_ops=[checkpoint_pb2.CheckpointOp(put=put)])

    async def put(self, *messages: Any, value: checkpoint_pb2.ChannelValue | None = None) -> None:
        """Puts a checkpoint without a run, as a plain LangGraph saver does."""
        request = checkpoint_service_pb2.PutCheckpointRequest(
            request_id=fresh_id(), session_id=self.session_id, put=self.checkpoint(*messages, value=value)
        )
        self._is_created = True
        self.receipt = (await self.world.call("CheckpointService.PutCheckpoint", request)).receipt

    def checkpoint(
        self, *messages: Any, value: checkpoint_pb2.ChannelValue | None = None, ns: str = ""
    ) -> checkpoint_pb2.CheckpointPut:
        """The next checkpoint, whose messages are these."""
        self.number += 1
        version = f"{self.number:032}.0"
        if value is None:
            type_tag, data = SERIALIZER.dumps_typed(list(messages))
            value = checkpoint_pb2.ChannelValue(type=type_tag, data=data)
        value.channel, value.version = "messages", version
        checkpoint_id = f"1f0d0000-0000-6000-8000-{self.number:012}"
        return checkpoint_pb2.CheckpointPut(
            checkpoint_ns=ns,
            checkpoint_id=checkpoint_id,
            checkpoint_json=(
                f'{{"v":4,"id":"{checkpoint_id}","channel_values":{{}},"channel_versions":{{"messages":"{version}"}}}}'
            ).encode(),
            metadata_json=b'{"source":"loop","step":1}',
            channel_values=[value],
        )

    async def delete_checkpoints(self) -> None:
        """LangGraph's delete_thread."""
        request = checkpoint_service_pb2.DeleteThreadRequest(request_id=fresh_id(), session_id=self.session_id)
        if self.lease is not None:
            request.lease.CopyFrom(self.lease)
        self.receipt = (await self.world.call("CheckpointService.DeleteThread", request)).receipt

    async def ask(self) -> str:
        """The run opens a ticket and waits; its id."""
        draft = ticket_pb2.TicketDraft(
            kind=ticket_pb2.TICKET_KIND_APPROVAL, prompt=json_payload(), allowed_decisions=["approve"]
        )
        committed = await self._commit(awaiting=commit_pb2.RunAwaiting(tickets=[draft]))
        self.lease = None
        return str(committed.ticket_ids[0])

    async def answer(self, ticket_id: str) -> None:
        """Resolves the ticket."""
        request = ticket_service_pb2.ResolveTicketRequest(
            request_id=fresh_id(), ticket_id=ticket_id, answer=ticket_pb2.TicketAnswer(decision="approve")
        )
        self.receipt = (await self.world.call("TicketService.ResolveTicket", request)).receipt

    async def finish(self, failure: str | None = None) -> None:
        """Ends the run well, or with a failure."""
        if failure is None:
            ended = commit_pb2.RunEnded(cause=run_pb2.RUN_END_CAUSE_SUCCEEDED)
        else:
            ended = commit_pb2.RunEnded(
                cause=run_pb2.RUN_END_CAUSE_FAILED, failure=run_pb2.Failure(code="tool_error", message=failure)
            )
        await self._commit(ended=ended)
        self.lease = None

    async def head(self) -> bytes:
        """A cursor after the session's last event, those without a receipt of ours (a lease) included."""
        request = event_service_pb2.ListEventsRequest(page_size=1000)
        request.filter.session_id = self.session_id
        while True:
            page = await self.world.call("EventService.ListEvents", request)
            if not page.next_page_token:
                return bytes(page.cursor)
            request.page_token = page.next_page_token

    async def messages(self, **more: Any) -> list[message_pb2.Message]:
        """The conversation, up to date."""
        return await all_messages(self.world, self.session_id, fresh(self.receipt), **more)

    async def ids(self) -> list[str]:
        """The ids of the conversation's messages, up to date; positions are checked."""
        found = await self.messages()
        assert [one.position for one in found] == list(range(1, len(found) + 1))
        return [one.message_id for one in found]

    async def session(self) -> summary_pb2.SessionSummary:
        """The session's summary, up to date."""
        request = summary_service_pb2.GetSessionSummaryRequest(
            session_id=self.session_id, freshness=fresh(self.receipt)
        )
        return (await self.world.call("SummaryService.GetSessionSummary", request)).session

    async def task(self, index: int = -1) -> summary_pb2.TaskSummary:
        """A task's summary, up to date."""
        request = summary_service_pb2.GetTaskSummaryRequest(task_id=self.task_ids[index], freshness=fresh(self.receipt))
        return (await self.world.call("SummaryService.GetTaskSummary", request)).task

    async def run(self, index: int = -1) -> summary_pb2.RunSummary:
        """A run's summary, up to date."""
        request = summary_service_pb2.GetRunSummaryRequest(run_id=self.run_ids[index], freshness=fresh(self.receipt))
        return (await self.world.call("SummaryService.GetRunSummary", request)).run

    async def _commit(self, **parts: Any) -> Any:
        committed = await self.world.commit(session_id=self.session_id, lease=self.lease, **parts)
        self.receipt = committed.receipt
        return committed


async def all_messages(
    world: World,
    session_id: str,
    freshness: message_service_pb2.Freshness | None = None,
    page_size: int = 0,
    **more: Any,
) -> list[message_pb2.Message]:
    """Every message of a session, page by page."""
    request = message_service_pb2.ListMessagesRequest(
        session_id=session_id, freshness=freshness, page_size=page_size, **more
    )
    found: list[message_pb2.Message] = []
    while True:
        page = await world.call("MessageService.ListMessages", request)
        found += page.messages
        if not page.next_page_token:
            return found
        request.page_token = page.next_page_token


async def everything(talks: Sequence[Talk], channel: grpc.aio.Channel | None = None) -> dict[str, Any]:
    """All that a projection says of these conversations and of their scope, up to date, as plain data."""
    world = talks[0].world
    reader = world if channel is None else World(_Through(channel), **world.values)
    seen: dict[str, Any] = {}
    # A cursor of a session's feed covers that session: each one is waited for.
    for talk in talks:
        messages = await all_messages(reader, talk.session_id, fresh(await talk.head()))
        seen[talk.session_id] = [MessageToDict(one) for one in messages]
    for name, request, rows in (
        ("Session", summary_service_pb2.ListSessionSummariesRequest, "sessions"),
        ("Task", summary_service_pb2.ListTaskSummariesRequest, "tasks"),
        ("Run", summary_service_pb2.ListRunSummariesRequest, "runs"),
    ):
        page = await reader.call(f"SummaryService.List{name}Summaries", request(page_size=1000))
        seen[rows] = [MessageToDict(one) for one in getattr(page, rows)]
    return seen


class _Through:
    """Reaches every service over one channel."""

    def __init__(self, channel: grpc.aio.Channel) -> None:
        self._channel = channel

    def channel(self, service: str) -> grpc.aio.Channel:
        """The channel."""
        return self._channel


@asynccontextmanager
async def another_projection(suite: Suite, database_url: str = "memory:") -> AsyncIterator[grpc.aio.Channel]:
    """A projection that follows the suite's runtime from a database of its own, or as a replica on the given one."""
    from threadkeep_chassis.hosting import Host
    from threadkeep_projection.server import Settings, build

    settings = Settings(database_url=database_url, projection_lease_ttl_seconds=1)
    async with Host([build(settings)], peers={"runtime": suite.addresses["runtime"]}) as host:
        async with grpc.aio.insecure_channel(host.address) as channel:
            yield channel
