"""`threadkeep runs`."""

from __future__ import annotations

from typing import Annotated

import typer

from threadkeep.runtime.v1 import run_pb2
from threadkeep_cli.groups.common import All, Limit, SessionOption, TaskOption, page_size, up_to
from threadkeep_cli.output import Column, field, short
from threadkeep_cli.parsing import parse_enums
from threadkeep_cli.session import Session, command

app = typer.Typer(help="Runs: execution attempts of tasks.", no_args_is_help=True)

COLUMNS: tuple[Column, ...] = (
    ("RUN", field("run_id")),
    ("STATE", short("state")),
    ("CAUSE", lambda row: "" if "UNSPECIFIED" in str(row["cause"]) else short("cause")(row)),
    ("EPOCH", field("epoch")),
    ("CRASHES", field("crash_count")),
    ("WORKER", field("worker_id")),
    ("TASK", field("task_id")),
)


@command(app)
def get(session: Session, run_id: Annotated[str, typer.Argument(help="The run's id.")]) -> None:
    """Shows a run."""
    session.show.one(session.client.runs.get(run_id))


@command(app, "list")
def list_(
    session: Session,
    of_session: SessionOption = None,
    task: TaskOption = None,
    state: Annotated[
        list[str] | None, typer.Option("--state", help="queued, running, awaiting or ended. Repeatable.")
    ] = None,
    limit: Limit = 50,
    everything: All = False,
) -> None:
    """Lists runs, newest first."""
    found = session.client.runs.list(
        session_id=of_session,
        task_id=task,
        states=parse_enums(run_pb2.RunState, "RUN_STATE", state, "--state"),
        page_size=page_size(limit, everything),
    )
    session.show.many(up_to(found, limit, everything), COLUMNS, "no runs")
