"""ThreadCommits: one transaction, one order, one fence (R1, R2, R3, R4, R13)."""

import asyncio
from typing import Any

import grpc
import pytest

from tests.support.calls import error_details, refused
from tests.support.checkpoints import Saver, checkpoint_id, op, put
from tests.support.descriptors import fresh_id
from tests.support.runtime import CANCELED, RUNNING, SUCCEEDED, Runtime, awaiting, commit, event, failed, text, together
from tests.support.suite import Suite
from threadkeep.common.v1 import payload_pb2
from threadkeep.runtime.v1 import commit_pb2, event_pb2, run_pb2, task_pb2, thread_service_pb2

NAN = payload_pb2.Payload(content_type="application/json", data=b"NaN")


@pytest.fixture
def runtime(shared_suite: Suite) -> Runtime:
    return Runtime(shared_suite)


@pytest.mark.rule("R1", "R2")
async def test_a_commit_is_one_fact_with_one_place(runtime: Runtime) -> None:
    held = await runtime.lease()
    name = held.run.session_id
    before = await runtime.session(name)
    response = await runtime.work(
        held, events=[event("a.b"), event("c.d")], checkpoint_ops=[op(put(1))], running=RUNNING
    )
    receipt = response.receipt
    assert receipt.commit_sequence == before.thread_version + 1
    assert receipt.first_event_sequence == before.latest_event_sequence + 1
    assert receipt.last_event_sequence == before.latest_event_sequence + 3
    assert receipt.cursor
    assert not receipt.replay
    events = (await runtime.events(name))[-3:]
    assert [one.type for one in events] == ["a.b", "c.d", "threadkeep.checkpoint.saved"]
    assert {(one.commit_sequence, one.run_id, one.task_id) for one in events} == {
        (receipt.commit_sequence, held.run.run_id, held.task.task_id)
    }
    assert {one.create_time.ToMicroseconds() for one in events} == {receipt.commit_time.ToMicroseconds()}
    assert response.run.last_checkpoint_id == checkpoint_id(1)
    assert (await Saver(runtime.world, name).list())[0].commit_sequence == receipt.commit_sequence


@pytest.mark.rule("R2")
async def test_concurrent_commits_of_a_thread_have_dense_sequences(runtime: Runtime) -> None:
    session = await runtime.create()
    sizes = [number % 3 + 1 for number in range(24)]
    responses = await asyncio.gather(
        *(runtime.commit(session.session_id, events=[event(f"n{number}")] * size) for number, size in enumerate(sizes))
    )
    assert sorted(one.receipt.commit_sequence for one in responses) == list(range(2, 26))
    events = await runtime.events(session.session_id)
    assert [one.sequence for one in events] == list(range(1, len(events) + 1))
    for response in responses:
        own = events[response.receipt.first_event_sequence - 1 : response.receipt.last_event_sequence]
        assert {one.commit_sequence for one in own} == {response.receipt.commit_sequence}
        assert len({one.type for one in own}) == 1
    assert [one.commit_sequence for one in events] == sorted(one.commit_sequence for one in events)


@pytest.mark.rule("R2")
async def test_of_many_commits_on_one_version_one_wins(runtime: Runtime) -> None:
    session = await runtime.create()
    outcomes = await together(
        *(runtime.commit(session.session_id, expected_thread_version=1, events=[event()]) for _ in range(10))
    )
    won = [one for one in outcomes if isinstance(one, thread_service_pb2.CommitResponse)]
    assert len(won) == 1
    lost = [error_details(one) for one in outcomes if isinstance(one, grpc.RpcError)]
    assert {(one.code, one.reason) for one in lost} == {(grpc.StatusCode.ABORTED, "THREAD_VERSION_CONFLICT")}
    assert {one.metadata["current_thread_version"] for one in lost} == {"2"}
    assert len(await runtime.events(session.session_id)) == 2


@pytest.mark.rule("R13", "X8")
async def test_events_come_back_as_they_were_appended(runtime: Runtime) -> None:
    session = await runtime.create()
    payload = payload_pb2.Payload(
        content_type="application/octet-stream", data=bytes(range(256)), attributes={"encryption": "none"}
    )
    await runtime.commit(
        session.session_id,
        events=[
            event(
                "order.platziert-ü",
                event_id="e1",
                visibility=event_pb2.VISIBILITY_INTERNAL,
                payload=payload,
                schema_version=3,
                causation_id="cause",
                correlation_id="undertaking",
            ),
            event("bare"),
        ],
    )
    full, bare = (await runtime.events(session.session_id))[1:]
    assert (full.event_id, full.type, full.payload) == ("e1", "order.platziert-ü", payload)
    assert (full.visibility, full.schema_version) == (event_pb2.VISIBILITY_INTERNAL, 3)
    assert (full.causation_id, full.correlation_id) == ("cause", "undertaking")
    assert full.trace.traceparent.startswith("00-")
    assert (bare.visibility, bare.schema_version) == (event_pb2.VISIBILITY_BUILDER, 1)
    assert bare.event_id
    for absent in ("payload", "run_id", "task_id", "causation_id", "correlation_id"):
        assert not bare.HasField(absent)  # type: ignore[arg-type]


@pytest.mark.rule("R13")
@pytest.mark.case("B89")
async def test_an_event_id_twice_is_refused_whole(runtime: Runtime) -> None:
    session = await runtime.create()
    await runtime.commit(session.session_id, events=[event(event_id="e1")])
    for events in ([event(event_id="e2"), event(event_id="e2")], [event(event_id="e3"), event(event_id="e1")]):
        details = await refused(runtime.commit(session.session_id, events=events))
        assert (details.code, details.reason) == (grpc.StatusCode.ALREADY_EXISTS, "ID_TAKEN")
    other = await runtime.create()
    await runtime.commit(other.session_id, events=[event(event_id="e1")])
    assert len(await runtime.events(session.session_id)) == 2


@pytest.mark.rule("R1")
async def test_a_refused_part_refuses_the_whole_commit(runtime: Runtime) -> None:
    held = await runtime.lease()
    name = held.run.session_id
    await runtime.work(held, checkpoint_ops=[op(put(5))])
    before = (await runtime.types(name), await runtime.session(name))
    for parts, reason in (
        ({"checkpoint_ops": [op(put(6)), op(put(4))], "events": [event()], "running": RUNNING}, "CHECKPOINT_ID_ORDER"),
        ({"events": [event()], "ended": CANCELED, "checkpoint_ops": [op(put(6))]}, "FIELD_INVALID"),
        ({"events": [event(), event("threadkeep.run.ended")], "ended": SUCCEEDED}, "FIELD_INVALID"),
        ({"events": [event()], "ended": SUCCEEDED, "expected_thread_version": 1}, "THREAD_VERSION_CONFLICT"),
    ):
        assert (await refused(runtime.work(held, **parts))).reason == reason
    assert (await runtime.types(name), await runtime.session(name)) == before
    assert len(await Saver(runtime.world, name).list()) == 1


@pytest.mark.rule("R3", "X2")
async def test_the_contracts_order_of_checks(runtime: Runtime, shared_suite: Suite) -> None:
    held, other = await runtime.lease(), await runtime.lease()
    name = held.run.session_id
    stale = commit_pb2.Lease(run_id=held.lease.run_id, epoch=7)
    foreign = commit_pb2.Lease(run_id=other.lease.run_id, epoch=other.lease.epoch)
    done = commit(name, lease=held.lease, running=RUNNING)
    await runtime.call("ThreadService.Commit", done)
    reused = commit("never-used", request_id=done.request_id, lease=stale, running=RUNNING)
    assert (await refused(runtime.call("ThreadService.Commit", reused))).reason == "REQUEST_ID_REUSED"
    for session, parts, reason in (
        ("never-used", {"lease": stale, "running": RUNNING}, "SESSION_NOT_FOUND"),
        (name, {"lease": foreign, "running": RUNNING, "expected_thread_version": 1}, "RUN_NOT_FOUND"),
        (name, {"lease": stale, "running": RUNNING, "expected_thread_version": 1}, "LEASE_LOST"),
        (name, {"checkpoint_ops": [op(put(1))], "expected_thread_version": 1}, "LEASE_REQUIRED"),
        (name, {"lease": held.lease, "ended": CANCELED, "expected_thread_version": 1}, "THREAD_VERSION_CONFLICT"),
    ):
        assert (await refused(runtime.commit(session, **parts))).reason == reason
    elsewhere = Runtime(shared_suite)
    details = await refused(elsewhere.work(held, running=RUNNING))
    assert details.reason == "SESSION_NOT_FOUND"


@pytest.mark.rule("R4")
@pytest.mark.parametrize(
    ("ended", "state", "cause"),
    [
        (SUCCEEDED, task_pb2.TASK_STATE_COMPLETED, run_pb2.RUN_END_CAUSE_SUCCEEDED),
        (failed(), task_pb2.TASK_STATE_FAILED, run_pb2.RUN_END_CAUSE_FAILED),
    ],
)
async def test_what_ended_never_changes_again(
    runtime: Runtime, ended: commit_pb2.RunEnded, state: Any, cause: Any
) -> None:
    held = await runtime.lease()
    committed = await runtime.work(held, ended=ended, events=[event()])
    assert (committed.run.state, committed.run.cause) == (run_pb2.RUN_STATE_ENDED, cause)
    task, run = await runtime.task(held.task.task_id), await runtime.run(held.run.run_id)
    assert (task.state, run) == (state, committed.run)
    for late in (
        runtime.work(held, ended=SUCCEEDED),
        runtime.work(held, running=RUNNING),
        runtime.work(held, awaiting=awaiting()),
        runtime.release(held.lease),
        runtime.heartbeat(held.lease),
    ):
        assert (await refused(late)).reason == "LEASE_LOST"
    assert (await refused(runtime.cancel(task.task_id))).reason == "TASK_TERMINAL"
    assert (await runtime.task(held.task.task_id), await runtime.run(held.run.run_id)) == (task, run)
    last = (await runtime.events(task.session_id))[-2:]
    assert {one.commit_sequence for one in last} == {committed.receipt.commit_sequence}
    assert last[0].type == "threadkeep.run.ended"
    await runtime.commit(task.session_id, events=[event()])


@pytest.mark.rule("R1")
async def test_a_first_checkpoint_creates_its_session_in_the_same_commit(runtime: Runtime) -> None:
    name = fresh_id("session")
    response = await runtime.commit(name, checkpoint_ops=[op(put(1))], events=[event()], expected_thread_version=0)
    assert response.receipt.commit_sequence == 1
    assert await runtime.types(name) == ["session.created", "order.placed", "checkpoint.saved"]
    assert not response.HasField("run")


@pytest.mark.rule("R1")
async def test_of_many_first_checkpoints_of_one_session_each_counts_once(runtime: Runtime) -> None:
    name = fresh_id("session")
    await asyncio.gather(
        *(runtime.commit(name, checkpoint_ops=[op(put(1, ns=f"child:{number}"))]) for number in range(12))
    )
    assert (await runtime.session(name)).thread_version == 12
    assert (await runtime.types(name)).count("session.created") == 1


@pytest.mark.rule("X8", "X9")
@pytest.mark.parametrize(
    ("parts", "field"),
    [
        ({}, "commit"),
        ({"ended": SUCCEEDED}, "commit.lease"),
        ({"lease": True, "ended": commit_pb2.RunEnded()}, "commit.ended.cause"),
        ({"lease": True, "ended": commit_pb2.RunEnded(cause=run_pb2.RUN_END_CAUSE_TIMED_OUT)}, "commit.ended.cause"),
        ({"lease": True, "ended": commit_pb2.RunEnded(cause=99)}, "commit.ended.cause"),
        ({"lease": True, "ended": commit_pb2.RunEnded(cause=2)}, "commit.ended.failure"),
        ({"lease": True, "ended": commit_pb2.RunEnded(cause=3, result=text())}, "commit.ended.result"),
        ({"lease": True, "awaiting": commit_pb2.RunAwaiting()}, "commit.awaiting.tickets"),
        ({"events": [event("threadkeep.mine")]}, "commit.events[0].type"),
        ({"events": [event(), event(visibility=77)]}, "commit.events[1].visibility"),
        ({"events": [event(schema_version=-1)]}, "commit.events[0].schema_version"),
        (
            {"events": [event(payload=payload_pb2.Payload(content_type="application/json", data=b"NaN"))]},
            "commit.events[0].payload.data",
        ),
        ({"events": [event()] * 1001}, "commit.events"),
        ({"checkpoint_ops": [{}]}, "commit.checkpoint_ops[0]"),
    ],
)
async def test_what_can_not_be_right_is_refused_by_name(runtime: Runtime, parts: dict[str, Any], field: str) -> None:
    held = await runtime.lease()
    if parts.get("lease"):
        parts = {**parts, "lease": held.lease}
    details = await refused(runtime.commit(held.run.session_id, **parts))
    assert (details.code, list(details.violations)) == (grpc.StatusCode.INVALID_ARGUMENT, [field])


@pytest.mark.rule("X9")
async def test_an_event_beyond_the_limit_names_the_limit(runtime: Runtime) -> None:
    session = await runtime.create()
    big = event(payload=text(b"x" * (4 * 1024 * 1024)))
    details = await refused(runtime.commit(session.session_id, events=[big]))
    assert (details.reason, details.metadata["limit"]) == ("LIMIT_EXCEEDED", "max_event_bytes")


@pytest.mark.rule("X3", "X7")
async def test_a_commit_sent_many_times_at_once_is_one_commit(runtime: Runtime) -> None:
    held = await runtime.lease()
    request = commit(
        held.run.session_id, lease=held.lease, events=[event()], checkpoint_ops=[op(put(1))], ended=SUCCEEDED
    )
    answers = await asyncio.gather(*(runtime.call("ThreadService.Commit", request) for _ in range(16)))
    assert sum(not answer.receipt.replay for answer in answers) == 1
    assert len({answer.receipt.commit_sequence for answer in answers}) == 1
    assert (await runtime.types(held.run.session_id)).count("order.placed") == 1


@pytest.mark.rule("X3", "R3")
async def test_the_receipt_comes_before_the_fence_and_the_version(runtime: Runtime) -> None:
    """A worker whose answer was lost learns what happened, though its lease is gone by now."""
    held = await runtime.lease()
    version = (await runtime.session(held.run.session_id)).thread_version
    request = commit(held.run.session_id, lease=held.lease, expected_thread_version=version, ended=SUCCEEDED)
    first = await runtime.call("ThreadService.Commit", request)
    again = await runtime.call("ThreadService.Commit", request)
    assert again.receipt.replay
    again.receipt.replay = False
    assert again == first


@pytest.mark.rule("X9")
async def test_a_result_beyond_the_limit_names_the_limit_and_a_smaller_one_ends_the_run(runtime: Runtime) -> None:
    held = await runtime.lease()
    ended = commit_pb2.RunEnded(cause=run_pb2.RUN_END_CAUSE_SUCCEEDED, result=text(bytes(4 * 1024 * 1024)))
    details = await refused(runtime.work(held, ended=ended))
    assert (details.reason, details.metadata["limit"]) == ("LIMIT_EXCEEDED", "max_task_result_bytes")
    assert "artifact" in details.metadata["advice"]
    ended.result.data = bytes(4 * 1024 * 1024 - 100)
    assert (await runtime.work(held, ended=ended)).run.state == run_pb2.RUN_STATE_ENDED
    assert (await runtime.task(held.task.task_id)).result == ended.result
