"""Runs services until it is told to stop, in this process or in several: for `up` and for `serve`."""

from __future__ import annotations

import asyncio
import os
import sys
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import structlog
import uvloop

from threadkeep_chassis.hosting import Host, Service, check_listen_address, serve_until_signalled
from threadkeep_chassis.migrations import migrate
from threadkeep_chassis.settings import ServerSettings
from threadkeep_embedded.config_dir import ConfigDirectory
from threadkeep_embedded.processes import Link, Part, Supervisor
from threadkeep_embedded.services import Directories, Place, Told, build_all, check_peers, migrations_of
from threadkeep_embedded.shares import shared_out


def run(
    where: Sequence[Place],
    told: Told,
    *,
    migrates: bool,
    ready_file: Path | None,
    config_dir: Directories | None = None,
    processes: int = 1,
) -> None:
    """Serves until SIGTERM or SIGINT, in so many processes.

    With `config_dir` definitions are kept what its files say, by the first process. With `migrates` the schemas are
    brought up to date first, which only `up` does, on its own data directory (X14).
    Raises what can be told in words; see `exits`.
    """
    part = Part.take()
    if part is not None:
        told = replace(told, listen=part.listen, settings={**told.settings, **part.settings})
        structlog.contextvars.bind_contextvars(process=part.index)
        if part.index > 0:
            config_dir = None
    # Before anything is made or changed.
    check_listen_address(told.listen)
    built = build_all(where, told)
    check_peers([place.service for place in where], [one for _, one in built])
    if part is None and processes > 1:
        _run_several(where, told, [one for _, one in built], ready_file, processes)
    else:
        _run_one(where, told.listen, built, config_dir, migrates, _Announcing(ready_file), part)


def _run_one(
    where: Sequence[Place],
    listen: str,
    built: Sequence[tuple[Service, ServerSettings]],
    config_dir: Directories | None,
    migrates: bool,
    announcing: _Announcing,
    part: Part | None,
) -> None:
    link = None if part is None else Link(part)
    peers = {name: address for _, one in built for name, address in one.peers.items()}
    following: list[asyncio.Task[None]] = []

    def on_started(host: Host) -> None:
        if config_dir is not None:
            directory = ConfigDirectory(
                config_dir.directories, config_dir.scope, host.address, rescan_seconds=config_dir.rescan_seconds
            )
            following.append(asyncio.create_task(directory.follow(), name="config directory"))
        if link is None:
            announcing.ready([report_of(host)])
        else:
            link.serves(report_of(host))

    async def main() -> None:
        if migrates:
            for place in where:
                assert place.file is not None
                place.file.parent.mkdir(parents=True, exist_ok=True)
                await migrate(place.migration_url, migrations_of(place.service))
        host = Host([service for service, _ in built], listen=listen, peers=peers, settings=built[0][1])
        if link is not None:
            link.watch(lambda: host.draining.is_set)
        try:
            await serve_until_signalled(host, on_started=on_started)
        finally:
            for task in following:
                task.cancel()
                await asyncio.wait({task})

    uvloop.run(main())
    if link is None:
        announcing.stopped()


def _run_several(
    where: Sequence[Place], told: Told, settings: Sequence[ServerSettings], ready_file: Path | None, processes: int
) -> None:
    announcing = _Announcing(ready_file)
    with shared_out(where, told, settings, processes) as parts:
        command = [sys.executable, "-P", "-m", "threadkeep_embedded.main", *sys.argv[1:]]
        supervisor = Supervisor(command, parts, grace_seconds=settings[0].grace_seconds)
        try:
            asyncio.run(supervisor.run(announcing.ready))
        finally:
            announcing.withdraw()
    if supervisor.was_hurried:
        raise SystemExit(130)
    announcing.stopped()


def report_of(host: Host) -> dict[str, Any]:
    """What a process says of itself once it serves."""
    return {
        "address": host.address,
        "services": [service.name for service in host.services],
        "backends": sorted({service.backend for service in host.services}),
        "http": [service.http_address for service in host.services if service.http_address],
        "metrics_port": host.metrics_port,
    }


class _Announcing:
    """Tells people and scripts that calls are served, and that they no longer are."""

    def __init__(self, ready_file: Path | None) -> None:
        self._file = ready_file

    def ready(self, reports: Sequence[Mapping[str, Any]]) -> None:
        """One line, however many processes serve."""
        first = reports[0]
        if self._file is not None:
            _write_whole(self._file, first["address"] + "\n")
        http = "".join(f", HTTP on {address}" for address in first["http"])
        several = f", {len(reports)} processes" if len(reports) > 1 else ""
        ports = [str(report["metrics_port"]) for report in reports if report["metrics_port"] is not None]
        if several and ports:
            several += f" with metrics on {', '.join(ports)}"
        what = f"{', '.join(first['services'])}; {', '.join(first['backends'])}"
        print(f"threadkeepd is ready on {first['address']} ({what}){http}{several}", flush=True)

    def withdraw(self) -> None:
        """Nobody is to come any more."""
        if self._file is not None:
            self._file.unlink(missing_ok=True)

    def stopped(self) -> None:
        """The end, in order."""
        self.withdraw()
        print("threadkeepd has stopped", file=sys.stderr, flush=True)


def _write_whole(path: Path, text: str) -> None:
    """Whoever waits for the file never reads half of it."""
    draft = path.with_name(f"{path.name}.{os.getpid()}")
    draft.write_text(text)
    draft.replace(path)
