"""After any history of checkpoints and facts, deletions, purges, forks and kills a rebuild changes no row (P3)."""

import contextlib
import os
import sqlite3
from typing import Any

import asyncpg
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from langchain_core.messages import AIMessage, HumanMessage

from tests.conformance.projection.conftest import SERVICES
from tests.conformance.projection.test_deletion import delete
from tests.conformance.projection.test_forks import fork
from tests.conformance.projection.test_purges import purge
from tests.support.calls import grant_all
from tests.support.descriptors import fresh_id
from tests.support.examples.world import World
from tests.support.messages import append, remove, replace
from tests.support.projection import Talk, fresh
from tests.support.runtime import Runtime
from tests.support.suite import Suite
from threadkeep.projection.v1 import admin_service_pb2, message_service_pb2
from threadkeep.runtime.v1 import event_service_pb2, retention_pb2

HISTORIES = int(os.environ.get("HISTORIES", "3"))
ACTIONS = ("talk", "step", "facts", "change", "fork", "delete", "purge", "kill")
TABLES = ("sessions", "session_entries", "tasks", "task_entries", "runs", "messages", "inputs", "poison_events")

Row = tuple[Any, ...]
history = st.lists(st.tuples(st.sampled_from(ACTIONS), st.integers(0, 3)), min_size=6, max_size=14)


class Past:
    """Conversations of both kinds, and what happened to them."""

    def __init__(self, suite: Suite) -> None:
        self.suite, self.world = suite, World(suite)
        self.runtime = Runtime(suite, **self.world.values)
        self.talks: list[Talk] = []
        self.channels: dict[str, list[Any]] = {}
        self.facts: dict[str, list[str]] = {}

    async def act(self, action: str, which: int) -> None:
        """Does it to one of the sessions that it can be done to, if there is one."""
        if action == "talk" or not self.talks:
            talk = await Talk.begin(self.world)
            await talk.submit((fresh_id("in"), "hello"), metadata={"n": str(which)})
            await talk.work()
            self.talks.append(talk)
            self.channels[talk.session_id] = []
        elif action == "facts":
            session_id = (await self.runtime.create()).session_id
            self.facts[session_id] = [f"{which}-{n}" for n in range(which + 2)]
            await self.runtime.commit(session_id, messages=append(*self.facts[session_id]))
        elif action == "change" and self.facts:
            session_id = sorted(self.facts)[which % len(self.facts)]
            gone, changed = self.facts[session_id].pop(0), fresh_id("m")
            self.facts[session_id].append(changed)
            changes = [*append(changed), replace(changed, "other"), *remove(gone)]
            await self.runtime.commit(session_id, messages=changes)
        elif action == "purge":
            await purge(self.world, events=retention_pb2.RetentionRule(max_count=4 + which))
        elif action == "kill":
            await self.suite.rehost("projection", grace_seconds=0)
        else:
            await self._to_talk(self.talks[which % len(self.talks)], action)

    async def be_seen(self) -> None:
        """Waits until all that was committed is projected."""
        session_id = (await self.runtime.create()).session_id
        request = event_service_pb2.ListEventsRequest(page_size=1000)
        page = await self.world.call("EventService.ListEvents", request)
        while page.next_page_token:
            request.page_token = page.next_page_token
            page = await self.world.call("EventService.ListEvents", request)
        listing = message_service_pb2.ListMessagesRequest(session_id=session_id, freshness=fresh(page.cursor))
        await self.world.call("MessageService.ListMessages", listing)

    async def _to_talk(self, talk: Talk, action: str) -> None:
        channel = self.channels[talk.session_id]
        if action == "delete":
            self.talks.remove(talk)
            await delete(talk)
        elif action == "fork" and channel:
            await fork(self.world, talk.session_id)
        else:
            channel += [HumanMessage("q", id=fresh_id("h")), AIMessage("no id")]
            await talk.step(*channel[-5:])


async def rows(suite: Suite) -> dict[str, list[Row]]:
    """Every projected row."""
    url = suite.urls["projection"]
    if suite.backend == "sqlite":
        with contextlib.closing(sqlite3.connect(url.removeprefix("sqlite:///"))) as file:
            return {name: sorted(file.execute(f"SELECT * FROM {name}"), key=repr) for name in TABLES}
    connection = await asyncpg.connect(url)
    try:
        return {name: await connection.fetch(f"SELECT t::text FROM projection.{name} t ORDER BY 1") for name in TABLES}
    finally:
        await connection.close()


@pytest.mark.suite(
    services=SERVICES,
    topologies=["split"],
    backends=["sqlite", "postgres"],
    settings={"runtime": {"receipt_ttl_seconds": 0}, "projection": {"projection_lease_ttl_seconds": 1}},
)
@pytest.mark.rule("P1", "P3", "R19")
@settings(max_examples=HISTORIES, suppress_health_check=list(HealthCheck))
@given(steps=history)
async def test_rebuild_equals_live_after_any_history(suite: Suite, steps: list[tuple[str, int]]) -> None:
    past = Past(suite)
    for action, which in steps:
        await past.act(action, which)
    await past.be_seen()
    live = await rows(suite)
    request = admin_service_pb2.RebuildRequest(request_id=fresh_id(), everything=True)
    metadata = past.world.metadata + grant_all()
    frames = past.world.bind("ProjectionAdminService.Rebuild")(request, metadata=metadata, timeout=60)
    assert [frame async for frame in frames][-1].is_done
    assert await rows(suite) == live
