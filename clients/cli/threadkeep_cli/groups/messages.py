"""`threadkeep messages`."""

from __future__ import annotations

from typing import Annotated, Any

import typer

from threadkeep_cli.groups.common import All, Limit, page_size, up_to
from threadkeep_cli.output import Column, field, short
from threadkeep_cli.parsing import parse_cursor
from threadkeep_cli.session import Session, command

app = typer.Typer(help="Messages of a conversation, as the projection shows them.", no_args_is_help=True)


def _text(row: dict[str, Any]) -> str:
    text = "".join(str(part.get("text", "")) for part in row["parts"])
    calls = ", ".join(f"{call['name']}({call['args_json']})" for call in row["tool_calls"])
    return "\n".join(part for part in (text, f"calls {calls}" if calls else "") if part)


COLUMNS: tuple[Column, ...] = (
    ("#", field("position")),
    ("ROLE", short("role")),
    ("NAME", field("name")),
    ("MESSAGE", _text),
)

AtLeast = Annotated[
    str | None, typer.Option("--at-least", help="Wait until the answer reflects this cursor (base64, of an event).")
]


@command(app, "list")
def list_(
    session: Session,
    session_id: Annotated[str, typer.Argument(help="The session's id.")],
    newest_first: Annotated[bool, typer.Option("--newest-first", help="The other way round.")] = False,
    at_least: AtLeast = None,
    limit: Limit = 200,
    everything: All = False,
) -> None:
    """Lists a session's messages in the order of the conversation."""
    found = session.client.messages.list(
        session_id,
        newest_first=newest_first,
        at_least=None if at_least is None else parse_cursor(at_least),
        page_size=page_size(limit, everything),
    )
    session.show.many(up_to(found, limit, everything), COLUMNS, "no messages")


@command(app)
def get(
    session: Session,
    session_id: Annotated[str, typer.Argument(help="The session's id.")],
    message_id: Annotated[str, typer.Argument(help="The message's id.")],
    at_least: AtLeast = None,
) -> None:
    """Shows a message."""
    cursor = None if at_least is None else parse_cursor(at_least)
    session.show.one(session.client.messages.get(session_id, message_id, at_least=cursor))
