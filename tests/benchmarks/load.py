"""Load from a process of its own: `load ADDRESS CALLERS CONNECTIONS`, for cases that one process would hold back.

Each line on stdin, `commit SECONDS` or `echo SECONDS`, is answered by a line with the calls per second.
"""

from __future__ import annotations

import asyncio
import itertools
import sys
import uuid
from collections.abc import Sequence

import grpc
import uvloop

from tests.benchmarks.cases.commits import EVENTS
from tests.benchmarks.echo import UNARY
from tests.benchmarks.harness import Call, rate
from tests.support.runtime import Runtime, commit

OPTIONS = [("grpc.use_local_subchannel_pool", 1)]


class Connection:
    """One of several connections to the same address. It is what `tests.support` calls a suite."""

    def __init__(self, address: str) -> None:
        self._channel = grpc.aio.insecure_channel(address, options=OPTIONS)

    def channel(self, service: str = "runtime") -> grpc.aio.Channel:
        """All services are behind it."""
        return self._channel


async def main(address: str, callers: int, connections: int) -> None:
    """Obeys stdin until it ends."""
    # Ids are fresh in one process only.
    tenant = uuid.uuid4().hex
    runtimes = [Runtime(Connection(address), tenant=tenant) for _ in range(connections)]
    turns = list(itertools.islice(itertools.cycle(runtimes), callers))
    names = [(await runtime.create()).session_id for runtime in turns]
    request = commit(names[0], events=EVENTS).SerializeToString()
    stubs = [runtime.world.suite.channel("runtime").unary_unary(UNARY) for runtime in turns]
    calls: dict[str, Sequence[Call]] = {
        "commit": [
            lambda runtime=runtime, name=name: runtime.commit(name, events=EVENTS)  # type: ignore[misc]
            for runtime, name in zip(turns, names, strict=True)
        ],
        "echo": [lambda stub=stub: stub(request) for stub in stubs],  # type: ignore[misc]
    }
    while line := await asyncio.to_thread(sys.stdin.readline):
        kind, seconds = line.split()
        print(await rate(float(seconds), calls[kind]), flush=True)


if __name__ == "__main__":
    with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
        runner.run(main(sys.argv[1], int(sys.argv[2]), int(sys.argv[3])))
