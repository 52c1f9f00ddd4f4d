"""What the runtime's loops do shows at /metrics, without anybody's scope (X15, X11)."""

import asyncio
import urllib.request
from collections.abc import AsyncIterator
from datetime import timedelta

import pytest

from tests.conformance.runtime.test_schedules import fired, scheduled
from tests.support.databases import Databases
from tests.support.descriptors import fresh_id
from tests.support.outbox import to_session
from tests.support.suite import Suite
from tests.support.timed import LOOKS, Timed
from tests.support.waiting import eventually
from threadkeep.runtime.v1 import retention_pb2, retention_service_pb2, schedule_pb2
from threadkeep_chassis.clock import ManualClock

pytestmark = pytest.mark.suite(backends=["memory"])
SETTINGS = {
    "host": {"metrics_listen": "127.0.0.1:0"},
    "runtime": {**LOOKS["runtime"], "retention_interval_seconds": 0.05, "schedule_interval_seconds": 0.05},
}


@pytest.fixture
async def timed(databases: Databases, backend: str) -> AsyncIterator[Timed]:
    """A scope of a suite with a clock of its own, which serves metrics."""
    clock = ManualClock()
    suite = await Suite.start(databases, backend, "embedded", SETTINGS, ("config", "runtime"), clock)
    yield Timed(suite, clock)
    await suite.close()


class Scraped:
    """What /metrics says."""

    def __init__(self, suite: Suite) -> None:
        self._port = suite.hosts["runtime"].metrics_port
        self.text = ""

    async def read(self) -> "Scraped":
        def fetch() -> str:
            with urllib.request.urlopen(f"http://127.0.0.1:{self._port}/metrics") as response:
                return str(response.read().decode())

        self.text = await asyncio.to_thread(fetch)
        return self

    def value(self, name: str) -> float:
        """A sample's value; 0 if there is none."""
        return next((float(line.rpartition(" ")[2]) for line in self.text.splitlines() if line.startswith(name)), 0.0)


@pytest.mark.rule("X15", "X11")
async def test_loops_show_what_they_do(timed: Timed) -> None:
    scraped = await Scraped(timed.suite).read()
    before = {line.rpartition(" ")[0] for line in scraped.text.splitlines()}
    assert any(one.startswith("threadkeep_outbox_lag_seconds") for one in before)

    # A fire, late by some seconds, and what is put off for good.
    made = await scheduled(timed, missed_fire_policy=schedule_pb2.MISSED_FIRE_POLICY_ONCE)
    due = made.next_fire_time.ToDatetime(tzinfo=timed.clock.now().tzinfo)
    timed.clock.advance((due - timed.clock.now() + timedelta(seconds=3)).total_seconds())
    await fired(timed, made, due)

    # A message to a session that is not there is a dead letter.
    session_id = (await timed.create()).session_id
    await timed.commit(session_id, outbox=[to_session("nobody")])

    # A lease that nobody renews is taken back.
    task = await timed.submit()
    await timed.acquire(task.queue)
    timed.clock.advance(40)

    # What is old goes.
    policy = retention_pb2.RetentionPolicy()
    policy.sessions.max_age.FromSeconds(60)
    request = retention_service_pb2.SetRetentionPolicyRequest(request_id=fresh_id(), policy=policy)
    await timed.call("RetentionService.SetRetentionPolicy", request)
    timed.clock.advance(3600)

    wanted = (
        'threadkeep_schedule_fires_total{outcome="submitted"}',
        "threadkeep_schedule_lag_seconds_count",
        'threadkeep_outbox_attempts_total{kind="SESSION",outcome="dead"}',
        'threadkeep_recoveries_total{kind="recover_lease"}',
        'threadkeep_purged_total{kind="sessions"}',
        'threadkeep_loop_seconds_count{loop="recovery"}',
        'threadkeep_loop_seconds_count{loop="retention"}',
        'threadkeep_loop_last_done_timestamp_seconds{loop="schedules"}',
        "threadkeep_leases_total",
        "threadkeep_pipeline_batch_commits_count",
    )

    async def all_there() -> bool:
        await scraped.read()
        return all(scraped.value(name) > 0 for name in wanted)

    try:
        await eventually(all_there)
    finally:
        assert not [name for name in wanted if scraped.value(name) == 0]
    for value in timed.world.values.values():
        assert value not in scraped.text
    assert session_id not in scraped.text
