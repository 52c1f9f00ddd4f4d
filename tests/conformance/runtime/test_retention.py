"""Retention: what is due goes, what is needed stays, and readers below what is left are told (R19, R12, R14)."""

import asyncio
from typing import Any

import grpc
import pytest
from google.protobuf.duration_pb2 import Duration

from tests.support.calls import error_details, refused, refusing
from tests.support.chains import commits, verified
from tests.support.checkpoints import Saver, checkpoint_id, put, value, write, writes
from tests.support.descriptors import fresh_id
from tests.support.feeds import follow
from tests.support.messages import append
from tests.support.outbox import DEAD, DELIVERED, deliveries, settled, to_session
from tests.support.runtime import RUNNING, SUCCEEDED, Runtime, event
from tests.support.suite import Suite
from threadkeep.runtime.v1 import (
    audit_pb2,
    event_service_pb2,
    retention_pb2,
    retention_service_pb2,
    session_service_pb2,
    task_service_pb2,
    thread_service_pb2,
)

pb = retention_service_pb2

# No receipt keeps history back here.
pytestmark = pytest.mark.suite(
    backends=["sqlite", "postgres"],
    topologies=["embedded"],
    services=["config", "runtime"],
    settings={"runtime": {"receipt_ttl_seconds": 0, "sweep_rows": 7}},
)


def rule(count: int | None = None, keep: int = 0, age: float | None = None) -> retention_pb2.RetentionRule:
    made = retention_pb2.RetentionRule(max_count=count, keep_latest=keep)
    if age is not None:
        made.max_age.CopyFrom(duration(age))
    return made


def duration(seconds: float) -> Duration:
    made = Duration()
    made.FromNanoseconds(int(seconds * 1e9))
    return made


OLD = rule(age=1e-6)
"""Whatever was there before."""


async def keep(runtime: Runtime, **rules: Any) -> retention_pb2.RetentionPolicy:
    """Sets the scope's policy."""
    request = pb.SetRetentionPolicyRequest(request_id=fresh_id(), policy=retention_pb2.RetentionPolicy(**rules))
    return (await runtime.call("RetentionService.SetRetentionPolicy", request)).policy


async def purge(runtime: Runtime) -> retention_pb2.PurgeCounts:
    request = pb.PurgeNowRequest(request_id=fresh_id())
    return (await runtime.call("RetentionService.PurgeNow", request)).counts


async def done(runtime: Runtime, session_id: str | None = None) -> str:
    """A task that was done; its id."""
    held = await runtime.lease(**({} if session_id is None else {"session_id": session_id}))
    await runtime.work(held, ended=SUCCEEDED)
    return held.task.task_id


@pytest.mark.rule("R19", "X4", "X8")
async def test_a_policy_belongs_to_its_scope_and_comes_back_as_it_was_set(suite: Suite) -> None:
    ours, theirs = Runtime(suite), Runtime(suite)
    read = pb.GetRetentionPolicyRequest()
    assert (await ours.call("RetentionService.GetRetentionPolicy", read)).policy == retention_pb2.RetentionPolicy()
    rules = {"tasks": rule(3, 1), "sessions": rule(age=86400.5), "receipts_max_age": duration(100)}
    rules["delivered_max_age"] = duration(50)
    made = await keep(ours, **rules)
    assert made.revision == 1
    found = (await ours.call("RetentionService.GetRetentionPolicy", read)).policy
    assert found == made
    shown = (found.tasks, found.sessions, found.receipts_max_age, found.delivered_max_age)
    assert shown == tuple(rules.values())
    assert not (await theirs.call("RetentionService.GetRetentionPolicy", read)).policy.revision
    stale = pb.SetRetentionPolicyRequest(request_id=fresh_id(), expected_revision=0)
    details = await refused(ours.call("RetentionService.SetRetentionPolicy", stale))
    assert (details.code, details.reason) == (grpc.StatusCode.ABORTED, "REVISION_CONFLICT")
    for bad, path in (
        ({"tasks": retention_pb2.RetentionRule(keep_latest=1)}, "policy.tasks"),
        ({"events": rule(0)}, "policy.events.max_count"),
        ({"sessions": rule(age=0)}, "policy.sessions.max_age"),
        ({"checkpoints": rule(1, -1)}, "policy.checkpoints.keep_latest"),
    ):
        assert path in (await refused(keep(ours, **bad))).violations


@pytest.mark.rule("R19", "R14")
@pytest.mark.case("B73")
async def test_cursors_below_what_is_left_are_expired_and_name_the_oldest(suite: Suite) -> None:
    runtime = Runtime(suite)
    session = await runtime.create()
    for _ in range(8):
        await runtime.commit(session.session_id, events=[event(), event()])
    async with follow(runtime.world, session_id=session.session_id) as narrow, follow(runtime.world) as wide:
        in_thread, in_scope = await narrow.events(17), await wide.events(17)
    await keep(runtime, events=rule(4))
    counts = await purge(runtime)
    # To the boundary of a commit: of 17 events the newest 4 stay.
    assert counts.events == 13
    left = await runtime.events(session.session_id)
    assert [one.sequence for one in left] == [14, 15, 16, 17, 18]
    assert left[-1].type == "threadkeep.session.purged"
    for extent, seen in (({"session_id": session.session_id}, in_thread), ({}, in_scope)):
        async with follow(runtime.world, after=seen[3].cursor, **extent) as feed:
            details = error_details(await feed.failure())
        assert (details.code, details.reason) == (grpc.StatusCode.OUT_OF_RANGE, "CURSOR_EXPIRED")
        wanted = event_service_pb2.EventFilter(**extent)
        listing = event_service_pb2.ListEventsRequest(filter=wanted, after=seen[3].cursor)
        assert (await refused(runtime.call("EventService.ListEvents", listing))).reason == "CURSOR_EXPIRED"
        async with follow(runtime.world, after=seen[12].cursor, **extent) as feed:
            assert [one.sequence for one in await feed.events(5)] == [14, 15, 16, 17, 18]
        async with follow(runtime.world, **extent) as feed:
            assert [one.sequence for one in await feed.events(5)] == [14, 15, 16, 17, 18]
    # Another scope's cursors are none of its business, and there is nothing more to do.
    other = Runtime(suite)
    await other.create()
    async with follow(other.world) as feed:
        first = await feed.event()
    async with follow(other.world, after=first.cursor) as feed:
        assert (await feed.frame()).WhichOneof("frame") == "bookmark"
    assert await purge(runtime) == retention_pb2.PurgeCounts()


@pytest.mark.rule("R19", "R12")
async def test_a_view_of_what_was_purged_is_compacted_and_state_stays(suite: Suite) -> None:
    runtime = Runtime(suite)
    session = await runtime.create()
    for _ in range(6):
        await runtime.commit(session.session_id, events=[event()])
    await keep(runtime, events=rule(3))
    await purge(runtime)
    from threadkeep.runtime.v1 import thread_service_pb2

    async def view(commit: int) -> Any:
        request = thread_service_pb2.GetThreadViewRequest(session_id=session.session_id, commit_sequence=commit)
        return await runtime.call("ThreadService.GetThreadView", request)

    details = await refused(view(2))
    assert (details.code, details.reason) == (grpc.StatusCode.OUT_OF_RANGE, "COMMIT_COMPACTED")
    oldest = int(details.metadata["oldest_commit"])
    await view(oldest)
    fork = session_service_pb2.ForkSessionRequest(
        request_id=fresh_id(), session_id=session.session_id, commit_sequence=2
    )
    assert (await refused(runtime.call("SessionService.ForkSession", fork))).reason == "COMMIT_COMPACTED"
    fork.commit_sequence = oldest
    await runtime.call("SessionService.ForkSession", fork)
    assert (await refused(view(oldest - 1))).reason == "COMMIT_COMPACTED"


@pytest.mark.rule("R19", "R6")
async def test_terminal_tasks_go_with_runs_and_tickets_and_open_ones_keep_their_history(suite: Suite) -> None:
    runtime = Runtime(suite)
    session = await runtime.create()
    tasks = [await done(runtime, session.session_id) for _ in range(5)]
    held = await runtime.lease(session_id=session.session_id)
    await runtime.work(held, running=RUNNING, events=[event()])
    await keep(runtime, tasks=rule(3, 1), events=OLD)
    counts = await purge(runtime)
    assert counts.tasks == 2
    for task_id in tasks[:2]:
        assert (await refused(runtime.task(task_id))).reason == "TASK_NOT_FOUND"
    listing = task_service_pb2.ListTasksRequest(session_id=session.session_id)
    left = {one.task_id for one in (await runtime.call("TaskService.ListTasks", listing)).tasks}
    assert left == {*tasks[2:], held.task.task_id}
    # Whoever follows the open task sees it from its first event.
    async with follow(runtime.world, task_id=held.task.task_id) as feed:
        assert (await feed.event()).type == "threadkeep.task.submitted"
    await runtime.work(held, ended=SUCCEEDED)
    await keep(runtime, tasks=OLD)
    assert (await purge(runtime)).tasks == 4
    found = await runtime.session(session.session_id)
    assert (found.task_count, found.HasField("latest_task_id"), found.HasField("latest_run_id")) == (6, False, False)
    await done(runtime, session.session_id)


@pytest.mark.rule("R19", "R23")
async def test_idle_sessions_are_deleted_and_busy_ones_stay(suite: Suite) -> None:
    runtime = Runtime(suite)
    idle = [(await runtime.create()).session_id for _ in range(4)]
    busy = (await runtime.submit()).session_id
    await keep(runtime, sessions=rule(age=1e-6, keep=2))
    counts = await purge(runtime)
    # The newest two are kept: the busy one, and the last idle one.
    assert counts.sessions == 3
    for session_id in idle[:3]:
        assert (await refused(runtime.session(session_id))).reason == "SESSION_NOT_FOUND"
        assert (await refused(runtime.create(session_id))).reason == "ID_TAKEN"
    await runtime.session(idle[3])
    await keep(runtime, sessions=OLD)
    assert (await purge(runtime)).sessions == 1
    await runtime.session(busy)


@pytest.mark.rule("R19", "R20")
@pytest.mark.case("B32", "B33")
async def test_old_checkpoints_go_and_what_is_needed_stays(suite: Suite) -> None:
    runtime = Runtime(suite)
    saver = Saver(runtime.world, (await runtime.create()).session_id)
    for number in range(1, 9):
        await saver.put(put(number, value("a", str(number))))
        await saver.write(writes(number, write("t", 0)))
    await saver.put(put(9, value("a", "1"), ns="child"))
    await keep(runtime, checkpoints=rule(3))
    assert (await purge(runtime)).checkpoints == 5
    left = await saver.list()
    assert sorted(one.checkpoint_id for one in left) == [checkpoint_id(n) for n in (6, 7, 8, 9)]
    assert all(one.channel_values for one in left)
    await keep(runtime, checkpoints=OLD)
    # The latest of each namespace stays, with its writes.
    assert (await purge(runtime)).checkpoints == 2
    latest = await saver.get()
    assert latest is not None
    assert (latest.checkpoint_id, len(latest.pending_writes)) == (checkpoint_id(8), 1)
    # Not while a worker is at it.
    held = await runtime.lease(session_id=saver.session_id)
    leased = Saver(runtime.world, saver.session_id, held.lease)
    for number in range(10, 13):
        await leased.put(put(number, value("a", str(number))))
    assert not (await purge(runtime)).checkpoints
    await runtime.work(held, ended=SUCCEEDED)
    assert (await purge(runtime)).checkpoints == 3


@pytest.mark.rule("R19", "X3")
async def test_a_purge_is_no_activity_and_happens_once(suite: Suite) -> None:
    runtime = Runtime(suite)
    session = await runtime.create()
    for _ in range(5):
        await runtime.commit(session.session_id, events=[event()])
    before = await runtime.session(session.session_id)
    await keep(runtime, events=rule(2))
    request = pb.PurgeNowRequest(request_id=fresh_id())
    first = await runtime.call("RetentionService.PurgeNow", request)
    assert first.counts.events
    assert await runtime.call("RetentionService.PurgeNow", request) == first
    after = await runtime.session(session.session_id)
    assert after.last_activity_time == before.last_activity_time
    assert after.thread_version == before.thread_version + 1
    # What is purged later and later does not talk about itself for ever.
    await keep(runtime, events=OLD)
    await purge(runtime)
    version = (await runtime.session(session.session_id)).thread_version
    for _ in range(3):
        await purge(runtime)
    assert (await runtime.session(session.session_id)).thread_version <= version + 1


@pytest.mark.rule("R19", "R14")
async def test_purges_beside_writers_and_readers_lose_nothing_that_stays(suite: Suite) -> None:
    runtime = Runtime(suite)
    sessions = [(await runtime.create()).session_id for _ in range(3)]
    await keep(runtime, events=rule(6), tasks=rule(2))

    async def grow(session_id: str) -> None:
        for _ in range(20):
            await runtime.commit(session_id, events=[event(), event()])

    async def purge_often() -> None:
        for _ in range(6):
            await purge(runtime)

    await asyncio.gather(*(grow(one) for one in sessions), purge_often(), purge_often())
    await purge(runtime)
    for session_id in sessions:
        events = await runtime.events(session_id)
        sequences = [one.sequence for one in events]
        assert sequences == [*range(sequences[0], sequences[0] + len(sequences))], "no hole in what is left"
        assert sequences[-1] == (await runtime.session(session_id)).latest_event_sequence
        assert len(sequences) <= 9


@pytest.mark.rule("R19", "X3")
@pytest.mark.suite(
    backends=["sqlite", "postgres"], topologies=["embedded"], services=["config", "runtime"], settings={}
)
async def test_history_younger_than_receipts_stays(suite: Suite) -> None:
    runtime = Runtime(suite)
    session = await runtime.create()
    for _ in range(5):
        await runtime.commit(session.session_id, events=[event()])
    await keep(runtime, events=rule(1))
    assert not (await purge(runtime)).events
    details = await refused(keep(runtime, receipts_max_age=duration(60)))
    assert "policy.receipts_max_age" in details.violations


@pytest.mark.rule("R17", "R19")
async def test_audit_records_have_a_retention_of_their_own(suite: Suite) -> None:
    runtime, other = Runtime(suite), Runtime(suite)
    for one in (runtime, other):
        name = (await one.create()).session_id
        for number in range(6):
            await one.commit(name, audit=[audit_pb2.AuditDraft(action=f"a{number}")])
    await keep(runtime, events=OLD)
    assert (await purge(runtime)).audit == 0
    assert len(await audited(runtime)) == 6, "history goes without them"
    await keep(runtime, audit=rule(4))
    assert (await purge(runtime)).audit == 2
    assert await audited(runtime) == ["a5", "a4", "a3", "a2"]
    await keep(runtime, audit=rule(age=1e-6, keep=1))
    assert (await purge(runtime)).audit == 3
    assert await audited(runtime) == ["a5"]
    (page,) = await verified(
        runtime, (await runtime.call("SessionService.ListSessions", LISTED)).sessions[0].session_id
    )
    assert page.purged_parts > 0
    assert len(await audited(other)) == 6


async def audited(runtime: Runtime) -> list[str]:
    """The actions of the scope's records, newest first."""
    request = thread_service_pb2.ListAuditRecordsRequest()
    return [one.action for one in (await runtime.call("ThreadService.ListAuditRecords", request)).records]


LISTED = session_service_pb2.ListSessionsRequest()


@pytest.mark.rule("R17", "R12", "R19")
async def test_the_chain_that_is_kept_starts_where_purged_commits_end(suite: Suite) -> None:
    runtime = Runtime(suite)
    name = (await runtime.create()).session_id
    receipts = [(await runtime.commit(name, events=[event()], messages=append(f"m{n}"))).receipt for n in range(6)]
    await keep(runtime, events=rule(4))
    await purge(runtime)
    (page,) = await verified(runtime, name)
    listed = await commits(runtime, name)
    oldest = listed[-1].commit_sequence
    assert oldest > 1
    assert (page.first_commit, page.last_commit, page.digest) == (oldest, 8, listed[0].digest)
    assert listed[1].digest == receipts[-1].digest
    with refusing(grpc.StatusCode.OUT_OF_RANGE, "COMMIT_COMPACTED") as error:
        await runtime.view(name, oldest - 1)
    assert error.metadata["oldest_commit"] == str(oldest)
    (view,) = await runtime.view(name, oldest)
    assert [one.message.message_id for one in view.messages] == [f"m{n}" for n in range(oldest - 1)]


@pytest.mark.rule("R19", "R16")
async def test_delivered_messages_go_by_their_own_age_and_dead_letters_stay(suite: Suite) -> None:
    ours, theirs = Runtime(suite), Runtime(suite)
    for runtime in (ours, theirs):
        source, target = (await runtime.create()).session_id, (await runtime.create()).session_id
        drafts = [to_session(target, 1, dedupe_key="k"), to_session("nobody", 1)]
        await runtime.commit(source, outbox=drafts)
        assert [one.state for one in await settled(runtime, source)] == [DELIVERED, DEAD]
    assert "policy.delivered_max_age" in (await refused(keep(ours, delivered_max_age=duration(0)))).violations
    await keep(ours, delivered_max_age=duration(3600))
    assert (await purge(ours)).delivered == 0
    await keep(ours, delivered_max_age=Duration(nanos=1000))
    assert (await purge(ours)).delivered == 1
    assert [one.state for one in await deliveries(ours)] == [DEAD]
    assert [one.state for one in await deliveries(theirs)] == [DELIVERED, DEAD]
