"""`threadkeep projection`."""

from __future__ import annotations

from typing import Annotated, Any

import typer

from threadkeep_cli.exits import UsageProblem
from threadkeep_cli.groups.common import All, Limit, RequestId, SessionOption, page_size, up_to
from threadkeep_cli.output import Column, field
from threadkeep_cli.session import Session, command

app = typer.Typer(help="The projection: how far it is, pauses, building it anew.", no_args_is_help=True)

COLUMNS: tuple[Column, ...] = (
    ("SHARE", field("share")),
    ("EVENTS", field("applied_count")),
    ("LAG", field("lag")),
    ("APPLIED", field("apply_time")),
    ("PAUSED", field("is_paused")),
    ("OWNER", field("owner")),
)

POISON: tuple[Column, ...] = (
    ("SESSION", field("session_id")),
    ("SEQUENCE", field("sequence")),
    ("TYPE", field("type")),
    ("REASON", field("reason")),
    ("TIME", field("create_time")),
)


def _line(row: dict[str, Any]) -> str:
    text = f"{row['session_count']} sessions, {row['event_count']} events"
    return f"done: {text}, {row['removed_count']} sessions removed" if row["is_done"] else text


@command(app)
def status(session: Session) -> None:
    """Says how far the follower is, by share of the event space."""
    session.show.many(session.client.projection_admin.get_status(), COLUMNS, "no shares")


@command(app)
def rebuild(
    session: Session,
    session_id: Annotated[str | None, typer.Argument(help="One session. Default: every session of the scope.")] = None,
    everything: Annotated[bool, typer.Option("--everything", help="Every scope; needs --grant all.")] = False,
    request_id: RequestId = None,
) -> None:
    """Builds the projection anew while reads go on. The same --request-id goes on where a broken one stopped."""
    if session_id is not None:
        if everything:
            raise UsageProblem("name a session, or say --everything")
        session.show.one(session.client.projection_admin.rebuild_session(session_id, request_id=request_id))
        return
    progress = session.patient_client.projection_admin.rebuild(everything=everything, request_id=request_id)
    with progress as items:
        for item in items:
            session.show.line(item, _line)


@command(app)
def pause(
    session: Session,
    seconds: Annotated[float | None, typer.Option("--for", help="Seconds. Default: until `resume`.")] = None,
    request_id: RequestId = None,
) -> None:
    """Stops the follower; reads go on, ever staler. Needs --grant all."""
    session.show.one(session.client.projection_admin.pause(seconds, request_id=request_id))


@command(app)
def resume(session: Session, request_id: RequestId = None) -> None:
    """Lets the follower go on. Needs --grant all."""
    session.show.one({"was_paused": session.client.projection_admin.resume(request_id=request_id)})


@command(app)
def poison(
    session: Session,
    of_session: SessionOption = None,
    retry: Annotated[bool, typer.Option("--retry", help="Build their sessions anew instead of listing them.")] = False,
    limit: Limit = 50,
    everything: All = False,
) -> None:
    """Lists events that could not be projected, or tries them again."""
    if retry:
        session.show.one(session.client.projection_admin.retry_poison_events(of_session))
        return
    found = session.client.projection_admin.list_poison_events(
        session_id=of_session, page_size=page_size(limit, everything)
    )
    session.show.many(up_to(found, limit, everything), POISON, "no poison events")
