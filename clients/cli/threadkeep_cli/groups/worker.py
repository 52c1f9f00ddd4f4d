"""`threadkeep worker`."""

from __future__ import annotations

import asyncio
import logging
import os
import sys
from typing import Annotated, Any

import typer

from threadkeep_cli.exits import UsageProblem
from threadkeep_cli.parsing import parse_pairs
from threadkeep_cli.session import Session, command

app = typer.Typer(help="Workers: they lease runs and work on them.", no_args_is_help=True)


@command(app)
def run(
    session: Session,
    tool_module: Annotated[
        list[str] | None,
        typer.Option("--tool-module", "-t", help="A Python module that tools may come from. Nothing else is imported."),
    ] = None,
    graph: Annotated[
        list[str] | None, typer.Option("--graph", help="AGENT=package.module:factory builds that agent's graph.")
    ] = None,
    queue: Annotated[list[str] | None, typer.Option("--queue", help="Only runs of this queue. Repeatable.")] = None,
    agent: Annotated[list[str] | None, typer.Option("--agent", help="Only runs of this agent. Repeatable.")] = None,
    allow_secret: Annotated[
        list[str] | None, typer.Option("--allow-secret", help="A secret reference to resolve. Default: every one.")
    ] = None,
    middleware: Annotated[
        list[str] | None, typer.Option("--middleware", help="LangChain middleware that agents may name. Repeatable.")
    ] = None,
    middleware_module: Annotated[
        list[str] | None, typer.Option("--middleware-module", help="A Python module that middleware may come from.")
    ] = None,
    http_origin: Annotated[
        list[str] | None,
        typer.Option("--http-origin", help="An origin of HTTP tools and MCP servers, such as https://a.b. Repeatable."),
    ] = None,
    provider_origin: Annotated[
        list[str] | None,
        typer.Option("--provider-origin", help="An origin of providers' endpoints, or * for every one. Repeatable."),
    ] = None,
    mcp_command: Annotated[
        list[str] | None,
        typer.Option("--mcp-command", help="A command that MCP servers may be started with."),
    ] = None,
    variable: Annotated[
        list[str] | None,
        typer.Option("--variable", help="An environment variable that definitions may read."),
    ] = None,
    worker_id: Annotated[str | None, typer.Option("--worker-id", help="A name for people to read.")] = None,
    max_runs: Annotated[int, typer.Option("--max-runs", min=1, help="How many runs at once.")] = 10,
    lease_ttl: Annotated[float | None, typer.Option("--lease-ttl", min=1, help="Seconds without a heartbeat.")] = None,
    drain_timeout: Annotated[
        float, typer.Option("--drain-timeout", min=0, help="Seconds that a stop may take.")
    ] = 30.0,
    log_level: Annotated[str, typer.Option("--log-level", help="Of Python's logging.")] = "INFO",
) -> None:
    """Works on runs of --scope, or of all that --grant covers, until SIGTERM or SIGINT; then gives back what it holds.

    Modules are looked for in the working directory too.
    """
    if log_level.upper() not in logging.getLevelNamesMapping():
        raise UsageProblem(f"{log_level} is no log level")
    try:
        from threadkeep.worker import AgentBuildError, Worker, builtin_middleware
        from threadkeep.worker.agents import load_entry_point
    except ImportError as error:
        raise UsageProblem(f"a worker needs `pip install threadkeep[langgraph]`: {error}") from error
    if os.getcwd() not in sys.path:
        sys.path.insert(0, os.getcwd())
    graphs: dict[str, Any] = {}
    for name, entry in parse_pairs(graph or [], "--graph").items():
        try:
            graphs[name] = load_entry_point(entry, [entry.partition(":")[0]])
        except AgentBuildError as error:
            raise UsageProblem(f"--graph {name}: {error}") from error
    try:
        named = builtin_middleware(*middleware) if middleware else {}
    except ValueError as error:
        raise UsageProblem(f"--middleware: {error}") from error
    logging.basicConfig(level=log_level.upper(), format="%(asctime)s %(levelname)s %(name)s: %(message)s")
    logging.getLogger("httpx").setLevel(logging.WARNING)

    async def work() -> None:
        async with session.async_client() as client:
            worker = Worker(
                client,
                graphs=graphs,
                tool_modules=tool_module or (),
                allowed_secrets=allow_secret,
                middleware=named,
                middleware_modules=middleware_module or (),
                http_origins=http_origin or (),
                provider_origins=provider_origin or (),
                mcp_commands=mcp_command or (),
                variables=variable or (),
                queues=queue or (),
                agent_names=agent or (),
                worker_id=worker_id,
                max_runs=max_runs,
                lease_ttl=lease_ttl,
                drain_timeout=drain_timeout,
            )
            session.show.line({"worker_id": worker.worker_id}, lambda row: f"worker {row['worker_id']} takes runs")
            await worker.run_until_signal()

    asyncio.run(work())
