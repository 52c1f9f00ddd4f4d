"""Prune, copies, deletes by run, and delta channels' histories, beyond the public suite."""

import asyncio
import uuid
from typing import Any

import pytest
from langgraph.checkpoint.base import BaseCheckpointSaver, empty_checkpoint
from langgraph.checkpoint.base.id import uuid6
from langgraph.checkpoint.serde.types import _DeltaSnapshot

from tests.support.calls import refused
from tests.support.descriptors import fresh_id
from tests.support.examples.world import World
from tests.support.suite import Suite
from threadkeep import AsyncClient, errors
from threadkeep.langgraph import ThreadkeepSaver, codec
from threadkeep.runtime.v1 import checkpoint_pb2, checkpoint_service_pb2, commit_pb2


def _config(thread_id: str, checkpoint_id: str | None = None, ns: str = "") -> Any:
    named = {} if checkpoint_id is None else {"checkpoint_id": checkpoint_id}
    return {"configurable": {"thread_id": thread_id, "checkpoint_ns": ns, **named}}


class Chain:
    """Checkpoints of one thread, put in large commits."""

    def __init__(self, client: AsyncClient, saver: ThreadkeepSaver) -> None:
        self.client, self.saver = client, saver
        self.thread_id = uuid.uuid4().hex
        self.ops: list[checkpoint_pb2.CheckpointOp] = []
        self.ids: list[str] = []

    def put(
        self, parent: str | None, values: dict[str, Any] | None = None, writes: Any = (), run_id: str = "", ns: str = ""
    ) -> str:
        """A checkpoint whose channels all have a version of their own, and writes that follow it."""
        checkpoint: Any = {**empty_checkpoint(), "id": str(uuid6()), "channel_values": values or {}}
        checkpoint["channel_versions"] = dict.fromkeys(values or {}, checkpoint["id"])
        metadata: Any = {"step": len(self.ids), "run_id": run_id}
        put = codec.to_put(
            _config(self.thread_id, parent, ns), checkpoint, metadata, checkpoint["channel_versions"], self.saver.serde
        )
        self.ops.append(checkpoint_pb2.CheckpointOp(put=put))
        if writes:
            at = _config(self.thread_id, put.checkpoint_id, ns)
            for number, pair in enumerate(writes):
                pending = codec.to_writes(at, [pair], f"task-{number}", "", self.saver.serde)
                self.ops.append(checkpoint_pb2.CheckpointOp(writes=pending))
        self.ids.append(put.checkpoint_id)
        return put.checkpoint_id

    async def commit(self) -> None:
        """Sends what was put."""
        while self.ops:
            part, self.ops = self.ops[:200], self.ops[200:]
            await self.client.threads.commit(commit_pb2.ThreadCommit(session_id=self.thread_id, checkpoint_ops=part))

    async def listed(self, thread_id: str | None = None) -> list[Any]:
        """The thread's checkpoints, newest first."""
        return [one async for one in self.saver.alist({"configurable": {"thread_id": thread_id or self.thread_id}})]

    async def history(self, checkpoint_id: str | None, *channels: str, ns: str = "") -> Any:
        """The histories, which equal a walk of the parents one by one, and come alike from both halves."""
        config = _config(self.thread_id, checkpoint_id, ns)
        found = await self.saver.aget_delta_channel_history(config=config, channels=channels)
        walked = await BaseCheckpointSaver.aget_delta_channel_history(self.saver, config=config, channels=channels)
        assert found == walked
        assert found == await asyncio.to_thread(
            lambda: self.saver.get_delta_channel_history(config=config, channels=channels)
        )
        return found


@pytest.fixture
def chain(client: AsyncClient, saver: ThreadkeepSaver) -> Chain:
    """An empty thread."""
    return Chain(client, saver)


@pytest.mark.rule("R20")
@pytest.mark.case("B23")
@pytest.mark.suite(backends=["memory", "postgres"], topologies=["embedded"])
async def test_a_delta_history_equals_a_walk_beyond_a_thousand_rows_and_over_forks(chain: Chain) -> None:
    parent = chain.put(None, {"log": _DeltaSnapshot(["seed"])}, [("log", "w0"), ("other", 0)])
    trunk = [parent]
    for number in range(1, 1100):
        # Each third checkpoint is a fork of one a few steps back, and no ancestor of what follows.
        if number % 3 == 0:
            chain.put(trunk[-2] if len(trunk) > 1 else None, None, [("log", f"fork {number}")])
        else:
            parent = chain.put(trunk[-1], None, [("log", f"a{number}"), ("log", f"b{number}")])
            trunk.append(parent)
    await chain.commit()
    history = await chain.history(trunk[50], "log", "other", "nothing")
    assert history["log"]["seed"] == _DeltaSnapshot(["seed"])
    assert len(history["log"]["writes"]) == 1 + 2 * 49
    assert [write[2] for write in history["other"]["writes"]] == [0]
    assert history["nothing"] == {"writes": []}
    found = await chain.saver.aget_delta_channel_history(config=_config(chain.thread_id, trunk[-1]), channels=["log"])
    assert len(found["log"]["writes"]) == 1 + 2 * (len(trunk) - 2)
    assert await chain.saver.aget_delta_channel_history(config=_config("no such thread"), channels=["log"]) == {
        "log": {"writes": []}
    }


@pytest.mark.rule("R20", "R22")
@pytest.mark.case("B33")
async def test_a_prune_keeps_what_a_delta_history_needs_and_no_more(chain: Chain) -> None:
    old = chain.put(None, {"log": _DeltaSnapshot([0]), "plain": "p"}, [("log", 1), ("plain", "q")])
    seed = chain.put(old, {"log": _DeltaSnapshot([0, 1]), "plain": "q"}, [("log", 2), ("branch:to:x", None)])
    first = chain.put(seed, {"plain": "q"}, [("log", 3)])
    chain.put(seed, {"plain": "fork"}, [("log", 99)])
    second = chain.put(first, {"plain": "q"}, [("plain", "r"), ("__start__", 1)])
    head = chain.put(second, {"plain": "r"}, [("log", 5)])
    child = chain.put(None, {"x": 1}, [("x", 2)], ns="child:1")
    grandchild = chain.put(child, {"x": 2}, ns="child:1")
    await chain.commit()
    before = await chain.history(head, "log", "plain")
    tuple_before = await chain.saver.aget_tuple(_config(chain.thread_id))
    await chain.saver.aprune([chain.thread_id, "no such thread"], strategy="keep_latest")
    left = [one.config["configurable"]["checkpoint_id"] for one in await chain.listed()]
    assert sorted(left) == sorted([seed, first, second, head, grandchild])
    assert await chain.history(head, "log") == {"log": before["log"]}
    assert before["log"]["seed"] == _DeltaSnapshot([0, 1])
    assert await chain.saver.aget_tuple(_config(chain.thread_id)) == tuple_before
    await chain.saver.aprune([chain.thread_id], strategy="keep_latest")
    assert len(await chain.listed()) == 5, "a second one finds nothing"


@pytest.mark.rule("R19", "R20")
async def test_what_was_pruned_does_not_come_back_and_the_thread_goes_on(chain: Chain) -> None:
    gone = chain.put(None, {"a": ["x"]})
    head = chain.put(gone, {"a": ["y"]})
    await chain.commit()
    await chain.saver.aprune([chain.thread_id])
    assert [one.checkpoint["channel_values"] for one in await chain.listed()] == [{"a": ["y"]}]
    with pytest.raises(errors.CheckpointDeleted):
        await chain.saver.aput_writes(_config(chain.thread_id, gone), [("a", 1)], "task")
    await chain.saver.aput_writes(_config(chain.thread_id, head), [("a", 1)], "task")
    chain.put(head, {"a": ["z"]})
    await chain.commit()
    assert len(await chain.listed()) == 2
    await chain.saver.aprune([chain.thread_id], strategy="delete")
    assert await chain.listed() == []
    with pytest.raises(ValueError, match="strategy"):
        await chain.saver.aprune([chain.thread_id], strategy="other")
    with pytest.raises(TypeError):
        await chain.saver.aprune(chain.thread_id)


@pytest.mark.rule("R20", "X2")
async def test_deletes_by_run_stay_inside_the_scope_and_leave_what_others_share(
    chain: Chain, shared_suite: Suite
) -> None:
    async with AsyncClient(shared_suite.addresses, scope={"test": uuid.uuid4().hex}) as other:
        theirs = Chain(other, ThreadkeepSaver(other))
        for one in (chain, theirs):
            kept = one.put(None, {"a": ["kept"]}, [("a", 1)], run_id="run-1")
            one.put(kept, {"a": ["gone"]}, [("a", 2)], run_id="run-2")
            one.put(None, {"a": ["child"]}, run_id="run-2", ns="child")
            await one.commit()
        await chain.saver.adelete_for_runs(["run-2", "no such run", "') OR 1=1 --"])
        (left,) = await chain.listed()
        assert (left.checkpoint["channel_values"], left.pending_writes) == ({"a": ["kept"]}, [("task-0", "a", 1)])
        assert len(await theirs.listed()) == 3
        head = await chain.saver.aget_tuple(_config(chain.thread_id))
        assert head == left


@pytest.mark.rule("R20", "X2")
async def test_a_copy_is_whole_and_goes_into_an_empty_thread_of_the_same_scope(
    chain: Chain, shared_suite: Suite
) -> None:
    root = chain.put(None, {"a": ["x"], "log": _DeltaSnapshot([1])}, [("log", 2)])
    chain.put(root, {"a": ["y"]}, [("log", 3)], ns="")
    chain.put(None, {"a": {"n": b"\x00"}}, ns="child:1")
    await chain.commit()
    target = uuid.uuid4().hex
    await chain.saver.acopy_thread(chain.thread_id, target)

    def plain(listed: list[Any]) -> list[Any]:
        return [
            (one.checkpoint, one.metadata, one.pending_writes, one.config["configurable"]["checkpoint_ns"])
            for one in listed
        ]

    assert plain(await chain.listed(target)) == plain(await chain.listed())
    source_history = await chain.history(None, "log")
    copied = await chain.saver.aget_delta_channel_history(config=_config(target), channels=["log"])
    assert copied == source_history
    await chain.saver.adelete_thread(chain.thread_id)
    assert len(await chain.listed(target)) == 3, "the copy is its own"
    chain.thread_id = target
    chain.put(root, {"a": ["z"]})
    await chain.commit()
    second = target + "2"
    await chain.saver.acopy_thread(target, second)
    with pytest.raises(errors.IdTaken):
        await chain.saver.acopy_thread(second, target)
    async with AsyncClient(shared_suite.addresses, scope={"test": uuid.uuid4().hex}) as other:
        theirs = Chain(other, ThreadkeepSaver(other))
        await theirs.saver.acopy_thread(target, theirs.thread_id)
        assert await theirs.listed() == []


@pytest.mark.rule("R3")
async def test_a_leased_run_keeps_prunes_and_copies_away(shared_suite: Suite) -> None:
    world = World(shared_suite)
    held = await world.lease()
    session_id = held.run.session_id
    pb = checkpoint_service_pb2
    put = checkpoint_pb2.CheckpointPut(
        checkpoint_id=str(uuid6()), checkpoint_json=b'{"channel_values":{}}', metadata_json=b'{"run_id":"r"}'
    )
    await world.commit(session_id=session_id, lease=held.lease, checkpoint_ops=[checkpoint_pb2.CheckpointOp(put=put)])
    prune = pb.PruneThreadRequest(request_id=fresh_id(), session_id=session_id, strategy=pb.PRUNE_STRATEGY_KEEP_LATEST)
    later = checkpoint_pb2.CheckpointPut()
    later.CopyFrom(put)
    later.checkpoint_id = str(uuid6())
    await world.commit(session_id=session_id, lease=held.lease, checkpoint_ops=[checkpoint_pb2.CheckpointOp(put=later)])
    calls: list[tuple[str, Any]] = [
        ("PruneThread", prune),
        ("DeleteForRuns", pb.DeleteForRunsRequest(request_id=fresh_id(), run_ids=["r"])),
        (
            "CopyThread",
            pb.CopyThreadRequest(
                request_id=fresh_id(), source_session_id=session_id, target_session_id=session_id + "x"
            ),
        ),
    ]
    for name, request in calls[:2]:
        details = await refused(world.call(f"CheckpointService.{name}", request))
        assert details.reason == "LEASE_REQUIRED", name
    await world.call("CheckpointService.CopyThread", calls[2][1])
    other = pb.CopyThreadRequest(
        request_id=fresh_id(), source_session_id=session_id + "x", target_session_id=session_id
    )
    assert (await refused(world.call("CheckpointService.CopyThread", other))).reason == "LEASE_REQUIRED"
    prune.request_id = fresh_id()
    prune.lease.CopyFrom(held.lease)
    assert (await world.call("CheckpointService.PruneThread", prune)).HasField("receipt")
