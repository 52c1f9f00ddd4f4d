"""A2A over gRPC with the official client: streams, lists, several replicas (P6, R14)."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import aclosing, asynccontextmanager
from typing import Any

import pytest
from a2a.client.errors import A2AClientError
from a2a.types import a2a_pb2, a2a_pb2_grpc
from a2a.utils.errors import TaskNotFoundError, UnsupportedOperationError
from google.protobuf.timestamp_pb2 import Timestamp

from tests.conformance.projection.test_a2a import PAIRS, gate, state
from tests.support.a2a import ENTERED, GATES, Agency, agency, message, sent, text_of, told
from tests.support.suite import Suite
from tests.support.waiting import eventually

pytestmark = pytest.mark.suite(pairs=PAIRS)

AT_ONCE = a2a_pb2.SendMessageConfiguration(return_immediately=True)


@pytest.fixture
async def at(shared_suite: Suite) -> AsyncIterator[Agency]:
    async with agency(shared_suite) as made:
        yield made


def states(frames: list[a2a_pb2.StreamResponse]) -> list[str]:
    """The states that status updates told of."""
    return [
        a2a_pb2.TaskState.Name(one.status_update.status.state).removeprefix("TASK_STATE_")
        for one in frames
        if one.HasField("status_update")
    ]


def subscribed(client: Any, at: Agency, task_id: str) -> Any:
    return client.subscribe(a2a_pb2.SubscribeToTaskRequest(id=task_id), context=at.context)


@pytest.mark.rule("P6", "R14")
async def test_a_stream_begins_with_the_task_and_ends_with_its_end(at: Agency) -> None:
    frames = await told(await at.speak(), at, message("say hi", context_id="c"))
    assert [one.WhichOneof("payload") for one in frames] == [
        "task",
        "status_update",
        "artifact_update",
        "status_update",
    ]
    assert state(frames[0].task) == "SUBMITTED"
    assert states(frames) == ["WORKING", "COMPLETED"]
    assert text_of(frames[2].artifact_update.artifact.parts) == "hi"
    assert {one.status_update.context_id for one in frames if one.HasField("status_update")} == {"c"}


@pytest.mark.rule("P6", "R10")
async def test_a_stream_ends_when_the_task_asks_and_the_answer_has_a_stream_of_its_own(at: Agency) -> None:
    client = await at.speak()
    frames = await told(client, at, message('ask "color?"'))
    assert states(frames) == ["WORKING", "INPUT_REQUIRED"]
    assert text_of(frames[-1].status_update.status.message.parts) == "color?"
    task_id = frames[0].task.id
    # Who subscribes to a task that asks sees that it does, and then what comes.
    async with aclosing(subscribed(client, at, task_id)) as waiting:
        first = await anext(waiting)
        assert state(first.task) == "INPUT_REQUIRED"
        said = message("green", task_id=task_id)
        answered = await told(client, at, said)
        assert states(answered)[-1] == "COMPLETED"
        assert states([one async for one in waiting])[-1] == "COMPLETED"
    # The answer again is answered as before.
    assert states(await told(client, at, said)) == states(answered)


@pytest.mark.rule("P6", "R14")
async def test_any_number_follow_a_task_from_any_moment_and_see_its_end_once(at: Agency) -> None:
    client = await at.speak()
    task = await sent(await at.speak(streaming=False), at, message(gate("long")), configuration=AT_ONCE)

    async def read() -> list[a2a_pb2.StreamResponse]:
        return [one async for one in subscribed(client, at, task.id)]

    early = [asyncio.ensure_future(read()) for _ in range(3)]
    await eventually(lambda: "long" in ENTERED)
    late = [asyncio.ensure_future(read()) for _ in range(3)]
    async with aclosing(subscribed(client, at, task.id)) as one:
        assert state((await anext(one)).task) == "WORKING"
        GATES["long"].set()
        assert states([frame async for frame in one]) == ["COMPLETED"]
    for frames in await asyncio.gather(*early):
        assert states(frames)[-1:] == ["COMPLETED"]
    for outcome in await asyncio.gather(*late, return_exceptions=True):
        # One that came after the end is told so.
        if isinstance(outcome, BaseException):
            assert isinstance(outcome, UnsupportedOperationError)
        else:
            assert states(outcome).count("COMPLETED") == 1
    with pytest.raises(UnsupportedOperationError):
        await read()
    with pytest.raises(TaskNotFoundError):
        async for _ in subscribed(client, at, "never-used"):
            pass


@pytest.mark.rule("P6", "R19")
async def test_a_task_of_a_deleted_session_is_canceled_for_who_follows_it_and_then_gone(at: Agency) -> None:
    async with agency(at.suite, worker=False) as idle:
        client = await idle.speak()
        task = await sent(await idle.speak(streaming=False), idle, message("say x"), configuration=AT_ONCE)
        async with aclosing(subscribed(client, idle, task.id)) as frames:
            await anext(frames)
            await idle.client.sessions.delete(task.context_id)
            assert states([one async for one in frames]) == ["CANCELED"]
        with pytest.raises(TaskNotFoundError):
            await client.get_task(a2a_pb2.GetTaskRequest(id=task.id), context=idle.context)


@pytest.mark.rule("P6", "X5")
async def test_lists_are_paged_by_when_tasks_last_changed_and_filtered(at: Agency) -> None:
    client = await at.speak(streaming=False)
    ids = [(await sent(client, at, message(f"say {n}", context_id=f"c{n % 2}"))).id for n in range(5)]
    asking = await sent(client, at, message("ask", context_id="c2"))

    async def listed(**fields: Any) -> list[a2a_pb2.Task]:
        found, token, pages = [], "", 0
        while True:
            request = a2a_pb2.ListTasksRequest(page_token=token, **fields)
            page = await client.list_tasks(request, context=at.context)
            assert page.page_size == fields.get("page_size", 50)
            found += page.tasks
            pages += 1
            if not page.next_page_token:
                assert page.total_size == len(found)
                return found
            token = page.next_page_token

    newest_first = [asking.id, *reversed(ids)]
    assert [one.id for one in await listed()] == newest_first
    assert [one.id for one in await listed(page_size=2)] == newest_first
    assert [one.id for one in await listed(context_id="c0")] == [ids[4], ids[2], ids[0]]
    waiting = await listed(status=a2a_pb2.TASK_STATE_INPUT_REQUIRED)
    assert [one.id for one in waiting] == [asking.id]
    since = Timestamp()
    since.CopyFrom((await listed())[1].status.timestamp)
    assert [one.id for one in await listed(status_timestamp_after=since)] == [asking.id, ids[4]]
    plain = (await listed(context_id="c1"))[0]
    assert (list(plain.history), list(plain.artifacts)) == ([], [])
    whole = (await listed(context_id="c1", history_length=1, include_artifacts=True))[0]
    assert [text_of(one.parts) for one in whole.history] == ["3"]
    assert [text_of(one.parts) for one in whole.artifacts] == ["3"]
    # A token goes with its query.
    first = await client.list_tasks(a2a_pb2.ListTasksRequest(page_size=2), context=at.context)
    foreign = a2a_pb2.ListTasksRequest(page_size=2, context_id="c0", page_token=first.next_page_token)
    with pytest.raises(Exception, match="page_token"):
        await client.list_tasks(foreign, context=at.context)
    # What changed last is first.
    await sent(client, at, message("done", task_id=asking.id))
    other = await sent(client, at, message("say last"))
    assert [one.id for one in await listed()][:2] == [other.id, asking.id]


@pytest.mark.rule("P6")
async def test_history_is_cut_from_its_beginning(at: Agency) -> None:
    client = await at.speak(streaming=False)
    task = await sent(
        client, at, message("say hello"), configuration=a2a_pb2.SendMessageConfiguration(history_length=1)
    )
    assert [text_of(one.parts) for one in task.history] == ["hello"]
    for length, count in ((0, 0), (1, 1), (2, 2), (1000, 2)):
        request = a2a_pb2.GetTaskRequest(id=task.id, history_length=length)
        assert len((await client.get_task(request, context=at.context)).history) == count


@asynccontextmanager
async def replica(suite: Suite) -> AsyncIterator[str]:
    """A second projection on the suite's database; its address."""
    from threadkeep_chassis.hosting import Host
    from threadkeep_projection.server import Settings, build

    settings = Settings(database_url=suite.urls["projection"], projection_lease_ttl_seconds=1)
    peers = {name: suite.addresses[name] for name in ("runtime", "config", "artifacts")}
    async with Host([build(settings)], peers=peers) as host:
        yield host.address


@pytest.mark.rule("P6", "R14")
@pytest.mark.suite(pairs=[("postgres", "split")])
async def test_replicas_answer_alike_and_a_stream_goes_on_at_another_when_one_stops(at: Agency) -> None:
    async with replica(at.suite) as second:
        here, there = await at.speak(), await at.speak(address=second)
        said = message(gate("replicas"))
        running = asyncio.ensure_future(told(here, at, said))
        await eventually(lambda: "replicas" in ENTERED)
        # The same message at the other replica is the same task.
        async with aclosing(there.send_message(a2a_pb2.SendMessageRequest(message=said), context=at.context)) as again:
            task = (await anext(again)).task
            async with replica(at.suite) as third:
                dying = await at.speak(address=third)
                cut = subscribed(dying, at, task.id)
                assert (await anext(cut)).task.id == task.id
            with pytest.raises(A2AClientError, match="UNAVAILABLE"):
                async for _ in cut:
                    pass
            GATES["replicas"].set()
            assert states([one async for one in again])[-1] == "COMPLETED"
        assert states(await running)[-1] == "COMPLETED"
        for client in (here, there):
            found = await client.get_task(a2a_pb2.GetTaskRequest(id=task.id), context=at.context)
            assert state(found) == "COMPLETED"
            page = await client.list_tasks(a2a_pb2.ListTasksRequest(), context=at.context)
            assert [one.id for one in page.tasks] == [task.id]


@pytest.mark.rule("P6", "X9")
async def test_a_reader_that_leaves_frees_its_place(at: Agency) -> None:
    task = await sent(await at.speak(streaming=False), at, message(gate("leave")), configuration=AT_ONCE)
    stub = a2a_pb2_grpc.A2AServiceStub(at.suite.channel("projection"))
    streams = at.suite.hosts["projection"]._interceptor._streams

    def followers() -> int:
        return sum(1 for serving in streams.values() if serving.call.method.endswith("A2AService/SubscribeToTask"))

    before = followers()
    metadata = at.suite.scope(**at.scope)
    calls = [stub.SubscribeToTask(a2a_pb2.SubscribeToTaskRequest(id=task.id), metadata=metadata) for _ in range(5)]
    for call in calls:
        assert (await call.read()).task.id == task.id
    assert followers() == before + 5
    for call in calls:
        call.cancel()
    await eventually(lambda: followers() == before)
    GATES["leave"].set()
