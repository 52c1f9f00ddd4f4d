"""A reader who does not read is let go, with the cursor to go on from; writers never wait for it (R14, B82)."""

import base64
from typing import Any

import pytest

from tests.support.calls import error_details
from tests.support.examples.world import World
from tests.support.feeds import draft, follow, is_dense, listed
from tests.support.suite import Suite
from tests.support.waiting import eventually
from threadkeep_runtime.feeds.settings import FeedSettings

METHOD = "/threadkeep.runtime.v1.EventService/SubscribeEvents"


@pytest.mark.suite(backends=["memory", "postgres"], topologies=["split"])
@pytest.mark.rule("R14", "X9")
@pytest.mark.case("B82")
async def test_a_reader_who_stops_is_ended_and_resumes_without_loss(
    databases: Any, backend_and_topology: tuple[str, str]
) -> None:
    settings = {"runtime": {"feeds": FeedSettings(slow_consumer_seconds=0.5)}}
    suite = await Suite.start(databases, *backend_and_topology, settings, services=("config", "runtime"))
    try:
        world = World(suite)
        session_id = (await world.session()).session.session_id
        async with follow(world, session_id=session_id) as feed:
            await feed.event()
            big = draft("big")
            big.payload.data = b'"%b"' % (b"x" * 1_000_000)
            for _ in range(40):
                await world.commit(session_id=session_id, events=[big])
            # Nothing was read of 40 MB, and every commit was answered. The server lets the reader go.
            await eventually(lambda: _open_feeds(suite) == 0)
            details = error_details(await feed.failure())
        assert (details.code.name, details.reason) == ("RESOURCE_EXHAUSTED", "SLOW_CONSUMER")
        seen = [event for frame in feed.frames for event in frame.events.events]
        rest = await listed(world, session_id=session_id, after=base64.b64decode(details.metadata["resume_cursor"]))
        assert is_dense([*seen, *rest])
        assert len(seen) + len(rest) == 41
        assert rest
    finally:
        await suite.close()


def _open_feeds(suite: Suite) -> float:
    """How many subscriptions the server's metrics show; the projection's own is not among them here."""
    (runtime,) = [host for host in suite._hosts if host.services[0].name == "runtime"]
    return runtime.registry.get_sample_value("threadkeep_feed_subscriptions") or 0.0
