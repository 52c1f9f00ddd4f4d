"""Relays that die, stall or race: once in a session, at least once at a webhook, in order everywhere (R16)."""

import asyncio
import base64
import json
import signal
from collections.abc import AsyncIterator
from datetime import UTC, datetime, timedelta
from typing import Any

import grpc
import pytest

from tests.support.databases import Databases
from tests.support.hooks import Endpoint
from tests.support.outbox import DELIVERED, deliveries, inbox, to_session, to_webhook
from tests.support.processes import Process, Processes
from tests.support.runtime import Runtime
from tests.support.suite import Suite, migrate_one
from tests.support.waiting import eventually
from threadkeep_chassis.database import Database
from threadkeep_runtime.store import relay
from threadkeep_runtime.store.relay import ClaimLost, Settlement


class Server:
    """Channels to a runtime in another process."""

    def __init__(self, address: str) -> None:
        self._channel = grpc.aio.insecure_channel(address, options=[("grpc.use_local_subchannel_pool", 1)])

    def channel(self, service: str) -> grpc.aio.Channel:
        """The one channel."""
        return self._channel


class Fleet:
    """Replicas of the runtime as processes on one database."""

    def __init__(self, processes: Processes, url: str, endpoint: Endpoint) -> None:
        self._processes, self._url, self._endpoint = processes, url, endpoint
        self._values: dict[str, str] = {}
        self._servers: list[Server] = []

    async def replica(self, failpoint: str = "") -> tuple[Process, Runtime]:
        """One more replica; the scope is the same for all."""
        settings = {
            "outbox": json.dumps(
                {
                    "webhook_origins": [self._endpoint.url("")],
                    "webhook_networks": ["127.0.0.0/8"],
                    "claim_seconds": 1,
                    "webhook_timeout_seconds": 0.5,
                    "first_pause_seconds": 0.05,
                    "max_in_turn": 5,
                }
            ),
            "signal_poll_seconds": "0.2",
            "failpoint": failpoint,
        }
        process, address = await self._processes.daemon(
            *("serve", "runtime", "--database", self._url, "--config-address", "127.0.0.1:1"),
            *(word for name, value in settings.items() for word in ("--set", f"{name}={value}")),
            *("--log-level", "ERROR"),
        )
        server = Server(address)
        self._servers.append(server)
        runtime = Runtime(server, **self._values)
        self._values = runtime.world.values
        return process, runtime

    async def close(self) -> None:
        """Closes the channels."""
        for server in self._servers:
            await server.channel("").close()


@pytest.fixture
async def endpoint() -> AsyncIterator[Endpoint]:
    """A webhook's endpoint."""
    served = await Endpoint().start()
    yield served
    await served.close()


@pytest.fixture
async def fleet(processes: Processes, database_url: str, endpoint: Endpoint) -> AsyncIterator[Fleet]:
    """Replicas on an empty database."""
    await migrate_one(database_url, "runtime")
    started = Fleet(processes, database_url, endpoint)
    yield started
    await started.close()


def values(facts: list[dict[str, Any]]) -> list[Any]:
    """What messages carried."""
    return [json.loads(base64.b64decode(fact["payload"]["data"])) for fact in facts]


@pytest.mark.rule("R16")
@pytest.mark.case("B90")
@pytest.mark.suite(backends=["sqlite", "postgres"])
async def test_a_relay_that_dies_between_delivery_and_mark_doubles_nothing_in_a_session(
    fleet: Fleet, endpoint: Endpoint
) -> None:
    process, runtime = await fleet.replica("after_delivery:1")
    source, target = (await runtime.create()).session_id, (await runtime.create()).session_id
    drafts = [to_session(target, n) for n in range(3)] + [to_webhook(endpoint.url(), n) for n in range(3)]
    sending = asyncio.create_task(runtime.commit(source, outbox=drafts))
    # The process dies at its second delivery; the commit was durable before the first.
    assert await process.wait() == -signal.SIGKILL
    await asyncio.gather(sending, return_exceptions=True)
    _, runtime = await fleet.replica()

    async def all_delivered() -> bool:
        found = await deliveries(runtime, source)
        return len(found) == 6 and all(one.state == DELIVERED for one in found)

    await eventually(all_delivered)
    assert values(await inbox(runtime, target)) == [0, 1, 2]
    first_seen = list(dict.fromkeys(post.json["data"] for post in endpoint.posts))
    assert first_seen == [0, 1, 2]
    by_id = {post.message_id: post.body for post in endpoint.posts}
    assert len(by_id) == 3, "each message has one id in all its attempts"


@pytest.mark.rule("R16")
@pytest.mark.case("B90")
@pytest.mark.suite(backends=["postgres"])
async def test_three_relays_two_of_them_killed_deliver_every_line_in_order(fleet: Fleet, endpoint: Endpoint) -> None:
    replicas = [
        await fleet.replica("after_delivery:12"),
        await fleet.replica("after_delivery:20"),
        await fleet.replica(),
    ]
    runtime = replicas[2][1]
    rounds = 0
    sources = [(await runtime.create()).session_id for _ in range(4)]
    targets = [(await runtime.create()).session_id for _ in range(5)]

    async def send(source: str, number: int) -> None:
        drafts = [to_session(target, [source, number]) for target in targets]
        drafts += [to_webhook(endpoint.url(f"/{n}"), [source, number]) for n in range(5)]
        await runtime.commit(source, outbox=drafts)

    async def all_delivered() -> bool:
        found = await deliveries(runtime)
        return len(found) == 40 * rounds and all(one.state == DELIVERED for one in found)

    # Which replica delivers how much is theirs to settle: there is work until two have met their end.
    while rounds < 5 or (rounds < 25 and sum(process.is_running for process, _ in replicas) > 1):
        await asyncio.gather(*(send(source, rounds) for source in sources))
        rounds += 1
        if rounds >= 5:
            await eventually(all_delivered, 60)
    assert [process.is_running for process, _ in replicas] == [False, False, True]
    expected = [[source, number] for source in sources for number in range(rounds)]
    for target in targets:
        arrived = values(await inbox(runtime, target))
        assert sorted(arrived) == sorted(expected)
        for source in sources:
            assert [one[1] for one in arrived if one[0] == source] == list(range(rounds))
    for number in range(5):
        posts = endpoint.to(f"/{number}")
        first = list(dict.fromkeys(post.message_id for post in posts))
        data = {post.message_id: post.json["data"] for post in posts}
        assert sorted(data.values()) == sorted(expected)
        for source in sources:
            assert [data[one][1] for one in first if data[one][0] == source] == list(range(rounds))


@pytest.mark.rule("R16")
@pytest.mark.case("B90")
@pytest.mark.suite(backends=["sqlite", "postgres"])
async def test_a_relay_that_lost_its_claim_can_not_settle(databases: Databases, backend: str) -> None:
    # A server whose own relay finds the target unreachable and then waits for an hour.
    endpoint = await Endpoint(lambda _: 500).start()
    settings = {
        "webhook_origins": [endpoint.url("")],
        "webhook_networks": ["127.0.0.0/8"],
        "first_pause_seconds": 3600,
        "longest_pause_seconds": 3600,
    }
    suite = await Suite.start(databases, backend, "embedded", {"runtime": {"outbox": settings}}, ("config", "runtime"))
    runtime = Runtime(suite)
    source = (await runtime.create()).session_id
    await runtime.commit(source, outbox=[to_webhook(endpoint.url(), n) for n in range(2)])

    async def failed_once() -> bool:
        return (await deliveries(runtime, source))[0].attempt == 1

    await eventually(failed_once)
    await suite.stop()
    database = await Database.open(suite.urls["runtime"], "runtime")
    later = datetime.now(UTC) + timedelta(hours=2)
    async with database.write() as connection:
        (first,) = await connection.run(lambda sync: relay.claim(sync, later, 60, 10))
        assert await connection.run(lambda sync: relay.claim(sync, later, 60, 10)) == []
    message = None
    async with database.write() as connection:
        # Its time is over: another relay takes the line.
        (second,) = await connection.run(lambda sync: relay.claim(sync, later + timedelta(seconds=61), 60, 10))
        message = await connection.run(lambda sync: relay.first(sync, second.target_key))
    assert second.epoch == first.epoch + 1
    assert message is not None
    with pytest.raises(ClaimLost):
        async with database.write() as connection:
            await connection.run(
                lambda sync: relay.settle(sync, first, message, Settlement(relay.DELIVERED), later, 60)
            )
    async with database.write() as connection:
        following = await connection.run(
            lambda sync: relay.settle(sync, second, message, Settlement(relay.DELIVERED), later, 60)
        )
    assert following is not None
    assert following.sequence == message.sequence + 1
    await database.close()
    await suite.close()
    await endpoint.close()
