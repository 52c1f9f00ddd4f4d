"""History that is compacted (C6): what is left of it, and that nobody who goes on loses a change without being told."""

import asyncio
from typing import Any

import grpc
import pytest
import sqlalchemy as sa

from tests.support.calls import error_details, refused
from tests.support.config import TOOL, Caller, config_database, config_server, config_server_on, tool
from tests.support.databases import Databases
from threadkeep_chassis.database import Connection, Database
from threadkeep_chassis.scope import Scope
from threadkeep_chassis.signals import signals_for
from threadkeep_config.domain.resolution import Precedence
from threadkeep_config.domain.values import EntityType
from threadkeep_config.settings import ConfigSettings
from threadkeep_config.store import revisions
from threadkeep_config.store.cache import Cache
from threadkeep_config.store.resolver import Resolver
from threadkeep_config.store.scopes import Views
from threadkeep_config.store.tail import Tail
from threadkeep_config.tables import counter
from threadkeep_config.tables import revisions as log

SHORT: dict[str, Any] = {
    "bookmark_seconds": 0.05,
    "history_retention_seconds": 0.2,
    "compaction_interval_seconds": 0.05,
}
"""Settings of a server that forgets soon."""


async def refusal(caller: Caller, after: int) -> tuple[grpc.StatusCode, str, str | None]:
    """How a watch from a revision is refused."""
    details = error_details(await caller.watch(after=after).end())
    return details.code, details.reason, details.metadata.get("oldest_revision")


async def resumed(caller: Caller, after: int) -> str:
    """`compacted` if a watch from a revision is refused as such, else `goes on`."""
    watch = caller.watch(after=after)
    try:
        await watch.frame()
    except grpc.aio.AioRpcError as error:
        return "compacted" if error_details(error).reason == "REVISION_COMPACTED" else str(error)
    watch.cancel()
    return "goes on"


async def forgotten(caller: Caller, revision: int) -> None:
    """Waits until history up to and with the revision is compacted: something newer was written by then."""

    async def look() -> bool:
        return await resumed(caller, revision - 1) == "compacted"

    async with asyncio.timeout(60):
        while not await look():
            await asyncio.sleep(0.02)


@pytest.mark.rule("C6")
@pytest.mark.case("B76")
async def test_a_deletion_that_was_compacted_is_told_as_compacted_never_passed_over(
    databases: Databases, backend: str
) -> None:
    async with config_server_on(databases, backend, **SHORT) as server:
        acme = server.caller()
        first = (await acme.put(TOOL, "x", tool())).entity.revision
        tombstone = (await acme.delete(TOOL, "x")).revision
        kept = (await acme.put(TOOL, "y", tool("kept"))).entity
        await forgotten(acme, tombstone)
        code, reason, oldest = await refusal(acme, first)
        assert (code, reason) == (grpc.StatusCode.OUT_OF_RANGE, "REVISION_COMPACTED")
        assert int(oldest or 0) > tombstone
        watch = acme.watch()
        assert [change.entity for change in await watch.snapshot()] == [kept]
        assert (await acme.get(TOOL, "y")) == (await acme.resolve(TOOL, "y")).entity == kept
        for call in (acme.diff(TOOL, "x", first), acme.roll_back(TOOL, "x", first)):
            assert (await refused(call)).reason == "REVISION_COMPACTED"
        again = (await acme.put(TOOL, "x", tool("again"))).entity
        assert again.revision == kept.revision + 1, "revisions only grow"
        assert [change.entity for change in await watch.changes(1)] == [again]
        watch.cancel()


@pytest.mark.rule("C5", "C6")
async def test_the_last_content_of_what_is_there_survives(databases: Databases, backend: str) -> None:
    async with config_server_on(databases, backend, **SHORT) as server:
        acme = server.caller()
        for n in range(5):
            last = (await acme.put(TOOL, "x", tool(f"x{n}"))).entity
        edge = (await acme.put(TOOL, "y", tool())).entity.revision
        await forgotten(acme, edge - 1)

        async def history() -> list[int]:
            return [entity.revision for entity in await acme.history(TOOL, "x")]

        async with asyncio.timeout(60):
            while await history() != [last.revision]:
                await asyncio.sleep(0.02)
        newer = (await acme.put(TOOL, "x", tool("newer"))).entity
        assert (await acme.roll_back(TOOL, "x", edge)).entity.digest == last.digest
        assert set(await acme.diff(TOOL, "x", last.revision, newer.revision)) == {"tool.description"}
        assert (await refused(acme.roll_back(TOOL, "x", last.revision - 1))).reason == "REVISION_COMPACTED"


@pytest.mark.rule("C6")
@pytest.mark.case("B78")
async def test_a_watch_that_was_idle_goes_on_after_a_compaction(databases: Databases, backend: str) -> None:
    """Bookmarks moved it past what was compacted before that was."""
    async with config_server_on(databases, backend, **SHORT) as server:
        acme = server.caller()
        idle = server.caller()
        watch = idle.watch()
        assert await watch.snapshot() == []
        for n in range(10):
            last = (await acme.put(TOOL, "x", tool(str(n)))).entity.revision
        while watch.revision < last:
            assert (await watch.frame()).HasField("bookmark")
        watch.cancel()
        await forgotten(acme, last - 1)
        mine = (await idle.put(TOOL, "mine", tool())).entity
        resumed_watch = idle.watch(after=watch.revision)
        assert [change.entity for change in await resumed_watch.changes(1)] == [mine]
        resumed_watch.cancel()


@pytest.mark.rule("C6")
def test_a_retention_that_outruns_bookmarks_is_refused() -> None:
    with pytest.raises(ValueError, match="bookmark_seconds"):
        ConfigSettings(database_url="memory:", bookmark_seconds=10, history_retention_seconds=15)


async def follow(caller: Caller, end: str) -> tuple[dict[str, str], int]:
    """Keeps a copy of the scope: goes on after each break, starts anew when told that history is gone.

    Gives name to description once `end` is there, and how often it began anew.
    """
    copy: dict[str, str] = {}
    after: int | None = None
    snapshots = 0
    while end not in copy:
        watch = caller.watch(after=after)
        try:
            if after is None:
                snapshots += 1
                copy = {one.entity.name: one.entity.definition.tool.description for one in await watch.snapshot()}
                after = watch.revision
            for _ in range(3):
                if end in copy:
                    break
                frame = await watch.frame()
                after = frame.revision
                for change in frame.changes.changes:
                    entity = change.entity
                    if entity.deleted:
                        copy.pop(entity.name, None)
                    else:
                        copy[entity.name] = entity.definition.tool.description
        except grpc.aio.AioRpcError as error:
            if error_details(error).reason != "REVISION_COMPACTED":
                raise
            after = None
        finally:
            watch.cancel()
    return copy, snapshots


async def churn(caller: Caller, rounds: int) -> None:
    """Puts and deletes a few names over and over; ends with `end`."""
    for n in range(rounds):
        name = f"n{n % 5}"
        if n % 3 == 2:
            await caller.put(TOOL, name, tool(str(n)))
            await caller.delete(TOOL, name)
        else:
            await caller.put(TOOL, name, tool(str(n)))
    await caller.put(TOOL, "end", tool())


async def compact_to_the_end(connection: Connection) -> None:
    """Compacts to the newest revision, and removes what is superseded."""
    newest, _ = await revisions.state(connection)
    await revisions.raise_floor(connection, newest)
    while await revisions.purge(connection, 7):
        pass


async def compact_on(url: str, stop: asyncio.Event) -> None:
    """Compacts to the newest revision over and over, far faster than any setting allows."""
    database = await Database.open(url, "config")
    try:
        while not stop.is_set():
            await database.retrying(compact_to_the_end)
            await asyncio.sleep(0)
    finally:
        await database.close()


@pytest.mark.rule("C6")
@pytest.mark.case("B76")
@pytest.mark.suite(backends=["postgres"])
async def test_a_compaction_that_races_resumes_never_loses_a_deletion(databases: Databases, backend: str) -> None:
    url = await config_database(databases, backend)
    async with config_server(url, bookmark_seconds=0.05) as one, config_server(url, bookmark_seconds=0.05) as two:
        writer, stop = one.caller(tenant="t"), asyncio.Event()
        compacting = asyncio.create_task(compact_on(url, stop))
        following = [asyncio.create_task(follow(server.caller(tenant="t"), "end")) for server in (one, two, one, two)]
        await churn(writer, 150)
        try:
            copies = await asyncio.gather(*following)
        finally:
            stop.set()
            await compacting
        there = {one.name: one.definition.tool.description for one in await writer.list_all()}
        assert [copy for copy, _ in copies] == [there] * 4
    await databases.drop(url)


@pytest.mark.rule("C2", "C6")
@pytest.mark.suite(backends=["postgres"])
async def test_a_replica_that_was_behind_a_compaction_answers_what_is_true(databases: Databases, backend: str) -> None:
    """What it had cached was changed by revisions that it can't read any more."""
    url = await config_database(databases, backend)
    async with config_server(url) as server:
        acme = server.caller(tenant="t")
        for name in ("gone", "changed"):
            await acme.put(TOOL, name, tool("old"))
        database = await Database.open(url, "config")
        tail = Tail(database, signals_for(database))
        await tail.start()
        resolver = Resolver(database, tail, Cache(1_000_000))
        running = asyncio.create_task(resolver.run())
        view = Views(Precedence()).inherited(Scope({"tenant": "t"}))

        async def found(name: str) -> str | None:
            entry, _ = await resolver.resolve(view, (EntityType.TOOL, name))
            return None if entry.value is None else entry.value.content.definition

        try:
            assert "old" in (await found("gone") or "")
            assert "old" in (await found("changed") or "")
            await acme.delete(TOOL, "gone")
            for text in ("new", "newer"):
                await acme.put(TOOL, "changed", tool(text))
            await database.retrying(compact_to_the_end)
            async with database.read() as connection:
                rows = (await connection.execute(sa.select(log.c.revision))).all()
                state = (await connection.execute(sa.select(counter.c.revision, counter.c.purged_revision))).one()
            assert [row.revision for row in rows] == [state.revision] == [state.purged_revision]
            assert await found("gone") is None
            assert "newer" in (await found("changed") or "")
        finally:
            resolver.close()
            await running
            await database.close()
    await databases.drop(url)


@pytest.mark.rule("C5")
async def test_revisions_are_dense_where_writes_fail(databases: Databases, backend: str) -> None:
    """A refused write gives its revision back: it was taken in its transaction."""
    if backend == "memory":
        async with config_server("memory:") as server:
            await mixed_writes(server.caller())
        return
    url = await config_database(databases, backend)
    async with config_server(url) as server:
        await mixed_writes(server.caller())
    database = await Database.open(url, "config")
    try:
        async with database.read() as connection:
            newest, _ = await revisions.state(connection)
            read = await revisions.after(connection, 0, limit=100, max_bytes=10**9)
    finally:
        await database.close()
    assert [entity.revision for entity in read] == list(range(1, newest + 1))
    await databases.drop(url)


async def mixed_writes(caller: Caller) -> None:
    """Writes that make a revision, make none, and fail."""
    for n in range(5):
        entity = (await caller.put(TOOL, "x", tool(str(n)))).entity
        await refused(caller.put(TOOL, "x", tool(), expected_revision=entity.revision + 7))
        await refused(caller.put(TOOL, "x", tool(entry_point="bad")))
        await refused(caller.delete(TOOL, "nobody"))
        assert not (await caller.put(TOOL, "x", tool(str(n)))).changed
        assert entity.revision == n + 1
