"""Holds the log's counters, so that commits gather behind a batch that can't end; and counts what the database did."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import aiosqlite
import asyncpg

from tests.support.descriptors import fresh_id
from tests.support.runtime import Runtime, event
from tests.support.suite import Suite
from tests.support.waiting import eventually
from threadkeep_chassis.scope import Scope
from threadkeep_runtime.domain.values import partition_of, thread_key_of

OPEN, COMMIT = "threadkeep_rpcs_open", "/threadkeep.runtime.v1.ThreadService/Commit"
PARTITIONS = {"memory": 1, "sqlite": 1, "postgres": 8}


@asynccontextmanager
async def connection(suite: Suite) -> AsyncIterator[Any]:
    """A bare driver connection to the runtime's database."""
    url = suite.urls["runtime"]
    if suite.backend == "postgres":
        opened = await asyncpg.connect(url, server_settings={"search_path": "runtime"})
        try:
            yield opened
        finally:
            await opened.close()
    else:
        async with aiosqlite.connect(url.removeprefix("sqlite:///"), isolation_level=None, timeout=20) as lite:
            yield lite


@asynccontextmanager
async def closed_gate(suite: Suite) -> AsyncIterator[None]:
    """While the block runs, no commit ends: the counters of all partitions are locked."""
    async with connection(suite) as held:
        if suite.backend == "postgres":
            async with held.transaction():
                await held.execute("SELECT * FROM log_partitions FOR UPDATE")
                yield
        else:
            await held.execute("BEGIN IMMEDIATE")
            try:
                yield
            finally:
                await held.execute("ROLLBACK")


async def sessions_of_one_partition(runtime: Runtime, suite: Suite, count: int) -> list[str]:
    """New sessions whose events lie in partition 0."""
    key = Scope(runtime.world.values).key
    names: list[str] = []
    while len(names) < count:
        name = fresh_id("session")
        if partition_of(thread_key_of(key, name), PARTITIONS[suite.backend]) == 0:
            names.append(name)
    await asyncio.gather(*(runtime.create(name) for name in names))
    return names


async def behind_a_plug(suite: Suite, runtime: Runtime, plug: str, commits: Any) -> list[Any]:
    """Starts `commits` (a function that gives awaitables) while a first batch can't end; gives all outcomes.

    So they are one batch, as far as the bounds of a batch allow.
    """
    before = sample(suite, "threadkeep_pipeline_batches_started_total")
    async with closed_gate(suite):
        first = asyncio.create_task(runtime.commit(plug, events=[event("plug")]))
        await eventually(lambda: sample(suite, OPEN, method=COMMIT) == 1)
        # The plug is taken for a batch of its own before the others come.
        await eventually(lambda: sample(suite, "threadkeep_pipeline_batches_started_total") > before)
        tasks = [asyncio.ensure_future(one) for one in commits()]
        await eventually(lambda: sample(suite, OPEN, method=COMMIT) == len(tasks) + 1)
    await first
    return list(await asyncio.gather(*tasks, return_exceptions=True))


def sample(suite: Suite, name: str, **labels: str) -> float:
    """A metric of the suite's first server, summed over the labels that are not given."""
    total = 0.0
    for metric in suite._hosts[0].registry.collect():
        for one in metric.samples:
            if one.name == name and all(one.labels.get(key) == value for key, value in labels.items()):
                total += one.value
    return total
