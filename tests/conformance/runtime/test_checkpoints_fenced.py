"""Checkpoints of a leased run: only its lease writes them, and their ids grow (R3, R20)."""

import pytest

from tests.support.calls import refused
from tests.support.checkpoints import Saver, checkpoint_id, op, put, write, writes
from tests.support.examples.world import World
from threadkeep.runtime.v1 import checkpoint_pb2, commit_pb2, run_pb2, worker_service_pb2
from threadkeep.runtime.v1 import checkpoint_service_pb2 as pb


@pytest.fixture
async def held(world: World) -> worker_service_pb2.AcquiredRun:
    """A leased run."""
    return await world.lease()


def holder(world: World, held: worker_service_pb2.AcquiredRun) -> Saver:
    return Saver(world, held.run.session_id, held.lease)


@pytest.mark.rule("R3")
async def test_without_the_lease_nothing_of_the_threads_checkpoints_changes(
    world: World, held: worker_service_pb2.AcquiredRun
) -> None:
    fenced, plain = holder(world, held), Saver(world, held.run.session_id)
    await fenced.put(put(1))
    for attempt in (plain.put(put(2)), plain.write(writes(1, write("t", 0))), plain.delete()):
        details = await refused(attempt)
        assert (details.code.name, details.reason) == ("FAILED_PRECONDITION", "LEASE_REQUIRED")
    (only,) = await plain.list()
    assert (only.checkpoint_id, len(only.pending_writes)) == (checkpoint_id(1), 0)


@pytest.mark.rule("R3")
async def test_a_stale_lease_leaves_no_checkpoint_behind(world: World, held: worker_service_pb2.AcquiredRun) -> None:
    stale = Saver(world, held.run.session_id, commit_pb2.Lease(run_id=held.lease.run_id, epoch=held.lease.epoch - 1))
    for attempt in (stale.put(put(1)), stale.write(writes(1, write("t", 0))), stale.delete()):
        details = await refused(attempt)
        assert (details.code.name, details.reason) == ("ABORTED", "LEASE_LOST")
    assert await stale.list() == []


@pytest.mark.rule("R20")
async def test_a_fenced_put_of_a_new_id_must_sort_above_its_namespaces_greatest(
    world: World, held: worker_service_pb2.AcquiredRun
) -> None:
    fenced = holder(world, held)
    await fenced.put(put(5))
    await fenced.put(put(5, metadata={"again": True}))
    details = await refused(fenced.put(put(4)))
    assert (details.code.name, details.reason) == ("INVALID_ARGUMENT", "CHECKPOINT_ID_ORDER")
    assert list(details.violations) == ["put.checkpoint_id"]
    commit = world.commit(session_id=held.run.session_id, lease=held.lease, checkpoint_ops=[op(put(7)), op(put(6))])
    details = await refused(commit)
    assert list(details.violations) == ["commit.checkpoint_ops[1].put.checkpoint_id"]
    assert [one.checkpoint_id for one in await fenced.list()] == [checkpoint_id(5)]
    await fenced.put(put(3, ns="child"))


@pytest.mark.rule("R20")
async def test_the_next_lease_learns_the_last_checkpoint_and_the_floor(
    world: World, held: worker_service_pb2.AcquiredRun
) -> None:
    fenced = holder(world, held)
    await fenced.put(put(1))
    await fenced.put(put(9, ns="child"))
    release = worker_service_pb2.ReleaseRunRequest(request_id="release-1", lease=held.lease)
    await world.call("WorkerService.ReleaseRun", release)
    again = worker_service_pb2.AcquireRunRequest(request_id="acquire-2", worker_id="w-2", queues=[held.run.queue])
    acquired = (await world.call("WorkerService.AcquireRun", again)).acquired
    assert (acquired.last_checkpoint_id, acquired.checkpoint_id_floor) == (checkpoint_id(1), checkpoint_id(9))
    assert acquired.run.last_checkpoint_id == checkpoint_id(1)


@pytest.mark.rule("R3", "R20")
async def test_once_the_run_has_ended_its_thread_is_anybodys_again(
    world: World, held: worker_service_pb2.AcquiredRun
) -> None:
    await world.commit(
        session_id=held.run.session_id,
        lease=held.lease,
        checkpoint_ops=[op(put(1))],
        ended=commit_pb2.RunEnded(cause=run_pb2.RUN_END_CAUSE_SUCCEEDED),
    )
    assert (await refused(holder(world, held).put(put(2)))).reason == "LEASE_LOST"
    plain = Saver(world, held.run.session_id)
    await plain.put(put(2))
    assert len(await plain.list()) == 2


@pytest.mark.rule("R3", "R20")
@pytest.mark.case("B92")
async def test_a_stale_lease_uses_up_no_staged_value_and_one_commit_uses_all_of_its_own(
    world: World, held: worker_service_pb2.AcquiredRun
) -> None:
    for index in range(2):
        chunk = {"staged_id": "large", "index": index, "data": b"part%d" % index}
        await world.call("CheckpointService.StageChunk", pb.StageChunkRequest(request_id=f"chunk-{index}", **chunk))
    staged = checkpoint_pb2.StagedValue(staged_id="large", chunk_count=2, size=10)
    one = checkpoint_pb2.ChannelValue(channel="a", version="1", type="bytes", staged=staged)
    wrote = checkpoint_pb2.PendingWrite(task_id="t", channel="a", type="bytes", staged=staged)
    ops = [op(put(1, one)), op(writes(1, write("s", 0), wrote, write("u", 0)))]
    stale = commit_pb2.Lease(run_id=held.lease.run_id, epoch=held.lease.epoch - 1)
    assert (
        await refused(world.commit(session_id=held.run.session_id, lease=stale, checkpoint_ops=ops))
    ).reason == "LEASE_LOST"
    fenced = holder(world, held)
    assert await fenced.list() == []
    await world.commit(session_id=held.run.session_id, lease=held.lease, checkpoint_ops=ops)
    (found,) = await fenced.list()
    assert [value.data for value in found.channel_values] == [b"part0part1"]
    assert [write.data for write in found.pending_writes] == [b"\xa1w", b"part0part1", b"\xa1w"]
    again = world.commit(session_id=held.run.session_id, lease=held.lease, checkpoint_ops=[op(put(2, one))])
    assert (await refused(again)).reason == "STAGED_VALUE_INCOMPLETE"
