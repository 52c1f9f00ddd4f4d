"""`threadkeep events`."""

from __future__ import annotations

import json
from typing import Annotated, Any

import typer

from threadkeep.runtime.v1 import event_pb2
from threadkeep_cli.exits import UsageProblem
from threadkeep_cli.groups.common import All, Limit, RunOption, SessionOption, TaskOption, page_size, up_to
from threadkeep_cli.output import Column, field
from threadkeep_cli.parsing import parse_cursor, parse_enum
from threadkeep_cli.session import Session, command

app = typer.Typer(help="Events: the ordered evidence of what happened.", no_args_is_help=True)

_SHOWN = 100


def brief(row: dict[str, Any]) -> str:
    """What a payload says, on a part of a line."""
    payload = row.get("payload", {})
    content = payload.get("json", payload.get("text", ""))
    if isinstance(content, dict):
        # What a person looks for; the whole is in the JSON.
        content = {name: value for name, value in content.items() if not isinstance(value, dict)}
    text = json.dumps(content, ensure_ascii=False) if content else ""
    return text if len(text) <= _SHOWN else text[: _SHOWN - 1] + "…"


COLUMNS: tuple[Column, ...] = (
    ("SEQ", field("sequence")),
    ("TIME", field("create_time")),
    ("SESSION", field("session_id")),
    ("TYPE", field("type")),
    ("CONTENT", brief),
)


def _line(row: dict[str, Any]) -> str:
    if "dropped_count" in row:
        return f"   … {row['dropped_count']} live observations dropped"
    if "kind" in row:
        return f"   ~ {row.get('kind', '')} {brief(row)}"
    return f"{row['sequence']:>5}  {row['create_time']}  {row['session_id']}  {row['type']}  {brief(row)}".rstrip()


@command(app, "list")
def list_(
    session: Session,
    of_session: SessionOption = None,
    task: TaskOption = None,
    run: RunOption = None,
    type_: Annotated[
        list[str] | None, typer.Option("--type", help="Only this type; `name.*` for all that begin so. Repeatable.")
    ] = None,
    visibility: Annotated[
        str | None, typer.Option("--visibility", help="The reader's level: end-user, builder or internal (all).")
    ] = None,
    after: Annotated[
        str | None, typer.Option("--after", help="Only after this cursor (base64, from an event).")
    ] = None,
    follow: Annotated[
        bool, typer.Option("--follow", "-f", help="Go on with what comes; of a task or run until its end.")
    ] = False,
    from_now: Annotated[bool, typer.Option("--from-now", help="With --follow: only what comes.")] = False,
    live: Annotated[bool, typer.Option("--live", help="With --follow: also what is seen live, never stored.")] = False,
    limit: Limit = 50,
    everything: All = False,
) -> None:
    """Lists events in order, of the scope or of one session, task or run. With --follow as they come, line by line."""
    level = event_pb2.VISIBILITY_UNSPECIFIED
    if visibility is not None:
        level = parse_enum(event_pb2.Visibility, "VISIBILITY", visibility, "--visibility")  # type: ignore[assignment]
    cursor = None if after is None else parse_cursor(after)
    feed: dict[str, Any] = {
        "session_id": of_session,
        "task_id": task,
        "run_id": run,
        "types": type_ or [],
        "visibility": level,
    }
    if follow:
        subscription = session.patient_client.events.subscribe(
            **feed, after=cursor, from_now=from_now, include_live=live
        )
        with subscription as items:
            for item in items:
                session.show.line(item, _line)
        return
    if from_now or live:
        raise UsageProblem("--from-now and --live go with --follow")
    found = session.client.events.list(**feed, after=cursor or b"", page_size=page_size(limit, everything))
    session.show.many(up_to(found, limit, everything), COLUMNS, "no events")
