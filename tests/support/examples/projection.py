"""Example requests of the projection service; they wait until the projection has seen what they ask for."""

from google.protobuf.duration_pb2 import Duration

from tests.support.descriptors import fresh_id
from tests.support.examples.registry import register
from tests.support.examples.world import World
from threadkeep.projection.v1 import admin_service_pb2, message_service_pb2, stream_service_pb2, summary_service_pb2
from threadkeep.runtime.v1 import commit_pb2


def fresh(receipt: commit_pb2.CommitReceipt) -> message_service_pb2.Freshness:
    """As fresh as that commit."""
    return message_service_pb2.Freshness(at_least=receipt.cursor, max_wait=Duration(seconds=20))


@register("ProjectionAdminService.GetStatus")
async def get_status(world: World) -> admin_service_pb2.GetStatusRequest:
    return admin_service_pb2.GetStatusRequest()


@register("ProjectionAdminService.RebuildSession", "session_id")
async def rebuild_session(world: World) -> admin_service_pb2.RebuildSessionRequest:
    made = await world.submit()
    seen = message_service_pb2.ListMessagesRequest(session_id=made.task.session_id, freshness=fresh(made.receipt))
    await world.call("MessageService.ListMessages", seen)
    return admin_service_pb2.RebuildSessionRequest(request_id=fresh_id(), session_id=made.task.session_id)


@register("ProjectionAdminService.Rebuild")
async def rebuild(world: World) -> admin_service_pb2.RebuildRequest:
    made = await world.submit()
    seen = message_service_pb2.ListMessagesRequest(session_id=made.task.session_id, freshness=fresh(made.receipt))
    await world.call("MessageService.ListMessages", seen)
    return admin_service_pb2.RebuildRequest(request_id=fresh_id())


@register("ProjectionAdminService.ListPoisonEvents", "session_id")
async def list_poison_events(world: World) -> admin_service_pb2.ListPoisonEventsRequest:
    return admin_service_pb2.ListPoisonEventsRequest(session_id=(await world.session()).session.session_id)


@register("ProjectionAdminService.RetryPoisonEvents", "session_id")
async def retry_poison_events(world: World) -> admin_service_pb2.RetryPoisonEventsRequest:
    session_id = (await world.session()).session.session_id
    return admin_service_pb2.RetryPoisonEventsRequest(request_id=fresh_id(), session_id=session_id)


@register("ProjectionAdminService.Pause", is_operators=True)
async def pause(world: World) -> admin_service_pb2.PauseRequest:
    # So short that others who use the projection don't notice.
    return admin_service_pb2.PauseRequest(request_id=fresh_id(), duration=Duration(nanos=1000))


@register("ProjectionAdminService.Resume", is_operators=True)
async def resume(world: World) -> admin_service_pb2.ResumeRequest:
    return admin_service_pb2.ResumeRequest(request_id=fresh_id())


@register("MessageService.ListMessages", "session_id")
async def list_messages(world: World) -> message_service_pb2.ListMessagesRequest:
    made = await world.submit()
    return message_service_pb2.ListMessagesRequest(session_id=made.task.session_id, freshness=fresh(made.receipt))


@register("MessageService.SearchMessages", "session_id")
async def search_messages(world: World) -> message_service_pb2.SearchMessagesRequest:
    made = await world.submit()
    text = made.task.input.messages.messages[0].parts[0].text
    return message_service_pb2.SearchMessagesRequest(
        session_id=made.task.session_id, query=text, freshness=fresh(made.receipt)
    )


@register("MessageService.GetMessage", "session_id", "message_id")
async def get_message(world: World) -> message_service_pb2.GetMessageRequest:
    made = await world.submit()
    return message_service_pb2.GetMessageRequest(
        session_id=made.task.session_id,
        message_id=made.task.input.messages.messages[0].message_id,
        freshness=fresh(made.receipt),
    )


@register("StreamService.SubscribeSession", "session_id", "until_task_id", frames=1)
async def subscribe_session(world: World) -> stream_service_pb2.SubscribeSessionRequest:
    made = await world.submit()
    return stream_service_pb2.SubscribeSessionRequest(
        session_id=made.task.session_id, until_task_id=made.task.task_id, committed_only=True
    )


@register("SummaryService.GetSessionSummary", "session_id")
async def get_session_summary(world: World) -> summary_service_pb2.GetSessionSummaryRequest:
    made = await world.submit()
    return summary_service_pb2.GetSessionSummaryRequest(session_id=made.task.session_id, freshness=fresh(made.receipt))


@register("SummaryService.ListSessionSummaries")
async def list_session_summaries(world: World) -> summary_service_pb2.ListSessionSummariesRequest:
    made = await world.submit()
    return summary_service_pb2.ListSessionSummariesRequest(freshness=fresh(made.receipt))


@register("SummaryService.GetTaskSummary", "task_id")
async def get_task_summary(world: World) -> summary_service_pb2.GetTaskSummaryRequest:
    made = await world.submit()
    return summary_service_pb2.GetTaskSummaryRequest(task_id=made.task.task_id, freshness=fresh(made.receipt))


@register("SummaryService.ListTaskSummaries", "session_id")
async def list_task_summaries(world: World) -> summary_service_pb2.ListTaskSummariesRequest:
    made = await world.submit()
    return summary_service_pb2.ListTaskSummariesRequest(session_id=made.task.session_id, freshness=fresh(made.receipt))


@register("SummaryService.GetRunSummary", "run_id")
async def get_run_summary(world: World) -> summary_service_pb2.GetRunSummaryRequest:
    made = await world.submit()
    return summary_service_pb2.GetRunSummaryRequest(run_id=made.task.run_id, freshness=fresh(made.receipt))


@register("SummaryService.ListAgentSummaries")
async def list_agent_summaries(world: World) -> summary_service_pb2.ListAgentSummariesRequest:
    made = await world.submit()
    return summary_service_pb2.ListAgentSummariesRequest(freshness=fresh(made.receipt))


@register("SummaryService.GetCounts")
async def get_counts(world: World) -> summary_service_pb2.GetCountsRequest:
    made = await world.submit()
    return summary_service_pb2.GetCountsRequest(freshness=fresh(made.receipt))


@register("SummaryService.ListUsage", "session_id")
async def list_usage(world: World) -> summary_service_pb2.ListUsageRequest:
    made = await world.submit()
    return summary_service_pb2.ListUsageRequest(session_id=made.task.session_id, freshness=fresh(made.receipt))


@register("SummaryService.ListRunSummaries", "session_id", "task_id")
async def list_run_summaries(world: World) -> summary_service_pb2.ListRunSummariesRequest:
    made = await world.submit()
    return summary_service_pb2.ListRunSummariesRequest(
        session_id=made.task.session_id, task_id=made.task.task_id, freshness=fresh(made.receipt)
    )
