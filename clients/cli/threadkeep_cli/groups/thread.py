"""`threadkeep thread`."""

from __future__ import annotations

import base64
from typing import Annotated, Any

import typer

from threadkeep_cli.groups.common import All, Limit, page_size, up_to
from threadkeep_cli.output import Column, field
from threadkeep_cli.plain import to_plain
from threadkeep_cli.session import Session, command

app = typer.Typer(help="Threads: a session's history, and what it was like after any commit.", no_args_is_help=True)

SessionId = Annotated[str, typer.Argument(help="The session's id.")]

COMMITS: tuple[Column, ...] = (
    ("COMMIT", field("commit_sequence")),
    ("KIND", field("kind")),
    ("RUN", field("run_id")),
    ("EVENTS", lambda row: _span(row["first_event_sequence"], row["last_event_sequence"])),
    ("TIME", field("create_time")),
)
RECORDS: tuple[Column, ...] = (
    ("TIME", field("create_time")),
    ("ACTION", field("action")),
    ("TARGET", field("target")),
    ("ACTOR", field("actor.id")),
    ("SESSION", field("session_id")),
    ("COMMIT", field("commit_sequence")),
)
_COUNTS = ("present_parts", "purged_parts")
_LISTS = ("tickets", "state", "messages")


def _span(first: int, last: int) -> str:
    return "" if not last else str(last) if first == last else f"{first}-{last}"


@command(app)
def view(
    session: Session,
    session_id: SessionId,
    at: Annotated[int | None, typer.Option("--at", min=1, help="The commit after which to look. Default: now.")] = None,
    key: Annotated[list[str] | None, typer.Option("--key", help="Only this state key. Repeatable.")] = None,
) -> None:
    """Shows a thread: its open run, checkpoint, tickets, state and messages, now or after a commit."""
    whole: dict[str, Any] = {}
    for page in session.client.threads.view(session_id, at, state_keys=key or [], page_size=1000):
        plain = to_plain(page)
        for name in _LISTS:
            plain[name] = [*whole.get(name, []), *plain[name]]
        whole = plain
    whole.pop("next_page_token")
    session.show.one(whole)


@command(app)
def commits(session: Session, session_id: SessionId, limit: Limit = 50, everything: All = False) -> None:
    """Lists a thread's commits, newest first."""
    found = session.client.threads.list_commits(session_id, page_size=page_size(limit, everything))
    session.show.many(up_to(found, limit, everything), COMMITS, "no commits")


@command(app)
def verify(session: Session, session_id: SessionId) -> None:
    """Holds what is stored of a thread against the digests of its commits."""
    found: dict[str, Any] = {}
    for page in session.client.threads.verify(session_id):
        plain = to_plain(page)
        for name in _COUNTS:
            plain[name] += found.get(name, 0)
        plain["first_commit"] = found.get("first_commit", plain["first_commit"])
        found = plain
    found.pop("next_page_token")
    session.show.one({**found, "digest": base64.b64decode(found["digest"]).hex()})


@command(app)
def audit(
    session: Session,
    session_id: Annotated[str | None, typer.Argument(help="The session's id. Default: all of the scope.")] = None,
    action: Annotated[list[str] | None, typer.Option("--action", help="Only of this action. Repeatable.")] = None,
    actor: Annotated[str | None, typer.Option("--actor", help="Only of the actor with this id.")] = None,
    limit: Limit = 50,
    everything: All = False,
) -> None:
    """Lists audit records, newest first."""
    found = session.client.threads.list_audit(
        session_id=session_id, actions=action or [], actor_id=actor, page_size=page_size(limit, everything)
    )
    session.show.many(up_to(found, limit, everything), RECORDS, "no audit records")
