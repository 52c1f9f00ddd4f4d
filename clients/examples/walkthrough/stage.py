"""Sets the stage: the services, the definitions, two workers, and where gate and ledger lie."""

from __future__ import annotations

import json
import os
import secrets
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from threadkeep import Client
from walkthrough.options import LEASE_TTL_SECONDS, Options
from walkthrough.processes import EXAMPLES, Child, Children, Trouble, wait_for

SERVICES = ("config", "runtime", "artifacts", "projection")
DEFINITIONS = EXAMPLES / "definitions"


@dataclass(frozen=True)
class Stage:
    """What the story is played on."""

    client: Client
    workers: dict[str, Child]
    """The workers by their ids, as the runs name them."""
    gates: Path
    ledger: Path
    """Outside the suite: nothing of threadkeep knows it."""


@contextmanager
def stage(options: Options, folder: Path, say: Say) -> Iterator[Stage]:
    """Starts everything in `folder`, and ends it after the block."""
    children = Children(folder)
    try:
        addresses = _suite(options, children, folder, say)
        # A scope of its own: on a shared database the demo meets nothing of others, nor of an earlier demo.
        scope = {"demo": secrets.token_hex(4)}
        gates, ledger = folder / "gates", folder / "ledger.jsonl"
        gates.mkdir()
        with Client(addresses, scope=scope, timeout=60.0) as client:
            _apply(options, client, say)
            workers = _workers(options, children, addresses, scope, gates, ledger, say)
            yield Stage(client, workers, gates, ledger)
    finally:
        children.end()


class Say:
    """How the demo speaks."""

    def __call__(self, text: str = "") -> None:
        """One line."""
        print(text, flush=True)

    def title(self, text: str) -> None:
        """A heading."""
        self(f"\n== {text}")


def _suite(options: Options, children: Children, folder: Path, say: Say) -> dict[str, str]:
    if not options.database:
        address = children.serve("threadkeepd", "up", "--data-dir", folder / "data")
        say(f"threadkeepd up: four services in one process, one SQLite file each, on {address}")
        return dict.fromkeys(SERVICES, address)
    database = ("--database", options.database)
    program = Path(sys.executable).with_name("threadkeepd")
    done = subprocess.run([program, "migrate", *database], capture_output=True, text=True, check=False)
    if done.returncode:
        raise Trouble(f"threadkeepd migrate failed:\n{done.stdout}{done.stderr}")
    addresses: dict[str, str] = {}
    for service in SERVICES:
        peers = [f"--{name}-address={address}" for name, address in addresses.items()]
        addresses[service] = children.serve(service, "serve", service, *database, *peers)
        say(f"threadkeepd serve {service}: a process of its own on PostgreSQL, on {addresses[service]}")
    return addresses


def _apply(options: Options, client: Client, say: Say) -> None:
    files = {
        path.relative_to(DEFINITIONS).as_posix(): path.read_bytes()
        for path in sorted(DEFINITIONS.rglob("*"))
        if path.suffix in (".md", ".yaml")
    }
    if options.is_live:
        files["providers/reader-model.yaml"] = _live_provider(options).encode()
    answer = client.config.apply_set(files)
    if answer.problems:
        raise Trouble("; ".join(f"{one.path}:{one.line}: {one.message}" for one in answer.problems))
    say(f"applied {len(answer.changes)} definitions of clients/examples: revision {answer.config_revision}")


def _live_provider(options: Options) -> str:
    """The provider of a live model, as YAML; the key stays in the environment."""
    kind, _, model = options.model.rpartition(":")
    if options.base_url:
        kind, model = "openai_compatible", options.model
    provider: dict[str, object] = {"type": kind or "openai", "model": model}
    if options.base_url:
        provider["endpoint"] = options.base_url
    if os.environ.get("OPENAI_API_KEY"):
        provider["api_key_reference"] = "env:OPENAI_API_KEY"
    # JSON is YAML.
    return json.dumps(provider)


def _workers(
    options: Options,
    children: Children,
    addresses: dict[str, str],
    scope: dict[str, str],
    gates: Path,
    ledger: Path,
    say: Say,
) -> dict[str, Child]:
    target = ",".join(f"{name}={address}" for name, address in addresses.items())
    graph = ("--graph", "reader=reading.live:build") if options.is_live else ()
    origin = ("--provider-origin", options.base_url) if options.base_url else ()
    workers = {}
    for name in ("worker-1", "worker-2"):
        workers[name] = children.start(
            name,
            "threadkeep",
            "worker",
            "run",
            "--target",
            target,
            "--scope",
            json.dumps(scope),
            "--worker-id",
            name,
            "--tool-module",
            "reading.tools",
            "--lease-ttl",
            str(LEASE_TTL_SECONDS),
            # While it works it asks for no more: a stopped process must not get a run by a poll that it left open.
            "--max-runs",
            "1",
            *graph,
            *origin,
            env={"THREADKEEP_DEMO_GATES": str(gates), "THREADKEEP_DEMO_LEDGER": str(ledger)},
        )
    for name, worker in workers.items():
        wait_for(f"{name} to start", lambda worker=worker: worker.logged("takes runs"))
        say(f"{name} takes runs (process {worker.pid})")
    return workers
