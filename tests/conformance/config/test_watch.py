"""Watches (C6): everything after a revision, once and in order; or a snapshot, its mark, and then everything."""

import asyncio
from typing import Any

import grpc
import pytest

from tests.support.calls import Metadata, error_details, grant, grant_all
from tests.support.config import AGENT, PROVIDER, TOOL, Caller, Watch, agent, config_server_on, provider, tool
from tests.support.databases import Databases
from tests.support.descriptors import fresh_id
from tests.support.waiting import eventually
from threadkeep.common.v1 import payload_pb2
from threadkeep.config.v1 import config_service_pb2 as pb


async def refusal(watch: Watch) -> Any:
    """The details of the error that a watch ends with."""
    return error_details(await watch.end())


def names(changes: list[pb.EntityChange]) -> list[str]:
    """The names that changed."""
    return [change.entity.name for change in changes]


@pytest.mark.rule("C6")
async def test_from_nothing_a_watch_gives_a_snapshot_its_mark_and_then_changes(acme: Caller) -> None:
    await acme.put(TOOL, "b", tool())
    await acme.put(TOOL, "gone", tool())
    await acme.delete(TOOL, "gone")
    await acme.put(PROVIDER, "a", provider())
    watch = acme.watch()
    snapshot = await watch.snapshot()
    assert [change.entity for change in snapshot] == [await acme.get(PROVIDER, "a"), await acme.get(TOOL, "b")]
    assert all(list(change.filter_ids) == ["all"] for change in snapshot)
    synced_at = watch.revision
    put = (await acme.put(TOOL, "c", tool())).entity
    (change,) = await watch.changes(1)
    assert change.entity == put
    assert watch.revision >= put.revision > synced_at
    tombstone = await acme.delete(TOOL, "b")
    assert (await watch.changes(1))[0].entity == tombstone
    watch.cancel()


@pytest.mark.rule("C6")
async def test_an_empty_snapshot_is_its_mark_alone(acme: Caller) -> None:
    watch = acme.watch()
    assert await watch.snapshot() == []
    watch.cancel()


@pytest.mark.rule("C6")
@pytest.mark.case("B73")
async def test_from_a_revision_a_watch_gives_everything_after_it_and_not_it(acme: Caller) -> None:
    revisions = [(await acme.put(TOOL, f"t{n}", tool())).entity.revision for n in range(3)]
    watch = acme.watch(after=revisions[1])
    await acme.put(TOOL, "live", tool())
    assert names(await watch.changes(2)) == ["t2", "live"]
    watch.cancel()
    again = acme.watch(after=watch.revision)
    await acme.put(TOOL, "later", tool())
    assert names(await again.changes(1)) == ["later"]
    again.cancel()
    everything = acme.watch(after=0)
    assert names(await everything.changes(5)) == ["t0", "t1", "t2", "live", "later"]
    everything.cancel()


@pytest.mark.rule("C6")
async def test_history_gives_each_content_that_an_entity_had(acme: Caller) -> None:
    texts = [f"text {n}" for n in range(5)]
    for text in texts:
        await acme.put(TOOL, "x", tool(text))
    await acme.delete(TOOL, "x")
    watch = acme.watch(after=0)
    changes = await watch.changes(6)
    assert [change.entity.definition.tool.description for change in changes[:5]] == texts
    assert changes[5].entity.deleted
    watch.cancel()


@pytest.mark.rule("C6")
async def test_a_revision_that_is_not_there_yet_is_refused(acme: Caller) -> None:
    revision = (await acme.put(TOOL, "x", tool())).entity.revision
    for after in (revision + 10**6, -1):
        details = await refusal(acme.watch(after=after))
        assert (details.code, details.reason) == (grpc.StatusCode.INVALID_ARGUMENT, "FIELD_INVALID")
        assert "after_revision" in details.violations


@pytest.mark.rule("C6")
@pytest.mark.case("B74", "B80")
async def test_no_change_is_lost_or_doubled_where_a_watch_joins(acme: Caller) -> None:
    """Watches open while writes go on; each sees every change once, in order, from where it began."""
    written: list[int] = []
    done = False

    async def write() -> None:
        nonlocal done
        for n in range(150):
            written.append((await acme.put(TOOL, f"t{n % 10}", tool(f"text {n}"))).entity.revision)
        done = True

    async def read(after: int | None) -> None:
        watch = acme.watch(after=after)
        if after is None:
            await watch.snapshot()
            after = watch.revision
        seen: list[int] = []
        while not (done and seen and seen[-1] == written[-1]):
            seen.extend(change.entity.revision for change in (await watch.frame()).changes.changes)
            if done and written[-1] <= after:
                break
        watch.cancel()
        assert seen == [revision for revision in written if revision > after]

    writing = asyncio.create_task(write())
    readers = []
    for n in range(20):
        await eventually(lambda n=n: len(written) >= 5 * n or done)
        readers.append(asyncio.create_task(read(None if n % 2 else written[-1] if written else 0)))
    await asyncio.gather(writing, *readers)


@pytest.mark.rule("C6")
async def test_filters_choose_by_type_name_and_scope_and_a_change_names_those_it_matched(acme: Caller) -> None:
    inner = acme.within(project="p")
    scope = payload_pb2.Scope(values=acme.values)
    watch = inner.watch(
        [
            pb.WatchFilter(filter_id="tools", types=[TOOL]),
            pb.WatchFilter(filter_id="named", names=["x", "y"]),
            pb.WatchFilter(filter_id="outer providers", types=[PROVIDER], exact_scope=scope),
        ]
    )
    assert await watch.snapshot() == []
    await inner.put(AGENT, "z", agent())
    await inner.put(TOOL, "x", tool())
    await inner.put(PROVIDER, "z", provider())
    await acme.put(PROVIDER, "z", provider())
    await acme.put(PROVIDER, "y", provider())
    await inner.put(TOOL, "a", tool())
    changes = await watch.changes(4)
    assert [(change.entity.name, list(change.filter_ids)) for change in changes] == [
        ("x", ["tools", "named"]),
        ("z", ["outer providers"]),
        ("y", ["named", "outer providers"]),
        ("a", ["tools"]),
    ]
    watch.cancel()


@pytest.mark.rule("C6", "X2", "C3")
async def test_a_scope_sees_what_can_count_in_it(acme: Caller, globex: Caller) -> None:
    inner = acme.within(project="p")
    watches = [inner.watch(), inner.watch(after=0)]
    await watches[0].snapshot()
    await globex.put(TOOL, "foreign", tool())
    await acme.within(project="q").put(TOOL, "sideways", tool())
    await inner.within(user="u").put(TOOL, "narrower", tool())
    await acme.put(AGENT, "exact", agent())
    await acme.apply({"agents/shared.md": "Hi."})
    await acme.put(TOOL, "broader", tool())
    await inner.put(AGENT, "own", agent())
    for watch in watches:
        assert names(await watch.changes(3)) == ["shared", "broader", "own"]
        watch.cancel()


@pytest.mark.rule("C6", "X13")
@pytest.mark.case("B81")
async def test_a_grant_sees_the_entities_of_its_scopes_and_no_others(acme: Caller, globex: Caller) -> None:
    inner = acme.within(project="p")
    await inner.put(TOOL, "inner", tool())
    await acme.put(TOOL, "outer", tool())
    granted = acme.watch(metadata=grant(inner.values, globex.values))
    (change,) = await granted.snapshot()
    assert dict(change.entity.scope.values) == inner.values, "the scope comes along, for the calls that follow"
    everything = acme.watch(
        [pb.WatchFilter(filter_id="f", names=[fresh_id("absent"), "outer", "one", "two"])], metadata=grant_all()
    )
    await everything.snapshot()
    await acme.put(TOOL, "one", tool())
    await globex.put(TOOL, "two", tool())
    assert names(await granted.changes(1)) == ["two"]
    assert names(await everything.changes(2)) == ["one", "two"]

    denied = pb.WatchFilter(filter_id="f", exact_scope=payload_pb2.Scope(values=acme.values))
    metadatas: list[Metadata] = [grant(inner.values), globex.metadata]
    for metadata in metadatas:
        details = await refusal(acme.watch([denied], metadata=metadata))
        assert (details.code, details.reason) == (grpc.StatusCode.PERMISSION_DENIED, "SCOPE_FORBIDDEN")
    await globex.put(TOOL, "after", tool())
    assert names(await granted.changes(1)) == ["after"], "other watches live on"
    granted.cancel()
    everything.cancel()


@pytest.mark.rule("X13")
async def test_a_watch_without_scope_and_grant_is_refused(acme: Caller) -> None:
    details = await refusal(Watch(acme.stub.Watch(pb.WatchRequest())))
    assert (details.code, details.reason) == (grpc.StatusCode.UNAUTHENTICATED, "SCOPE_REQUIRED")


@pytest.mark.rule("C6")
async def test_every_write_path_emits(acme: Caller) -> None:
    watch = acme.watch()
    await watch.snapshot()
    first = (await acme.put(TOOL, "x", tool("1"))).entity
    await acme.put(TOOL, "x", tool("2"))
    await acme.roll_back(TOOL, "x", first.revision)
    await acme.delete(TOOL, "x")
    await acme.put(TOOL, "x", hidden=True)
    await acme.apply({"tools/a.yaml": "python: {entry_point: 'a:b'}", "tools/b.yaml": "python: {entry_point: 'a:b'}"})
    await acme.apply({})
    await acme.apply({}, dry_run=True)
    await acme.put(TOOL, "x", hidden=True)
    await acme.put(TOOL, "last", tool())
    changes = await watch.changes(10)
    assert [(change.entity.name, change.entity.deleted, change.entity.hidden) for change in changes] == [
        ("x", False, False),
        ("x", False, False),
        ("x", False, False),
        ("x", True, False),
        ("x", False, True),
        ("a", False, False),
        ("b", False, False),
        ("a", True, False),
        ("b", True, False),
        ("last", False, False),
    ]
    revisions = [change.entity.revision for change in changes]
    assert revisions == sorted(set(revisions))
    watch.cancel()


@pytest.mark.rule("C6")
async def test_a_long_history_comes_in_frames_of_many(acme: Caller) -> None:
    python = "python: {entry_point: 'a:b'}"
    await acme.apply({f"tools/t{n:04}.yaml": python for n in range(600)})
    await acme.apply({f"tools/t{n:04}.yaml": f"description: x\n{python}" for n in range(600)})
    for after, count in ((0, 1200), (None, 600)):
        watch = acme.watch(after=after)
        frames = 0
        found: list[pb.EntityChange] = []
        while len(found) < count:
            frame = await watch.frame()
            found.extend(frame.changes.changes)
            frames += 1
        assert frames < count / 20
        expected = [f"t{n:04}" for n in range(600)] * (count // 600)
        assert names(found) == expected
        watch.cancel()


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
        watch = acme.watch([pb.WatchFilter(filter_id="f", names=["matching"])])
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
        details = await refusal(acme.watch())
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
        details = await refusal(watch)
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


@pytest.mark.rule("X8")
async def test_a_filter_id_is_used_once(acme: Caller) -> None:
    details = await refusal(acme.watch([pb.WatchFilter(filter_id="f"), pb.WatchFilter(filter_id="f")]))
    assert "filters[1].filter_id" in details.violations
