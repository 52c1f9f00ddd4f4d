"""A running suite for tests of your own: the four services in a process beside your tests, in memory, without set-up.

In your conftest.py, one line:

    from threadkeep.testing import threadkeep_client, threadkeep_suite  # noqa: F401

A test that takes `threadkeep_client` gets a client in a scope that no other test sees. Needs threadkeep[server] and
pytest; everything ends with the test run.
"""

from __future__ import annotations

import os
import subprocess
import sys
import tempfile
import time
import uuid
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from threadkeep.client import AsyncClient, Client

__all__ = ["Suite", "running_suite", "threadkeep_client", "threadkeep_scope", "threadkeep_suite"]

START_SECONDS = 60.0

# The daemon ends when its standard input does: with the process that started it, however that ends.
_DAEMON = """
import os, signal, sys, threading
def follow():
    sys.stdin.buffer.read()
    os.kill(os.getpid(), signal.SIGTERM)
threading.Thread(target=follow, daemon=True).start()
from threadkeep_embedded.main import main
main()
"""


@dataclass(frozen=True)
class Suite:
    """A running suite."""

    target: str
    """The address of all services."""

    def client(self, scope: Mapping[str, str] | None = None, **options: Any) -> Client:
        """A new client; without a scope, in one that nobody else uses. Close it, or use it in a `with`."""
        return Client(self.target, scope=fresh_scope() if scope is None else scope, **options)

    def async_client(self, scope: Mapping[str, str] | None = None, **options: Any) -> AsyncClient:
        """The same for asyncio."""
        return AsyncClient(self.target, scope=fresh_scope() if scope is None else scope, **options)


def fresh_scope() -> dict[str, str]:
    """A scope that nobody else uses."""
    return {"test": uuid.uuid4().hex}


@contextmanager
def running_suite(data_dir: Path | str | None = None, settings: Mapping[str, Any] | None = None) -> Iterator[Suite]:
    """Starts the four services in a process of their own, and ends it.

    Data lies in memory; with `data_dir` in that directory, where it outlives the suite. `settings` are settings of any
    service, such as `{"lease_ttl_seconds": 2}`. RuntimeError with the daemon's words if it does not start.
    """
    place = ["--database", "memory:"] if data_dir is None else ["--data-dir", str(data_dir)]
    told = [word for name, value in (settings or {}).items() for word in ("--set", f"{name}={value}")]
    with tempfile.TemporaryDirectory(prefix="threadkeep-testing-") as folder:
        ready, log = Path(folder, "ready"), Path(folder, "log")
        command = [sys.executable, "-c", _DAEMON, "up", *place, *told]
        command += ["--listen", "127.0.0.1:0", "--ready-file", str(ready), "--log-level", "WARNING"]
        # What a developer has set for servers of theirs is not meant for this one.
        env = {name: value for name, value in os.environ.items() if not name.startswith("THREADKEEP_")}
        with log.open("wb") as output:
            daemon = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=output, stderr=output, env=env)
        try:
            yield Suite(_address(daemon, ready, log))
        finally:
            assert daemon.stdin is not None
            daemon.stdin.close()
            try:
                daemon.wait(START_SECONDS)
            except subprocess.TimeoutExpired:
                daemon.kill()
                daemon.wait()


def _address(daemon: subprocess.Popen[bytes], ready: Path, log: Path) -> str:
    deadline = time.monotonic() + START_SECONDS
    while not ready.exists():
        if daemon.poll() is not None or time.monotonic() > deadline:
            raise RuntimeError(
                "threadkeepd did not start (it comes with `pip install 'threadkeep[server]'`):\n"
                + log.read_text(errors="replace")
            )
        time.sleep(0.02)
    return ready.read_text().strip()


@pytest.fixture(scope="session")
def threadkeep_suite() -> Iterator[Suite]:
    """One suite in memory for the whole test run; with pytest-xdist, one for each worker."""
    with running_suite() as suite:
        yield suite


@pytest.fixture
def threadkeep_scope() -> dict[str, str]:
    """The scope of this test: nobody else uses it."""
    return fresh_scope()


@pytest.fixture
def threadkeep_client(threadkeep_suite: Suite, threadkeep_scope: dict[str, str]) -> Iterator[Client]:
    """A client in the scope of this test. `threadkeep_client.to_async()` is one for asyncio."""
    with threadkeep_suite.client(threadkeep_scope) as client:
        yield client
