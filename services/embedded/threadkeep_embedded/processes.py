"""Several processes for one command line: started, started again when they die, stopped together.

The parent serves nothing. Each process is the same command from its beginning (a fork of a process in which gRPC has
begun is no server), told by the environment which of them it is. A pair of sockets joins the two: the process says
there that it serves, and stops when its parent is gone.
"""

from __future__ import annotations

import asyncio
import contextlib
import json
import os
import signal
import socket
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import structlog

_PART = "THREADKEEPD_PART"
_log = structlog.get_logger("threadkeep.processes")


@dataclass(frozen=True)
class Part:
    """What one of several processes is told by its parent."""

    index: int
    listen: str
    settings: Mapping[str, Any]
    """Settings that override those of the command line."""
    link: int = -1
    """The file descriptor of its end of the pair."""

    @classmethod
    def take(cls) -> Part | None:
        """What this process was told; None for one that nobody started as a part. Its own children learn nothing."""
        told = os.environ.pop(_PART, None)
        return None if told is None else cls(**json.loads(told))

    def told(self, link: int) -> str:
        """The text for the environment."""
        return json.dumps({**self.__dict__, "settings": dict(self.settings), "link": link})


class Link:
    """A process's end: says what it serves, and hears when the parent is gone."""

    def __init__(self, part: Part) -> None:
        self._socket = socket.socket(fileno=part.link)
        self._socket.setblocking(False)
        os.set_inheritable(part.link, False)

    def watch(self, is_stopping: Callable[[], bool]) -> None:
        """From now on the end of the parent is a SIGTERM to this process, unless it stops already."""
        loop = asyncio.get_running_loop()

        def parent_is_gone() -> None:
            loop.remove_reader(self._socket.fileno())
            if not is_stopping():
                _log.warning("the parent process is gone")
                os.kill(os.getpid(), signal.SIGTERM)

        loop.add_reader(self._socket.fileno(), parent_is_gone)

    def serves(self, report: Mapping[str, Any]) -> None:
        """Calls are served."""
        with contextlib.suppress(OSError):
            self._socket.send(json.dumps(dict(report)).encode() + b"\n")


@dataclass(frozen=True)
class Patience:
    """How the end of a process is taken. Durations in seconds."""

    first_wait: float = 0.2
    """Before it is started again; each further death doubles that."""
    longest_wait: float = 10.0
    settled: float = 30.0
    """Whoever has served for so long begins at the first wait again."""
    starts: int = 5
    """So many starts in a row that come to nothing end everything."""
    stop_margin: float = 10.0
    """Beyond its grace, until a process that was told to stop is killed."""


class StartFailed(Exception):
    """A process does not get as far as serving."""

    def __init__(self, index: int, code: int, starts: int) -> None:
        how = f"was ended by signal {-code}" if code < 0 else f"ended with exit code {code}"
        times = f", {starts} times in a row" if starts > 1 else ""
        super().__init__(f"process {index} {how} before it served{times}; what it said is above")
        self.code = code if code > 0 else 1


@dataclass
class _Member:
    part: Part
    process: asyncio.subprocess.Process | None = None
    serving: asyncio.Event = field(default_factory=asyncio.Event)
    """Set once it has served for the first time."""
    report: Mapping[str, Any] = field(default_factory=dict)

    def send(self, number: signal.Signals) -> None:
        """Sends a signal, if it runs."""
        if self.process is not None and self.process.returncode is None:
            with contextlib.suppress(ProcessLookupError):
                self.process.send_signal(number)


class Supervisor:
    """Runs `command` once per part until SIGTERM or SIGINT."""

    def __init__(
        self, command: Sequence[str], parts: Sequence[Part], *, grace_seconds: float, patience: Patience | None = None
    ) -> None:
        self._command = list(command)
        self._members = [_Member(part) for part in parts]
        self._patience = patience or Patience()
        self._kill_after = grace_seconds + self._patience.stop_margin
        self._stopping = asyncio.Event()
        self._failure: Exception | None = None
        self.was_hurried = False
        """A second signal came while it stopped."""

    async def run(self, on_serving: Callable[[list[Mapping[str, Any]]], None]) -> None:
        """Starts the first process, then the others; `on_serving` gets the reports once all serve.

        Returns when all have stopped as they were told. Raises StartFailed.
        """
        loop = asyncio.get_running_loop()
        for number in (signal.SIGTERM, signal.SIGINT):
            loop.add_signal_handler(number, self._signalled)
        keepers: list[asyncio.Task[None]] = []
        telling = asyncio.create_task(self._tell(keepers, on_serving))
        try:
            await self._stopping.wait()
        finally:
            self._stopping.set()
            telling.cancel()
            await asyncio.wait({telling})
            await self._end_all(keepers)
            for number in (signal.SIGTERM, signal.SIGINT):
                loop.remove_signal_handler(number)
        if self._failure is not None:
            raise self._failure

    async def _tell(
        self, keepers: list[asyncio.Task[None]], on_serving: Callable[[list[Mapping[str, Any]]], None]
    ) -> None:
        # The first alone: what keeps all of them from starting is said once.
        for some in (self._members[:1], self._members[1:]):
            keepers += [asyncio.create_task(self._keep(member)) for member in some]
            for member in some:
                await member.serving.wait()
        try:
            on_serving([member.report for member in self._members])
        except OSError as error:
            self._fail(error)

    def _fail(self, error: Exception) -> None:
        self._failure = self._failure or error
        self._stopping.set()

    def _signalled(self) -> None:
        if self._stopping.is_set():
            # As in a single process: the second signal ends it at once.
            self.was_hurried = True
            self._send(signal.SIGKILL)
        self._stopping.set()

    def _send(self, number: signal.Signals) -> None:
        for member in self._members:
            member.send(number)

    async def _end_all(self, keepers: list[asyncio.Task[None]]) -> None:
        self._send(signal.SIGKILL if self.was_hurried else signal.SIGTERM)
        if keepers:
            _, late = await asyncio.wait(keepers, timeout=self._kill_after)
            if late:
                _log.error("processes did not stop in time and are killed", processes=len(late))
                self._send(signal.SIGKILL)
        await asyncio.gather(*keepers, return_exceptions=True)

    async def _keep(self, member: _Member) -> None:
        loop = asyncio.get_running_loop()
        failed, wait = 0, self._patience.first_wait
        while not self._stopping.is_set():
            started = loop.time()
            has_served, code = await self._live(member)
            if self._stopping.is_set():
                return
            failed = 0 if has_served else failed + 1
            if not member.serving.is_set() or failed >= self._patience.starts:
                self._fail(StartFailed(member.part.index, code, failed))
                return
            if has_served and loop.time() - started >= self._patience.settled:
                wait = self._patience.first_wait
            _log.warning(
                "process ended, and is started again", process=member.part.index, exit_code=code, in_seconds=wait
            )
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(wait):
                    await self._stopping.wait()
            wait = min(2 * wait, self._patience.longest_wait)

    async def _live(self, member: _Member) -> tuple[bool, int]:
        """Runs it once. (whether it served, its exit code)"""
        ours, theirs = socket.socketpair()
        with ours:
            with theirs:
                member.process = await asyncio.create_subprocess_exec(
                    *self._command,
                    env={**os.environ, _PART: member.part.told(theirs.fileno())},
                    pass_fds=[theirs.fileno()],
                    # Control-C on a terminal reaches the parent alone, which passes it on.
                    start_new_session=True,
                )
            if self._stopping.is_set():
                # The signal was sent while there was nobody yet.
                member.send(signal.SIGTERM)
            reader, writer = await asyncio.open_connection(sock=ours)
            try:
                line = await reader.readline()
                if line:
                    member.report = json.loads(line)
                    member.serving.set()
                return bool(line), await member.process.wait()
            finally:
                writer.close()
