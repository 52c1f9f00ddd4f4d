"""Watches (C6): everything after a revision, once and in order; or a snapshot, its mark, and then everything."""

import asyncio

import grpc
import pytest

from tests.support.calls import Metadata, grant, grant_all
from tests.support.config import AGENT, PROVIDER, TOOL, Caller, Watch, agent, provider, tool
from tests.support.descriptors import fresh_id
from tests.support.waiting import eventually
from threadkeep.common.v1 import payload_pb2
from threadkeep.config.v1 import config_service_pb2 as pb
from threadkeep.config.v1 import watch_pb2


def names(changes: list[watch_pb2.EntityChange]) -> list[str]:
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
        details = await acme.watch(after=after).refused()
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
            watch_pb2.WatchFilter(filter_id="tools", types=[TOOL]),
            watch_pb2.WatchFilter(filter_id="named", names=["x", "y"]),
            watch_pb2.WatchFilter(filter_id="outer providers", types=[PROVIDER], exact_scope=scope),
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
        [watch_pb2.WatchFilter(filter_id="f", names=[fresh_id("absent"), "outer", "one", "two"])], metadata=grant_all()
    )
    await everything.snapshot()
    await acme.put(TOOL, "one", tool())
    await globex.put(TOOL, "two", tool())
    assert names(await granted.changes(1)) == ["two"]
    assert names(await everything.changes(2)) == ["one", "two"]

    denied = watch_pb2.WatchFilter(filter_id="f", exact_scope=payload_pb2.Scope(values=acme.values))
    metadatas: list[Metadata] = [grant(inner.values), globex.metadata]
    for metadata in metadatas:
        details = await acme.watch([denied], metadata=metadata).refused()
        assert (details.code, details.reason) == (grpc.StatusCode.PERMISSION_DENIED, "SCOPE_FORBIDDEN")
    await globex.put(TOOL, "after", tool())
    assert names(await granted.changes(1)) == ["after"], "other watches live on"
    granted.cancel()
    everything.cancel()


@pytest.mark.rule("X13")
async def test_a_watch_without_scope_and_grant_is_refused(acme: Caller) -> None:
    details = await Watch(acme.stub.Watch(pb.WatchRequest())).refused()
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
        found: list[watch_pb2.EntityChange] = []
        while len(found) < count:
            frame = await watch.frame()
            found.extend(frame.changes.changes)
            frames += 1
        assert frames < count / 20
        expected = [f"t{n:04}" for n in range(600)] * (count // 600)
        assert names(found) == expected
        watch.cancel()


@pytest.mark.rule("X8")
async def test_a_filter_id_is_used_once(acme: Caller) -> None:
    details = await acme.watch([watch_pb2.WatchFilter(filter_id="f"), watch_pb2.WatchFilter(filter_id="f")]).refused()
    assert "filters[1].filter_id" in details.violations
