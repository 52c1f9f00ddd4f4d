"""Real processes for tests: `threadkeepd` on a port of its own, stopped in order or by SIGKILL."""

import asyncio
import os
import re
import signal
import sys
import tempfile
from collections.abc import Mapping
from pathlib import Path

from tests.support.waiting import eventually

BIN = Path(sys.executable).parent


class Process:
    """A child process whose output goes to a file that tests can read while it runs."""

    def __init__(self, child: asyncio.subprocess.Process, log: Path) -> None:
        self._child = child
        self._log = log

    @classmethod
    async def start(cls, *command: str | Path, env: Mapping[str, str] | None = None) -> "Process":
        """Starts `command` in a session of its own with `env` added to ours; stdout and stderr go to `output()`."""
        handle, name = tempfile.mkstemp(prefix="tk-process-", suffix=".log")
        try:
            child = await asyncio.create_subprocess_exec(
                *(str(part) for part in command),
                stdin=asyncio.subprocess.DEVNULL,
                stdout=handle,
                stderr=handle,
                env={**os.environ, "PYTHONUNBUFFERED": "1", **(env or {})},
                start_new_session=True,
            )
        finally:
            os.close(handle)
        return cls(child, Path(name))

    @property
    def pid(self) -> int:
        """The child's process id."""
        return self._child.pid

    @property
    def is_running(self) -> bool:
        """False once the child has ended."""
        return self._child.returncode is None

    def output(self) -> str:
        """What it has printed so far, stdout and stderr together."""
        return self._log.read_text(errors="replace")

    async def printed(self, pattern: str, timeout: float = 60.0) -> re.Match[str]:
        """Waits until a line of the output matches; fails at once when the child ends without it."""

        def look() -> re.Match[str] | bool:
            ended = not self.is_running
            found = re.search(pattern, self.output(), re.MULTILINE)
            if found is None and ended:
                raise RuntimeError(f"the process ended with {self._child.returncode}:\n{self.output()}")
            return found or False

        found = await eventually(look, timeout)
        assert isinstance(found, re.Match)
        return found

    def signal(self, number: signal.Signals) -> None:
        """Sends a signal, such as SIGSTOP or SIGCONT."""
        self._child.send_signal(number)

    async def kill(self) -> None:
        """SIGKILL, and waits until it is gone."""
        if self.is_running:
            self._child.kill()
        await self._child.wait()

    async def stop(self, timeout: float = 30.0) -> int:
        """SIGTERM, waits, and gives the exit code; one that does not end in time is killed and an AssertionError."""
        if self.is_running:
            self._child.terminate()
        try:
            return await asyncio.wait_for(self._child.wait(), timeout)
        except TimeoutError:
            await self.kill()
            raise AssertionError(f"it did not stop within {timeout} s:\n{self.output()}") from None

    async def wait(self, timeout: float = 60.0) -> int:
        """Waits for its end and gives the exit code."""
        return await asyncio.wait_for(self._child.wait(), timeout)

    def forget_output(self) -> None:
        """Removes the output file."""
        self._log.unlink(missing_ok=True)


class Processes:
    """Starts processes and leaves none behind; a fixture closes it."""

    def __init__(self) -> None:
        self._started: list[Process] = []

    async def start(self, *command: str | Path, env: Mapping[str, str] | None = None) -> Process:
        """Starts a process that ends at the latest with this object."""
        process = await Process.start(*command, env=env)
        self._started.append(process)
        return process

    async def daemon(
        self, *arguments: str | Path, listen: str = "127.0.0.1:0", env: Mapping[str, str] | None = None
    ) -> tuple[Process, str]:
        """Starts `threadkeepd` with these arguments and waits until it serves; gives it and its address.

        The daemon is asked to listen on `listen` (a free port of the loopback), and to write its address into a ready
        file.
        """
        folder = Path(tempfile.mkdtemp(prefix="tk-ready-"))
        file = folder / "ready"
        process = await self.start(BIN / "threadkeepd", *arguments, "--listen", listen, "--ready-file", file, env=env)

        def look() -> str:
            has_ended = not process.is_running
            if file.exists():
                return file.read_text().strip()
            if has_ended:
                raise RuntimeError(f"threadkeepd ended before it was ready:\n{process.output()}")
            return ""

        address = await eventually(look, timeout=60.0)
        file.unlink()
        folder.rmdir()
        return process, address

    async def close(self) -> None:
        """Kills what still runs."""
        for process in self._started:
            await process.kill()
            process.forget_output()
        self._started.clear()
