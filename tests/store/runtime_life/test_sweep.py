"""Deleted sessions on disk: no table keeps anything of them, whatever dies in the middle, whoever goes on (R19)."""

import asyncio
import contextlib
import sqlite3
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import grpc
import pytest
import sqlalchemy as sa

from tests.store.runtime_pipeline.test_crashes import Server
from tests.support.calls import refused
from tests.support.checkpoints import Saver, put, value, write, writes
from tests.support.databases import Databases
from tests.support.descriptors import fresh_id
from tests.support.processes import Process, Processes
from tests.support.runtime import Runtime, event, text
from tests.support.suite import Suite, migrate_one
from tests.support.waiting import eventually
from threadkeep.runtime.v1 import commit_pb2, session_service_pb2, task_pb2, ticket_pb2
from threadkeep_chassis.database import Database
from threadkeep_chassis.scope import Scope
from threadkeep_runtime.domain.values import thread_key_of
from threadkeep_runtime.tables import metadata, tombstones

MARK = "c0nfidential"
pb = session_service_pb2


async def rows(url: str) -> dict[str, list[Any]]:
    """Every row of every table of the runtime."""
    database = await Database.open(url, "runtime")
    try:
        async with database.read() as connection:
            return {
                table.name: [tuple(row) for row in await connection.execute(sa.select(table))]
                for table in metadata.sorted_tables
            }
    finally:
        await database.close()


def mentions(found: dict[str, list[Any]], needle: str) -> dict[str, int]:
    """In which tables something contains the text, and in how many rows."""
    counts = {name: sum(needle in repr(row) for row in table) for name, table in found.items()}
    return {name: count for name, count in counts.items() if count}


def request(session_id: str, request_id: str | None = None) -> pb.DeleteSessionRequest:
    return pb.DeleteSessionRequest(request_id=request_id or fresh_id(), session_id=session_id)


@asynccontextmanager
async def served(
    processes: Processes, url: str, values: dict[str, str], *settings: str
) -> AsyncIterator[tuple[Process, Runtime]]:
    """The runtime in a process of its own."""
    more = [part for setting in settings for part in ("--set", setting)]
    process, address = await processes.daemon(
        *("serve", "runtime", "--database", url, "--config-address", "127.0.0.1:1", "--log-level", "ERROR"), *more
    )
    server = Server(address)
    try:
        yield process, Runtime(server, **values)
    finally:
        await server.channel("runtime").close()
        if process.is_running:
            await process.stop()


async def fill(runtime: Runtime, session_id: str, checkpoints: int = 4) -> None:
    """A session with checkpoints, writes and events, whose content bears the mark; no agent is needed."""
    await runtime.create(session_id, title=MARK, metadata={"note": MARK})
    saver = Saver(runtime.world, session_id)
    for number in range(1, checkpoints + 1):
        await saver.put(put(number, value("a", str(number), MARK.encode()), metadata={"note": MARK}))
        await saver.write(writes(number, write("t", 0, MARK.encode())))
        await runtime.commit(session_id, events=[event(payload=text(MARK.encode()))])


@pytest.mark.rule("R19")
@pytest.mark.case("B28")
@pytest.mark.suite(backends=["postgres"], topologies=["embedded"], services=["config", "runtime"])
async def test_no_table_holds_anything_of_a_deleted_session(suite: Suite) -> None:
    runtime = Runtime(suite)
    kept, gone = fresh_id("session"), fresh_id("session")
    await fill(runtime, kept, 1)
    before = mentions(await rows(suite.urls["runtime"]), MARK)
    await fill(runtime, gone)
    held = await runtime.lease(session_id=gone, metadata={"note": MARK})
    asked = ticket_pb2.TicketDraft(prompt=text(MARK.encode()), interrupt_id="i")
    await runtime.work(held, awaiting=commit_pb2.RunAwaiting(tickets=[asked]))
    await runtime.submit(gone, multitask_strategy=task_pb2.MULTITASK_STRATEGY_ENQUEUE)
    first = request(gone)
    await runtime.call("SessionService.DeleteSession", first)
    found = await rows(suite.urls["runtime"])
    assert mentions(found, MARK) == before
    assert mentions(found, gone) == {"events": 1, "tombstones": 1}
    key = thread_key_of(Scope(dict(runtime.world.values)).key, gone)
    assert mentions(found, key) == {"events": 1, "tombstones": 1}
    (own,) = [row for row in found["receipts"] if first.request_id in row]
    assert b"" not in own, "the deletion's own answer is kept"


@pytest.mark.rule("R19")
@pytest.mark.case("B28")
@pytest.mark.suite(backends=["sqlite", "postgres"])
async def test_a_deletion_killed_midway_is_finished_by_calling_again(
    processes: Processes, databases: Databases, database_url: str, backend: str
) -> None:
    await migrate_one(database_url, "runtime")
    session_id, values = fresh_id("session"), {"tenant": fresh_id("tenant")}
    first = request(session_id)
    few = ("sweep_rows=5", "sweep_interval_seconds=3600")
    async with served(processes, database_url, values, "failpoint=during_sweep:1", *few) as (process, runtime):
        await fill(runtime, session_id)
        with pytest.raises(grpc.RpcError):
            await runtime.call("SessionService.DeleteSession", first)
        assert await process.wait() == -9
    assert mentions(await rows(database_url), MARK), "it died in the middle"
    async with served(processes, database_url, values, *few) as (_, runtime):
        # Unusable at once, though rows are left.
        assert (await refused(runtime.session(session_id))).reason == "SESSION_NOT_FOUND"
        assert (await refused(runtime.create(session_id))).reason == "ID_TAKEN"
        assert not await Saver(runtime.world, session_id).list(session_id=None)
        assert await Saver(runtime.world, session_id).get() is None
        assert (await runtime.call("SessionService.DeleteSession", first)).receipt.replay
    found = await rows(database_url)
    assert mentions(found, MARK) == {}
    assert mentions(found, session_id) == {"events": 1, "tombstones": 1}


@pytest.mark.rule("R19", "R22")
@pytest.mark.suite(backends=["sqlite", "postgres"])
async def test_a_deletion_that_nobody_calls_again_is_finished_by_any_replica(
    processes: Processes, databases: Databases, database_url: str, backend: str
) -> None:
    await migrate_one(database_url, "runtime")
    sessions, values = [fresh_id("session") for _ in range(3)], {"tenant": fresh_id("tenant")}
    async with served(
        processes, database_url, values, "failpoint=during_sweep:2", "sweep_rows=3", "sweep_interval_seconds=3600"
    ) as (process, runtime):
        for session_id in sessions:
            await fill(runtime, session_id, 2)
        calls = [runtime.call("SessionService.DeleteSession", request(one)) for one in sessions]
        await asyncio.gather(*calls, return_exceptions=True)
        assert await process.wait() == -9

    go_on = ("sweep_rows=3", "sweep_interval_seconds=0.05")
    async with served(processes, database_url, values, *go_on) as (_, runtime), contextlib.AsyncExitStack() as stack:
        if backend == "postgres":
            await stack.enter_async_context(served(processes, database_url, values, *go_on))
        # Those whose deletion was not committed when the server died.
        for one in (await runtime.call("SessionService.ListSessions", pb.ListSessionsRequest())).sessions:
            await runtime.call("SessionService.DeleteSession", request(one.session_id))
        await eventually(lambda: all_swept(database_url))
    found = await rows(database_url)
    assert mentions(found, MARK) == {}
    assert len(found["tombstones"]) == len(sessions)


async def all_swept(url: str) -> bool:
    """Read beside the server; SQLite's file has one owner, who lets others read."""
    unswept = "SELECT count(*) FROM tombstones WHERE swept_time IS NULL"
    if url.startswith("sqlite"):
        with contextlib.closing(sqlite3.connect(f"file:{url.removeprefix('sqlite:///')}?mode=ro", uri=True)) as reader:
            return bool(reader.execute(unswept).fetchone()[0] == 0)
    return all(row[-1] is not None for row in (await rows(url))[tombstones.name])
