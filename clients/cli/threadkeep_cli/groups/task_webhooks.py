"""`threadkeep tasks webhooks`."""

from __future__ import annotations

import enum
from typing import Annotated, Any

import typer

from threadkeep.runtime.v1 import webhook_pb2
from threadkeep_cli.groups.common import RequestId
from threadkeep_cli.output import Column, field, short
from threadkeep_cli.session import Session, command

app = typer.Typer(help="Who is told of each new state of a task.", no_args_is_help=True)


def _url(row: dict[str, Any]) -> str:
    return str(row.get("webhook", {}).get("url", ""))


COLUMNS: tuple[Column, ...] = (
    ("WEBHOOK", field("webhook_id")),
    ("FORMAT", short("format")),
    ("URL", _url),
    ("AUTHORIZATION", field("authorization_scheme")),
)

TaskId = Annotated[str, typer.Argument(help="The task's id.")]


class Form(enum.Enum):
    """What is posted."""

    STANDARD = "standard"
    A2A = "a2a"


@command(app, "list")
def list_(session: Session, task_id: TaskId) -> None:
    """Lists a task's webhooks."""
    session.show.many(session.client.tasks.list_webhooks(task_id), COLUMNS, "no webhooks")


@command(app)
def put(
    session: Session,
    task_id: TaskId,
    url: Annotated[str, typer.Argument(help="Where each new state is posted to.")],
    webhook_id: Annotated[str | None, typer.Option("--id", help="Its id; one of this id is replaced.")] = None,
    form: Annotated[Form, typer.Option("--format", help="What is posted.")] = Form.STANDARD,
    token: Annotated[str, typer.Option("--token", help="A word that each request brings back.")] = "",
    secret: Annotated[str | None, typer.Option("--secret", help="Name of the secret that signs.")] = None,
    request_id: RequestId = None,
) -> None:
    """Puts a webhook on a task."""
    draft = webhook_pb2.TaskWebhookDraft(
        webhook_id=webhook_id,
        webhook=webhook_pb2.Webhook(url=url, secret=secret),
        format=webhook_pb2.TaskWebhookFormat.Value(f"TASK_WEBHOOK_FORMAT_{form.name}"),
        token=token,
    )
    session.show.one(session.client.tasks.put_webhook(task_id, draft, request_id=request_id))


@command(app)
def delete(
    session: Session,
    task_id: TaskId,
    webhook_id: Annotated[str, typer.Argument(help="The webhook's id.")],
    request_id: RequestId = None,
) -> None:
    """Takes a webhook off a task."""
    session.show.one(session.client.tasks.delete_webhook(task_id, webhook_id, request_id=request_id))
