"""Example requests of the outbox."""

from tests.support.descriptors import fresh_id
from tests.support.examples.registry import register
from tests.support.examples.world import World, json_payload
from tests.support.waiting import eventually
from threadkeep.runtime.v1 import outbox_pb2
from threadkeep.runtime.v1 import outbox_service_pb2 as pb


async def sent(world: World) -> tuple[str, str]:
    """A message to a session that does not exist: (the sender, the message's id), once it is a dead letter."""
    session_id = (await world.session()).session.session_id
    draft = outbox_pb2.OutboxDraft(
        session=outbox_pb2.SessionTarget(session_id=fresh_id("nobody")),
        type="order.placed",
        payload=json_payload(b'{"order":1}'),
    )
    committed = await world.commit(session_id=session_id, outbox=[draft])

    async def is_dead() -> bool:
        listed = await world.call("OutboxService.ListDeadLetters", pb.ListDeadLettersRequest(session_id=session_id))
        return len(listed.dead_letters) == 1

    await eventually(is_dead)
    return session_id, committed.outbox_message_ids[0]


@register("OutboxService.ListDeliveries", "session_id")
async def list_deliveries(world: World) -> pb.ListDeliveriesRequest:
    return pb.ListDeliveriesRequest(session_id=(await sent(world))[0])


@register("OutboxService.ListDeadLetters", "session_id")
async def list_dead_letters(world: World) -> pb.ListDeadLettersRequest:
    return pb.ListDeadLettersRequest(session_id=(await sent(world))[0])


@register("OutboxService.RequeueDeadLetters", "message_ids[0]")
async def requeue_dead_letters(world: World) -> pb.RequeueDeadLettersRequest:
    return pb.RequeueDeadLettersRequest(request_id=fresh_id(), message_ids=[(await sent(world))[1]])


@register("OutboxService.PurgeDeadLetters", "message_ids[0]")
async def purge_dead_letters(world: World) -> pb.PurgeDeadLettersRequest:
    return pb.PurgeDeadLettersRequest(request_id=fresh_id(), message_ids=[(await sent(world))[1]])
