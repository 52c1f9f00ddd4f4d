"""NOTIFY is in no commit's way: it goes out afterwards, coalesced, on a connection of its own (R2, B55)."""

import asyncio

import asyncpg
import grpc
import pytest

from tests.store.chassis.wire import wire_to
from tests.support.postgres import Postgres
from tests.support.runtime import Runtime, event
from tests.support.suite import Suite
from tests.support.waiting import eventually
from threadkeep_chassis.hosting import Host
from threadkeep_runtime.server import build
from threadkeep_runtime.settings import RuntimeSettings

WRITERS, COMMITS = 64, 4


class Replica:
    """A runtime whose signals take a wire of their own."""

    def __init__(self, suite: Suite, channel: grpc.aio.Channel) -> None:
        self._suite, self._channel = suite, channel

    def channel(self, service: str) -> grpc.aio.Channel:
        """The runtime is here, config is the suite's."""
        return self._channel if service == "runtime" else self._suite.channel(service)


@pytest.mark.rule("R2")
@pytest.mark.case("B55")
@pytest.mark.suite(backends=["postgres"], topologies=["embedded"])
async def test_commits_wait_for_no_notification(shared_suite: Suite, postgres: Postgres) -> None:
    url = shared_suite.urls["runtime"]
    heard: list[str] = []
    listener = await asyncpg.connect(url)
    await listener.add_listener("threadkeep_runtime", lambda _connection, _pid, _channel, text: heard.append(text))
    async with wire_to(postgres.socket_folder) as wire:
        settings = RuntimeSettings(database_url=url, database_direct_url=wire.url(url))
        async with (
            Host([build(settings)], peers=dict(shared_suite.addresses)) as host,
            grpc.aio.insecure_channel(host.address) as channel,
        ):
            runtime = Runtime(Replica(shared_suite, channel))
            sessions = [(await runtime.create()).session_id for _ in range(WRITERS)]

            async def write(session_id: str) -> None:
                for _ in range(COMMITS):
                    await runtime.commit(session_id, events=[event()])

            heard.clear()
            await asyncio.gather(*(write(session_id) for session_id in sessions))
            await eventually(lambda: heard)
            # A notification speaks for many commits.
            assert len(heard) < WRITERS * COMMITS
            # Nothing passes on the notifier's connections any more, and nobody who commits notices.
            wire.is_silent = True
            await asyncio.gather(*(write(session_id) for session_id in sessions))
            for session_id in sessions[:3]:
                assert (await runtime.session(session_id)).thread_version == 1 + 2 * COMMITS
            wire.is_silent = False
    await listener.close()
