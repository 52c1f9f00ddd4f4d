"""Several replicas on one PostgreSQL: every change reaches every replica once and in order, and none answers stale."""

import asyncio
import itertools
import os
from collections.abc import AsyncIterator

import pytest

from tests.support.calls import refused
from tests.support.config import (
    AGENT,
    PROVIDER,
    TOOL,
    Caller,
    Server,
    agent,
    config_database,
    config_server,
    provider,
    tool,
)
from tests.support.databases import Databases
from tests.support.descriptors import fresh_id
from tests.support.waiting import eventually
from threadkeep.config.v1 import config_service_pb2 as pb
from threadkeep.config.v1 import watch_pb2

pytestmark = pytest.mark.suite(backends=["postgres"])

KEYS = int(os.environ.get("THREADKEEP_TEST_KEYS", "20"))
ROUNDS = int(os.environ.get("THREADKEEP_TEST_ROUNDS", "8"))
"""Small by default; 100 and 200 are what must hold."""


@pytest.fixture
async def replicas(databases: Databases) -> AsyncIterator[list[Server]]:
    """Three servers on one database. The poll interval is so long that only signals can be what is fast."""
    url = await config_database(databases, "postgres")
    async with (
        config_server(url, signal_poll_seconds=0.5) as one,
        config_server(url, signal_poll_seconds=0.5) as two,
        config_server(url, signal_poll_seconds=0.5) as three,
    ):
        yield [one, two, three]
    await databases.drop(url)


def callers(replicas: list[Server], **values: str) -> list[Caller]:
    """One caller per replica, all in one scope."""
    return [replica.caller(**values) for replica in replicas]


@pytest.mark.rule("C5", "C6")
@pytest.mark.case("B50", "B80", "B82")
async def test_every_watcher_sees_each_revision_once_in_order_whoever_writes(replicas: list[Server]) -> None:
    each = callers(replicas, tenant="t")
    written: list[int] = []

    async def write(number: int) -> None:
        caller = each[number % 3]
        for n in range(25):
            written.append((await caller.put(TOOL, f"w{number}-{n % 3}", tool(f"text {n}"))).entity.revision)

    async def read(caller: Caller, wait_for: int) -> list[int]:
        await eventually(lambda: len(written) >= wait_for)
        watch = caller.watch(after=0)
        seen: list[watch_pb2.EntityChange] = []
        while not seen or seen[-1].entity.name != "last":
            seen.extend((await watch.frame()).changes.changes)
        watch.cancel()
        return [change.entity.revision for change in seen]

    reading = [asyncio.create_task(read(each[n % 3], 20 * n)) for n in range(9)]
    await asyncio.gather(*(write(number) for number in range(12)))
    written.append((await each[0].put(TOOL, "last", tool())).entity.revision)
    for seen in await asyncio.gather(*reading):
        assert seen == list(range(1, 12 * 25 + 2)), "dense, once, in order"
    assert sorted(written) == list(range(1, 12 * 25 + 2))


@pytest.mark.rule("C2", "C6")
async def test_no_replica_answers_older_than_the_question(replicas: list[Server]) -> None:
    """A write that one replica acknowledged counts on every other at once, cached or not."""
    each = callers(replicas, tenant="t")
    inner = [caller.within(project="p") for caller in each]
    for caller in inner:
        assert (await refused(caller.resolve(TOOL, "x"))).reason == "ENTITY_NOT_FOUND"
    for round_number, (writer, reader) in enumerate(itertools.permutations(range(3), 2)):
        outer = (await each[writer].put(TOOL, "x", tool(f"outer {round_number}"))).entity
        assert (await inner[reader].resolve(TOOL, "x")).entity == outer
        narrower = (await inner[writer].put(TOOL, "x", tool(f"inner {round_number}"))).entity
        assert (await inner[reader].resolve(TOOL, "x")).entity == narrower
        await inner[writer].delete(TOOL, "x")
        assert (await inner[reader].resolve(TOOL, "x")).entity == outer


@pytest.mark.rule("C9")
async def test_every_replica_gives_the_same_manifest(replicas: list[Server]) -> None:
    each = callers(replicas, tenant="t")
    await each[0].put(PROVIDER, "main", provider(options_json='{"b":1,"a":1.50}'))
    await each[1].put(TOOL, "reader", tool())
    await each[2].put(AGENT, "clerk", agent(provider="main", tools=["reader"]))
    manifests = [await caller.manifest("clerk") for caller in each]
    assert manifests[0] == manifests[1] == manifests[2]
    await each[1].put(TOOL, "reader", tool("other"))
    changed = [await caller.manifest("clerk") for caller in each]
    assert changed[0] == changed[1] == changed[2]
    assert changed[0].digest != manifests[0].digest


@pytest.mark.rule("C5", "C7")
@pytest.mark.case("B47")
async def test_writers_of_the_same_keys_in_opposite_orders_do_not_deadlock(replicas: list[Server]) -> None:
    each = callers(replicas, tenant="t")
    keys = [f"k{n:03}" for n in range(KEYS)]

    async def put_all(caller: Caller, order: list[str], text: str) -> None:
        await asyncio.gather(*(caller.put(TOOL, name, tool(f"{text} {name}")) for name in order))

    def files(order: list[str], text: str) -> dict[str, str]:
        return {f"agents/{name}.md": text for name in order}

    for round_number in range(ROUNDS):
        await asyncio.gather(
            put_all(each[0], keys, f"up {round_number}"),
            put_all(each[1], keys[::-1], f"down {round_number}"),
            each[1].apply(files(keys, f"up {round_number}")),
            each[2].apply(files(keys[::-1], f"down {round_number}")),
            each[0].apply(files(keys[KEYS // 4 : -KEYS // 4], f"part {round_number}")),
        )
    assert len(await each[0].list_all()) in (KEYS + KEYS // 2, 2 * KEYS)


@pytest.mark.rule("X3")
async def test_a_request_sent_to_two_replicas_at_once_has_one_effect(replicas: list[Server]) -> None:
    each = callers(replicas, tenant="t")
    for n in range(10):
        request = pb.PutEntityRequest(
            request_id=fresh_id(), key=each[0].key(TOOL, f"x{n}"), definition=tool(), expected_revision=0
        )
        answers = await asyncio.gather(
            *(caller.stub.PutEntity(request, metadata=caller.metadata) for caller in each for _ in range(2))
        )
        assert all(answer == answers[0] for answer in answers)
        assert answers[0].changed
        assert len(await each[0].history(TOOL, f"x{n}")) == 1


@pytest.mark.rule("C6")
@pytest.mark.case("B52")
async def test_a_listener_that_is_lost_costs_latency_and_no_change(
    replicas: list[Server], databases: Databases
) -> None:
    each = callers(replicas, tenant="t")
    watch = each[1].watch()
    await watch.snapshot()
    listeners = "SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE application_name LIKE '%listen'"
    for n in range(3):
        await databases.postgres.execute(listeners)
        put = (await each[0].put(TOOL, "x", tool(str(n)))).entity
        async with asyncio.timeout(20):
            assert (await watch.changes(1))[0].entity == put
    watch.cancel()


@pytest.mark.rule("C2")
async def test_connections_that_are_lost_cost_no_answer(replicas: list[Server], databases: Databases) -> None:
    each = callers(replicas, tenant="t")
    entity = (await each[0].put(TOOL, "x", tool())).entity
    cut = (
        "SELECT pg_terminate_backend(pid) FROM pg_stat_activity "
        "WHERE application_name LIKE 'threadkeep-config%' AND pid <> pg_backend_pid()"
    )
    for _ in range(3):
        await databases.postgres.execute(cut)
        for caller in each:
            assert (await caller.resolve(TOOL, "x")).entity == entity
            assert (await caller.get(TOOL, "x")) == entity
