"""The measured server process: services and the baselines on one address. Prints the address when it serves."""

from __future__ import annotations

import asyncio
import sys
from collections.abc import Sequence

import uvloop

from tests.benchmarks.echo import EchoHandlers
from tests.support.suite import build_service
from threadkeep_chassis.hosting import Host, Service, serve_until_signalled
from threadkeep_chassis.logs import configure_logs


async def _nothing(*_: object) -> None:
    return None


async def main(url: str, services: Sequence[str]) -> None:
    """Serves on the databases at `url`, which are migrated."""
    echo = Service(
        name="echo",
        grpc_services=(),
        register=lambda server: server.add_generic_rpc_handlers((EchoHandlers(),)),
        start=_nothing,
        stop=_nothing,
    )
    host = Host([*(build_service(service, url) for service in services), echo])
    await serve_until_signalled(host, on_started=lambda started: print(started.address, flush=True))


if __name__ == "__main__":
    configure_logs("WARNING")
    with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
        runner.run(main(sys.argv[1], sys.argv[2:]))
