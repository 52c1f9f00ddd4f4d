"""The measured server: services and the baselines on one address. Prints the address when it serves.

BENCH_PROCESSES (1) processes of it share that address, as `threadkeepd --processes` has it.
"""

from __future__ import annotations

import asyncio
import os
import sys
from collections.abc import Sequence
from contextlib import closing

import uvloop

from tests.benchmarks.echo import EchoHandlers
from tests.support.suite import build_service
from threadkeep_chassis.hosting import Host, Service, serve_until_signalled
from threadkeep_chassis.logs import configure_logs
from threadkeep_chassis.settings import ServerSettings
from threadkeep_embedded.ports import KeptPort
from threadkeep_embedded.processes import Link, Part, Supervisor

ANY_PORT = "127.0.0.1:0"


async def _nothing(*_: object) -> None:
    return None


async def serve(url: str, services: Sequence[str], part: Part | None) -> None:
    """Serves on the databases at `url`, which are migrated."""
    echo = Service(
        name="echo",
        grpc_services=(),
        register=lambda server: server.add_generic_rpc_handlers((EchoHandlers(),)),
        start=_nothing,
        stop=_nothing,
    )
    built = [*(build_service(service, url) for service in services), echo]
    if part is None:
        host = Host(built)
        await serve_until_signalled(host, on_started=lambda started: print(started.address, flush=True))
        return
    link = Link(part)
    host = Host(built, listen=part.listen, settings=ServerSettings(reuse_port=True))
    link.watch(lambda: host.draining.is_set)
    await serve_until_signalled(host, on_started=lambda started: link.serves({"address": started.address}))


async def several(processes: int) -> None:
    """Runs this command line in so many processes. Each has the sessions of a whole server to its database."""
    with closing(KeptPort(ANY_PORT)) as port:
        parts = [Part(index, port.address, {}) for index in range(processes)]
        command = [sys.executable, "-m", "tests.benchmarks.server", *sys.argv[1:]]
        supervisor = Supervisor(command, parts, grace_seconds=5.0)
        await supervisor.run(lambda reports: print(reports[0]["address"], flush=True))


def main() -> None:
    """What the command line and the environment say."""
    configure_logs("WARNING")
    part = Part.take()
    processes = int(os.environ.get("BENCH_PROCESSES", "1"))
    with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
        if part is None and processes > 1:
            runner.run(several(processes))
        else:
            runner.run(serve(sys.argv[1], sys.argv[2:], part))


if __name__ == "__main__":
    main()
