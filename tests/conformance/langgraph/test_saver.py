"""The saver over gRPC beyond the public suite: exact values, both halves, lists, several event loops, slow clocks."""

import asyncio
import math
import sys
import textwrap
import uuid
from collections.abc import AsyncIterator, Sequence
from typing import Any, TypedDict

import pytest
from langgraph.checkpoint.base import BaseCheckpointSaver, empty_checkpoint
from langgraph.checkpoint.base import id as id_module
from langgraph.checkpoint.base.id import uuid6
from langgraph.checkpoint.conformance import checkpointer_test, validate
from langgraph.graph import START, StateGraph
from langgraph.types import Command, interrupt

from tests.support.suite import Suite
from threadkeep import AsyncClient, errors
from threadkeep.langgraph import ThreadkeepSaver


def _config(thread_id: str | None = None, **more: Any) -> Any:
    return {"configurable": {"thread_id": thread_id or uuid.uuid4().hex, "checkpoint_ns": "", **more}}


def _checkpoint(**values: Any) -> Any:
    return {**empty_checkpoint(), "channel_values": values, "channel_versions": dict.fromkeys(values, "1")}


async def _put(saver: ThreadkeepSaver, config: Any, metadata: Any = None, **values: Any) -> Any:
    checkpoint = _checkpoint(**values)
    return await saver.aput(config, checkpoint, metadata or {"step": 0}, checkpoint["channel_versions"])


class SyncHalf(BaseCheckpointSaver[str]):
    """A saver whose asyncio methods call the synchronous ones of another: the public suite calls only the former."""

    def __init__(self, saver: ThreadkeepSaver) -> None:
        super().__init__(serde=saver.serde)
        self._saver = saver

    async def aput(self, *args: Any) -> Any:
        return await asyncio.to_thread(self._saver.put, *args)

    async def aput_writes(self, config: Any, writes: Any, task_id: str, task_path: str = "") -> None:
        await asyncio.to_thread(self._saver.put_writes, config, writes, task_id, task_path)

    async def aget_tuple(self, config: Any) -> Any:
        return await asyncio.to_thread(self._saver.get_tuple, config)

    async def alist(self, config: Any, **filters: Any) -> AsyncIterator[Any]:
        for one in await asyncio.to_thread(lambda: [*self._saver.list(config, **filters)]):
            yield one

    async def adelete_thread(self, thread_id: str) -> None:
        await asyncio.to_thread(self._saver.delete_thread, thread_id)

    async def adelete_for_runs(self, run_ids: Sequence[str]) -> None:
        await asyncio.to_thread(self._saver.delete_for_runs, run_ids)

    async def acopy_thread(self, source_thread_id: str, target_thread_id: str) -> None:
        await asyncio.to_thread(self._saver.copy_thread, source_thread_id, target_thread_id)

    async def aprune(self, thread_ids: Sequence[str], *, strategy: str = "keep_latest") -> None:
        await asyncio.to_thread(lambda: self._saver.prune(thread_ids, strategy=strategy))


@pytest.mark.rule("R20")
async def test_the_synchronous_half_passes_the_public_suite_too(saver: ThreadkeepSaver) -> None:
    @checkpointer_test(name="ThreadkeepSaver, synchronous")
    async def sync_half() -> AsyncIterator[SyncHalf]:
        yield SyncHalf(saver)

    report = await validate(sync_half)
    assert {name: one.failures for name, one in report.results.items() if one.failures} == {}
    assert sum(one.tests_passed for one in report.results.values()) == 81


VALUES = [
    "a\x00b", math.inf, -math.inf, -0.0, 1e22, 2**70, -(2**63), 1.0, 0.1, "ünï\U0001f600", "x" * 100_000, b"\x00\xff",
    [None, {"a": [1, 2]}], [2**70, {"deep": [-(2**200)]}], {"k\x00": "v"}, None, True, "", "\\", "100%_",
]  # fmt: skip


@pytest.mark.rule("R20", "X8")
@pytest.mark.case("B01", "B02", "B09")
async def test_values_come_back_exactly_from_every_backend(saver: ThreadkeepSaver) -> None:
    values = {f"c{index}": value for index, value in enumerate(VALUES)}
    config = await _put(saver, _config(), **values, nan=math.nan)
    await saver.aput_writes(config, list(values.items()), "task", "~p")
    got = await saver.aget_tuple(config)
    assert got is not None
    assert math.isnan(got.checkpoint["channel_values"].pop("nan"))
    assert repr(got.checkpoint["channel_values"]) == repr({**got.checkpoint["channel_values"], **values})
    assert repr(got.pending_writes) == repr([("task", name, value) for name, value in values.items()])


@pytest.mark.rule("R20")
@pytest.mark.case("B02")
async def test_unchanged_values_are_found_under_their_version(saver: ThreadkeepSaver) -> None:
    first = _checkpoint(big="x" * 10_000, many=[1], small=1, none=None)
    config = await saver.aput(_config(), first, {"step": 0}, first["channel_versions"])
    second = {**_checkpoint(**first["channel_values"]), "channel_versions": {**first["channel_versions"], "many": "2"}}
    second["channel_values"]["many"] = [1, 2]
    config = await saver.aput(config, second, {"step": 1}, {"many": "2"})
    got = await saver.aget_tuple(config)
    assert got is not None
    assert got.checkpoint["channel_values"] == second["channel_values"]


@pytest.mark.rule("R20")
async def test_values_without_a_version_belong_to_their_checkpoint(saver: ThreadkeepSaver) -> None:
    thread_id, stored = uuid.uuid4().hex, []
    for number in range(2):
        checkpoint = {**_checkpoint(loose=[number], plain=number), "channel_versions": {}}
        stored.append(await saver.aput(_config(thread_id), checkpoint, {"step": number}, {}))
    for number, config in enumerate(stored):
        got = await saver.aget_tuple(config)
        assert got is not None
        assert got.checkpoint["channel_values"] == {"loose": [number], "plain": number}


@pytest.mark.rule("R20")
@pytest.mark.case("B16", "B19")
async def test_the_root_namespace_is_not_all_namespaces(saver: ThreadkeepSaver) -> None:
    thread_id = uuid.uuid4().hex
    for namespace in ("", "child:1"):
        await _put(saver, _config(thread_id, checkpoint_ns=namespace))

    async def count(config: Any, **filters: Any) -> int:
        return len([one async for one in saver.alist(config, **filters)])

    everywhere: Any = {"configurable": {"thread_id": thread_id}}
    assert await count(everywhere) == 2
    assert await count(_config(thread_id)) == 1
    assert await count(_config(thread_id, checkpoint_ns="child:1")) == 1
    assert await count(everywhere, limit=0) == 0
    assert await count(everywhere, limit=1) == 1
    with pytest.raises(errors.FieldInvalid, match="limit"):
        await count(everywhere, limit=-1)


@pytest.mark.rule("R20")
@pytest.mark.case("B04", "B17")
@pytest.mark.parametrize("nothing", [{"tenant": "\ud83d"}, {"tenant": math.nan}, {"nokey": 1}, {"a') OR 1=1 --": 1}])
async def test_a_filter_that_nothing_matches_is_empty(saver: ThreadkeepSaver, nothing: Any) -> None:
    config = _config()
    await _put(saver, config, {"tenant": "acme", "step": 1})
    assert len([one async for one in saver.alist(config, filter={"tenant": "acme"})]) == 1
    assert [one async for one in saver.alist(config, filter=nothing)] == []


@pytest.mark.rule("X2")
async def test_another_scopes_thread_does_not_exist(saver: ThreadkeepSaver, client: AsyncClient) -> None:
    config = await _put(saver, _config(), v=[1])
    other = ThreadkeepSaver(client.with_scope({"test": uuid.uuid4().hex}))
    assert await other.aget_tuple(config) is None
    assert [one async for one in other.alist(None)] == []
    await other.adelete_thread(config["configurable"]["thread_id"])
    assert await saver.aget_tuple(config) is not None
    assert len([one async for one in saver.alist(None)]) == 1


@pytest.mark.rule("R19")
async def test_a_deleted_checkpoint_does_not_come_back(saver: ThreadkeepSaver) -> None:
    checkpoint, config = _checkpoint(v=[1]), _config()
    stored = await saver.aput(config, checkpoint, {"step": 0}, {"v": "1"})
    await saver.adelete_thread(config["configurable"]["thread_id"])
    with pytest.raises(errors.CheckpointDeleted):
        await saver.aput(config, checkpoint, {"step": 0}, {"v": "1"})
    with pytest.raises(errors.CheckpointDeleted):
        await saver.aput_writes(stored, [("v", 1)], "task")
    assert await saver.aget_tuple(_config(config["configurable"]["thread_id"])) is None
    await _put(saver, config, v=[2])


class State(TypedDict):
    """The state of these tests' graphs."""

    log: list[Any]


def _ask(state: State) -> Any:
    return {"log": [*state["log"], interrupt({"q": 1}), interrupt({"q": 2})]}


def _graph(saver: BaseCheckpointSaver[Any]) -> Any:
    return StateGraph(State).add_node("ask", _ask).add_edge(START, "ask").compile(checkpointer=saver)


@pytest.mark.rule("R20", "R10")
@pytest.mark.case("B36", "B71")
async def test_a_graph_asks_and_goes_on(saver: ThreadkeepSaver) -> None:
    import threading

    graph = _graph(saver)
    config = _config(None, __lock=threading.Lock(), __bytes=b"x", __f=lambda: 1)
    del config["configurable"]["checkpoint_ns"]
    await graph.ainvoke({"log": []}, config)
    for answer in (None, {"id": None}):
        state = await graph.aget_state(config)
        output = await graph.ainvoke(Command(resume={state.interrupts[0].id: answer}), config)
    assert output == {"log": [None, {"id": None}]}
    history = [one async for one in graph.aget_state_history(config)]
    assert [one.metadata["step"] for one in history] == [1, 0, -1]
    assert not any(key.startswith("__") for one in history for key in one.metadata)


@pytest.mark.rule("R20")
async def test_a_slow_clock_loses_no_work(saver: ThreadkeepSaver, monkeypatch: pytest.MonkeyPatch) -> None:
    graph, config = _graph(saver), {"configurable": {"thread_id": uuid.uuid4().hex}}
    await graph.ainvoke({"log": []}, config)
    # Another machine, whose clock is a day behind, goes on with the thread.
    behind = id_module.time.time_ns() - 86_400 * 10**9
    monkeypatch.setattr(id_module, "_last_v6_timestamp", None)
    monkeypatch.setattr(id_module.time, "time_ns", lambda: behind)
    for answer in (1, 2):
        state = await graph.aget_state(config)
        output = await graph.ainvoke(Command(resume={state.interrupts[0].id: answer}), config)
    assert output == {"log": [1, 2]}
    assert (await graph.aget_state(config)).values == {"log": [1, 2]}
    # Also where all checkpoints were deleted, whose ids don't come back.
    monkeypatch.setattr(id_module, "_last_v6_timestamp", None)
    await saver.adelete_thread(config["configurable"]["thread_id"])
    await graph.ainvoke({"log": [3]}, config)
    assert (await graph.aget_state(config)).values == {"log": [3]}
    assert str(uuid6()) > (await graph.aget_state(config)).config["configurable"]["checkpoint_id"]


LOOPS = """
    import asyncio, sys, threading, uuid
    from typing import TypedDict
    from langgraph.graph import START, StateGraph
    from threadkeep import Client
    from threadkeep.langgraph import ThreadkeepSaver

    class State(TypedDict):
        n: int

    address = sys.argv[1]
    saver = ThreadkeepSaver(Client(address, scope={"test": uuid.uuid4().hex}))
    builder = StateGraph(State)
    for name, before in (("a", START), ("b", "a"), ("c", "b")):
        builder.add_node(name, lambda state: {"n": state["n"] + 1})
        builder.add_edge(before, name)
    graph = builder.compile(checkpointer=saver)
    done = []

    async def many():
        async def one(number):
            config = {"configurable": {"thread_id": uuid.uuid4().hex}}
            done.append((await graph.ainvoke({"n": number}, config))["n"] == number + 3)
            done.append((await graph.aget_state(config)).values["n"] == number + 3)
        await asyncio.gather(*[one(number) for number in range(8)])
        # The synchronous half blocks a running loop, and works.
        done.append(graph.invoke({"n": 5}, {"configurable": {"thread_id": uuid.uuid4().hex}})["n"] == 8)

    for _ in range(2):
        threads = [threading.Thread(target=lambda: asyncio.run(many())) for _ in range(2)]
        [thread.start() for thread in threads]
        [thread.join() for thread in threads]
    asyncio.run(many())
    assert len(done) == 85 and all(done), done
    print("ok")
"""


@pytest.mark.rule("R20")
@pytest.mark.case("B98")
@pytest.mark.suite(backends=["memory"], topologies=["embedded"])
async def test_several_event_loops_share_a_saver_quietly(shared_suite: Suite) -> None:
    arguments: Sequence[str] = ("-c", textwrap.dedent(LOOPS), shared_suite.addresses["runtime"])
    process = await asyncio.create_subprocess_exec(
        sys.executable, *arguments, stdout=asyncio.subprocess.PIPE, stderr=asyncio.subprocess.PIPE
    )
    out, err = await asyncio.wait_for(process.communicate(), 120)
    assert (out.decode().strip(), err.decode()) == ("ok", "")
    assert process.returncode == 0
