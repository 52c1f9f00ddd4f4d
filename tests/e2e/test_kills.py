"""The runtime dies by SIGKILL again and again, under 16 committers and a run at work.

What was acknowledged is there afterwards, once; what was not is settled by sending the same request again; the run
completes. A seed draws the moments; `KILL_SEED` in the environment repeats one.
"""

import asyncio
import itertools
import json
import operator
import os
import random
import time
from collections import Counter, deque
from collections.abc import AsyncIterator
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any, TypedDict

import pytest
from langgraph.graph import END, START, StateGraph

from tests.support.committers import (
    PATIENCE,
    Acknowledgement,
    Acknowledgements,
    Committer,
    Interruption,
    plain,
    request_of,
)
from tests.support.databases import Databases
from tests.support.descriptors import fresh_id
from tests.support.mortal import MortalSuite
from tests.support.processes import Processes
from tests.support.runtime import Runtime
from tests.support.waiting import eventually
from threadkeep import AsyncClient, RetryPolicy
from threadkeep.config.v1 import entity_pb2
from threadkeep.runtime.v1 import task_pb2
from threadkeep.worker import ExecutionSettings, Worker

COMMITTERS = 16
KILLS = 10
FAILPOINTS = ("before_first_statement", "before_commit", "after_commit")
REPEATS = 10
"""How many kills may find nothing in flight before the test gives up."""


@dataclass(frozen=True)
class Moment:
    """When the runtime dies: at a failpoint, else so many acknowledgements and a part of a (short) round trip into its
    life."""

    acknowledgements: int
    part: float
    failpoint: str = ""

    def __str__(self) -> str:
        return self.failpoint or f"{self.part:.2f} of a round trip after acknowledgement {self.acknowledgements}"


def draw(chance: random.Random) -> list[Moment]:
    """Ten kills from outside and one at each failpoint, in an order of their own.

    The first is from outside, and so is the one that follows a death after COMMIT: committers are answered in between.
    """
    first, next_, *others = [Moment(chance.randrange(1, 150), chance.random()) for _ in range(KILLS)]
    at = {name: Moment(0, 0.0, f"{name}:{chance.randrange(5, 20)}") for name in FAILPOINTS}
    groups = [[at.pop("after_commit"), next_], *([one] for one in (*at.values(), *others))]
    chance.shuffle(groups)
    return [first, *itertools.chain.from_iterable(groups)]


@dataclass(frozen=True)
class Kill:
    """A death of the runtime."""

    moment: Moment
    life: int
    under_way: list[tuple[Committer, int | None]]
    """What each committer waited for when the signal was sent; means nothing at a failpoint."""

    @property
    def in_flight(self) -> list[Interruption]:
        """The commits that it interrupted, one of a committer at most; known once the runtime is back."""
        last = [
            [one for one in committer.interruptions if self._is_mine(one, number)][-1:]
            for committer, number in self.under_way
        ]
        return list(itertools.chain.from_iterable(last))

    def _is_mine(self, one: Interruption, number: int | None) -> bool:
        return one.life == self.life and (bool(self.moment.failpoint) or one.number == number)

    @property
    def committed(self) -> int:
        """How many of them had been committed; known once each is settled."""
        return sum(one.was_committed for one in self.in_flight)

    def __str__(self) -> str:
        return f"{self.moment}: {len(self.in_flight)} in flight, {self.committed} of them had been committed"


class Counted(TypedDict):
    """The steps that a run has made."""

    steps: Annotated[list[int], operator.add]


class Scene:
    """A suite that dies, the committers, and the run."""

    def __init__(self, suite: MortalSuite, folder: Path) -> None:
        self.suite = suite
        self.log = Acknowledgements(folder / "acknowledged")
        scope = {"test": fresh_id("kills")}
        self.runtime = Runtime(suite, **scope)
        self._steps = 0
        self.client = AsyncClient(suite.addresses, scope=scope, timeout=PATIENCE, retry=RetryPolicy(largest_delay=0.1))
        self.committers = [Committer(fresh_id("session"), self.runtime, suite, self.log) for _ in range(COMMITTERS)]
        # One lease lasts from the first kill to the last: what is tried here is the server's death, not the worker's.
        settings = ExecutionSettings(max_steps=1_000_000)
        self.worker = Worker(
            self.client.with_grant([scope]),
            graphs={"counts": self._graph},
            lease_ttl=600,
            poll_wait=2.0,
            settings=settings,
        )

    def _graph(self, build: Any) -> Any:
        """Steps on with every tenth acknowledgement, until the log ends."""

        async def step(state: Counted) -> Counted:
            self._steps += 1
            await self.log.reach(self.log.count + 10)
            return {"steps": [len(state["steps"])]}

        graph = StateGraph(Counted).add_node("step", step).add_edge(START, "step")
        return graph.add_conditional_edges("step", lambda state: END if self.log.has_ended else "step")

    async def kill(self, moment: Moment) -> Kill:
        """Waits until the runtime dies at that moment; for a failpoint it was started with it."""
        under_way, steps = [(one, one.under_way) for one in self.committers], self._steps
        if not moment.failpoint:
            # The run is at work again as well: it has seen a commit of its own acknowledged in this life.
            await eventually(lambda: self._steps > steps, PATIENCE)
            await self.log.reach(self.log.count + moment.acknowledgements)
            struck_at = time.perf_counter() + moment.part * min(one.round_trip for one in self.committers)
            while time.perf_counter() < struck_at:
                await asyncio.sleep(0)
            under_way = [(one, one.under_way) for one in self.committers]
            self.suite.strike()
        await self.suite.died()
        return Kill(moment, self.suite.life, under_way)

    async def close(self) -> None:
        """Ends what is open."""
        await self.client.close()
        self.log.close()


@pytest.fixture
async def scene(
    processes: Processes, databases: Databases, backend_and_topology: tuple[str, str], tmp_path: Path
) -> AsyncIterator[Scene]:
    """The suite, started; nobody is at work yet."""
    suite = MortalSuite(processes, databases, *backend_and_topology)
    await suite.start()
    made = Scene(suite, tmp_path)
    yield made
    await made.close()
    await suite.close()


async def _die_and_return(scene: Scene, moments: list[Moment]) -> list[Kill]:
    """Kills the runtime at each moment and starts it again. A kill that found no commit in flight does not count: it is
    done again after the others."""
    kills: list[Kill] = []
    plan = deque(moments)
    for _ in range(len(moments) + REPEATS):
        moment = plan.popleft()
        kill = await scene.kill(moment)
        await scene.suite.resume(plan[0].failpoint if plan else "")
        counts = bool(kill.in_flight)
        if moment.failpoint.startswith("after_commit"):
            # On PostgreSQL the batch may have been one of the run's alone, and theirs not yet at their COMMIT.
            await eventually(lambda kill=kill: all(one.is_settled for one in kill.in_flight), PATIENCE)
            counts = kill.committed > 0
        if counts:
            kills.append(kill)
        else:
            print(f"  {kill}: once more")
            plan.append(moment)
        if not plan:
            return kills
    raise AssertionError("too many kills found no commit in flight")


@pytest.mark.rule("R1", "R2", "R3", "X3", "X7")
@pytest.mark.suite(backends=["sqlite", "postgres"])
async def test_kills_of_the_runtime_lose_nothing_double_nothing_and_the_run_completes(scene: Scene) -> None:
    seed = int(os.environ.get("KILL_SEED") or random.randrange(1 << 32))
    chance = random.Random(seed)
    print(f"seed {seed}: {scene.suite.backend}, {scene.suite.topology}")
    await scene.client.config.put("counts", entity_pb2.Agent())
    task = (await scene.client.tasks.submit({"steps": []}, agent_name="counts")).task
    async with asyncio.TaskGroup() as group:
        working = group.create_task(scene.worker.run())
        committing = [group.create_task(one.run()) for one in scene.committers]
        await scene.log.reach(COMMITTERS)
        kills = await _die_and_return(scene, draw(chance))
        await scene.log.reach(scene.log.count + COMMITTERS)
        scene.log.end()
        await asyncio.gather(*committing)
        ended = await scene.client.tasks.wait(task.task_id, timeout=PATIENCE)
        scene.worker.stop()
        await working

    logged = scene.log.read()
    for kill in kills:
        print(f"  {kill}")
    print(f"  {scene.log.count} commits acknowledged")
    assert Counter(kill.moment.failpoint.partition(":")[0] for kill in kills) == {
        "": KILLS,
        **dict.fromkeys(FAILPOINTS, 1),
    }
    assert sum(len(rows) for rows in logged.values()) == scene.log.count
    await asyncio.gather(*(_verify(scene, one, logged[one.session_id], chance) for one in scene.committers))

    assert ended.state == task_pb2.TASK_STATE_COMPLETED, str(ended)
    steps = json.loads(ended.result.data)["steps"]
    assert steps == list(range(len(steps)))
    print(f"  the run completed after {len(steps)} steps")
    events = await scene.runtime.events(task.session_id)
    assert [e.sequence for e in events] == list(range(1, len(events) + 1))
    types = Counter(e.type.removeprefix("threadkeep.") for e in events)
    assert (types["run.ended"], types["task.completed"]) == (1, 1)
    # LangGraph's own two, with the input and before the first step, and one for each step.
    assert types["checkpoint.saved"] == len(steps) + 2


async def _verify(scene: Scene, one: Committer, rows: list[Acknowledgement], chance: random.Random) -> None:
    """The session holds exactly the acknowledged commits, each once, in order; and their receipts say so again."""
    interrupted = {each.number for each in one.interruptions}
    for row in [*chance.sample(rows, 3), *(row for row in rows if row.number in interrupted)]:
        again = await scene.runtime.call("ThreadService.Commit", request_of(row.session_id, row.number))
        assert again.receipt.replay
        assert plain(again) == row.response
    # The replays have left nothing behind either.
    events = await scene.runtime.events(one.session_id)
    names = [row.event_id for row in rows]
    assert [e.sequence for e in events] == list(range(1, len(events) + 1))
    assert events[0].type == "threadkeep.session.created"
    assert [e.event_id for e in events[1::2]] == names
    assert [e.payload.data.decode() for e in events[1:]] == [name for name in names for _ in range(2)]
    assert [e.commit_sequence for e in events[1:]] == [number for number in range(2, len(names) + 2) for _ in range(2)]
    assert (await scene.runtime.session(one.session_id)).thread_version == len(names) + 1
