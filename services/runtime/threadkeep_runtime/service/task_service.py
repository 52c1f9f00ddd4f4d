"""TaskService: submit, read, list, wait, cancel, retry (R5, R6, R9, R24)."""

from __future__ import annotations

from typing import Any

import grpc

from threadkeep.runtime.v1 import task_pb2, task_service_pb2, task_service_pb2_grpc
from threadkeep_chassis.errors import FieldInvalid
from threadkeep_chassis.ids import new_id
from threadkeep_chassis.paging import PageBuilder
from threadkeep_chassis.scope import current_call
from threadkeep_runtime.domain.commands import TaskFilter
from threadkeep_runtime.domain.values import Task
from threadkeep_runtime.service import parse
from threadkeep_runtime.service.calls import answer, fill, origin_of
from threadkeep_runtime.service.render import task_to_proto
from threadkeep_runtime.service.rooms import Rooms
from threadkeep_runtime.service.submissions import strategy_of, submission_of
from threadkeep_runtime.service.task_webhook_convert import task_webhook_of, task_webhook_to_proto
from threadkeep_runtime.store import reads
from threadkeep_runtime.store.apply import Applied
from threadkeep_runtime.store.reads import ListQuery

pb = task_service_pb2

DEFAULT_WAIT_SECONDS = 60.0
MAX_WAIT_SECONDS = 600.0
MAX_GRACE_SECONDS = 24 * 3600.0
REPLY_SECONDS = 0.05
"""What is left of a call's deadline for the answer that nothing happened in time."""


class TaskServicer(task_service_pb2_grpc.TaskServiceServicer):
    """Translates; `rooms` is set once the database is open."""

    rooms: Rooms

    async def SubmitTask(
        self, request: pb.SubmitTaskRequest, context: grpc.aio.ServicerContext
    ) -> pb.SubmitTaskResponse:
        """Submits a task, and creates its session when asked to."""
        call = current_call()
        actor = parse.actor_of(request.actor)
        submission = submission_of(request, self.rooms)

        def render(applied: Applied) -> bytes:
            return self._with_task(pb.SubmitTaskResponse, applied)

        outcome = await self.rooms.commands.submit_task(
            origin_of(call, request, actor), submission.session_id, submission.agent_name, submission.rest, render
        )
        return answer(call, outcome, pb.SubmitTaskResponse)

    async def GetTask(self, request: pb.GetTaskRequest, context: grpc.aio.ServicerContext) -> pb.GetTaskResponse:
        """Reads a task."""
        task = await self.rooms.commands.find_task(current_call().scope_key, request.task_id)
        return pb.GetTaskResponse(task=task_to_proto(task))

    async def ListTasks(self, request: pb.ListTasksRequest, context: grpc.aio.ServicerContext) -> pb.ListTasksResponse:
        """Lists tasks, newest first."""
        call = current_call()
        page = self.rooms.pager.page(call, request)
        states = parse.states_of(request, task_pb2.TaskState, "TASK_STATE_")
        thread_key = parse.session_filter(call.scope_key, request)

        def query(count: int, after: tuple[Any, ...] | None) -> ListQuery:
            return ListQuery(
                call.scope_key,
                count,
                after,
                thread_key=thread_key,
                agent_name=request.agent_name if request.HasField("agent_name") else None,
                schedule_id=request.schedule_id if request.HasField("schedule_id") else None,
                states=states,
            )

        builder = await fill(
            self.rooms.database,
            page,
            query,
            reads.list_tasks,
            task_to_proto,
            lambda task: (task.create_time, task.task_id),
        )
        return pb.ListTasksResponse(tasks=builder.items, next_page_token=builder.token(self.rooms.pager, call, request))

    async def WaitTask(self, request: pb.WaitTaskRequest, context: grpc.aio.ServicerContext) -> pb.WaitTaskResponse:
        """Waits until a task is final, or waits for an answer."""
        call = current_call()
        seconds = parse.seconds_of(request, "timeout", DEFAULT_WAIT_SECONDS, most=MAX_WAIT_SECONDS)
        if call.seconds_left is not None:
            seconds = min(seconds, max(0.0, call.seconds_left - REPLY_SECONDS))
        task = await self.rooms.commands.wait_task(call, request.task_id, seconds)
        return pb.WaitTaskResponse(task=task_to_proto(task))

    async def CancelTask(
        self, request: pb.CancelTaskRequest, context: grpc.aio.ServicerContext
    ) -> pb.CancelTaskResponse:
        """Asks for a task's cancellation."""
        call = current_call()
        actor = parse.actor_of(request.actor)
        grace = parse.seconds_of(
            request, "grace_period", self.rooms.settings.cancel_grace_seconds, most=MAX_GRACE_SECONDS
        )

        def render(applied: Applied) -> bytes:
            return self._with_task(pb.CancelTaskResponse, applied)

        outcome = await self.rooms.commands.cancel_task(
            origin_of(call, request, actor), request.task_id, request.reason, grace, render
        )
        return answer(call, outcome, pb.CancelTaskResponse)

    async def CancelTasks(
        self, request: pb.CancelTasksRequest, context: grpc.aio.ServicerContext
    ) -> pb.CancelTasksResponse:
        """Asks for the cancellation of many tasks."""
        call = current_call()
        actor = parse.actor_of(request.actor)
        selection = TaskFilter(
            states=tuple(parse.states_of(request, task_pb2.TaskState, "TASK_STATE_")),
            agent_name=request.agent_name if request.HasField("agent_name") else None,
            queue=request.queue if request.HasField("queue") else None,
        )
        session_id = request.session_id if request.HasField("session_id") else None
        if session_id is None and selection == TaskFilter():
            raise FieldInvalid("session_id", "or states, agent_name or queue is required: a filter selects something")
        grace = parse.seconds_of(
            request, "grace_period", self.rooms.settings.cancel_grace_seconds, most=MAX_GRACE_SECONDS
        )
        outcome = await self.rooms.commands.cancel_tasks(
            origin_of(call, request, actor),
            session_id,
            selection,
            request.reason,
            grace,
            lambda asked: pb.CancelTasksResponse(task_count=asked).SerializeToString(),
        )
        return answer(call, outcome, pb.CancelTasksResponse)

    async def RetryTask(self, request: pb.RetryTaskRequest, context: grpc.aio.ServicerContext) -> pb.RetryTaskResponse:
        """Submits the work of a task that has ended once more."""
        call = current_call()
        actor = parse.actor_of(request.actor)
        not_before = parse.optional_time(request, "not_before")
        strategy = strategy_of(request.multitask_strategy)

        def rest(old: Task) -> dict[str, Any]:
            return {
                "task_id": request.new_task_id if request.HasField("new_task_id") else new_id(),
                "names_task": request.HasField("new_task_id"),
                "run_id": new_id(),
                "input_json": parse.task_input_json(task_pb2.TaskInput.FromString(old.input)),
                "strategy": strategy,
                "max_enqueued": self.rooms.limits["max_enqueued_tasks"],
                "not_before": not_before,
            }

        outcome = await self.rooms.commands.retry_task(
            origin_of(call, request, actor),
            request.task_id,
            request.keep_manifest,
            rest,
            lambda applied: self._with_task(pb.RetryTaskResponse, applied),
        )
        return answer(call, outcome, pb.RetryTaskResponse)

    async def PutTaskWebhook(
        self, request: pb.PutTaskWebhookRequest, context: grpc.aio.ServicerContext
    ) -> pb.PutTaskWebhookResponse:
        """Puts a webhook on a task."""
        call = current_call()
        actor = parse.actor_of(request.actor)
        webhook = task_webhook_of(request.webhook, self.rooms.webhooks, "webhook")

        def render(applied: Applied) -> bytes:
            receipt = self.rooms.receipts.render(applied)
            return pb.PutTaskWebhookResponse(
                webhook=task_webhook_to_proto(webhook), receipt=receipt
            ).SerializeToString()

        rest = {"webhook_id": webhook.webhook_id, "webhook": webhook, "max_webhooks": self._most_webhooks}
        outcome = await self.rooms.commands.set_task_webhook(
            origin_of(call, request, actor), request.task_id, rest, render
        )
        return answer(call, outcome, pb.PutTaskWebhookResponse)

    async def ListTaskWebhooks(
        self, request: pb.ListTaskWebhooksRequest, context: grpc.aio.ServicerContext
    ) -> pb.ListTaskWebhooksResponse:
        """Lists a task's webhooks: a task has few."""
        call = current_call()
        page = self.rooms.pager.page(call, request)
        task = await self.rooms.commands.find_task(call.scope_key, request.task_id)
        builder: PageBuilder[Any] = PageBuilder(page)
        for webhook in task.webhooks:
            if page.after is not None and webhook.webhook_id <= page.after[0]:
                continue
            if not builder.add(task_webhook_to_proto(webhook), (webhook.webhook_id,)):
                break
        return pb.ListTaskWebhooksResponse(
            webhooks=builder.items, next_page_token=builder.token(self.rooms.pager, call, request)
        )

    async def DeleteTaskWebhook(
        self, request: pb.DeleteTaskWebhookRequest, context: grpc.aio.ServicerContext
    ) -> pb.DeleteTaskWebhookResponse:
        """Takes a webhook off a task."""
        call = current_call()
        actor = parse.actor_of(request.actor)

        def render(applied: Applied) -> bytes:
            return pb.DeleteTaskWebhookResponse(receipt=self.rooms.receipts.render(applied)).SerializeToString()

        rest = {"webhook_id": request.webhook_id, "webhook": None, "max_webhooks": self._most_webhooks}
        outcome = await self.rooms.commands.set_task_webhook(
            origin_of(call, request, actor), request.task_id, rest, render
        )
        return answer(call, outcome, pb.DeleteTaskWebhookResponse)

    @property
    def _most_webhooks(self) -> int:
        return self.rooms.limits["max_task_webhooks"]

    def _with_task(self, response: Any, applied: Applied) -> bytes:
        task = applied.decision.task
        assert task is not None
        rendered: bytes = response(
            task=task_to_proto(task), receipt=self.rooms.receipts.render(applied)
        ).SerializeToString()
        return rendered
