"""Runs services in this process until it is told to stop: for `up` and for `serve`."""

from __future__ import annotations

import asyncio
import os
import sys
from collections.abc import Sequence
from pathlib import Path

import uvloop

from threadkeep_chassis.hosting import Host, check_listen_address, serve_until_signalled
from threadkeep_chassis.migrations import migrate
from threadkeep_embedded.config_dir import ConfigDirectory
from threadkeep_embedded.services import Directories, Place, Told, build_all, check_peers, migrations_of


def run(
    where: Sequence[Place],
    told: Told,
    *,
    migrates: bool,
    ready_file: Path | None,
    config_dir: Directories | None = None,
) -> None:
    """Serves until SIGTERM or SIGINT.

    With `config_dir` definitions are kept what its files say. With `migrates` the schemas are brought up to date first,
    which only `up` does, on its own data directory (X14).
    Raises what can be told in words; see `exits`.
    """
    # Before anything is made or changed.
    check_listen_address(told.listen)
    built = build_all(where, told)
    services = [service for service, _ in built]
    settings = built[0][1]
    check_peers([place.service for place in where], [one for _, one in built])
    peers = {name: address for _, one in built for name, address in one.peers.items()}

    following: list[asyncio.Task[None]] = []

    def on_started(host: Host) -> None:
        if config_dir is not None:
            directory = ConfigDirectory(
                config_dir.directories, config_dir.scope, host.address, rescan_seconds=config_dir.rescan_seconds
            )
            following.append(asyncio.create_task(directory.follow(), name="config directory"))
        names = ", ".join(service.name for service in host.services)
        backends = ", ".join(sorted({service.backend for service in host.services}))
        if ready_file is not None:
            _write_whole(ready_file, host.address + "\n")
        http = "".join(f", HTTP on {service.http_address}" for service in host.services if service.http_address)
        print(f"threadkeepd is ready on {host.address} ({names}; {backends}){http}", flush=True)

    async def main() -> None:
        if migrates:
            for place in where:
                assert place.file is not None
                place.file.parent.mkdir(parents=True, exist_ok=True)
                await migrate(place.migration_url, migrations_of(place.service))
        host = Host(services, listen=told.listen, peers=peers, settings=settings)
        try:
            await serve_until_signalled(host, on_started=on_started)
        finally:
            for task in following:
                task.cancel()
                await asyncio.wait({task})

    uvloop.run(main())
    if ready_file is not None:
        ready_file.unlink(missing_ok=True)
    print("threadkeepd has stopped", file=sys.stderr, flush=True)


def _write_whole(path: Path, text: str) -> None:
    """Whoever waits for the file never reads half of it."""
    draft = path.with_name(f"{path.name}.{os.getpid()}")
    draft.write_text(text)
    draft.replace(path)
