"""What LangGraph users would compare with: AsyncPostgresSaver in process (baseline L), on a database of its own."""

from __future__ import annotations

import asyncio
import itertools
import operator
import statistics
import time
from collections.abc import Awaitable, Callable
from typing import Annotated, Any, Literal, TypedDict

from langgraph.checkpoint.base import empty_checkpoint
from langgraph.checkpoint.base.id import uuid6
from langgraph.checkpoint.postgres.aio import AsyncPostgresSaver
from langgraph.graph import END, START, StateGraph
from psycopg.rows import dict_row
from psycopg_pool import AsyncConnectionPool

from tests.benchmarks.harness import Case, rate
from tests.support.examples.world import World
from threadkeep import AsyncClient
from threadkeep.langgraph import ThreadkeepSaver
from threadkeep.langgraph.commit_queue import CommitQueue
from threadkeep.langgraph.io_loop import IoLoop
from threadkeep.langgraph.run_saver import RunSaver

SUPERSTEPS = 20
POOL = 16


class State(TypedDict):
    """What the graph counts and says."""

    count: int
    log: Annotated[list[str], operator.add]


def twenty_supersteps() -> StateGraph[Any]:
    """A loop of one node; every step changes a number and adds a line to a list of at most twenty."""
    builder = StateGraph(State).add_node("step", lambda state: {"count": state["count"] + 1, "log": ["x" * 40]})
    builder.add_edge(START, "step")
    return builder.add_conditional_edges("step", lambda state: "step" if state["count"] < SUPERSTEPS else END)


class Stock:
    """AsyncPostgresSaver as its manual has it, over a pool."""

    def __init__(self, url: str) -> None:
        options: dict[str, Any] = {"autocommit": True, "prepare_threshold": 0, "row_factory": dict_row}
        self.pool: Any = AsyncConnectionPool(url, min_size=POOL, max_size=POOL, open=False, kwargs=options)

    async def open(self) -> AsyncPostgresSaver:
        """Makes its tables."""
        await self.pool.open(wait=True)
        saver = AsyncPostgresSaver(self.pool)
        await saver.setup()
        return saver

    async def close(self) -> None:
        """Gives the connections back."""
        await self.pool.close()


class _Graph(Case):
    """Runs of a graph of twenty supersteps, each on a thread of its own."""

    callers: int
    durability: Literal["sync", "async"]

    async def prepare(self) -> None:
        """Leases a run for each caller, and opens the baseline's pool."""
        self.stock = Stock(await self.stage.empty_database())
        stock = await self.stock.open()
        self.io = IoLoop()
        world = World(self.stage)
        self.client = AsyncClient(self.stage.address, scope=world.values)
        self.sync = self.client.to_sync()
        self.ours: list[Callable[[], Awaitable[Any]]] = []
        for _ in range(self.callers):
            held = await world.lease()
            queue = CommitQueue(self.client, held.run.session_id, held.lease, self.io)
            saver = RunSaver(queue, self.client, self.sync, durability=self.durability)
            self.ours.append(self._run(saver, lambda session_id=held.run.session_id: session_id))
        numbers = itertools.count()
        self.theirs = [self._run(stock, lambda: f"thread-{next(numbers)}") for _ in range(self.callers)]

    def _run(self, saver: Any, thread_id: Callable[[], str]) -> Callable[[], Awaitable[Any]]:
        graph = twenty_supersteps().compile(checkpointer=saver)

        async def run() -> None:
            config: Any = {"configurable": {"thread_id": thread_id()}, "recursion_limit": SUPERSTEPS + 5}
            await graph.ainvoke({"count": 0, "log": []}, config, durability=self.durability)

        return run

    async def clean_up(self) -> None:
        """Ends both sides."""
        await asyncio.to_thread(self.io.close)
        self.sync.close()
        await self.client.close()
        await self.stock.close()


class _Runs(_Graph):
    callers = 16
    unit = "runs/s"
    at_least = True

    async def product(self) -> float:
        """Runs over the saver that a worker binds to its run."""
        return await rate(max(self.scale.seconds, 2.0), self.ours)

    async def baseline(self) -> float:
        """L."""
        return await rate(max(self.scale.seconds, 2.0), self.theirs)


class _RunTime(_Graph):
    callers = 1
    unit = "s"
    at_least = False

    async def product(self) -> float:
        """One run after the other over the saver that a worker binds to its run."""
        return await _median(self.ours[0])

    async def baseline(self) -> float:
        """L."""
        return await _median(self.theirs[0])


async def _median(run: Callable[[], Awaitable[Any]], count: int = 15) -> float:
    times = []
    for _ in range(count):
        started = time.perf_counter()
        await run()
        times.append(time.perf_counter() - started)
    return statistics.median(times)


class GraphSync16(_Runs):
    """Many threads, each checkpoint durable before the next step."""

    name = "graph.sync.16"
    what = "graph of 20 supersteps, durability sync, 16 threads, against AsyncPostgresSaver in process"
    durability = "sync"
    target = 1.1


class GraphSync1(_RunTime):
    """One thread."""

    name = "graph.sync.1"
    what = "median run of the same at one thread, against the same saver"
    durability = "sync"
    target = 1.8


class GraphAsync16(_Runs):
    """Many threads, checkpoints behind the steps."""

    name = "graph.async.16"
    what = "graph of 20 supersteps, durability async, 16 threads, against AsyncPostgresSaver in process"
    durability = "async"
    target = 1.8


class GraphAsync1(_RunTime):
    """One thread."""

    name = "graph.async.1"
    what = "median run of the same at one thread, against the same saver"
    durability = "async"
    target = 0.8


class ListLarge(Case):
    """Reading back."""

    name = "checkpoints.list"
    what = "lists of 10 checkpoints of 100 KB, decoded, 16 callers, against AsyncPostgresSaver in process"
    unit = "lists/s"
    target = 1.2
    at_least = True

    async def prepare(self) -> None:
        """The same ten checkpoints on both sides, a thread for each caller."""
        self.stock = Stock(await self.stage.empty_database())
        self.client = AsyncClient(self.stage.address, scope=World(self.stage).values)
        self.sides = (ThreadkeepSaver(self.client), await self.stock.open())
        for saver in self.sides:
            for thread in range(16):
                config: Any = {"configurable": {"thread_id": f"thread-{thread}", "checkpoint_ns": ""}}
                for step in range(10):
                    made: Any = {**empty_checkpoint(), "id": str(uuid6(clock_seq=step))}
                    made["channel_values"] = {"messages": [f"{step:4}" + "x" * 96 for _ in range(1000)]}
                    made["channel_versions"] = {"messages": f"{step + 1:032}.5"}
                    config = await saver.aput(config, made, {"step": step}, made["channel_versions"])

    async def product(self) -> float:
        """Lists."""
        return await self._rate(self.sides[0])

    async def baseline(self) -> float:
        """L."""
        return await self._rate(self.sides[1])

    async def _rate(self, saver: Any) -> float:
        async def read(thread: int) -> None:
            config: Any = {"configurable": {"thread_id": f"thread-{thread}"}}
            found = [one async for one in saver.alist(config)]
            assert len(found) == 10

        return await rate(self.scale.seconds, [lambda thread=thread: read(thread) for thread in range(16)])

    async def clean_up(self) -> None:
        """Ends both sides."""
        await self.client.close()
        await self.stock.close()
