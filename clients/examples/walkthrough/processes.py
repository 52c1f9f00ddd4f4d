"""Child processes of the demo: the daemon and the workers. Each writes a log; none outlives the demo."""

from __future__ import annotations

import os
import re
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import TypeVar

T = TypeVar("T")

EXAMPLES = Path(__file__).resolve().parents[1]
PATIENCE_SECONDS = 120.0


class Trouble(Exception):
    """The demo can't go on. The message says what was seen."""


def wait_for(what: str, condition: Callable[[], T], seconds: float = PATIENCE_SECONDS) -> T:
    """Calls `condition` until it gives something true, and returns that. Raises Trouble when it never does."""
    deadline = time.monotonic() + seconds
    while not (found := condition()):
        if time.monotonic() > deadline:
            raise Trouble(f"waited {seconds:g} s in vain for {what}")
        time.sleep(0.02)
    return found


class Child:
    """One process."""

    def __init__(self, name: str, command: Sequence[str | Path], log: Path, env: Mapping[str, str]) -> None:
        self.name = name
        self.log = log
        with log.open("wb") as file:
            self._process = subprocess.Popen(
                [str(part) for part in command],
                stdin=subprocess.DEVNULL,
                stdout=file,
                stderr=subprocess.STDOUT,
                cwd=EXAMPLES,
                env={**os.environ, "PYTHONUNBUFFERED": "1", **env},
                start_new_session=True,
            )

    @property
    def pid(self) -> int:
        """Its process id."""
        return self._process.pid

    @property
    def has_ended(self) -> bool:
        """True once it is gone."""
        return self._process.poll() is not None

    def logged(self, pattern: str) -> re.Match[str] | None:
        """The first match in what it wrote. Raises Trouble if it has ended without."""
        ended = self.has_ended
        found = re.search(pattern, self.text())
        if found is None and ended:
            raise Trouble(f"{self.name} ended with {self._process.returncode}:\n{self.text()[-4000:]}")
        return found

    def text(self) -> str:
        """All that it wrote."""
        return self.log.read_text(errors="replace")

    def signal(self, number: signal.Signals) -> None:
        """Sends a signal."""
        self._process.send_signal(number)

    def end(self, seconds: float = 20.0) -> None:
        """Stops it in order; if it does not listen, at once."""
        if self.has_ended:
            return
        # A stopped process can't hear SIGTERM.
        self._process.send_signal(signal.SIGCONT)
        self._process.terminate()
        try:
            self._process.wait(seconds)
        except subprocess.TimeoutExpired:
            self._process.kill()
            self._process.wait()


class Children:
    """All of them."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.all: list[Child] = []

    def start(self, name: str, *command: str | Path, env: Mapping[str, str] | None = None) -> Child:
        """Starts one; `command` begins with the name of a program of ours."""
        program = Path(sys.executable).with_name(str(command[0]))
        child = Child(name, [program, *command[1:]], self.folder / f"{name}.log", env or {})
        self.all.append(child)
        return child

    def serve(self, name: str, *command: str | Path) -> str:
        """Starts a `threadkeepd` on a free port of the loopback; gives its address once it serves."""
        ready = self.folder / f"{name}.ready"
        child = self.start(name, "threadkeepd", *command, "--listen", "127.0.0.1:0", "--ready-file", ready)
        return wait_for(f"{name} to serve", lambda: _written(ready) or (child.logged("^$a") and ""))

    def end(self) -> None:
        """Ends all of them, those that started last first."""
        for child in reversed(self.all):
            child.end()


def _written(path: Path) -> str:
    return path.read_text().strip() if path.exists() else ""
