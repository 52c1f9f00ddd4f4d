"""A client's view of the outbox, for tests."""

import json
from typing import Any

from tests.support.runtime import Runtime
from tests.support.waiting import eventually
from threadkeep.common.v1 import payload_pb2
from threadkeep.runtime.v1 import outbox_pb2, outbox_service_pb2, webhook_pb2

PENDING = outbox_pb2.DELIVERY_STATE_PENDING
DELIVERED = outbox_pb2.DELIVERY_STATE_DELIVERED
DEAD = outbox_pb2.DELIVERY_STATE_DEAD


def to_session(session_id: str, value: Any = None, **more: Any) -> outbox_pb2.OutboxDraft:
    """A message to a session."""
    task = more.pop("task", None)
    return _draft(value, session=outbox_pb2.SessionTarget(session_id=session_id, task=task), **more)


def to_webhook(url: str, value: Any = None, *, secret: str | None = None, **more: Any) -> outbox_pb2.OutboxDraft:
    """A message to a webhook."""
    return _draft(value, webhook=webhook_pb2.Webhook(url=url, secret=secret), **more)


def _draft(value: Any, **fields: Any) -> outbox_pb2.OutboxDraft:
    payload = payload_pb2.Payload(content_type="application/json", data=json.dumps(value).encode())
    return outbox_pb2.OutboxDraft(**{"type": "order.placed", "payload": payload, **fields})


async def deliveries(runtime: Runtime, session_id: str | None = None, **more: Any) -> list[outbox_pb2.Delivery]:
    """The messages of a sender, or of the scope, oldest first."""
    request = outbox_service_pb2.ListDeliveriesRequest(session_id=session_id, page_size=1000, **more)
    return list(reversed((await runtime.call("OutboxService.ListDeliveries", request)).deliveries))


async def settled(runtime: Runtime, session_id: str) -> list[outbox_pb2.Delivery]:
    """The messages of a sender once none is pending, oldest first."""

    async def done() -> list[outbox_pb2.Delivery] | bool:
        found = await deliveries(runtime, session_id)
        return bool(found) and all(one.state != PENDING for one in found) and found

    found = await eventually(done)
    assert isinstance(found, list)
    return found


async def inbox(runtime: Runtime, session_id: str) -> list[dict[str, Any]]:
    """What has arrived in a session, in order: the facts of each message."""
    return [
        json.loads(one.payload.data)
        for one in await runtime.events(session_id)
        if one.type == "threadkeep.inbox.received"
    ]
