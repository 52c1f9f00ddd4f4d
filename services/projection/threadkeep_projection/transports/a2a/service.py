"""The servicer of A2A's A2AService: checks, calls, renders."""

from __future__ import annotations

import asyncio
from contextlib import aclosing
from dataclasses import dataclass
from datetime import UTC
from typing import Any

import grpc
from a2a.types import a2a_pb2, a2a_pb2_grpc
from a2a.utils.constants import MAX_LIST_TASKS_PAGE_SIZE, VERSION_HEADER
from google.protobuf import empty_pb2

from threadkeep_chassis.errors import FieldInvalid
from threadkeep_chassis.paging import PageBuilder, Pager
from threadkeep_chassis.scope import Call, current_call
from threadkeep_projection.commands.reading import Reading
from threadkeep_projection.commands.streaming import A2A, Stream, Streaming
from threadkeep_projection.domain.errors import VersionNotSupported
from threadkeep_projection.store.task_states import TaskStateFilter
from threadkeep_projection.transports.a2a.artifacts import Budget
from threadkeep_projection.transports.a2a.cards import Cards
from threadkeep_projection.transports.a2a.checks import check_id
from threadkeep_projection.transports.a2a.following import Following, response_of
from threadkeep_projection.transports.a2a.peers import Work
from threadkeep_projection.transports.a2a.pushes import Pushes
from threadkeep_projection.transports.a2a.sending import Sending
from threadkeep_projection.transports.a2a.tasks import DEFAULT_HISTORY, MOST_HISTORY, Tasks

MAJOR_VERSION = "1"


@dataclass(frozen=True)
class A2ARooms:
    """What the servicer reaches once the service has started."""

    pager: Pager
    reading: Reading
    streaming: Streaming
    work: Work
    cards: Cards
    sending: Sending
    following: Following
    tasks: Tasks
    pushes: Pushes


class A2AService(a2a_pb2_grpc.A2AServiceServicer):
    """A2A 1.0. `tenant` is an agent's name, contextId a session's id, taskId a task's, messageId the request's."""

    rooms: A2ARooms

    async def SendMessage(
        self, request: a2a_pb2.SendMessageRequest, context: grpc.aio.ServicerContext
    ) -> a2a_pb2.SendMessageResponse:
        """Opens a task or answers one, and waits until it is final or asks something, unless told not to."""
        call, history = _call(request), _history(request.configuration)
        sent = await self.rooms.sending.send(call, request)
        if request.configuration.return_immediately:
            return a2a_pb2.SendMessageResponse(task=await self.rooms.tasks.shown(call, sent.task, history))
        with self.rooms.streaming.admit(A2A):
            await self.rooms.following.until_rest(call, sent.task, sent.sequence)
        task = await self.rooms.work.task(call, sent.task.task_id)
        return a2a_pb2.SendMessageResponse(task=await self.rooms.tasks.shown(call, task, history, is_settled=True))

    async def SendStreamingMessage(
        self, request: a2a_pb2.SendMessageRequest, context: grpc.aio.ServicerContext
    ) -> None:
        """Opens a task or answers one, and streams what becomes of it."""
        call, history = _call(request), _history(request.configuration)
        with self.rooms.streaming.admit(A2A) as stream:
            sent = await self.rooms.sending.send(call, request)
            first = a2a_pb2.StreamResponse(task=await self.rooms.tasks.shown(call, sent.task, history))
            await self._write(context, stream, first)
            async with aclosing(self.rooms.following.updates(call, sent.task, sent.sequence)) as updates:
                async for update in updates:
                    await self._write(context, stream, response_of(update))

    async def SubscribeToTask(self, request: a2a_pb2.SubscribeToTaskRequest, context: grpc.aio.ServicerContext) -> None:
        """Streams a task that has not ended: first as it is, then what becomes of it."""
        call = _call(request)
        with self.rooms.streaming.admit(A2A) as stream:
            task = await self.rooms.sending.known(call, request.id, request.tenant, "id")
            async with aclosing(self.rooms.following.subscribed(call, task)) as responses:
                async for response in responses:
                    await self._write(context, stream, response)

    async def GetTask(self, request: a2a_pb2.GetTaskRequest, context: grpc.aio.ServicerContext) -> a2a_pb2.Task:
        """A task as it is."""
        call, history = _call(request), _history(request)
        task = await self.rooms.sending.known(call, request.id, request.tenant, "id")
        return await self.rooms.tasks.shown(call, task, history)

    async def ListTasks(
        self, request: a2a_pb2.ListTasksRequest, context: grpc.aio.ServicerContext
    ) -> a2a_pb2.ListTasksResponse:
        """Tasks of the scope, the one that changed last first."""
        call = _call(request)
        if request.HasField("page_size") and not 1 <= request.page_size <= MAX_LIST_TASKS_PAGE_SIZE:
            raise FieldInvalid("page_size", f"must lie between 1 and {MAX_LIST_TASKS_PAGE_SIZE}")
        history = _history(request, default=0)
        check_id("context_id", request.context_id)
        page = self.rooms.pager.page(call, request)
        found, total = await self.rooms.reading.tasks_by_update(
            call.scope_key, _wanted(request), page.after, page.size + 1
        )
        budget = Budget() if request.include_artifacts else None
        builder: PageBuilder[a2a_pb2.Task] = PageBuilder(page)
        for task in found:
            shown = await self.rooms.tasks.listed(call, task, history, budget)
            if not builder.add(shown, (task.update_time, task.task_id)):
                break
        return a2a_pb2.ListTasksResponse(
            tasks=builder.items,
            next_page_token=builder.token(self.rooms.pager, call, request),
            page_size=page.size,
            total_size=total,
        )

    async def CancelTask(self, request: a2a_pb2.CancelTaskRequest, context: grpc.aio.ServicerContext) -> a2a_pb2.Task:
        """Asks for a task's cancellation; one that a worker holds is canceled soon."""
        call = _call(request)
        task = await self.rooms.sending.known(call, request.id, request.tenant, "id")
        fields = request.metadata.fields
        reason = fields["reason"].string_value if "reason" in fields else ""
        response = await self.rooms.work.cancel(call, task.task_id, reason)
        return await self.rooms.tasks.shown(call, response.task, DEFAULT_HISTORY)

    async def CreateTaskPushNotificationConfig(
        self, request: a2a_pb2.TaskPushNotificationConfig, context: grpc.aio.ServicerContext
    ) -> a2a_pb2.TaskPushNotificationConfig:
        """Puts a webhook on a task, or replaces the one of this id."""
        call = await self._for_task(request)
        return await self.rooms.pushes.put(call, request.task_id, request)

    async def GetTaskPushNotificationConfig(
        self, request: a2a_pb2.GetTaskPushNotificationConfigRequest, context: grpc.aio.ServicerContext
    ) -> a2a_pb2.TaskPushNotificationConfig:
        """A webhook of a task."""
        call = await self._for_task(request)
        return await self.rooms.pushes.get(call, request)

    async def ListTaskPushNotificationConfigs(
        self, request: a2a_pb2.ListTaskPushNotificationConfigsRequest, context: grpc.aio.ServicerContext
    ) -> a2a_pb2.ListTaskPushNotificationConfigsResponse:
        """The webhooks of a task."""
        call = await self._for_task(request)
        return await self.rooms.pushes.list(call, request)

    async def DeleteTaskPushNotificationConfig(
        self, request: a2a_pb2.DeleteTaskPushNotificationConfigRequest, context: grpc.aio.ServicerContext
    ) -> empty_pb2.Empty:
        """Takes a webhook off a task."""
        call = await self._for_task(request)
        await self.rooms.pushes.delete(call, request)
        return empty_pb2.Empty()

    async def GetExtendedAgentCard(
        self, request: a2a_pb2.GetExtendedAgentCardRequest, context: grpc.aio.ServicerContext
    ) -> a2a_pb2.AgentCard:
        """The card of the agent that `tenant` names."""
        return await self.rooms.cards.card(_call(request), request.tenant)

    async def _for_task(self, request: Any) -> Call:
        """The call about a task that the tenant has. Raises TaskNotFound."""
        call = _call(request)
        await self.rooms.sending.known(call, request.task_id, request.tenant, "task_id")
        return call

    async def _write(self, context: grpc.aio.ServicerContext, stream: Stream, response: a2a_pb2.StreamResponse) -> None:
        """Writes a frame. Raises SlowConsumer when it waits too long for its reader."""
        stream.gave_one()
        try:
            async with asyncio.timeout(self.rooms.streaming.patience_seconds):
                await context.write(response)
        except TimeoutError as error:
            raise stream.cut() from error


def _call(request: Any) -> Call:
    """The call. Raises VersionNotSupported, FieldInvalid (a tenant that is no name)."""
    check_id("tenant", request.tenant)
    call = current_call()
    version = call.metadata.get(VERSION_HEADER.lower(), "")
    if isinstance(version, str) and version and version.partition(".")[0] != MAJOR_VERSION:
        raise VersionNotSupported("This server speaks A2A 1.0.")
    return call


def _history(wanted: Any, default: int = DEFAULT_HISTORY) -> int:
    """How many messages of history the caller wants. Raises FieldInvalid."""
    if not wanted.HasField("history_length"):
        return default
    if wanted.history_length < 0:
        raise FieldInvalid("history_length", "must not be negative")
    return min(int(wanted.history_length), MOST_HISTORY)


def _wanted(request: a2a_pb2.ListTasksRequest) -> TaskStateFilter:
    state = None
    if request.status:
        try:
            state = a2a_pb2.TaskState.Name(request.status).removeprefix("TASK_STATE_")
        except ValueError as error:
            raise FieldInvalid("status", "is none that this server knows") from error
    updated_from = None
    if request.HasField("status_timestamp_after"):
        try:
            updated_from = request.status_timestamp_after.ToDatetime(tzinfo=UTC)
        except (ValueError, OverflowError) as error:
            raise FieldInvalid("status_timestamp_after", "must be a time between the years 1 and 9999") from error
    return TaskStateFilter(request.context_id or None, request.tenant or None, state, updated_from)
