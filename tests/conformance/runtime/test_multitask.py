"""What a task does in a busy session: it is refused, waits, interrupts, or rolls back (R5)."""

import grpc
import pytest

from tests.support.calls import refused
from tests.support.descriptors import fresh_id
from tests.support.runtime import SUCCEEDED, Runtime, awaiting, together
from tests.support.suite import Suite
from threadkeep.runtime.v1 import (
    checkpoint_pb2,
    checkpoint_service_pb2,
    run_pb2,
    run_service_pb2,
    session_pb2,
    task_pb2,
    ticket_pb2,
    worker_service_pb2,
)

ENQUEUE = task_pb2.MULTITASK_STRATEGY_ENQUEUE
INTERRUPT = task_pb2.MULTITASK_STRATEGY_INTERRUPT
ROLLBACK = task_pb2.MULTITASK_STRATEGY_ROLLBACK
Held = worker_service_pb2.AcquiredRun


@pytest.fixture
def runtime(shared_suite: Suite) -> Runtime:
    return Runtime(shared_suite)


def checkpoint(number: int, ns: str = "", values: dict[str, str] | None = None) -> checkpoint_pb2.CheckpointOp:
    """A checkpoint whose channels have these versions; those that end with its number are new in it."""
    versions = values or {"a": str(number)}
    listed = ",".join(f'"{channel}":"{version}"' for channel, version in versions.items())
    return checkpoint_pb2.CheckpointOp(
        put=checkpoint_pb2.CheckpointPut(
            checkpoint_ns=ns,
            checkpoint_id=f"{number:04d}",
            checkpoint_json=b'{"v":4,"id":"%04d","channel_values":{},"channel_versions":{%b}}'
            % (number, listed.encode()),
            metadata_json=b'{"run_id":"what it says does not count"}',
            channel_values=[
                checkpoint_pb2.ChannelValue(channel=channel, version=version, type="bytes", data=version.encode())
                for channel, version in versions.items()
                if version == str(number)
            ],
        )
    )


def writes(number: int, ns: str = "", node: str = "node") -> checkpoint_pb2.CheckpointOp:
    """Pending writes of a checkpoint."""
    write = checkpoint_pb2.PendingWrite(task_id=node, index=0, channel="a", type="bytes", data=b"w")
    return checkpoint_pb2.CheckpointOp(
        writes=checkpoint_pb2.CheckpointWrites(checkpoint_ns=ns, checkpoint_id=f"{number:04d}", writes=[write])
    )


async def found(
    runtime: Runtime, session_id: str, number: int | None = None, ns: str = ""
) -> checkpoint_pb2.CheckpointTuple | None:
    """The checkpoint, or the namespace's head."""
    request = checkpoint_service_pb2.GetCheckpointRequest(session_id=session_id, checkpoint_ns=ns)
    if number is not None:
        request.checkpoint_id = f"{number:04d}"
    response = await runtime.call("CheckpointService.GetCheckpoint", request)
    return response.checkpoint if response.HasField("checkpoint") else None


@pytest.mark.rule("R5", "R6")
@pytest.mark.case("B61")
async def test_an_enqueued_task_has_no_run_until_the_one_before_ended(runtime: Runtime) -> None:
    held = await runtime.lease()
    session_id = held.run.session_id
    second = await runtime.submit(session_id, queue=held.run.queue, multitask_strategy=ENQUEUE)
    assert not second.HasField("run_id")
    assert second.state == task_pb2.TASK_STATE_SUBMITTED
    assert (await runtime.session(session_id)).run_count == 1
    await runtime.work(held, ended=SUCCEEDED)
    following = await runtime.again(held)
    assert following.task.task_id == second.task_id
    assert (await runtime.task(second.task_id)).run_id == following.run.run_id
    session = await runtime.session(session_id)
    assert (session.run_count, session.active_run_id) == (2, following.run.run_id)
    await runtime.work(following, ended=SUCCEEDED)
    assert (await runtime.wait(second.task_id)).state == task_pb2.TASK_STATE_COMPLETED
    assert (await runtime.session(session_id)).status == session_pb2.SESSION_STATUS_IDLE


@pytest.mark.rule("R5", "R24")
async def test_enqueued_tasks_take_turns_by_priority_and_age(runtime: Runtime) -> None:
    held = await runtime.lease()
    session_id = held.run.session_id
    for name, priority in (("old", 0), ("young", 0), ("urgent", 3)):
        await runtime.submit(
            session_id, queue=held.run.queue, task_id=name, priority=priority, multitask_strategy=ENQUEUE
        )
    done = []
    for _ in range(3):
        await runtime.work(held, ended=SUCCEEDED)
        held = await runtime.again(held)
        done.append(held.task.task_id)
    assert done == ["urgent", "old", "young"]


@pytest.mark.rule("R5", "X3")
@pytest.mark.case("B63")
async def test_many_tasks_enqueued_at_once_all_run_one_after_another(runtime: Runtime) -> None:
    session = await runtime.create()
    queue = fresh_id("queue")
    requests = [
        await runtime.submission(session.session_id, queue=queue, multitask_strategy=ENQUEUE) for _ in range(20)
    ]
    answers = await together(*(runtime.call("TaskService.SubmitTask", request) for request in requests))
    names = {answer.task.task_id for answer in answers}
    assert len(names) == 20
    done = []
    for _ in range(20):
        held = await runtime.acquire(queue)
        assert held is not None
        done.append(held.task.task_id)
        await runtime.work(held, ended=SUCCEEDED)
    assert set(done) == names
    assert (await runtime.session(session.session_id)).status == session_pb2.SESSION_STATUS_IDLE


@pytest.mark.rule("R5", "R9")
async def test_an_enqueued_task_can_be_canceled(runtime: Runtime) -> None:
    held = await runtime.lease()
    second = await runtime.submit(held.run.session_id, queue=held.run.queue, multitask_strategy=ENQUEUE)
    canceled = await runtime.cancel(second.task_id, reason="no need")
    assert (canceled.state, canceled.cancel_reason) == (task_pb2.TASK_STATE_CANCELED, "no need")
    assert (await runtime.wait(second.task_id)).state == task_pb2.TASK_STATE_CANCELED
    await runtime.work(held, ended=SUCCEEDED)
    assert await runtime.acquire(held.run.queue, wait=0) is None


@pytest.mark.rule("R5")
async def test_canceling_the_open_run_lets_the_next_task_go_on(runtime: Runtime) -> None:
    first = await runtime.submit()
    second = await runtime.submit(first.session_id, queue=first.queue, multitask_strategy=ENQUEUE)
    assert (await runtime.cancel(first.task_id)).task_id == first.task_id
    held = await runtime.acquire(first.queue)
    assert held is not None
    assert held.task.task_id == second.task_id


@pytest.mark.rule("R5", "R3")
@pytest.mark.case("B61")
async def test_an_interrupting_task_ends_a_leased_run_and_keeps_its_checkpoints(runtime: Runtime) -> None:
    held = await runtime.lease()
    session_id = held.run.session_id
    await runtime.work(held, checkpoint_ops=[checkpoint(1)])
    second = await runtime.submit(session_id, queue=held.run.queue, multitask_strategy=INTERRUPT)
    ended = await runtime.run(held.run.run_id)
    assert (ended.state, ended.cause) == (run_pb2.RUN_STATE_ENDED, run_pb2.RUN_END_CAUSE_CANCELED)
    first = await runtime.task(held.task.task_id)
    assert first.state == task_pb2.TASK_STATE_CANCELED
    assert second.task_id in first.cancel_reason
    assert second.run_id in first.cancel_reason
    assert (await refused(runtime.work(held, ended=SUCCEEDED))).reason == "LEASE_LOST"
    assert (await refused(runtime.heartbeat(held.lease))).reason == "LEASE_LOST"
    following = await runtime.again(held)
    assert (following.run.run_id, following.last_checkpoint_id) == (second.run_id, "0001")
    assert await found(runtime, session_id, 1) is not None


@pytest.mark.rule("R5", "R10")
async def test_an_interrupting_task_closes_the_tickets_of_a_waiting_run(runtime: Runtime) -> None:
    held = await runtime.lease()
    ticket_id = fresh_id("ticket")
    await runtime.work(held, awaiting=awaiting(ticket_pb2.TicketDraft(ticket_id=ticket_id)))
    await runtime.submit(held.run.session_id, queue=held.run.queue, multitask_strategy=INTERRUPT)
    assert (await runtime.ticket(ticket_id)).state == ticket_pb2.TICKET_STATE_CLOSED
    assert (await refused(runtime.resolve(ticket_id))).reason == "TICKET_NOT_OPEN"


@pytest.mark.rule("R5", "R20")
@pytest.mark.case("B61")
async def test_a_rollback_leaves_the_checkpoints_as_they_were_before_the_task(runtime: Runtime) -> None:
    held = await runtime.lease()
    session_id = held.run.session_id
    await runtime.work(
        held,
        checkpoint_ops=[checkpoint(1, values={"a": "1", "b": "1"}), checkpoint(1, "sub"), writes(1)],
        ended=SUCCEEDED,
    )
    before, sub_before = await found(runtime, session_id), await found(runtime, session_id, ns="sub")

    await runtime.submit(session_id, queue=held.run.queue)
    rolled = await runtime.again(held)
    await runtime.work(
        rolled, checkpoint_ops=[writes(1), writes(1, node="its own"), checkpoint(2, values={"a": "2", "b": "1"})]
    )
    more = [checkpoint(3, values={"a": "2", "b": "3"}), checkpoint(3, "sub"), writes(3)]
    await runtime.work(rolled, checkpoint_ops=more)
    second = await runtime.submit(session_id, queue=held.run.queue, multitask_strategy=ROLLBACK)

    ended = await runtime.run(rolled.run.run_id)
    assert (ended.state, ended.cause) == (run_pb2.RUN_STATE_ENDED, run_pb2.RUN_END_CAUSE_SUPERSEDED)
    assert (await runtime.task(rolled.task.task_id)).state == task_pb2.TASK_STATE_CANCELED
    assert await found(runtime, session_id) == before
    assert await found(runtime, session_id, ns="sub") == sub_before
    for number, ns in ((2, ""), (3, ""), (3, "sub")):
        assert await found(runtime, session_id, number, ns) is None

    following = await runtime.again(held)
    assert (following.run.run_id, following.last_checkpoint_id) == (second.run_id, "0001")
    assert following.checkpoint_id_floor == "0003"
    late = await refused(runtime.work(following, checkpoint_ops=[checkpoint(3)]))
    assert late.reason == "CHECKPOINT_DELETED"
    # The values of a version that only the deleted ones had are gone: it may mean another value now.
    reused = checkpoint(4, values={"a": "2", "b": "1"})
    reused.put.channel_values.add(channel="a", version="2", type="bytes", data=b"another")
    await runtime.work(following, checkpoint_ops=[reused], ended=SUCCEEDED)
    head = await found(runtime, session_id)
    assert head is not None
    assert {value.channel: value.data for value in head.channel_values} == {"a": b"another", "b": b"1"}


@pytest.mark.rule("R5", "R20")
async def test_a_rollback_keeps_values_that_somebody_elses_checkpoint_refers_to(runtime: Runtime) -> None:
    held = await runtime.lease()
    session_id = held.run.session_id
    await runtime.work(held, checkpoint_ops=[checkpoint(1)], awaiting=awaiting())
    # Saved by hand while the run waits, on top of what it recorded.
    by_hand = checkpoint(2, values={"a": "1", "b": "2"})
    await runtime.commit(session_id, checkpoint_ops=[by_hand])
    await runtime.submit(session_id, queue=held.run.queue, multitask_strategy=ROLLBACK)
    assert await found(runtime, session_id, 1) is None
    head = await found(runtime, session_id)
    assert head is not None
    assert {value.channel: value.data for value in head.channel_values} == {"a": b"1", "b": b"2"}


@pytest.mark.rule("R5", "R20")
async def test_a_rollback_of_a_sessions_first_task_leaves_no_checkpoint(runtime: Runtime) -> None:
    held = await runtime.lease()
    await runtime.work(held, checkpoint_ops=[checkpoint(1)])
    await runtime.submit(held.run.session_id, queue=held.run.queue, multitask_strategy=ROLLBACK)
    following = await runtime.again(held)
    assert not following.HasField("last_checkpoint_id")
    assert await found(runtime, held.run.session_id) is None


@pytest.mark.rule("R5")
@pytest.mark.parametrize("strategy", [ENQUEUE, INTERRUPT, ROLLBACK])
async def test_in_an_idle_session_every_strategy_just_runs(runtime: Runtime, strategy: int) -> None:
    session = await runtime.create()
    task = await runtime.submit(session.session_id, multitask_strategy=strategy)
    assert (await runtime.run(task.run_id)).state == run_pb2.RUN_STATE_QUEUED


@pytest.mark.rule("R5", "R2")
async def test_of_many_interrupting_tasks_the_last_one_runs(runtime: Runtime) -> None:
    session = await runtime.create()
    requests = [await runtime.submission(session.session_id, multitask_strategy=INTERRUPT) for _ in range(12)]
    await together(*(runtime.call("TaskService.SubmitTask", one) for one in requests))
    runs = await runtime.call("RunService.ListRuns", run_service_pb2.ListRunsRequest(session_id=session.session_id))
    states = [run.state for run in runs.runs]
    assert (len(states), states.count(run_pb2.RUN_STATE_ENDED)) == (12, 11)


@pytest.mark.rule("X4", "R5")
async def test_an_unknown_strategy_is_refused(runtime: Runtime) -> None:
    request = await runtime.submission((await runtime.create()).session_id, multitask_strategy=99)
    details = await refused(runtime.call("TaskService.SubmitTask", request))
    assert (details.code, list(details.violations)) == (grpc.StatusCode.INVALID_ARGUMENT, ["multitask_strategy"])
