"""A worker as a process: `python -m threadkeep.worker --target HOST:PORT --grant-all --tool-module myapp.tools`.

It ends on SIGTERM or SIGINT, after giving back what it works on.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import logging
import os
from collections.abc import Mapping, Sequence
from typing import Any

from threadkeep.client import DEFAULT_TARGET, AsyncClient
from threadkeep.worker.agents import GraphFactory, load_entry_point
from threadkeep.worker.execution import ExecutionSettings
from threadkeep.worker.middleware import builtin_middleware
from threadkeep.worker.worker import Worker


def _arguments(argv: Sequence[str] | None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m threadkeep.worker", description="Works on threadkeep's runs.")
    add = parser.add_argument
    add("--target", default=os.environ.get("THREADKEEP_TARGET", DEFAULT_TARGET), help="the address of all services")
    add("--runtime", help="the address of the runtime service alone")
    add("--artifacts", help="the address of the artifacts service alone")
    add("--grant-all", action="store_true", help="take runs of every scope")
    add("--scope", action="append", default=[], metavar="JSON", help="take runs of this scope; may be repeated")
    add("--queue", action="append", default=[], help="take runs of this queue; may be repeated (default: `default`)")
    add("--agent", action="append", default=[], help="take runs of this agent; may be repeated (default: all)")
    add("--tool-module", action="append", default=[], help="a module that tools may come from; may be repeated")
    add("--graph", action="append", default=[], metavar="AGENT=MODULE:FACTORY", help="builds the graph of an agent")
    add("--allow-secret", action="append", metavar="REFERENCE", help="a secret reference to resolve (default: all)")
    add("--middleware", action="append", default=[], help="LangChain middleware that agents may name; may be repeated")
    add("--middleware-module", action="append", default=[], help="a module that middleware may come from")
    add(
        "--http-origin",
        action="append",
        default=[],
        help="an origin of HTTP tools and MCP servers, such as https://a.b",
    )
    add("--provider-origin", action="append", default=[], help="an origin of providers' endpoints, or * for every one")
    add("--mcp-command", action="append", default=[], help="a command that MCP servers may be started with")
    add("--variable", action="append", default=[], help="an environment variable that definitions may read")
    add("--worker-id", help="a name for people to read")
    add("--max-runs", type=int, default=10, help="how many runs at once")
    add("--lease-ttl", type=float, metavar="SECONDS", help="how long a lease lasts without a heartbeat")
    add("--poll-wait", type=float, default=20.0, metavar="SECONDS", help="how long one poll waits for a run")
    add("--drain-timeout", type=float, default=30.0, metavar="SECONDS", help="how long supersteps may take to end")
    add("--durability", choices=("sync", "async", "exit"), default="sync", help="when a checkpoint counts as written")
    add("--log-level", default="INFO", help="of Python's logging")
    return parser.parse_args(argv)


def _graphs(pairs: Sequence[str]) -> Mapping[str, GraphFactory]:
    graphs: dict[str, Any] = {}
    for pair in pairs:
        agent, _, entry_point = pair.partition("=")
        # Whoever starts the worker names it; no allow-list stands between them.
        graphs[agent] = load_entry_point(entry_point, [entry_point.partition(":")[0]])
    return graphs


async def _main(arguments: argparse.Namespace) -> None:
    targets: str | dict[str, str] = arguments.target
    if arguments.runtime or arguments.artifacts:
        targets = dict.fromkeys(("runtime", "config", "artifacts", "projection"), arguments.target)
        targets.update({name: value for name in ("runtime", "artifacts") if (value := getattr(arguments, name))})
    scopes = [json.loads(scope) for scope in arguments.scope]
    async with AsyncClient(targets, grant="all" if arguments.grant_all else (scopes or None)) as client:
        worker = Worker(
            client,
            graphs=_graphs(arguments.graph),
            tool_modules=arguments.tool_module,
            allowed_secrets=arguments.allow_secret,
            middleware=builtin_middleware(*arguments.middleware) if arguments.middleware else {},
            middleware_modules=arguments.middleware_module,
            http_origins=arguments.http_origin,
            provider_origins=arguments.provider_origin,
            mcp_commands=arguments.mcp_command,
            variables=arguments.variable,
            queues=arguments.queue,
            agent_names=arguments.agent,
            worker_id=arguments.worker_id,
            max_runs=arguments.max_runs,
            lease_ttl=arguments.lease_ttl,
            poll_wait=arguments.poll_wait,
            drain_timeout=arguments.drain_timeout,
            settings=ExecutionSettings(durability=arguments.durability),
        )
        logging.getLogger("threadkeep.worker").info("worker %s takes runs", worker.worker_id)
        await worker.run_until_signal()


def main(argv: Sequence[str] | None = None) -> None:
    """Runs the worker."""
    arguments = _arguments(argv)
    logging.basicConfig(level=arguments.log_level.upper(), format="%(asctime)s %(levelname)s %(name)s: %(message)s")
    logging.getLogger("httpx").setLevel(logging.WARNING)
    asyncio.run(_main(arguments))


if __name__ == "__main__":
    main()
