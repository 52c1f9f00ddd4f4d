"""Example requests about a thread's history and its state keys."""

from tests.support.descriptors import fresh_id
from tests.support.examples.registry import register
from tests.support.examples.world import World
from threadkeep.runtime.v1 import audit_pb2, state_pb2, thread_service_pb2


def declaration(key: str, **more: object) -> state_pb2.StateKeyDeclaration:
    """A THREAD key, EXCLUSIVE unless said otherwise."""
    fields = {"scope": state_pb2.STATE_SCOPE_THREAD, "merge": state_pb2.STATE_MERGE_EXCLUSIVE, **more}
    return state_pb2.StateKeyDeclaration(key=key, **fields)  # type: ignore[arg-type]


async def with_state(world: World) -> str:
    """A new session with a value under the key `plan`; its id."""
    request = thread_service_pb2.DeclareStateKeysRequest(request_id=fresh_id(), declarations=[declaration("plan")])
    await world.call("ThreadService.DeclareStateKeys", request)
    session_id = (await world.session()).session.session_id
    await world.commit(session_id=session_id, state=[state_pb2.StateCommand(key="plan", set_json='{"steps":[1]}')])
    return session_id


@register("ThreadService.GetThreadView", "session_id")
async def get_thread_view(world: World) -> thread_service_pb2.GetThreadViewRequest:
    return thread_service_pb2.GetThreadViewRequest(session_id=await with_state(world), commit_sequence=2)


@register("ThreadService.ListCommits", "session_id")
async def list_commits(world: World) -> thread_service_pb2.ListCommitsRequest:
    return thread_service_pb2.ListCommitsRequest(session_id=await with_state(world))


@register("ThreadService.DeclareStateKeys")
async def declare_state_keys(world: World) -> thread_service_pb2.DeclareStateKeysRequest:
    return thread_service_pb2.DeclareStateKeysRequest(
        request_id=fresh_id(), declarations=[declaration(fresh_id("key"), schema_json='{"type":"object"}')]
    )


@register("ThreadService.ListStateKeys")
async def list_state_keys(world: World) -> thread_service_pb2.ListStateKeysRequest:
    await with_state(world)
    return thread_service_pb2.ListStateKeysRequest()


@register("ThreadService.VerifyThread", "session_id")
async def verify_thread(world: World) -> thread_service_pb2.VerifyThreadRequest:
    return thread_service_pb2.VerifyThreadRequest(session_id=await with_state(world))


@register("ThreadService.ListAuditRecords", "session_id")
async def list_audit_records(world: World) -> thread_service_pb2.ListAuditRecordsRequest:
    session_id = (await world.session()).session.session_id
    record = audit_pb2.AuditDraft(action="refund.approved", target="order 7")
    await world.commit(session_id=session_id, audit=[record])
    return thread_service_pb2.ListAuditRecordsRequest(session_id=session_id)
