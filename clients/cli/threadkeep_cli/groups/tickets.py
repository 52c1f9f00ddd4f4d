"""`threadkeep tickets`."""

from __future__ import annotations

import json
from typing import Annotated, Any

import typer

from threadkeep.runtime.v1 import ticket_pb2
from threadkeep_cli.exits import UsageProblem
from threadkeep_cli.groups.common import All, Limit, RequestId, SessionOption, TaskOption, page_size, up_to
from threadkeep_cli.output import Column, field, short
from threadkeep_cli.parsing import parse_enums, parse_json
from threadkeep_cli.session import Session, command

app = typer.Typer(help="Tickets: what runs wait for.", no_args_is_help=True)


def _prompt(row: dict[str, Any]) -> str:
    prompt = row.get("prompt", {})
    text = json.dumps(prompt.get("json", prompt.get("text", "")), ensure_ascii=False) if prompt else ""
    return text if len(text) <= 100 else text[:99] + "…"


COLUMNS: tuple[Column, ...] = (
    ("TICKET", field("ticket_id")),
    ("STATE", short("state")),
    ("KIND", short("kind")),
    ("DECISIONS", lambda row: ", ".join(row["allowed_decisions"])),
    ("TASK", field("task_id")),
    ("PROMPT", _prompt),
)


@command(app, "list")
def list_(
    session: Session,
    of_session: SessionOption = None,
    task: TaskOption = None,
    state: Annotated[
        list[str] | None, typer.Option("--state", help="open, resolved, expired or closed. Repeatable.")
    ] = None,
    limit: Limit = 50,
    everything: All = False,
) -> None:
    """Lists tickets, newest first."""
    found = session.client.tickets.list(
        session_id=of_session,
        task_id=task,
        states=parse_enums(ticket_pb2.TicketState, "TICKET_STATE", state, "--state"),
        page_size=page_size(limit, everything),
    )
    session.show.many(up_to(found, limit, everything), COLUMNS, "no tickets")


@command(app)
def get(session: Session, ticket_id: Annotated[str, typer.Argument(help="The ticket's id.")]) -> None:
    """Shows a ticket."""
    session.show.one(session.client.tickets.get(ticket_id))


@command(app)
def resolve(
    session: Session,
    ticket_id: Annotated[str, typer.Argument(help="The ticket's id.")],
    decision: Annotated[str | None, typer.Option("--decision", "-d", help="One of the ticket's decisions.")] = None,
    value: Annotated[str | None, typer.Option("--value", help="The answer as JSON; @file reads it.")] = None,
    request_id: RequestId = None,
) -> None:
    """Answers a ticket."""
    if decision is None and value is None:
        raise UsageProblem("give an answer: --decision NAME, or --value JSON, or both")
    given: dict[str, Any] = {"decision": decision, "request_id": request_id}
    if value is None:
        answer = session.client.tickets.resolve(ticket_id, **given)
    else:
        answer = session.client.tickets.resolve(ticket_id, parse_json(value, "--value"), **given)
    session.show.one(answer.ticket)
