"""The client's calls to look after the projection, and about a task's webhooks, of a scope with two sessions."""

from typing import Any

import pytest

from tests.support.suite import HOOKS
from threadkeep import errors
from threadkeep.projection.v1 import summary_service_pb2
from threadkeep.runtime.v1 import task_pb2


async def projection_calls(call: Any, task: task_pb2.Task) -> None:
    """Makes each of them."""
    assert await call("summaries.list_usage", summary_service_pb2.USAGE_KEY_DAY, session_id=task.session_id) == []
    assert sum(one.count for one in (await call("summaries.get_counts")).sessions) == 2
    assert [one.agent_name for one in await call("summaries.list_agents", agent_name=task.agent_name)] == [
        task.agent_name
    ]
    assert await call("messages.search", task.session_id, "nothing -of -this") == []
    assert len(await call("projection_admin.get_status")) >= 1
    assert (await call("projection_admin.rebuild_session", task.session_id)).message_count == 2
    assert (await call.first("projection_admin.rebuild", bool))[-1].session_count == 2
    assert await call("projection_admin.list_poison_events") == []
    assert (await call("projection_admin.retry_poison_events")).session_count == 0
    for name in ("projection_admin.pause", "projection_admin.resume"):
        with pytest.raises(errors.ScopeForbidden):
            await call(name)
    put = await call("tasks.put_webhook", task.task_id, f"{HOOKS}/mine")
    assert list(await call("tasks.list_webhooks", task.task_id)) == [put]
    await call("tasks.delete_webhook", task.task_id, put.webhook_id)
    assert not await call("tasks.list_webhooks", task.task_id)
