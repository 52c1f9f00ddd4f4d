"""The saver that is bound to a leased run has every capability too; what it changes, it changes under the lease."""

import asyncio
import operator
from collections.abc import AsyncIterator
from typing import Annotated, Any, TypedDict

import pytest
from langgraph.checkpoint.base import BaseCheckpointSaver, empty_checkpoint
from langgraph.checkpoint.conformance.capabilities import ALL_CAPABILITIES, DetectedCapabilities
from langgraph.checkpoint.memory import InMemorySaver
from langgraph.graph import START, StateGraph
from langgraph.types import Command, interrupt

from tests.support.examples.world import World
from tests.support.graph_traces import Run
from tests.support.suite import Suite
from threadkeep import AsyncClient, errors
from threadkeep.langgraph import ThreadkeepSaver
from threadkeep.langgraph.commit_queue import CommitQueue
from threadkeep.langgraph.io_loop import IoLoop
from threadkeep.langgraph.run_saver import RunSaver
from threadkeep.runtime.v1 import commit_pb2

pytestmark = [pytest.mark.rule("R3", "R20"), pytest.mark.suite(backends=["sqlite", "postgres"], topologies=["split"])]


class Held:
    """A run leased by hand, its saver, and a plain saver beside it."""

    def __init__(self, client: AsyncClient, session_id: str, lease: commit_pb2.Lease, io: IoLoop) -> None:
        self.client, self.session_id, self.lease = client, session_id, lease
        self.sync = client.to_sync()
        self.saver = RunSaver(CommitQueue(client, session_id, lease, io), client, self.sync)
        self.plain = ThreadkeepSaver(client)

    def config(self, thread_id: str | None = None) -> Any:
        """The config of the run's thread, or of another."""
        return {"configurable": {"thread_id": thread_id or self.session_id, "checkpoint_ns": ""}}

    async def put(self, saver: Any, parent: Any, run_id: str, **values: Any) -> Any:
        """A checkpoint whose channels all are new."""
        checkpoint: Any = {**empty_checkpoint(), "channel_values": values}
        versions: Any = dict.fromkeys(values, checkpoint["id"])
        checkpoint["channel_versions"] = versions
        return await saver.aput(parent, checkpoint, {"run_id": run_id}, versions)

    async def ids(self) -> list[str]:
        """The thread's checkpoint ids, newest first."""
        return [one.config["configurable"]["checkpoint_id"] async for one in self.plain.alist(self.config())]


@pytest.fixture
async def held(shared_suite: Suite) -> AsyncIterator[Held]:
    """A leased run."""
    world = World(shared_suite)
    acquired = await world.lease()
    io = IoLoop()
    async with AsyncClient(shared_suite.addresses, scope=world.values) as client:
        made = Held(client, acquired.run.session_id, acquired.lease, io)
        yield made
        made.sync.close()
    await asyncio.to_thread(io.close)


def test_it_has_every_capability() -> None:
    assert DetectedCapabilities.from_instance(object.__new__(RunSaver)).detected == ALL_CAPABILITIES
    for name in ("aget_delta_channel_history", "get_delta_channel_history", "prune", "copy_thread", "delete_for_runs"):
        assert getattr(RunSaver, name) is not getattr(BaseCheckpointSaver, name)


@pytest.mark.parametrize("mode", ["sync", "async"])
async def test_it_prunes_copies_and_deletes_under_the_lease(held: Held, mode: str) -> None:
    async def do(name: str, *arguments: Any) -> None:
        if mode == "sync":
            await asyncio.to_thread(getattr(held.saver, name), *arguments)
        else:
            await getattr(held.saver, "a" + name)(*arguments)

    first = await held.put(held.saver, held.config(), "old", a=["x"])
    second = await held.put(held.saver, first, "new", a=["y"])
    third = await held.put(held.saver, second, "new", a=["z"])
    # What only the lease may do.
    for refused in (held.plain.aprune([held.session_id]), held.plain.adelete_for_runs(["old"])):
        with pytest.raises(errors.LeaseRequired):
            await refused
    await do("delete_for_runs", ["old"])
    assert await held.ids() == [one["configurable"]["checkpoint_id"] for one in (third, second)]
    await held.put(held.plain, held.config("other"), "old", a=["w"])
    await do("delete_for_runs", ["old"])
    assert await held.plain.aget_tuple(held.config("other")) is None
    await do("prune", [held.session_id])
    assert await held.ids() == [third["configurable"]["checkpoint_id"]]
    await held.put(held.plain, held.config("source"), "source", a=["copied"])
    with pytest.raises(errors.IdTaken):
        await do("copy_thread", "source", held.session_id)
    await do("delete_thread", held.session_id)
    await do("copy_thread", "source", held.session_id)
    copied = await held.saver.aget_tuple(held.config())
    assert copied is not None
    assert copied.checkpoint["channel_values"] == {"a": ["copied"]}
    for other in (("prune", ["source"]), ("copy_thread", held.session_id, "source"), ("delete_thread", "source")):
        with pytest.raises(ValueError, match="bound to the run"):
            await do(*other)


async def test_a_zombie_prunes_and_deletes_nothing(held: Held) -> None:
    first = await held.put(held.saver, held.config(), "old", a=["x"])
    await held.put(held.saver, first, "new", a=["y"])
    await held.client.worker.release(held.lease)
    for name, argument in (("aprune", [held.session_id]), ("adelete_for_runs", ["old"])):
        with pytest.raises(errors.LeaseLost):
            await getattr(held.saver, name)(argument)
    assert len(await held.ids()) == 2


async def test_a_delta_history_holds_what_is_still_queued(held: Held) -> None:
    first = await held.put(held.saver, held.config(), "r", log=["seed"])
    held.saver.durability = "exit"
    await held.saver.aput_writes(first, [("log", "one")], "task")
    checkpoint: Any = {**empty_checkpoint(), "channel_values": {}, "channel_versions": {}}
    second = await held.saver.aput(first, checkpoint, {}, {})
    found = await held.saver.aget_delta_channel_history(config=second, channels=["log"])
    assert found == {"log": {"writes": [("task", "log", "one")], "seed": ["seed"]}}
    walked = await BaseCheckpointSaver.aget_delta_channel_history(held.saver, config=second, channels=["log"])
    assert found == walked


class _Log(TypedDict):
    log: Annotated[list[Any], operator.add]


@pytest.mark.parametrize("durability", ["sync", "async", "exit"])
@pytest.mark.parametrize("mode", ["sync", "async"])
async def test_a_graph_over_it_does_what_it_does_over_the_memory_saver(held: Held, mode: str, durability: Any) -> None:
    def asks(state: Any) -> Any:
        return {"log": [interrupt("first"), interrupt("second")]}

    async def trace(saver: Any) -> list[Any]:
        builder = StateGraph(_Log).add_node("a", lambda _: {"log": ["a"]}).add_node("asks", asks)
        builder.add_edge(START, "a").add_edge(START, "asks")
        run = Run(builder, saver, mode)
        run.config = held.config  # type: ignore[method-assign, assignment]
        await run.invoke({"log": ["in"]}, durability=durability)
        await run.state()
        await run.invoke(Command(resume=1), durability=durability)
        await run.invoke(Command(resume=2), durability=durability)
        await run.invoke({"log": ["again"]}, durability=durability)
        await run.history()
        return run.shared()

    held.saver.durability = durability
    assert await trace(held.saver) == await trace(InMemorySaver())
