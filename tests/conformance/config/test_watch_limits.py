"""Watches and their ends (C6, X9): bookmarks, bounds, slow readers, readers that leave, servers that stop."""

import asyncio

import grpc
import pytest

from tests.support.calls import error_details
from tests.support.config import AGENT, TOOL, Caller, agent, config_server_on, tool
from tests.support.databases import Databases
from tests.support.descriptors import fresh_id
from tests.support.waiting import eventually
from threadkeep.config.v1 import watch_pb2


@pytest.mark.rule("X9")
async def test_a_frame_is_bounded_by_bytes(acme: Caller) -> None:
    for n in range(6):
        await acme.put(AGENT, f"big-{n}", agent(str(n) * 900_000))
    for after in (0, None):
        watch = acme.watch(after=after)
        found = 0
        while found < 6:
            frame = await watch.frame()
            assert frame.ByteSize() < 4 * 1024 * 1024
            found += len(frame.changes.changes)
        watch.cancel()


@pytest.mark.rule("C6")
@pytest.mark.case("B77")
async def test_bookmarks_come_while_nothing_matches_and_never_run_ahead(databases: Databases, backend: str) -> None:
    async with config_server_on(databases, backend, bookmark_seconds=0.05) as server:
        acme = server.caller()
        watch = acme.watch([watch_pb2.WatchFilter(filter_id="f", names=["matching"])])
        await watch.snapshot()
        for round_number in range(5):
            other = (await acme.put(TOOL, "other", tool(str(round_number)))).entity.revision
            while watch.revision < other:
                assert (await watch.frame()).HasField("bookmark"), "the position reaches what did not match"
        last = watch.revision
        writing = asyncio.create_task(put_many(acme, ["matching", "other"] * 30))
        matching: list[int] = []
        while len(matching) < 30:
            frame = await watch.frame()
            told = [change.entity.revision for change in frame.changes.changes]
            assert all(revision > last for revision in told), "nothing comes that a bookmark had passed"
            assert frame.revision >= max(told, default=last)
            matching.extend(told)
            last = frame.revision
        assert matching == [revision for name, revision in await writing if name == "matching"]
        watch.cancel()


async def put_many(caller: Caller, names: list[str]) -> list[tuple[str, int]]:
    """Puts tools one after the other; gives name and revision of each."""
    return [(name, (await caller.put(TOOL, name, tool(fresh_id()))).entity.revision) for name in names]


@pytest.mark.rule("C6", "X9")
@pytest.mark.case("B96", "B80")
async def test_a_watch_that_is_left_is_freed_at_once(databases: Databases, backend: str) -> None:
    async with config_server_on(databases, backend) as server:
        acme = server.caller()
        await acme.put(TOOL, "x", tool())
        for _ in range(20):
            watches = [acme.watch() for _ in range(25)]
            await asyncio.gather(*(watch.frame() for watch in watches))
            assert server.metric("threadkeep_config_watches") >= 25
            for watch in watches:
                watch.cancel()
            await eventually(lambda: server.metric("threadkeep_config_watches") == 0)
        # Live ones too, joined to the tail.
        live = [acme.watch() for _ in range(25)]
        await asyncio.gather(*(watch.snapshot() for watch in live))
        for watch in live:
            watch.cancel()
        await eventually(lambda: server.metric("threadkeep_config_watches") == 0)


@pytest.mark.rule("X9")
async def test_there_are_only_so_many_watches(databases: Databases, backend: str) -> None:
    async with config_server_on(databases, backend, limits={"max_subscriptions": 2}) as server:
        acme = server.caller()
        watches = [acme.watch(), acme.watch()]
        for watch in watches:
            await watch.snapshot()
        details = await acme.watch().refused()
        assert (details.code, details.reason) == (grpc.StatusCode.RESOURCE_EXHAUSTED, "LIMIT_EXCEEDED")
        assert details.metadata["limit"] == "max_subscriptions"
        watches[0].cancel()
        await eventually(lambda: server.metric("threadkeep_config_watches") == 1)
        again = acme.watch()
        await again.snapshot()


@pytest.mark.rule("C6", "X9")
@pytest.mark.case("B82")
async def test_a_watch_that_does_not_read_is_cut_with_the_revision_to_resume_from(
    databases: Databases, backend: str
) -> None:
    async with config_server_on(databases, backend, watch_buffer_bytes=1_000_000) as server:
        acme = server.caller()
        lazy, eager = acme.watch(), acme.watch()
        await lazy.snapshot()
        await eager.snapshot()
        written = []
        while server.metric("threadkeep_config_watches_cut_total") == 0:
            definition = agent(str(len(written)) + "x" * 300_000)
            written.append((await acme.put(AGENT, "big", definition)).entity.revision)
            assert [change.entity.revision for change in await eager.changes(1)] == written[-1:]
        seen: list[int] = []
        try:
            while True:
                frame = await lazy.call.read()
                seen.extend(change.entity.revision for change in frame.changes.changes)
        except grpc.aio.AioRpcError as error:
            details = error_details(error)
        assert (details.code, details.reason) == (grpc.StatusCode.RESOURCE_EXHAUSTED, "SLOW_CONSUMER")
        resumed = acme.watch(after=int(details.metadata["resume_revision"]))
        rest = await resumed.changes(len(written) - len(seen))
        assert seen + [change.entity.revision for change in rest] == written
        assert server.metric("threadkeep_config_watches_cut_total") == 1, "who reads is not cut"


@pytest.mark.rule("C6")
@pytest.mark.case("B97")
async def test_a_server_that_stops_ends_its_watches_with_the_revision_to_resume_from(
    databases: Databases, backend: str
) -> None:
    async with config_server_on(databases, backend) as server:
        acme = server.caller()
        watch = acme.watch()
        await watch.snapshot()
        revision = (await acme.put(TOOL, "x", tool())).entity.revision
        await watch.changes(1)
        await server.host.stop(5)
        details = await watch.refused()
        assert (details.code, details.reason) == (grpc.StatusCode.UNAVAILABLE, "SHUTTING_DOWN")
        assert int(details.metadata["resume_revision"]) == revision


@pytest.mark.rule("C6", "C2")
@pytest.mark.case("B46")
async def test_a_cold_server_bears_resolutions_and_watches_all_at_once(databases: Databases, backend: str) -> None:
    async with config_server_on(databases, backend) as server:
        acme = server.caller()

        async def watch() -> None:
            opened = acme.watch()
            await opened.snapshot()
            opened.cancel()

        async def resolve() -> None:
            with pytest.raises(grpc.aio.AioRpcError) as caught:
                await acme.resolve(TOOL, "x")
            assert error_details(caught.value).reason == "ENTITY_NOT_FOUND"

        await asyncio.gather(
            *(watch() for _ in range(32)),
            *(resolve() for _ in range(32)),
            *(acme.list_all() for _ in range(32)),
            *(acme.put(AGENT, f"a{n}", agent()) for n in range(32)),
        )
