"""Committers that keep at it while the server dies and comes back, and the log of what was acknowledged to them.

The log is a file of the test's own: what the suite is held to afterwards comes from nowhere else.
"""

import asyncio
import itertools
import json
import os
import time
from collections import defaultdict
from dataclasses import dataclass
from pathlib import Path

import grpc

from tests.support.calls import error_details
from tests.support.mortal import MortalSuite
from tests.support.runtime import Runtime, commit, event, text
from threadkeep.runtime.v1 import thread_service_pb2

PATIENCE = 120.0
"""Seconds; a server that comes back on a busy machine takes a while."""


@dataclass(frozen=True)
class Acknowledgement:
    """One acknowledged commit, as the log holds it."""

    session_id: str
    number: int
    """Which of its session's commits, from 1."""
    response: bytes
    """The response, without the mark of a replay."""

    @property
    def event_id(self) -> str:
        """The id that the committer gave to its first event."""
        return event_id(self.session_id, self.number)


class Acknowledgements:
    """The log, and whoever waits for it to grow."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._file = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_APPEND)
        self._grown = asyncio.Event()
        self._ended = False
        self.count = 0

    def add(self, session_id: str, number: int, response: thread_service_pb2.CommitResponse) -> None:
        """Logs one; it is in the file before anybody can count it."""
        line = json.dumps([session_id, number, plain(response).hex()]) + "\n"
        assert os.write(self._file, line.encode()) == len(line)
        self.count += 1
        self._wake()

    async def reach(self, count: int) -> None:
        """Waits for that many, or for the end."""
        async with asyncio.timeout(PATIENCE):
            while self.count < count and not self._ended:
                await self._grown.wait()

    def end(self) -> None:
        """Lets everybody go on who waits."""
        self._ended = True
        self._wake()

    @property
    def has_ended(self) -> bool:
        """True after `end`."""
        return self._ended

    def read(self) -> dict[str, list[Acknowledgement]]:
        """What the file says, by session, in order."""
        found: dict[str, list[Acknowledgement]] = defaultdict(list)
        for line in self._path.read_text().splitlines():
            session_id, number, response = json.loads(line)
            found[session_id].append(Acknowledgement(session_id, number, bytes.fromhex(response)))
        return found

    def close(self) -> None:
        """Closes the file."""
        os.close(self._file)

    def _wake(self) -> None:
        self._grown.set()
        self._grown = asyncio.Event()


@dataclass
class Interruption:
    """A commit that was under way when the server died: its connection broke before an answer came."""

    number: int
    life: int
    """In which of the server's lives."""
    is_settled: bool = False
    """The request has been answered since."""
    was_committed: bool = False
    """The next answer said that the commit had happened."""


class Committer:
    """Commits to a session of its own, one after the other; each request is sent until it is answered."""

    def __init__(self, session_id: str, runtime: Runtime, suite: MortalSuite, log: Acknowledgements) -> None:
        self.session_id = session_id
        self.under_way: int | None = None
        """The number of the commit whose answer is awaited."""
        self.interruptions: list[Interruption] = []
        self.round_trip = 0.0
        """Seconds that the last answer took."""
        self._runtime, self._suite, self._log = runtime, suite, log

    async def run(self) -> None:
        """Commits until the log ends. Raises what is neither an answer nor UNAVAILABLE."""
        await self._runtime.create(self.session_id)
        for number in itertools.count(1):
            self._log.add(self.session_id, number, await self._commit(number))
            if self._log.has_ended:
                return

    async def _commit(self, number: int) -> thread_service_pb2.CommitResponse:
        bind = self._runtime.world.bind("ThreadService.Commit")
        request = request_of(self.session_id, number)
        while True:
            began = time.monotonic()
            self.under_way = number
            try:
                # A call that waits for the server to come back has not been sent: only one that was can break.
                response = await bind(request, metadata=self._runtime.metadata, timeout=PATIENCE, wait_for_ready=True)
            except grpc.RpcError as error:
                details = error_details(error)
                if details.code != grpc.StatusCode.UNAVAILABLE:
                    raise
                if not details.reason:
                    self._interrupted(number)
            else:
                self.round_trip = time.monotonic() - began
                self._settled(number, response.receipt.replay)
                return response
            finally:
                self.under_way = None

    def _interrupted(self, number: int) -> None:
        last = self.interruptions[-1] if self.interruptions else None
        # What is sent on a connection whose end is not noticed yet breaks again, of the same death.
        if last is None or (last.number, last.life) != (number, self._suite.life):
            self.interruptions.append(Interruption(number, self._suite.life))

    def _settled(self, number: int, is_replay: bool) -> None:
        mine = [one for one in self.interruptions if one.number == number]
        for one in mine:
            one.is_settled = True
        if is_replay and mine:
            mine[-1].was_committed = True


def event_id(session_id: str, number: int) -> str:
    """The id of a commit's first event."""
    return f"{session_id}.{number}"


def request_of(session_id: str, number: int) -> thread_service_pb2.CommitRequest:
    """The request of a committer's commit: an event with an id of the committer's, and one whose id the server assigns
    (which it would append a second time if it took the request for a new one)."""
    name = event_id(session_id, number)
    events = [event(event_id=name, payload=text(name.encode())), event(payload=text(name.encode()))]
    return commit(session_id, request_id=f"request-{name}", events=events)


def plain(response: thread_service_pb2.CommitResponse) -> bytes:
    """The response as bytes, without the mark of a replay."""
    copy = thread_service_pb2.CommitResponse.FromString(response.SerializeToString())
    copy.receipt.replay = False
    return copy.SerializeToString(deterministic=True)
