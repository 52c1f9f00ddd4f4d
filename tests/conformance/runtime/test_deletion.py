"""Sessions deleted: everything of the thread goes, its id never returns, and whoever was at it learns of it (R19)."""

from typing import Any

import grpc
import pytest

from tests.support.calls import REPLAY_KEY, refused
from tests.support.checkpoints import Saver, put, value, write, writes
from tests.support.descriptors import fresh_id
from tests.support.feeds import follow
from tests.support.runtime import RUNNING, Runtime, acquisition, awaiting, commit, event, together
from tests.support.suite import Suite
from threadkeep.runtime.v1 import (
    checkpoint_service_pb2,
    commit_pb2,
    event_service_pb2,
    session_pb2,
    session_service_pb2,
    task_pb2,
    task_service_pb2,
)

pb = session_service_pb2
DELETED = "threadkeep.session.deleted"
KEEP_LATEST = checkpoint_service_pb2.PRUNE_STRATEGY_KEEP_LATEST

pytestmark = pytest.mark.suite(topologies=["embedded"])


@pytest.fixture
def runtime(shared_suite: Suite) -> Runtime:
    return Runtime(shared_suite)


def deletion(session_id: str, **more: Any) -> pb.DeleteSessionRequest:
    return pb.DeleteSessionRequest(request_id=fresh_id(), session_id=session_id, **more)


async def delete(runtime: Runtime, session_id: str, **more: Any) -> commit_pb2.CommitReceipt:
    return (await runtime.call("SessionService.DeleteSession", deletion(session_id, **more))).receipt


async def scope_events(runtime: Runtime) -> list[Any]:
    page = await runtime.call("EventService.ListEvents", event_service_pb2.ListEventsRequest(page_size=1000))
    return list(page.events)


def reason(details: Any) -> tuple[grpc.StatusCode, str]:
    return details.code, details.reason


SESSION_NOT_FOUND = (grpc.StatusCode.NOT_FOUND, "SESSION_NOT_FOUND")


@pytest.mark.rule("R19", "X2")
async def test_nothing_is_left_of_a_deleted_session_but_the_event_that_says_so(runtime: Runtime) -> None:
    held = await runtime.lease()
    session_id = held.run.session_id
    await runtime.work(held, events=[event()], running=RUNNING)
    other = await runtime.create()
    version = (await runtime.session(session_id)).thread_version
    receipt = await delete(runtime, session_id)
    assert receipt.commit_sequence == version + 1

    assert reason(await refused(runtime.session(session_id))) == SESSION_NOT_FOUND
    assert reason(await refused(runtime.events(session_id))) == SESSION_NOT_FOUND
    assert (await refused(runtime.task(held.task.task_id))).reason == "TASK_NOT_FOUND"
    assert (await refused(runtime.run(held.run.run_id))).reason == "RUN_NOT_FOUND"
    assert not (await runtime.call("TaskService.ListTasks", task_service_pb2.ListTasksRequest())).tasks
    left = (await runtime.call("SessionService.ListSessions", pb.ListSessionsRequest())).sessions
    assert [one.session_id for one in left] == [other.session_id]
    events = [one for one in await scope_events(runtime) if one.session_id == session_id]
    assert [(one.type, one.sequence) for one in events] == [(DELETED, receipt.last_event_sequence)]
    assert events[0].payload.data.decode() == (
        f'{{"session_id":"{session_id}","artifact_policy":"ARTIFACT_POLICY_DELETE"}}'
    )


@pytest.mark.rule("R19", "X2")
async def test_the_id_never_returns_and_every_other_call_finds_nothing(runtime: Runtime) -> None:
    session_id = (await runtime.create()).session_id
    saver = Saver(runtime.world, session_id)
    await saver.put(put(1, value("a", "1")))
    await delete(runtime, session_id)
    taken = (grpc.StatusCode.ALREADY_EXISTS, "ID_TAKEN")
    assert reason(await refused(runtime.create(session_id))) == taken
    draft = pb.SessionDraft(session_id=session_id)
    assert reason(await refused(runtime.submit(create_session=draft))) == taken
    source = await runtime.create()
    await Saver(runtime.world, source.session_id).put(put(1, value("a", "1")))
    copy = checkpoint_service_pb2.CopyThreadRequest(
        request_id=fresh_id(), source_session_id=source.session_id, target_session_id=session_id
    )
    assert reason(await refused(runtime.call("CheckpointService.CopyThread", copy))) == taken

    update = pb.UpdateSessionRequest(request_id=fresh_id(), session=pb.SessionDraft(session_id=session_id, title="x"))
    update.update_mask.paths.append("title")
    drop = checkpoint_service_pb2.DeleteThreadRequest(request_id=fresh_id(), session_id=session_id)
    prune = checkpoint_service_pb2.PruneThreadRequest(
        request_id=fresh_id(), session_id=session_id, strategy=KEEP_LATEST
    )
    for call in (
        saver.put(put(2, value("a", "2"))),
        saver.write(writes(1, write("t", 0))),
        runtime.commit(session_id, events=[event()]),
        runtime.submit(session_id),
        runtime.call("SessionService.UpdateSession", update),
        runtime.call("SessionService.DeleteSession", deletion(session_id)),
        runtime.call("CheckpointService.DeleteThread", drop),
        runtime.call("CheckpointService.PruneThread", prune),
    ):
        assert reason(await refused(call)) == SESSION_NOT_FOUND
    found = checkpoint_service_pb2.GetCheckpointRequest(session_id=session_id)
    nothing = await runtime.call("CheckpointService.GetCheckpoint", found)
    found.session_id = fresh_id("session")
    assert nothing == await runtime.call("CheckpointService.GetCheckpoint", found)
    theirs = Runtime(runtime.world.suite)
    assert (await theirs.create(session_id)).session_id == session_id


@pytest.mark.rule("R19", "X3")
async def test_a_replay_is_not_found_but_the_deletions_own_succeeds(runtime: Runtime) -> None:
    draft = pb.SessionDraft(session_id=fresh_id("session"))
    create = pb.CreateSessionRequest(request_id=fresh_id(), session=draft)
    session_id = (await runtime.call("SessionService.CreateSession", create)).session.session_id
    submission = await runtime.submission(session_id)
    await runtime.call("TaskService.SubmitTask", submission)
    asked = acquisition(submission.queue)
    held = (await runtime.call("WorkerService.AcquireRun", asked)).acquired
    work = commit(session_id, lease=held.lease, running=RUNNING, events=[event()])
    await runtime.call("ThreadService.Commit", work)
    request = deletion(session_id)
    first = await runtime.call("SessionService.DeleteSession", request)

    for name, before in (
        ("SessionService.CreateSession", create),
        ("TaskService.SubmitTask", submission),
        ("WorkerService.AcquireRun", asked),
        ("ThreadService.Commit", work),
    ):
        assert reason(await refused(runtime.call(name, before))) == SESSION_NOT_FOUND, name
    create.session.title = "another"
    assert (await refused(runtime.call("SessionService.CreateSession", create))).reason == "REQUEST_ID_REUSED"

    call = runtime.world.bind("SessionService.DeleteSession")(request, metadata=runtime.metadata)
    again = await call
    assert (REPLAY_KEY, "1") in tuple(await call.trailing_metadata())
    again.receipt.replay = False
    assert again == first


@pytest.mark.rule("R19", "R3", "R8")
async def test_a_worker_at_a_deleted_session_loses_its_lease_and_commits_nothing(runtime: Runtime) -> None:
    held = await runtime.lease()
    enqueue = task_pb2.MULTITASK_STRATEGY_ENQUEUE
    await runtime.submit(held.run.session_id, queue=held.run.queue, multitask_strategy=enqueue)
    await delete(runtime, held.run.session_id)
    assert reason(await refused(runtime.work(held, running=RUNNING))) == SESSION_NOT_FOUND
    assert (await refused(runtime.heartbeat(held.lease))).code in (
        grpc.StatusCode.NOT_FOUND,
        grpc.StatusCode.ABORTED,
    )
    assert (await refused(runtime.release(held.lease))).reason == "RUN_NOT_FOUND"
    assert await runtime.acquire(held.run.queue, wait=0) is None, "neither the run nor what was enqueued is left"


@pytest.mark.rule("R19", "R13")
@pytest.mark.parametrize("extent", ["session", "run", "task"])
async def test_a_subscription_ends_with_the_deletion(runtime: Runtime, extent: str) -> None:
    held = await runtime.lease()
    ids = {"session": held.run.session_id, "run": held.run.run_id, "task": held.task.task_id}
    async with follow(runtime.world, **{f"{extent}_id": ids[extent]}) as feed:
        await feed.event()
        await delete(runtime, held.run.session_id)
        rest = [one.type for one in await feed.rest()]
    ends = {"session": DELETED, "run": "threadkeep.run.ended", "task": "threadkeep.task.canceled"}
    assert rest[-1] in (ends[extent], DELETED)


@pytest.mark.rule("R19", "R24")
async def test_whoever_waits_for_a_task_of_it_is_told(runtime: Runtime) -> None:
    task = await runtime.submit()
    told, _ = await together(runtime.wait(task.task_id), delete(runtime, task.session_id))
    if isinstance(told, grpc.aio.AioRpcError):
        assert told.code() == grpc.StatusCode.NOT_FOUND
    else:
        assert told.state == task_pb2.TASK_STATE_CANCELED


@pytest.mark.rule("R19", "R10")
async def test_open_tickets_and_enqueued_tasks_go_too(runtime: Runtime) -> None:
    held = await runtime.lease()
    asked = await runtime.work(held, awaiting=awaiting())
    enqueued = await runtime.submit(held.run.session_id, multitask_strategy=task_pb2.MULTITASK_STRATEGY_ENQUEUE)
    await delete(runtime, held.run.session_id)
    assert (await refused(runtime.ticket(asked.ticket_ids[0]))).reason == "TICKET_NOT_FOUND"
    assert (await refused(runtime.resolve(asked.ticket_ids[0]))).reason == "TICKET_NOT_FOUND"
    assert (await refused(runtime.cancel(enqueued.task_id))).reason == "TASK_NOT_FOUND"


@pytest.mark.rule("R19", "X4")
async def test_a_revision_is_compared(runtime: Runtime) -> None:
    session = await runtime.create()
    details = await refused(delete(runtime, session.session_id, expected_revision=session.revision + 1))
    assert reason(details) == (grpc.StatusCode.ABORTED, "REVISION_CONFLICT")
    await delete(runtime, session.session_id, expected_revision=session.revision)


@pytest.mark.rule("R19", "A7")
@pytest.mark.parametrize(
    ("settings", "call", "said"),
    [("KEEP", "UNSPECIFIED", "KEEP"), ("KEEP", "DELETE", "DELETE"), ("UNSPECIFIED", "KEEP", "KEEP")],
)
async def test_the_owner_chooses_what_becomes_of_the_artifacts(
    runtime: Runtime, settings: str, call: str, said: str
) -> None:
    chosen = session_pb2.SessionSettings(artifact_policy=f"ARTIFACT_POLICY_{settings}")  # type: ignore[arg-type]
    session = await runtime.create(settings=chosen)
    assert session.settings == chosen
    await delete(runtime, session.session_id, artifact_policy=f"ARTIFACT_POLICY_{call}")
    (last,) = [one for one in await scope_events(runtime) if one.session_id == session.session_id]
    assert f'"artifact_policy":"ARTIFACT_POLICY_{said}"' in last.payload.data.decode()


@pytest.mark.rule("R19", "R14")
async def test_a_cursor_among_what_was_deleted_still_goes_on(runtime: Runtime) -> None:
    # Of one session alone: between sessions a feed promises no order.
    doomed = await runtime.create()
    await runtime.commit(doomed.session_id, events=[event(), event()])
    async with follow(runtime.world) as feed:
        seen = await feed.events(2)
    await delete(runtime, doomed.session_id)
    kept = await runtime.create()
    async with follow(runtime.world, after=seen[-1].cursor) as feed:
        got = {(one.session_id, one.type) for one in await feed.events(2)}
    assert got == {(doomed.session_id, DELETED), (kept.session_id, "threadkeep.session.created")}


@pytest.mark.rule("R19", "X8")
@pytest.mark.parametrize("name", ["%", "_", "a' OR 1=1 --", "\\", "ü🚢", " ", "." * 256])
async def test_hostile_ids_delete_themselves_alone(runtime: Runtime, name: str) -> None:
    other = await runtime.create(name + "x" if len(name) < 256 else "x")
    await runtime.create(name)
    await delete(runtime, name)
    assert reason(await refused(runtime.session(name))) == SESSION_NOT_FOUND
    assert await runtime.session(other.session_id) == other


@pytest.mark.rule("R19")
@pytest.mark.case("B68")
@pytest.mark.suite(backends=["sqlite", "postgres"], topologies=["embedded"])
async def test_a_large_thread_is_canceled_pruned_and_deleted(runtime: Runtime) -> None:
    task = await runtime.submit()
    saver = Saver(runtime.world, task.session_id)
    megabyte = bytes(2 * 1024 * 1024)
    for number in range(1, 11):
        await saver.put(put(number, value("a", str(number), megabyte)))
    await runtime.cancel(task.task_id)
    prune = checkpoint_service_pb2.PruneThreadRequest(
        request_id=fresh_id(), session_id=task.session_id, strategy=KEEP_LATEST
    )
    await runtime.call("CheckpointService.PruneThread", prune)
    for number in range(11, 16):
        await saver.put(put(number, value("a", str(number), megabyte)))
    await delete(runtime, task.session_id)
    assert reason(await refused(runtime.session(task.session_id))) == SESSION_NOT_FOUND
