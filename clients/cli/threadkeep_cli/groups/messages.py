"""`threadkeep messages`."""

from __future__ import annotations

from typing import Annotated, Any

import typer

from threadkeep.common.v1 import content_pb2
from threadkeep_cli.groups.common import All, Limit, page_size, up_to
from threadkeep_cli.output import Column, field, short
from threadkeep_cli.parsing import parse_cursor, parse_enums
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


def _match(row: dict[str, Any]) -> str:
    """The excerpt, with what matches between brackets."""
    excerpt = row.get("excerpt")
    if not excerpt:
        return _text(row["message"])
    shown, at = [], 0
    for span in excerpt["matches"]:
        shown += [excerpt["text"][at : span["start"]], "[", excerpt["text"][span["start"] : span["end"]], "]"]
        at = span["end"]
    return "".join([*shown, excerpt["text"][at:]])


MATCHES: tuple[Column, ...] = (
    ("#", lambda row: str(row["message"]["position"])),
    ("ROLE", lambda row: short("role")(row["message"])),
    ("MESSAGE", _match),
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
def search(
    session: Session,
    session_id: Annotated[str, typer.Argument(help="The session's id.")],
    query: Annotated[
        list[str],
        typer.Argument(help='both words, "these together", beg*, -without. After -- if it begins so.'),
    ],
    role: Annotated[
        list[str] | None, typer.Option("--role", help="user, assistant, system or tool. Repeatable.")
    ] = None,
    newest_first: Annotated[bool, typer.Option("--newest-first", help="The other way round.")] = False,
    at_least: AtLeast = None,
    limit: Limit = 200,
    everything: All = False,
) -> None:
    """Finds messages of a session by their words."""
    found = session.client.messages.search(
        session_id,
        " ".join(query),
        roles=parse_enums(content_pb2.MessageRole, "MESSAGE_ROLE", role, "--role"),
        newest_first=newest_first,
        at_least=None if at_least is None else parse_cursor(at_least),
        page_size=page_size(limit, everything),
    )
    session.show.many(up_to(found, limit, everything), MATCHES, "no such messages")


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
