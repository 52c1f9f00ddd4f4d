"""Example requests of the runtime service."""

from google.protobuf.field_mask_pb2 import FieldMask
from google.protobuf.message import Message

from tests.support.descriptors import fresh_id
from tests.support.examples.registry import register
from tests.support.examples.world import World, acquire, json_payload, text_input
from tests.support.suite import HOOKS
from threadkeep.runtime.v1 import (
    checkpoint_pb2,
    checkpoint_service_pb2,
    commit_pb2,
    event_pb2,
    event_service_pb2,
    retention_pb2,
    retention_service_pb2,
    run_service_pb2,
    session_service_pb2,
    task_service_pb2,
    thread_service_pb2,
    ticket_pb2,
    ticket_service_pb2,
    webhook_pb2,
    worker_service_pb2,
)

CHECKPOINT_ID = "1f0d0000-0000-6000-8000-000000000001"


def checkpoint_put(checkpoint_id: str = CHECKPOINT_ID) -> checkpoint_pb2.CheckpointPut:
    """A checkpoint with one value in a blob."""
    return checkpoint_pb2.CheckpointPut(
        checkpoint_id=checkpoint_id,
        checkpoint_json=b'{"v":4,"id":"%b","channel_values":{},"channel_versions":{"a":"1"}}' % checkpoint_id.encode(),
        metadata_json=b'{"source":"loop","step":1}',
        channel_values=[checkpoint_pb2.ChannelValue(channel="a", version="1", type="msgpack", data=b"\xa1a")],
    )


def checkpoint_writes(checkpoint_id: str = CHECKPOINT_ID) -> checkpoint_pb2.CheckpointWrites:
    """One pending write."""
    write = checkpoint_pb2.PendingWrite(task_id="node-1", index=0, channel="a", type="msgpack", data=b"\xa1b")
    return checkpoint_pb2.CheckpointWrites(checkpoint_id=checkpoint_id, writes=[write])


async def with_checkpoint(world: World) -> str:
    """A new session that holds one checkpoint; its id."""
    session_id = fresh_id("session")
    request = checkpoint_service_pb2.PutCheckpointRequest(
        request_id=fresh_id(), session_id=session_id, put=checkpoint_put()
    )
    await world.call("CheckpointService.PutCheckpoint", request)
    return session_id


# Sessions


@register("SessionService.CreateSession")
async def create_session(world: World) -> session_service_pb2.CreateSessionRequest:
    draft = session_service_pb2.SessionDraft(session_id=fresh_id("session"), title="New")
    return session_service_pb2.CreateSessionRequest(request_id=fresh_id(), session=draft)


@register("SessionService.GetSession", "session_id")
async def get_session(world: World) -> session_service_pb2.GetSessionRequest:
    return session_service_pb2.GetSessionRequest(session_id=(await world.session()).session.session_id)


@register("SessionService.ListSessions")
async def list_sessions(world: World) -> session_service_pb2.ListSessionsRequest:
    await world.session()
    return session_service_pb2.ListSessionsRequest(metadata={"topic": "ships"})


@register("SessionService.UpdateSession", "session.session_id")
async def update_session(world: World) -> session_service_pb2.UpdateSessionRequest:
    session_id = (await world.session()).session.session_id
    draft = session_service_pb2.SessionDraft(session_id=session_id, title="Another title")
    return session_service_pb2.UpdateSessionRequest(
        request_id=fresh_id(), session=draft, update_mask=FieldMask(paths=["title"])
    )


@register("SessionService.ForkSession", "session_id")
async def fork_session(world: World) -> session_service_pb2.ForkSessionRequest:
    session_id = await with_checkpoint(world)
    draft = session_service_pb2.SessionDraft(session_id=fresh_id("fork"))
    return session_service_pb2.ForkSessionRequest(request_id=fresh_id(), session_id=session_id, session=draft)


@register("SessionService.DeleteSession", "session_id")
async def delete_session(world: World) -> session_service_pb2.DeleteSessionRequest:
    session_id = (await world.session()).session.session_id
    return session_service_pb2.DeleteSessionRequest(request_id=fresh_id(), session_id=session_id)


# Retention


@register("RetentionService.GetRetentionPolicy")
async def get_retention_policy(world: World) -> retention_service_pb2.GetRetentionPolicyRequest:
    await world.call("RetentionService.SetRetentionPolicy", await set_retention_policy(world))
    return retention_service_pb2.GetRetentionPolicyRequest()


@register("RetentionService.SetRetentionPolicy")
async def set_retention_policy(world: World) -> retention_service_pb2.SetRetentionPolicyRequest:
    rule = retention_pb2.RetentionRule(max_count=100, keep_latest=1)
    policy = retention_pb2.RetentionPolicy(tasks=rule, sessions=rule, checkpoints=rule, events=rule)
    return retention_service_pb2.SetRetentionPolicyRequest(request_id=fresh_id(), policy=policy)


@register("RetentionService.PurgeNow", "session_id")
async def purge_now(world: World) -> retention_service_pb2.PurgeNowRequest:
    session_id = (await world.session()).session.session_id
    return retention_service_pb2.PurgeNowRequest(request_id=fresh_id(), session_id=session_id)


# Tasks and runs


@register("TaskService.SubmitTask", "session_id")
async def submit_task(world: World) -> task_service_pb2.SubmitTaskRequest:
    return task_service_pb2.SubmitTaskRequest(
        request_id=fresh_id(),
        session_id=(await world.session()).session.session_id,
        task_id=fresh_id("task"),
        agent_name=await world.agent(),
        input=text_input("hello"),
        queue=fresh_id("queue"),
    )


@register("TaskService.GetTask", "task_id")
async def get_task(world: World) -> task_service_pb2.GetTaskRequest:
    return task_service_pb2.GetTaskRequest(task_id=(await world.submit()).task.task_id)


@register("TaskService.ListTasks", "session_id")
async def list_tasks(world: World) -> task_service_pb2.ListTasksRequest:
    return task_service_pb2.ListTasksRequest(session_id=(await world.submit()).task.session_id)


@register("TaskService.WaitTask", "task_id")
async def wait_task(world: World) -> task_service_pb2.WaitTaskRequest:
    return task_service_pb2.WaitTaskRequest(task_id=(await world.ticket()).task_id)


@register("TaskService.CancelTask", "task_id")
async def cancel_task(world: World) -> task_service_pb2.CancelTaskRequest:
    task = (await world.submit()).task
    return task_service_pb2.CancelTaskRequest(request_id=fresh_id(), task_id=task.task_id, reason="no longer needed")


@register("TaskService.CancelTasks", "session_id")
async def cancel_tasks(world: World) -> task_service_pb2.CancelTasksRequest:
    session_id = (await world.submit()).task.session_id
    return task_service_pb2.CancelTasksRequest(request_id=fresh_id(), session_id=session_id, reason="all of it")


@register("TaskService.RetryTask", "task_id")
async def retry_task(world: World) -> task_service_pb2.RetryTaskRequest:
    task_id = (await world.submit()).task.task_id
    cancel = task_service_pb2.CancelTaskRequest(request_id=fresh_id(), task_id=task_id)
    await world.call("TaskService.CancelTask", cancel)
    return task_service_pb2.RetryTaskRequest(request_id=fresh_id(), task_id=task_id, new_task_id=fresh_id("task"))


def task_webhook() -> webhook_pb2.TaskWebhookDraft:
    """A webhook that a task may have."""
    return webhook_pb2.TaskWebhookDraft(
        webhook_id=fresh_id("webhook"), webhook=webhook_pb2.Webhook(url=f"{HOOKS}/{fresh_id()}"), token="t"
    )


async def with_webhook(world: World) -> task_service_pb2.PutTaskWebhookRequest:
    """What put a webhook on a new task."""
    task_id = (await world.submit()).task.task_id
    request = task_service_pb2.PutTaskWebhookRequest(request_id=fresh_id(), task_id=task_id, webhook=task_webhook())
    await world.call("TaskService.PutTaskWebhook", request)
    return request


@register("TaskService.PutTaskWebhook", "task_id")
async def put_task_webhook(world: World) -> task_service_pb2.PutTaskWebhookRequest:
    return task_service_pb2.PutTaskWebhookRequest(
        request_id=fresh_id(), task_id=(await world.submit()).task.task_id, webhook=task_webhook()
    )


@register("TaskService.ListTaskWebhooks", "task_id")
async def list_task_webhooks(world: World) -> task_service_pb2.ListTaskWebhooksRequest:
    return task_service_pb2.ListTaskWebhooksRequest(task_id=(await with_webhook(world)).task_id)


@register("TaskService.DeleteTaskWebhook", "task_id")
async def delete_task_webhook(world: World) -> task_service_pb2.DeleteTaskWebhookRequest:
    made = await with_webhook(world)
    return task_service_pb2.DeleteTaskWebhookRequest(
        request_id=fresh_id(), task_id=made.task_id, webhook_id=made.webhook.webhook_id
    )


@register("RunService.GetRun", "run_id")
async def get_run(world: World) -> run_service_pb2.GetRunRequest:
    return run_service_pb2.GetRunRequest(run_id=(await world.submit()).task.run_id)


@register("RunService.ListRuns", "session_id", "task_id")
async def list_runs(world: World) -> run_service_pb2.ListRunsRequest:
    task = (await world.submit()).task
    return run_service_pb2.ListRunsRequest(session_id=task.session_id, task_id=task.task_id)


# Tickets


@register("TicketService.GetTicket", "ticket_id")
async def get_ticket(world: World) -> ticket_service_pb2.GetTicketRequest:
    return ticket_service_pb2.GetTicketRequest(ticket_id=(await world.ticket()).ticket_id)


@register("TicketService.ListTickets", "session_id", "task_id")
async def list_tickets(world: World) -> ticket_service_pb2.ListTicketsRequest:
    ticket = await world.ticket()
    return ticket_service_pb2.ListTicketsRequest(session_id=ticket.session_id, task_id=ticket.task_id)


@register("TicketService.ResolveTicket", "ticket_id")
async def resolve_ticket(world: World) -> ticket_service_pb2.ResolveTicketRequest:
    return ticket_service_pb2.ResolveTicketRequest(
        request_id=fresh_id(),
        ticket_id=(await world.ticket()).ticket_id,
        answer=ticket_pb2.TicketAnswer(decision="approve"),
    )


# Threads and events


@register("ThreadService.Commit", "commit.session_id", "commit.lease.run_id")
async def commit(world: World) -> thread_service_pb2.CommitRequest:
    held = await world.lease()
    draft = event_pb2.EventDraft(
        event_id=fresh_id("event"), type="step.done", payload=json_payload(b'{"step":1}'), causation_id=fresh_id()
    )
    return thread_service_pb2.CommitRequest(
        request_id=fresh_id(),
        commit=commit_pb2.ThreadCommit(
            session_id=held.run.session_id,
            lease=held.lease,
            running=commit_pb2.RunRunning(),
            events=[draft],
            checkpoint_ops=[
                checkpoint_pb2.CheckpointOp(put=checkpoint_put()),
                checkpoint_pb2.CheckpointOp(writes=checkpoint_writes()),
            ],
        ),
    )


@register("EventService.ListEvents", "filter.session_id")
async def list_events(world: World) -> event_service_pb2.ListEventsRequest:
    session_id = (await world.submit()).task.session_id
    return event_service_pb2.ListEventsRequest(filter=event_service_pb2.EventFilter(session_id=session_id))


@register("EventService.SubscribeEvents", "filter.session_id", frames=1)
async def subscribe_events(world: World) -> event_service_pb2.SubscribeEventsRequest:
    session_id = (await world.submit()).task.session_id
    return event_service_pb2.SubscribeEventsRequest(
        filter=event_service_pb2.EventFilter(session_id=session_id), from_start=True
    )


# Workers


@register("WorkerService.AcquireRun", "queues[0]")
async def acquire_run(world: World) -> worker_service_pb2.AcquireRunRequest:
    queue = fresh_id("queue")
    await world.submit(queue)
    request = acquire(queue)
    request.wait.FromMilliseconds(200)
    return request


@register("WorkerService.Heartbeat", "lease.run_id")
async def heartbeat(world: World) -> worker_service_pb2.HeartbeatRequest:
    return worker_service_pb2.HeartbeatRequest(lease=(await world.lease()).lease)


@register("WorkerService.ReleaseRun", "lease.run_id")
async def release_run(world: World) -> worker_service_pb2.ReleaseRunRequest:
    return worker_service_pb2.ReleaseRunRequest(request_id=fresh_id(), lease=(await world.lease()).lease)


@register("WorkerService.PublishLive", "lease.run_id")
async def publish_live(world: World) -> list[Message]:
    seen = event_pb2.LiveObservation(kind=event_pb2.LIVE_KIND_TOKEN, index=1, payload=json_payload(b'{"text":"he"}'))
    return [worker_service_pb2.PublishLiveRequest(lease=(await world.lease()).lease, observations=[seen])]


# Checkpoints


@register("CheckpointService.PutCheckpoint")
async def put_checkpoint(world: World) -> checkpoint_service_pb2.PutCheckpointRequest:
    return checkpoint_service_pb2.PutCheckpointRequest(
        request_id=fresh_id(), session_id=fresh_id("session"), put=checkpoint_put()
    )


@register("CheckpointService.PutWrites")
async def put_writes(world: World) -> checkpoint_service_pb2.PutWritesRequest:
    return checkpoint_service_pb2.PutWritesRequest(
        request_id=fresh_id(), session_id=await with_checkpoint(world), writes=checkpoint_writes()
    )


@register("CheckpointService.GetCheckpoint", "session_id")
async def get_checkpoint(world: World) -> checkpoint_service_pb2.GetCheckpointRequest:
    return checkpoint_service_pb2.GetCheckpointRequest(session_id=await with_checkpoint(world))


@register("CheckpointService.ListCheckpoints", "session_id")
async def list_checkpoints(world: World) -> checkpoint_service_pb2.ListCheckpointsRequest:
    return checkpoint_service_pb2.ListCheckpointsRequest(session_id=await with_checkpoint(world))


@register("CheckpointService.DeleteThread", "session_id")
async def delete_thread(world: World) -> checkpoint_service_pb2.DeleteThreadRequest:
    return checkpoint_service_pb2.DeleteThreadRequest(request_id=fresh_id(), session_id=await with_checkpoint(world))


@register("CheckpointService.DeleteForRuns")
async def delete_for_runs(world: World) -> checkpoint_service_pb2.DeleteForRunsRequest:
    await with_checkpoint(world)
    return checkpoint_service_pb2.DeleteForRunsRequest(request_id=fresh_id(), run_ids=[fresh_id("run")])


@register("CheckpointService.StageChunk")
async def stage_chunk(world: World) -> checkpoint_service_pb2.StageChunkRequest:
    return checkpoint_service_pb2.StageChunkRequest(
        request_id=fresh_id(), staged_id=fresh_id("staged"), index=0, data=b"chunk"
    )


@register("CheckpointService.ReadValue", "session_id")
async def read_value(world: World) -> checkpoint_service_pb2.ReadValueRequest:
    session_id = await with_checkpoint(world)
    return checkpoint_service_pb2.ReadValueRequest(
        session_id=session_id,
        checkpoint_id=CHECKPOINT_ID,
        channel=checkpoint_service_pb2.ChannelValueName(channel="a", version="1"),
    )


@register("CheckpointService.CopyThread", "source_session_id")
async def copy_thread(world: World) -> checkpoint_service_pb2.CopyThreadRequest:
    source = await with_checkpoint(world)
    return checkpoint_service_pb2.CopyThreadRequest(
        request_id=fresh_id(), source_session_id=source, target_session_id=fresh_id("session")
    )


@register("CheckpointService.PruneThread", "session_id")
async def prune_thread(world: World) -> checkpoint_service_pb2.PruneThreadRequest:
    return checkpoint_service_pb2.PruneThreadRequest(
        request_id=fresh_id(),
        session_id=await with_checkpoint(world),
        strategy=checkpoint_service_pb2.PRUNE_STRATEGY_DELETE,
    )
