"""Retention on disk: killed in the middle, several replicas, and the loop that nobody calls (R19)."""

from datetime import UTC, datetime, timedelta

import grpc
import pytest
import sqlalchemy as sa

from tests.store.runtime_life.test_sweep import rows, served
from tests.support.databases import Databases
from tests.support.descriptors import fresh_id
from tests.support.processes import Processes
from tests.support.runtime import Runtime, event
from tests.support.suite import Suite, migrate_one
from tests.support.waiting import eventually
from threadkeep.runtime.v1 import retention_pb2, retention_service_pb2
from threadkeep_chassis.database import Database
from threadkeep_chassis.migrations import MigrationSet, prepare
from threadkeep_runtime.store.retention import take_turn
from threadkeep_runtime.tables import loop_owners

pb = retention_service_pb2
NOW = datetime(2026, 1, 1, tzinfo=UTC)


async def keep(runtime: Runtime, **rules: retention_pb2.RetentionRule) -> None:
    policy = retention_pb2.RetentionPolicy(**rules)
    request = pb.SetRetentionPolicyRequest(request_id=fresh_id(), policy=policy)
    await runtime.call("RetentionService.SetRetentionPolicy", request)


@pytest.mark.rule("R19")
@pytest.mark.suite(backends=["sqlite", "postgres"])
@pytest.mark.parametrize("failpoint", ["before_commit", "after_commit", "during_sweep"])
async def test_a_purge_killed_midway_is_finished_by_calling_again(
    processes: Processes, databases: Databases, database_url: str, backend: str, failpoint: str
) -> None:
    await migrate_one(database_url, "runtime")
    session_id, values = fresh_id("session"), {"tenant": fresh_id("tenant")}
    settings = ("sweep_rows=3", "receipt_ttl_seconds=0")
    request = pb.PurgeNowRequest(request_id=fresh_id())
    async with served(processes, database_url, values, *settings) as (_, runtime):
        await runtime.create(session_id)
        for _ in range(8):
            await runtime.commit(session_id, events=[event(), event()])
        await keep(runtime, events=retention_pb2.RetentionRule(max_count=4))
    async with served(processes, database_url, values, f"failpoint={failpoint}", *settings) as (process, runtime):
        with pytest.raises(grpc.RpcError):
            await runtime.call("RetentionService.PurgeNow", request)
        assert await process.wait() == -9
    async with served(processes, database_url, values, *settings) as (_, runtime):
        await runtime.call("RetentionService.PurgeNow", request)
        left = [one.sequence for one in await runtime.events(session_id)]
        assert left == [14, 15, 16, 17, 18]
        version = (await runtime.session(session_id)).thread_version
    found = await rows(database_url)
    assert sorted(row[1] for row in found["events"]) == left
    # The two commits of the newest four events, and the purge.
    assert sorted(row[1] for row in found["commits"]) == [version - 2, version - 1, version]


@pytest.mark.rule("R19")
@pytest.mark.suite(
    backends=["postgres"],
    topologies=["embedded"],
    services=["config", "runtime"],
    settings={"runtime": {"receipt_ttl_seconds": 0, "retention_interval_seconds": 0.1}},
)
async def test_policies_are_applied_without_being_asked(suite: Suite) -> None:
    runtime = Runtime(suite)
    session = await runtime.create()
    for _ in range(6):
        await runtime.commit(session.session_id, events=[event()])
    await keep(runtime, events=retention_pb2.RetentionRule(max_count=2))

    async def is_purged() -> bool:
        return (await runtime.types(session.session_id))[-1] == "session.purged"

    await eventually(is_purged)


@pytest.mark.rule("R19", "R22")
async def test_one_replica_at_a_time_applies_policies_and_a_dead_one_is_followed(
    databases: Databases, database_url: str, backend: str
) -> None:
    if backend != "memory":
        await migrate_one(database_url, "runtime")
    database = await Database.open(database_url, "runtime")
    try:
        await prepare(database, MigrationSet("runtime", "threadkeep_runtime"))

        async def take(owner: str, second: int) -> bool:
            now = NOW + timedelta(seconds=second)
            async with database.write() as connection:
                return await connection.run(lambda sync: take_turn(sync, "work", owner, now, 60))

        assert [await take("a", 0), await take("b", 1), await take("a", 30)] == [True, False, True]
        assert [await take("b", 89), await take("b", 90), await take("a", 91)] == [False, True, False]
        async with database.read() as connection:
            assert await connection.scalar(sa.select(sa.func.count()).select_from(loop_owners)) == 1
    finally:
        await database.close()
