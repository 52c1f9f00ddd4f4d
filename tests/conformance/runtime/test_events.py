"""The event log over the wire: lists, filters, subscriptions, and where they go on (R13, R14)."""

import asyncio
import base64
import itertools
import os

import grpc
import pytest

from tests.support.calls import error_details, grant, grant_all, refused
from tests.support.checkpoints import Saver, put
from tests.support.descriptors import fresh_id
from tests.support.examples.world import World
from tests.support.feeds import append, draft, follow, is_dense, list_request, listed, subscribed
from threadkeep.runtime.v1 import commit_pb2, event_pb2, event_service_pb2, run_pb2, task_service_pb2

SUBSCRIBE_ROUNDS = int(os.environ.get("SUBSCRIBE_ROUNDS", "40"))
"""How often a session is made and subscribed to at once; 1000 for a long run."""


async def session(world: World) -> str:
    return (await world.session()).session.session_id


@pytest.mark.rule("R13")
async def test_an_event_comes_back_as_it_was_written(world: World) -> None:
    held = await world.lease()
    written = draft(
        "order.placed",
        event_id="event-1",
        visibility=event_pb2.VISIBILITY_END_USER,
        schema_version=7,
        causation_id="cause",
        correlation_id="join",
    )
    written.payload.data = b'{"n": 9007199254740993, "nul": "\\u0000"}'
    written.payload.attributes["encryption"] = "none"
    await world.commit(session_id=held.run.session_id, lease=held.lease, events=[written])
    (event,) = await listed(world, session_id=held.run.session_id, types=("order.placed",))
    assert (event.event_id, event.session_id, event.type) == ("event-1", held.run.session_id, "order.placed")
    assert (event.run_id, event.task_id) == (held.run.run_id, held.run.task_id)
    assert event.payload == written.payload
    assert (event.visibility, event.schema_version) == (event_pb2.VISIBILITY_END_USER, 7)
    assert (event.causation_id, event.correlation_id) == ("cause", "join")
    assert event.create_time.seconds > 0
    assert event.commit_sequence > 0
    assert not event.HasField("scope")


@pytest.mark.rule("R2", "R14")
async def test_a_threads_events_are_dense_from_one(world: World) -> None:
    session_id = await session(world)
    for _ in range(3):
        await append(world, session_id, "a", "b")
    events = await listed(world, session_id=session_id)
    assert is_dense(events)
    assert [one.type for one in events] == ["threadkeep.session.created", *["a", "b"] * 3]


@pytest.mark.rule("R13")
async def test_types_and_levels_choose(world: World) -> None:
    session_id = await session(world)
    for type_, level in (("order.placed", 1), ("order.paid", 2), ("orders", 3), ("Order.placed", 3), ("ship", 1)):
        await world.commit(session_id=session_id, events=[draft(type_, visibility=level)])

    async def types(*wanted: str, level: int = 0) -> list[str]:
        found = await listed(world, session_id=session_id, types=wanted, visibility=level)
        return [one.type for one in found]

    assert await types("order.*") == ["order.placed", "order.paid"]
    assert await types("order.placed", "ship") == ["order.placed", "ship"]
    assert await types("ord%", "order_placed", "*") == []
    assert await types("order.*", level=event_pb2.VISIBILITY_END_USER) == ["order.placed"]
    ours = ("order.*", "orders", "Order.placed", "ship")
    assert await types(*ours, level=event_pb2.VISIBILITY_END_USER) == ["order.placed", "ship"]
    assert await types(*ours, level=event_pb2.VISIBILITY_BUILDER) == ["order.placed", "order.paid", "ship"]
    assert "orders" in await types()
    async with follow(world, session_id=session_id, types=("order.*",), visibility=1) as feed:
        assert (await feed.event()).type == "order.placed"
        await append(world, session_id, "order.hidden", "ship")
        await world.commit(session_id=session_id, events=[draft("order.sent", visibility=1)])
        assert (await feed.event()).type == "order.sent"


@pytest.mark.rule("R13")
async def test_feeds_of_a_run_and_a_task_hold_their_own_events_only(world: World) -> None:
    held = await world.lease()
    other = await session(world)
    await append(world, other, "elsewhere")
    await append(world, held.run.session_id, "beside")
    await world.commit(session_id=held.run.session_id, lease=held.lease, events=[draft("step")])
    of_run = await listed(world, run_id=held.run.run_id)
    of_task = await listed(world, task_id=held.run.task_id)
    assert {one.run_id for one in of_run} == {held.run.run_id}
    assert {one.task_id for one in of_task} == {held.run.task_id}
    assert "step" in {one.type for one in of_run} & {one.type for one in of_task}
    assert "beside" not in {one.type for one in of_run} | {one.type for one in of_task}
    assert of_task[0].type == "threadkeep.task.submitted"


@pytest.mark.rule("R4")
@pytest.mark.parametrize("types", [(), ("step",)])
async def test_a_feed_of_a_run_or_task_ends_after_its_last_event(world: World, types: tuple[str, ...]) -> None:
    held = await world.lease()
    extents = ({"run_id": held.run.run_id}, {"task_id": held.run.task_id})
    async with follow(world, **extents[0], types=types) as of_run, follow(world, **extents[1], types=types) as of_task:
        await of_run.frame()
        await of_task.frame()
        await world.commit(session_id=held.run.session_id, lease=held.lease, events=[draft("step")])
        await world.commit(
            session_id=held.run.session_id,
            lease=held.lease,
            ended=commit_pb2.RunEnded(cause=run_pb2.RUN_END_CAUSE_SUCCEEDED),
        )
        live = await of_run.rest(), await of_task.rest()
    await append(world, held.run.session_id, "step")
    for extent, seen in zip(extents, live, strict=True):
        assert seen[-1].type == ("step" if types else seen[-1].type)
        async with follow(world, **extent, types=types) as again:
            replayed = await again.rest()
        assert replayed[-len(seen) :] == seen
        async with follow(world, **extent, types=types, after=again.cursor) as nothing:
            assert await nothing.rest() == []
    if not types:
        assert live[0][-1].type in ("threadkeep.run.ended", "threadkeep.task.completed")
        assert live[1][-1].type == "threadkeep.task.completed"
        assert "threadkeep.run.ended" in [one.type for one in live[0]]


@pytest.mark.rule("R14")
@pytest.mark.case("B73")
async def test_resuming_is_exclusive(world: World) -> None:
    session_id = await session(world)
    await append(world, session_id, "two")
    await append(world, session_id, "three")
    _, second, third = await listed(world, session_id=session_id)
    assert await listed(world, session_id=session_id, after=second.cursor) == [third]
    async with follow(world, session_id=session_id, after=second.cursor) as feed:
        assert await feed.event() == third
        await append(world, session_id, "four")
        assert (await feed.event()).type == "four"
    wide = await listed(world)
    assert await listed(world, after=wide[1].cursor) == wide[2:]


@pytest.mark.rule("R14")
async def test_every_cursor_goes_on_just_behind_its_event(world: World) -> None:
    for _ in range(3):
        await append(world, await session(world), "a", "b", "c")
    wide = await listed(world)
    for index, event in enumerate(wide):
        assert await listed(world, after=event.cursor) == wide[index + 1 :]
    one = [event for event in wide if event.session_id == wide[0].session_id]
    narrow = await listed(world, session_id=wide[0].session_id)
    assert [event.event_id for event in one] == [event.event_id for event in narrow]


@pytest.mark.rule("X5", "R13")
async def test_pages_follow_one_another_by_number_and_by_size(world: World) -> None:
    session_id = await session(world)
    for number in range(12):
        big = draft(f"t.{number}")
        big.payload.data = b'"%b"' % (b"x" * 600_000)
        await world.commit(session_id=session_id, events=[big])
    whole = await listed(world, session_id=session_id)
    assert is_dense(whole)
    assert len(whole) == 13
    request, sizes = list_request(session_id=session_id, page_size=100), []
    while True:
        page = await world.call("EventService.ListEvents", request)
        sizes.append(page.ByteSize())
        if not page.next_page_token:
            break
        request.page_token = page.next_page_token
    assert len(sizes) > 2
    assert max(sizes) < 4 * 1024 * 1024
    assert await listed(world, session_id=session_id, page_size=2) == whole
    page = await world.call("EventService.ListEvents", list_request(session_id=session_id, page_size=5))
    request = list_request(session_id=session_id, page_size=5, types=("t.1",))
    request.page_token = page.next_page_token
    assert (await refused(world.call("EventService.ListEvents", request))).reason == "PAGE_TOKEN_INVALID"


@pytest.mark.rule("R14")
async def test_the_cursor_of_a_list_is_where_a_subscription_goes_on(world: World) -> None:
    session_id = await session(world)
    await append(world, session_id, "a")
    for extent in ({"session_id": session_id}, {}):
        page = await world.call("EventService.ListEvents", list_request(**extent))
        async with follow(world, **extent, after=page.cursor) as feed:
            assert (await feed.frame()).WhichOneof("frame") == "bookmark"
            await append(world, session_id, "b")
            assert (await feed.event()).type == "b"


@pytest.mark.rule("R14", "X2")
async def test_a_cursor_of_another_feed_or_an_edited_one_is_invalid(world: World) -> None:
    held = await world.lease()
    extents = (
        {},
        {"session_id": held.run.session_id},
        {"run_id": held.run.run_id},
        {"task_id": held.run.task_id},
        {"session_id": await session(world)},
    )
    cursors = [(await listed(world, **extent))[0].cursor for extent in extents]
    for (here, extent), (there, cursor) in itertools.product(enumerate(extents), enumerate(cursors)):
        if here != there:
            details = await refused(world.call("EventService.ListEvents", list_request(**extent, after=cursor)))
            assert (details.reason, list(details.violations)) == ("CURSOR_INVALID", ["after"])
    edited = bytearray(cursors[1])
    edited[-1] ^= 1
    for forged in (bytes(edited), cursors[1] + b"\x00", b"\x00", b"x" * 60):
        request = list_request(**extents[1], after=forged)
        assert (await refused(world.call("EventService.ListEvents", request))).reason == "CURSOR_INVALID"
    foreign = World(world.suite)
    await foreign.session()
    request = list_request(after=cursors[0])
    assert (await refused(foreign.call("EventService.ListEvents", request))).reason == "CURSOR_INVALID"


@pytest.mark.rule("R13", "X2")
async def test_what_is_of_another_scope_does_not_exist(world: World) -> None:
    held = await world.lease()
    foreign = World(world.suite)
    for extent, reason in (
        ({"session_id": held.run.session_id}, "SESSION_NOT_FOUND"),
        ({"run_id": held.run.run_id}, "RUN_NOT_FOUND"),
        ({"task_id": held.run.task_id}, "TASK_NOT_FOUND"),
    ):
        assert (await refused(foreign.call("EventService.ListEvents", list_request(**extent)))).reason == reason
        async with follow(foreign, **extent) as feed:
            assert error_details(await feed.failure()).reason == reason
    assert await listed(foreign) == []


@pytest.mark.rule("X13", "R13")
async def test_a_feed_over_a_grant_says_whose_events_they_are(world: World) -> None:
    second, third = World(world.suite, tenant=fresh_id("tenant"), user="ü"), World(world.suite)
    for one in (world, second, third):
        await append(one, await session(one), "mine")
    granted = grant(world.values, second.values)
    events = await listed(world, metadata=granted, types=("mine",))
    assert sorted((dict(one.scope.values) for one in events), key=str) == sorted(
        (dict(world.values), dict(second.values)), key=str
    )
    channel = world.suite.channel("runtime")
    async with (
        subscribed(channel, granted, from_now=True) as few,
        subscribed(channel, grant_all(), from_now=True) as all_,
    ):
        await few.until("bookmark")
        await all_.until("bookmark")
        for one in (third, second):
            await append(one, await session(one), "later")
        await few.event()
        seen = await few.event()
        assert (seen.type, dict(seen.scope.values)) == ("later", dict(second.values))
        while (seen := await all_.event()).type != "later" or dict(seen.scope.values) != dict(third.values):
            pass
    extent = list_request(session_id="any")
    call = world.bind("EventService.ListEvents")(extent, metadata=granted)
    assert (await refused(call)).reason == "SCOPE_REQUIRED"


@pytest.mark.rule("R14")
async def test_from_now_leaves_out_what_was_before_and_nothing_else(world: World) -> None:
    session_id = await session(world)
    await append(world, session_id, "before")
    for extent in ({"session_id": session_id}, {}):
        async with follow(world, **extent, from_now=True) as feed:
            await feed.until("bookmark")
            await append(world, session_id, "after")
            assert (await feed.event()).type == "after"


@pytest.mark.rule("R14")
async def test_a_feed_of_one_thread_goes_on_after_a_sequence(world: World) -> None:
    session_id = await session(world)
    await append(world, session_id, "a", "b", "c")
    before, *rest = (await listed(world, session_id=session_id))[-3:]
    async with follow(world, session_id=session_id, after_sequence=before.sequence) as feed:
        assert [one.sequence for one in await feed.events(2)] == [one.sequence for one in rest]
    for extent, sequence, reason in (
        ({"session_id": session_id}, rest[-1].sequence + 1, "CURSOR_UNKNOWN"),
        ({"session_id": session_id}, -1, "FIELD_INVALID"),
        ({}, 1, "FIELD_INVALID"),
    ):
        async with follow(world, **extent, after_sequence=sequence) as feed:
            with pytest.raises(grpc.aio.AioRpcError) as caught:
                await feed.frame()
        assert error_details(caught.value).reason == reason


@pytest.mark.rule("R14")
async def test_a_bookmark_moves_the_cursor_over_what_does_not_match(world: World) -> None:
    session_id = await session(world)
    await append(world, session_id, *["noise"] * 20)
    for extent in ({"session_id": session_id}, {}):
        async with follow(world, **extent, types=("never",)) as feed:
            await feed.until("bookmark")
        assert await listed(world, **extent, after=feed.cursor) == []


@pytest.mark.rule("R14")
@pytest.mark.case("B74")
async def test_creating_and_subscribing_at_once_loses_and_doubles_nothing(world: World) -> None:
    async def round_trip(number: int) -> None:
        session_id = fresh_id(f"session-{number}")
        await Saver(world, session_id).put(put(1))
        appending = asyncio.ensure_future(append(world, session_id, "a", "b"))
        async with follow(world, session_id=session_id) as feed:
            more = asyncio.ensure_future(append(world, session_id, "c"))
            events = await feed.events(5)
            assert is_dense(events)
            assert sorted(one.type for one in events)[:3] == ["a", "b", "c"]
        await asyncio.gather(appending, more)

    for first in range(0, SUBSCRIBE_ROUNDS, 8):
        await asyncio.gather(*(round_trip(first + number) for number in range(8)))


@pytest.mark.rule("R14")
async def test_frames_carry_many_events_when_the_reader_is_behind(world: World) -> None:
    session_id = await session(world)
    for _ in range(3):
        await append(world, session_id, *["many"] * 300)
    async with follow(world, session_id=session_id) as feed:
        assert is_dense(await feed.events(901))
        assert len(feed.frames) < 20
        assert all(len(frame.events.events) <= 256 for frame in feed.frames)


@pytest.mark.rule("R13")
@pytest.mark.case("B96")
async def test_a_reader_that_leaves_is_forgotten(world: World) -> None:
    """What it held is shown by the store tests; here, the server goes on serving others."""
    session_id = await session(world)
    for _ in range(50):
        async with follow(world, session_id=session_id) as feed:
            await feed.frame()
    async with follow(world, session_id=session_id) as feed:
        await feed.event()
        await append(world, session_id, "still")
        assert (await feed.event()).type == "still"


@pytest.mark.rule("R24", "R13")
async def test_a_canceled_tasks_feed_ends_too(world: World) -> None:
    task = (await world.submit()).task
    async with follow(world, task_id=task.task_id) as feed:
        request = task_service_pb2.CancelTaskRequest(request_id=fresh_id(), task_id=task.task_id)
        await world.call("TaskService.CancelTask", request)
        events = await feed.rest()
    assert events[-1].type == "threadkeep.task.canceled"


@pytest.mark.rule("R13", "X9")
async def test_a_level_that_nobody_knows_is_refused(world: World) -> None:
    request = event_service_pb2.ListEventsRequest(filter=event_service_pb2.EventFilter(visibility=9))  # type: ignore[arg-type]
    details = await refused(world.call("EventService.ListEvents", request))
    assert list(details.violations) == ["filter.visibility"]


@pytest.mark.suite(backends=["sqlite", "postgres"], topologies=["split"])
@pytest.mark.rule("R14")
@pytest.mark.case("B97")
async def test_a_stop_ends_feeds_with_the_cursor_to_go_on_from(suite) -> None:  # type: ignore[no-untyped-def]
    world = World(suite)
    session_id = await session(world)
    async with follow(world, session_id=session_id) as narrow, follow(world) as wide:
        await narrow.event()
        await wide.event()
        stopping = asyncio.ensure_future(suite.stop())
        failures = [error_details(await feed.failure()) for feed in (narrow, wide)]
        await stopping
    assert [(one.code, one.reason) for one in failures] == [(grpc.StatusCode.UNAVAILABLE, "SHUTTING_DOWN")] * 2
    await suite.resume()
    await append(world, session_id, "later")
    for failure, extent in zip(failures, ({"session_id": session_id}, {}), strict=True):
        cursor = base64.b64decode(failure.metadata["resume_cursor"])
        assert [one.type for one in await listed(world, **extent, after=cursor)] == ["later"]
