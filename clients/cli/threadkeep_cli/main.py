"""The `threadkeep` command: its groups, `info`, and the daemon's commands passed on to `threadkeepd`."""

from __future__ import annotations

import os
import shutil
import sys
from pathlib import Path
from typing import Annotated

import typer

from threadkeep_cli.exits import EXIT_HELP
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
from threadkeep_cli.session import Session, command, common_options

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
