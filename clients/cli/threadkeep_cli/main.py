"""The `threadkeep` command: its groups, `info`, and the daemon's commands passed on to `threadkeepd`."""

from __future__ import annotations

import os
import shutil
import sys
from pathlib import Path
from typing import Annotated

import typer

from threadkeep.projection.v1.stream_service_pb2 import STREAM_KIND_MESSAGES, StreamKind
from threadkeep.runtime.v1 import event_pb2
from threadkeep_cli.exits import EXIT_HELP, UsageProblem
from threadkeep_cli.groups import (
    artifacts,
    config,
    events,
    messages,
    outbox,
    projection,
    retention,
    runs,
    schedules,
    sessions,
    state,
    store,
    tasks,
    thread,
    tickets,
    usage,
    worker,
)
from threadkeep_cli.parsing import parse_cursor, parse_enum, parse_enums
from threadkeep_cli.session import Session, command, common_options
from threadkeep_cli.tail import Screen, Tail

app = typer.Typer(
    name="threadkeep",
    help="threadkeep: durable state and configuration for AI agents.",
    epilog=EXIT_HELP,
    no_args_is_help=True,
    add_completion=False,
    pretty_exceptions_enable=False,
)
app.callback()(common_options)

for _name, _group in (
    ("sessions", sessions),
    ("tasks", tasks),
    ("schedules", schedules),
    ("runs", runs),
    ("events", events),
    ("messages", messages),
    ("tickets", tickets),
    ("outbox", outbox),
    ("thread", thread),
    ("state", state),
    ("store", store),
    ("config", config),
    ("artifacts", artifacts),
    ("projection", projection),
    ("retention", retention),
    ("usage", usage),
    ("worker", worker),
):
    app.add_typer(_group.app, name=_name)


@command(app)
def info(
    session: Session,
    service: Annotated[
        str, typer.Option("--service", help="Which service's server, where each has an address of its own.")
    ] = "runtime",
) -> None:
    """Says what the server is: services, version, backend, limits, capabilities."""
    answer = session.client.info.get(service)
    if session.show.is_json:
        session.show.one(answer)
        return
    session.show.one(
        {
            "services": ", ".join(answer.services),
            "version": answer.version,
            "contract": answer.contract_release,
            "backend": answer.backend,
            "capabilities": ", ".join(answer.capabilities),
            **{f"limit {limit.name}": limit.value for limit in answer.limits},
        }
    )


@command(app)
def tail(
    session: Session,
    session_id: Annotated[str, typer.Argument(help="The session's id.")],
    task: Annotated[str | None, typer.Option("--task", help="End when this task of the session does.")] = None,
    run: Annotated[str | None, typer.Option("--run", help="End when this run of the session does.")] = None,
    kind: Annotated[
        list[str] | None,
        typer.Option("--kind", help="Only messages, tokens, tool-calls, state or custom. Repeatable."),
    ] = None,
    visibility: Annotated[
        str | None, typer.Option("--visibility", help="The reader's level: end-user, builder or internal (all).")
    ] = None,
    after: Annotated[
        str | None, typer.Option("--after", help="Only after this cursor (base64, from an event).")
    ] = None,
) -> None:
    """Shows a session as it happens: messages, tokens as they come, tool calls, changes of state.

    It begins with what happened so far, and goes on by itself after a broken connection.
    """
    wanted = parse_enums(StreamKind, "STREAM_KIND", kind, "--kind")
    level = event_pb2.VISIBILITY_UNSPECIFIED
    if visibility is not None:
        level = parse_enum(event_pb2.Visibility, "VISIBILITY", visibility, "--visibility")  # type: ignore[assignment]
    if task is not None and run is not None:
        raise UsageProblem("--task and --run do not go together")
    subscription = session.patient_client.streams.subscribe_session(
        session_id,
        after=b"" if after is None else parse_cursor(after),
        visibility=level,
        kinds=wanted,
        until_task_id=task,
        until_run_id=run,
    )
    shown = Tail(session.client, session_id, Screen(), shows_messages=not wanted or STREAM_KIND_MESSAGES in wanted)
    with subscription as items:
        for item in items:
            if session.show.is_json:
                session.show.line(item, str)
            else:
                shown.show(item)


def _passed_on(name: str, about: str) -> None:
    def run(context: typer.Context) -> None:
        beside = Path(sys.executable).with_name("threadkeepd")
        daemon = str(beside) if beside.exists() else shutil.which("threadkeepd")
        if daemon is None:
            print("threadkeep: the daemon needs `pip install threadkeep[server]`", file=sys.stderr)
            raise SystemExit(2)
        sys.stdout.flush()
        os.execv(daemon, [daemon, name, *context.args])

    run.__doc__ = f"{about} The same as `threadkeepd {name}`."
    settings = {"allow_extra_args": True, "ignore_unknown_options": True, "help_option_names": []}
    app.command(name, context_settings=settings, rich_help_panel="The daemon")(run)


_passed_on("up", "Runs all four services in this process.")
_passed_on("serve", "Runs one service alone.")
_passed_on("migrate", "Brings schemas up to date.")
_passed_on("renew-log", "Gives the event log a new incarnation after a restore.")
_passed_on("check", "Says whether services could start here.")


def main() -> None:
    """The entry point of the `threadkeep` command."""
    app()


if __name__ == "__main__":
    main()
