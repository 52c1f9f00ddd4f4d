"""`threadkeep outbox`."""

from __future__ import annotations

from typing import Annotated, Any

import typer

from threadkeep.runtime.v1 import outbox_pb2
from threadkeep_cli.exits import UsageProblem
from threadkeep_cli.groups.common import All, Limit, RequestId, SessionOption, page_size, up_to
from threadkeep_cli.output import Column, field, short
from threadkeep_cli.parsing import parse_enums
from threadkeep_cli.session import Session, command

app = typer.Typer(help="The outbox: what commits sent to sessions and webhooks.", no_args_is_help=True)


def _target(row: dict[str, Any]) -> str:
    return str(row.get("target_session_id") or row.get("webhook", {}).get("url", ""))


COLUMNS: tuple[Column, ...] = (
    ("MESSAGE", field("message_id")),
    ("STATE", short("state")),
    ("TYPE", field("type")),
    ("TARGET", _target),
    ("ATTEMPT", field("attempt")),
    ("ERROR", field("last_error")),
    ("SENT", field("create_time")),
)

Payload = Annotated[bool, typer.Option("--payload", help="Show the content, with --output json.")]
Ids = Annotated[list[str] | None, typer.Argument(help="Ids of dead letters.")]
Every = Annotated[bool, typer.Option("--all", help="All dead letters of the scope.")]


@command(app, "list")
def list_(
    session: Session,
    of_session: SessionOption = None,
    state: Annotated[list[str] | None, typer.Option("--state", help="pending, delivered or dead. Repeatable.")] = None,
    payload: Payload = False,
    limit: Limit = 50,
    everything: All = False,
) -> None:
    """Lists messages, newest first."""
    found = session.client.outbox.list_deliveries(
        session_id=of_session,
        states=parse_enums(outbox_pb2.DeliveryState, "DELIVERY_STATE", state, "--state"),
        include_payload=payload,
        page_size=page_size(limit, everything),
    )
    session.show.many(up_to(found, limit, everything), COLUMNS, "no messages")


@command(app, "dead")
def dead(
    session: Session,
    of_session: SessionOption = None,
    payload: Payload = False,
    limit: Limit = 50,
    everything: All = False,
) -> None:
    """Lists dead letters, newest first."""
    found = session.client.outbox.list_dead_letters(
        session_id=of_session, include_payload=payload, page_size=page_size(limit, everything)
    )
    session.show.many(up_to(found, limit, everything), COLUMNS, "no dead letters")


@command(app)
def requeue(session: Session, ids: Ids = None, every: Every = False, request_id: RequestId = None) -> None:
    """Sends dead letters again: those that are named, or all of them."""
    _check(ids, every, request_id)
    count = 0
    while True:
        answer = session.client.outbox.requeue(ids or [], request_id=request_id)
        count += answer.requeued_count
        if not answer.has_more:
            break
    session.show.one({"requeued_count": count})


@command(app)
def purge(session: Session, ids: Ids = None, every: Every = False, request_id: RequestId = None) -> None:
    """Deletes dead letters: those that are named, or all of them."""
    _check(ids, every, request_id)
    count = 0
    while True:
        answer = session.client.outbox.purge(ids or [], request_id=request_id)
        count += answer.purged_count
        if not answer.has_more:
            break
    session.show.one({"purged_count": count})


def _check(ids: list[str] | None, every: bool, request_id: str | None) -> None:
    if bool(ids) == every:
        raise UsageProblem("name dead letters by their ids, or say --all")
    if every and request_id is not None:
        raise UsageProblem("--all may take several requests, each with an id of its own; give no --request-id")
