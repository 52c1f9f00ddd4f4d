"""Push notifications: a task's webhooks, as A2A configures them. The runtime owns and delivers them (R16)."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

from a2a.types import a2a_pb2

from threadkeep.runtime.v1 import webhook_pb2
from threadkeep_chassis.errors import ThreadkeepError
from threadkeep_chassis.scope import Call
from threadkeep_projection.domain.errors import TaskNotFound
from threadkeep_projection.transports.a2a.checks import check_id
from threadkeep_projection.transports.a2a.peers import Work

_FIELDS = {
    "webhook.url": "url",
    "token": "token",
    "authorization_scheme": "authentication.scheme",
    "authorization_credentials": "authentication.credentials",
}


class Pushes:
    """Puts configurations on tasks, shows them, and takes them off."""

    def __init__(self, work: Work) -> None:
        self._work = work

    async def put(
        self, call: Call, task_id: str, config: a2a_pb2.TaskPushNotificationConfig
    ) -> a2a_pb2.TaskPushNotificationConfig:
        """The configuration as it is now; one without an id is the task's own, and has the task's.

        Raises what the fields' rules say, LIMIT_EXCEEDED.
        """
        draft = draft_of(config)
        if not draft.HasField("webhook_id"):
            draft.webhook_id = task_id
        with said_of_config("webhook"):
            made = await self._work.put_webhook(call, task_id, draft)
        return _shown(task_id, config.tenant, made)

    async def get(
        self, call: Call, request: a2a_pb2.GetTaskPushNotificationConfigRequest
    ) -> a2a_pb2.TaskPushNotificationConfig:
        """The configuration of this id. Raises TaskNotFound, as A2A has no name for less."""
        check_id("id", request.id, required=True)
        # A task has few.
        for webhook in (await self._work.webhooks(call, request.task_id, 1000, "")).webhooks:
            if webhook.webhook_id == request.id:
                return _shown(request.task_id, request.tenant, webhook)
        raise TaskNotFound(request.task_id)

    async def list(
        self, call: Call, request: a2a_pb2.ListTaskPushNotificationConfigsRequest
    ) -> a2a_pb2.ListTaskPushNotificationConfigsResponse:
        """A page of them, by id."""
        page = await self._work.webhooks(call, request.task_id, request.page_size, request.page_token)
        return a2a_pb2.ListTaskPushNotificationConfigsResponse(
            configs=[_shown(request.task_id, request.tenant, one) for one in page.webhooks],
            next_page_token=page.next_page_token,
        )

    async def delete(self, call: Call, request: a2a_pb2.DeleteTaskPushNotificationConfigRequest) -> None:
        """Takes it off; one that is not there is passed over."""
        check_id("id", request.id, required=True)
        await self._work.delete_webhook(call, request.task_id, request.id)


def draft_of(config: a2a_pb2.TaskPushNotificationConfig) -> webhook_pb2.TaskWebhookDraft:
    """The webhook that a configuration describes; without an id if it has none. Raises FieldInvalid."""
    check_id("id", config.id)
    draft = webhook_pb2.TaskWebhookDraft(
        webhook=webhook_pb2.Webhook(url=config.url),
        format=webhook_pb2.TASK_WEBHOOK_FORMAT_A2A,
        token=config.token,
        authorization_scheme=config.authentication.scheme,
        authorization_credentials=config.authentication.credentials,
    )
    if config.id:
        draft.webhook_id = config.id
    return draft


@contextmanager
def said_of_config(path: str, prefix: str = "") -> Iterator[None]:
    """What the runtime says of a webhook's fields at `path`, said of a configuration's behind `prefix`."""
    try:
        yield
    except ThreadkeepError as error:
        for ours, theirs in _FIELDS.items():
            name = f"{path}.{ours}"
            error.message = error.message.replace(name, prefix + theirs)
            error.violations = [(prefix + theirs if one == name else one, rule) for one, rule in error.violations]
        raise


def _shown(task_id: str, tenant: str, webhook: webhook_pb2.TaskWebhook) -> a2a_pb2.TaskPushNotificationConfig:
    """Credentials are never shown again."""
    shown = a2a_pb2.TaskPushNotificationConfig(
        tenant=tenant, id=webhook.webhook_id, task_id=task_id, url=webhook.webhook.url, token=webhook.token
    )
    if webhook.authorization_scheme:
        shown.authentication.scheme = webhook.authorization_scheme
    return shown
