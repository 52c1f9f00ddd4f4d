"""The commit pipeline: many commits in one transaction, and nobody fails for a neighbour (R1, R2)."""

import asyncio
import random

import grpc
import pytest

from tests.store.runtime_pipeline.gate import behind_a_plug, closed_gate, connection, sample, sessions_of_one_partition
from tests.support.calls import error_details, refused
from tests.support.checkpoints import op, put
from tests.support.runtime import SUCCEEDED, Runtime, commit, event
from tests.support.suite import Suite
from threadkeep.runtime.v1 import thread_service_pb2

ONE = {"services": ["config", "runtime"], "topologies": ["embedded"]}


@pytest.mark.rule("R1", "R22")
@pytest.mark.suite(backends=["sqlite", "postgres"], **ONE)
async def test_64_concurrent_commits_of_64_threads_need_at_most_16_transactions(suite: Suite) -> None:
    """On PostgreSQL the rows name the transaction that wrote them; the pipeline's own count is asked on both."""
    runtime = Runtime(suite)
    plug, *names = await sessions_of_one_partition(runtime, suite, 65)
    before = sample(suite, "threadkeep_pipeline_batch_commits_count")
    outcomes = await behind_a_plug(
        suite,
        runtime,
        plug,
        lambda: [runtime.commit(name, events=[event("counted"), event("counted"), event("counted")]) for name in names],
    )
    assert all(isinstance(one, thread_service_pb2.CommitResponse) for one in outcomes)
    # The plug's own batch is one more.
    assert 2 <= sample(suite, "threadkeep_pipeline_batch_commits_count") - before <= 17
    if suite.backend == "postgres":
        async with connection(suite) as probe:
            rows = await probe.fetch(
                "SELECT xmin::text AS writer, count(*) FROM events WHERE type = 'counted' GROUP BY 1"
            )
        assert len(rows) <= 16
        assert sum(row["count"] for row in rows) == 192
    for name in names:
        assert (await runtime.session(name)).latest_event_sequence == 4


@pytest.mark.rule("R1")
@pytest.mark.suite(backends=["sqlite", "postgres"], **ONE)
async def test_a_refused_commit_does_not_fail_its_neighbours(suite: Suite) -> None:
    runtime = Runtime(suite)
    plug, leased, *names = await sessions_of_one_partition(runtime, suite, 10)
    held = await runtime.lease(session_id=leased)
    await runtime.work(held, ended=SUCCEEDED)
    outcomes = await behind_a_plug(
        suite,
        runtime,
        plug,
        lambda: [
            *(runtime.commit(name, events=[event()]) for name in names[:4]),
            runtime.work(held, events=[event()]),
            runtime.commit(names[4], events=[event()], expected_thread_version=99),
            *(runtime.commit(name, events=[event()]) for name in names[5:]),
        ],
    )
    reasons = [error_details(one).reason if isinstance(one, grpc.RpcError) else "" for one in outcomes]
    assert reasons == ["", "", "", "", "LEASE_LOST", "THREAD_VERSION_CONFLICT", "", "", ""]
    assert (await runtime.session(names[4])).thread_version == 1
    assert sample(suite, "threadkeep_pipeline_batches_replayed_alone_total") == 0


POISON = {
    "sqlite": "CREATE TRIGGER poison BEFORE INSERT ON events WHEN NEW.type = 'poison' "
    "BEGIN SELECT RAISE(ABORT, 'poisoned'); END",
    "postgres": """
        CREATE FUNCTION poison() RETURNS trigger LANGUAGE plpgsql AS $$
        BEGIN
            IF NEW.type = 'poison' THEN RAISE EXCEPTION 'poisoned' USING ERRCODE = '22023'; END IF;
            RETURN NEW;
        END $$;
        CREATE TRIGGER poison BEFORE INSERT ON events FOR EACH ROW EXECUTE FUNCTION poison();
    """,
}


@pytest.mark.rule("R1")
@pytest.mark.suite(backends=["sqlite", "postgres"], **ONE)
async def test_what_the_database_refuses_fails_alone(suite: Suite) -> None:
    """The database itself refuses one commit of a batch: it rolls back, and each is tried alone."""
    runtime = Runtime(suite)
    plug, *names = await sessions_of_one_partition(runtime, suite, 9)
    async with connection(suite) as owner:
        await owner.execute(POISON[suite.backend])
    types = ["order.placed"] * 3 + ["poison"] + ["order.placed"] * 4
    outcomes = await behind_a_plug(
        suite,
        runtime,
        plug,
        lambda: [
            runtime.commit(name, events=[event(), event(type_)]) for name, type_ in zip(names, types, strict=True)
        ],
    )
    assert [isinstance(one, thread_service_pb2.CommitResponse) for one in outcomes] == [
        type_ != "poison" for type_ in types
    ]
    assert sample(suite, "threadkeep_pipeline_batches_replayed_alone_total") == 1
    poisoned = names[types.index("poison")]
    assert (await runtime.session(poisoned)).latest_event_sequence == 1
    await runtime.commit(poisoned, events=[event()])
    for name in (name for name in names if name != poisoned):
        assert [one.sequence for one in await runtime.events(name)] == [1, 2, 3]


@pytest.mark.rule("X9")
@pytest.mark.suite(backends=["postgres"], **ONE)
async def test_a_key_that_no_index_takes_is_the_callers_fault(suite: Suite) -> None:
    runtime = Runtime(suite)
    session = await runtime.create()
    # Incompressible, four bytes per character: an entry of 16 KiB.
    numbers = random.Random(1)
    name = "".join(chr(numbers.randrange(0x20000, 0x2A000)) for _ in range(4096))
    details = await refused(runtime.commit(session.session_id, checkpoint_ops=[op(put(1, ns=name))]))
    assert (details.code, details.reason) == (grpc.StatusCode.INVALID_ARGUMENT, "FIELD_INVALID")
    assert (await runtime.session(session.session_id)).thread_version == 1


@pytest.mark.rule("R2")
@pytest.mark.suite(backends=["sqlite", "postgres"], **ONE)
async def test_commits_of_one_thread_in_one_batch_follow_each_other(suite: Suite) -> None:
    runtime = Runtime(suite)
    plug, name = await sessions_of_one_partition(runtime, suite, 2)
    outcomes = await behind_a_plug(
        suite, runtime, plug, lambda: [runtime.commit(name, events=[event(f"n{number}")]) for number in range(6)]
    )
    assert sorted(one.receipt.commit_sequence for one in outcomes) == list(range(2, 8))
    assert [one.sequence for one in await runtime.events(name)] == list(range(1, 8))


@pytest.mark.rule("X3")
@pytest.mark.suite(backends=["sqlite", "postgres"], **ONE)
async def test_a_request_twice_in_one_batch_is_one_effect(suite: Suite) -> None:
    """Even when the copies are about different threads: the second is told that the id was used."""
    runtime = Runtime(suite)
    plug, first, second = await sessions_of_one_partition(runtime, suite, 3)
    same = commit(first, events=[event()])
    other = commit(second, events=[event()], request_id=same.request_id)
    outcomes = await behind_a_plug(
        suite,
        runtime,
        plug,
        lambda: [
            runtime.call("ThreadService.Commit", same),
            runtime.call("ThreadService.Commit", same),
            runtime.call("ThreadService.Commit", other),
        ],
    )
    won = [one for one in outcomes if not isinstance(one, BaseException)]
    lost = [error_details(one).reason for one in outcomes if isinstance(one, grpc.RpcError)]
    versions = [(await runtime.session(name)).thread_version for name in (first, second)]
    if versions == [2, 1]:
        assert (sorted(one.receipt.replay for one in won), lost) == ([False, True], ["REQUEST_ID_REUSED"])
    else:
        assert (versions, len(won), lost) == ([1, 2], 1, ["REQUEST_ID_REUSED"] * 2)


@pytest.mark.rule("R1", "X7")
@pytest.mark.suite(backends=["sqlite", "postgres"], **ONE)
async def test_a_caller_that_gives_up_harms_nobody_and_can_ask_again(suite: Suite) -> None:
    runtime = Runtime(suite)
    plug, hasty, patient = await sessions_of_one_partition(runtime, suite, 3)
    request = commit(hasty, events=[event()])
    bind = runtime.world.bind("ThreadService.Commit")

    async def give_up() -> str:
        try:
            await bind(request, metadata=runtime.metadata, timeout=0.05)
        except grpc.RpcError as error:
            return error.code().name
        return "OK"

    async with closed_gate(suite):
        first = asyncio.create_task(runtime.commit(plug, events=[event()]))
        waiting = asyncio.create_task(runtime.commit(patient, events=[event()]))
        assert await give_up() == "DEADLINE_EXCEEDED"
    await asyncio.gather(first, waiting)
    await runtime.call("ThreadService.Commit", request)
    assert (await runtime.session(hasty)).thread_version == 2


@pytest.mark.rule("R1", "R14")
@pytest.mark.suite(backends=["postgres"], settings={"runtime": {"pipeline_corridors": 1}}, **ONE)
async def test_a_batch_over_all_partitions_gives_each_its_dense_positions(suite: Suite) -> None:
    runtime = Runtime(suite)
    sessions = [await runtime.create() for _ in range(33)]
    plug, *names = [one.session_id for one in sessions]
    outcomes = await behind_a_plug(
        suite,
        runtime,
        plug,
        lambda: [runtime.commit(name, events=[event("spread"), event("spread")]) for name in names],
    )
    assert all(isinstance(one, thread_service_pb2.CommitResponse) for one in outcomes)
    async with connection(suite) as probe:
        writers = await probe.fetchval("SELECT count(DISTINCT xmin::text) FROM events WHERE type = 'spread'")
        rows = await probe.fetch('SELECT "partition", position FROM events ORDER BY 1, 2')
        heads = await probe.fetch('SELECT "partition", position FROM log_partitions ORDER BY 1')
    assert writers == 1
    found: dict[int, list[int]] = {}
    for row in rows:
        found.setdefault(row["partition"], []).append(row["position"])
    assert len(found) > 1
    for head in heads:
        assert found.get(head["partition"], []) == list(range(1, head["position"] + 1))
