"""Webhooks of tasks between the contract and the domain, with the checks that the descriptors can't say (R16)."""

from __future__ import annotations

import re
from collections.abc import Sequence

from threadkeep.runtime.v1 import webhook_pb2
from threadkeep_chassis.errors import FieldInvalid
from threadkeep_chassis.ids import new_id
from threadkeep_runtime.domain.outbox import STANDARD
from threadkeep_runtime.domain.values import TaskWebhook
from threadkeep_runtime.domain.webhooks import WebhookRules
from threadkeep_runtime.service import parse
from threadkeep_runtime.service.outbox_convert import webhook_of

_PREFIX = "TASK_WEBHOOK_FORMAT_"
_VISIBLE = re.compile(r"[\x21-\x7e](?:[\x20-\x7e]*[\x21-\x7e])?\Z")
_SCHEME = re.compile(r"[!#$%&'*+.^_`|~0-9A-Za-z-]+\Z")


def task_webhook_of(draft: webhook_pb2.TaskWebhookDraft, rules: WebhookRules, path: str) -> TaskWebhook:
    """A webhook of a task. Raises FieldInvalid, which quotes neither URL nor token."""
    url, secret = webhook_of(draft.webhook, rules, f"{path}.webhook")
    format_ = parse.enum_name(webhook_pb2.TaskWebhookFormat, draft.format, _PREFIX, f"{path}.format")
    for name in ("token", "authorization_credentials"):
        if getattr(draft, name) and not _VISIBLE.match(getattr(draft, name)):
            raise FieldInvalid(f"{path}.{name}", "must be visible ASCII: it goes into a header")
    scheme = draft.authorization_scheme
    if scheme and not _SCHEME.match(scheme):
        raise FieldInvalid(f"{path}.authorization_scheme", "must be a scheme of HTTP authentication, such as Bearer")
    if draft.authorization_credentials and not scheme:
        raise FieldInvalid(f"{path}.authorization_scheme", "is required for credentials")
    return TaskWebhook(
        webhook_id=draft.webhook_id if draft.HasField("webhook_id") else new_id(),
        url=url,
        secret=secret,
        format=STANDARD if format_ == "UNSPECIFIED" else format_,
        token=draft.token,
        scheme=scheme,
        credentials=draft.authorization_credentials,
    )


def task_webhooks_of(
    drafts: Sequence[webhook_pb2.TaskWebhookDraft], rules: WebhookRules, path: str
) -> tuple[TaskWebhook, ...]:
    """The webhooks that a task begins with. Raises FieldInvalid."""
    found: dict[str, TaskWebhook] = {}
    for index, draft in enumerate(drafts):
        webhook = task_webhook_of(draft, rules, f"{path}[{index}]")
        if webhook.webhook_id in found:
            raise FieldInvalid(f"{path}[{index}].webhook_id", "is that of another one")
        found[webhook.webhook_id] = webhook
    return tuple(found[webhook_id] for webhook_id in sorted(found))


def task_webhook_to_proto(webhook: TaskWebhook) -> webhook_pb2.TaskWebhook:
    """The webhook without its credentials."""
    return webhook_pb2.TaskWebhook(
        webhook_id=webhook.webhook_id,
        webhook=webhook_pb2.Webhook(url=webhook.url, secret=webhook.secret),
        format=webhook_pb2.TaskWebhookFormat.Value(f"{_PREFIX}{webhook.format}"),
        token=webhook.token,
        authorization_scheme=webhook.scheme,
    )
