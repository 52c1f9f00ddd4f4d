"""What a spread over machines stands on: one commit writes one thread's rows, and a batch can keep to one partition."""

import pytest

from tests.store.runtime_pipeline.gate import behind_a_plug, connection
from tests.support.checkpoints import op, put
from tests.support.outbox import inbox, to_session
from tests.support.runtime import SUCCEEDED, Runtime, awaiting, event
from tests.support.suite import Suite
from tests.support.waiting import eventually
from threadkeep.runtime.v1 import ticket_pb2
from threadkeep_runtime.tables import metadata

ONE = {"services": ["config", "runtime"], "topologies": ["embedded"]}


@pytest.mark.rule("R1", "R14")
@pytest.mark.suite(backends=["postgres"], settings={"runtime": {"pipeline_corridors": 8}}, **ONE)
async def test_with_a_corridor_per_partition_no_batch_spans_two(suite: Suite) -> None:
    runtime = Runtime(suite)
    plug, *names = [(await runtime.create()).session_id for _ in range(33)]
    await behind_a_plug(
        suite, runtime, plug, lambda: [runtime.commit(name, events=[event("spread")]) for name in names]
    )
    async with connection(suite) as probe:
        rows = await probe.fetch(
            'SELECT xmin::text, count(*) AS events, count(DISTINCT "partition") AS partitions FROM events GROUP BY 1'
        )
    assert max(row["events"] for row in rows) > 1, "there were batches"
    assert {row["partitions"] for row in rows} == {1}


async def arrived(runtime: Runtime, target: str, count: int) -> bool:
    return len(await inbox(runtime, target)) == count


@pytest.mark.rule("R1")
@pytest.mark.suite(backends=["postgres"], **ONE)
async def test_a_commit_writes_the_rows_of_one_thread(suite: Suite) -> None:
    """One at a time, so that no batch holds two. What is addressed to another session lies with its sender."""
    runtime = Runtime(suite)
    target = (await runtime.create()).session_id
    for number in (1, 2):
        task = await runtime.submit()
        held = await runtime.acquire(task.queue)
        assert held is not None
        sent = [to_session(target, "hello")]
        await runtime.work(held, events=[event()], checkpoint_ops=[op(put(1))], outbox=sent)
        await eventually(lambda number=number: arrived(runtime, target, number))  # type: ignore[misc]
        await runtime.work(held, awaiting=awaiting(ticket_pb2.TicketDraft(kind=ticket_pb2.TICKET_KIND_INPUT)))
        await runtime.resolve((await runtime.task(task.task_id)).open_ticket_ids[0])
        again = await runtime.acquire(task.queue)
        assert again is not None
        await runtime.work(again, ended=SUCCEEDED)
    keys = {
        table.name: next(name for name in ("thread_key", "thread_id") if name in table.c)
        for table in metadata.sorted_tables
        if {"thread_key", "thread_id"} & set(table.primary_key.columns.keys())
    }
    rows = " UNION ALL ".join(f"SELECT xmin::text AS writer, {key} AS thread FROM {name}" for name, key in keys.items())
    async with connection(suite) as probe:
        writers = await probe.fetch(
            f"SELECT writer, count(*) AS rows, count(DISTINCT thread) AS threads FROM ({rows}) AS all_rows GROUP BY 1"
        )
    assert {row["threads"] for row in writers} == {1}
    assert max(row["rows"] for row in writers) > 5
