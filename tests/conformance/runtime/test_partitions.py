"""Feeds over some of the log's partitions: together they are the whole, and each has its own cursor (R14)."""

import asyncio
from collections.abc import Sequence

import pytest

from tests.support.calls import refused
from tests.support.examples.world import World
from tests.support.feeds import append, follow, list_request
from threadkeep.runtime.v1 import event_pb2, event_service_pb2

SESSIONS = 12

pytestmark = pytest.mark.suite(topologies=["split"])


async def page(world: World, **parts: object) -> event_service_pb2.ListEventsResponse:
    return await world.call("EventService.ListEvents", list_request(page_size=1000, **parts))


async def count_of(world: World) -> int:
    return (await page(world)).partition_count


def names(events: Sequence[event_pb2.Event]) -> list[tuple[str, int]]:
    return [(one.session_id, one.sequence) for one in events]


async def sessions(world: World) -> list[str]:
    return [(await world.session()).session.session_id for _ in range(SESSIONS)]


@pytest.mark.rule("R14")
async def test_selections_share_the_log_among_them(world: World) -> None:
    made = await sessions(world)
    count = await count_of(world)
    assert count == (8 if world.suite.backend == "postgres" else 1)
    whole = await page(world)
    parts = [await page(world, partitions=[partition]) for partition in range(count)]
    assert sorted(names(whole.events)) == sorted(name for part in parts for name in names(part.events))
    homes = [{one.session_id for one in part.events} for part in parts]
    assert sum(map(len, homes)) == len(made), "a session lies in one partition"
    both = await page(world, partitions=list(range(count))[-2:])
    assert names(both.events) == [name for part in parts[-2:] for name in names(part.events)]

    # What is committed later comes in its partition's feed, after that feed's cursor and after the whole one's.
    starts = [part.cursor for part in parts]
    await asyncio.gather(*(append(world, one, "a", "b") for one in made))
    for partition, start in enumerate(starts):
        for after in (start, whole.cursor):
            async with follow(world, partitions=[partition], after=after) as feed:
                found = await feed.events(2 * len(homes[partition]))
                assert {one.session_id for one in found} == homes[partition]
                assert {one.type for one in found} <= {"a", "b"}
                # Each event's cursor is one to go on from.
                if found:
                    rest = await page(world, partitions=[partition], after=found[0].cursor)
                    assert names(rest.events) == names(found[1:])


@pytest.mark.rule("R14", "X6")
async def test_a_cursor_is_bound_to_its_selection(world: World) -> None:
    await sessions(world)
    count = await count_of(world)
    ours = (await page(world, partitions=[count - 1])).cursor
    assert (await refused(page(world, after=ours))).reason == "CURSOR_INVALID"
    other = World(world.suite)
    await sessions(other)
    assert (await refused(page(other, partitions=[count - 1], after=ours))).reason == "CURSOR_INVALID"
    await page(world, partitions=[count - 1], after=ours)
    if count > 1:
        assert (await refused(page(world, partitions=[0], after=ours))).reason == "CURSOR_INVALID"
        assert (await refused(page(world, partitions=[0, count - 1], after=ours))).reason == "CURSOR_INVALID"
        pair = (await page(world, partitions=[0, count - 1])).cursor
        assert not (await page(world, partitions=[0], after=pair)).events


@pytest.mark.rule("X6")
async def test_a_selection_names_partitions_that_there_are_once_each(world: World) -> None:
    (session_id, *_) = await sessions(world)
    count = await count_of(world)
    for wrong, at in (([count], 0), ([-1], 0), ([0, 0], 1), ([0] * 1024, 1), ([2**31 - 1], 0)):
        error = await refused(page(world, partitions=wrong))
        assert list(error.violations) == [f"filter.partitions[{at}]"]
    error = await refused(page(world, partitions=[0] * 1025))
    assert list(error.violations) == ["filter.partitions"]
    error = await refused(page(world, partitions=[0], session_id=session_id))
    assert list(error.violations) == ["filter.partitions"]
    async with follow(world, partitions=[0], include_live=True) as feed:
        assert "include_live" in str(await feed.failure())
