"""`threadkeep usage`."""

from __future__ import annotations

from typing import Annotated

import typer

from threadkeep.projection.v1 import summary_service_pb2
from threadkeep_cli.groups.common import AgentOption, All, Limit, SessionOption, page_size, up_to
from threadkeep_cli.output import Column, field
from threadkeep_cli.parsing import parse_enums, parse_time
from threadkeep_cli.session import Session, command

app = typer.Typer(help="Tokens that messages took, what agents did, and how much there is.", no_args_is_help=True)

COLUMNS: tuple[Column, ...] = (
    ("DAY", field("day")),
    ("AGENT", field("agent_name")),
    ("MODEL", field("model")),
    ("MESSAGES", field("message_count")),
    ("INPUT", lambda row: str(row["usage"]["input_tokens"])),
    ("OUTPUT", lambda row: str(row["usage"]["output_tokens"])),
    ("TOTAL", lambda row: str(row["usage"]["total_tokens"])),
)


AGENTS: tuple[Column, ...] = (
    ("AGENT", field("agent_name")),
    ("TASKS", field("task_count")),
    ("OPEN", field("open_task_count")),
    ("FAILED", field("failed_task_count")),
    ("RUNS", field("run_count")),
    ("TOKENS", field("usage.total_tokens")),
    ("LAST ACTIVITY", field("last_activity_time")),
)


@command(app)
def agents(session: Session, limit: Limit = 200, everything: All = False) -> None:
    """Lists what the scope's agents have done."""
    found = session.client.summaries.list_agents(page_size=page_size(limit, everything))
    session.show.many(up_to(found, limit, everything), AGENTS, "no agents")


@command(app)
def counts(session: Session, agent: AgentOption = None) -> None:
    """Counts sessions, tasks and runs by their states."""
    session.show.one(session.client.summaries.get_counts(agent_name=agent))


@command(app, "list")
def list_(
    session: Session,
    by: Annotated[list[str] | None, typer.Option("--by", help="day, agent or model. Repeatable.")] = None,
    of_session: SessionOption = None,
    agent: AgentOption = None,
    model: Annotated[str | None, typer.Option("--model", help="Only of this model.")] = None,
    start: Annotated[str | None, typer.Option("--from", help="Only from this time on, with its zone.")] = None,
    end: Annotated[str | None, typer.Option("--before", help="Only before this time, with its zone.")] = None,
    limit: Limit = 200,
    everything: All = False,
) -> None:
    """Adds up tokens of the scope, by day, agent or model."""
    found = session.client.summaries.list_usage(
        *parse_enums(summary_service_pb2.UsageKey, "USAGE_KEY", by, "--by"),
        session_id=of_session,
        agent_name=agent,
        model=model,
        created_from=None if start is None else parse_time(start, "--from"),
        created_before=None if end is None else parse_time(end, "--before"),
        page_size=page_size(limit, everything),
    )
    session.show.many(up_to(found, limit, everything), COLUMNS, "no usage")
