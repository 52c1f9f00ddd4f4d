"""History that is gone (C6). Nothing compacts yet; a floor in the database is honoured by every reader all the same."""

import grpc
import pytest
import sqlalchemy as sa

from tests.support.calls import error_details, refused
from tests.support.config import TOOL, Caller, config_database, config_server, tool
from tests.support.databases import Databases
from threadkeep_chassis.database import Connection, Database
from threadkeep_config.store import revisions
from threadkeep_config.tables import counter
from threadkeep_config.tables import revisions as log


async def compact(database: Database, floor: int) -> None:
    """Removes history up to the floor, as a compaction would: the floor first."""

    async def work(connection: Connection) -> None:
        await connection.execute(sa.update(counter).values(compacted_revision=floor))
        await connection.execute(sa.delete(log).where(log.c.revision <= floor))

    await database.retrying(work)


async def refusal(caller: Caller, after: int) -> tuple[grpc.StatusCode, str, str | None]:
    """How a watch from a revision is refused."""
    details = error_details(await caller.watch(after=after).end())
    return details.code, details.reason, details.metadata.get("oldest_revision")


@pytest.mark.rule("C6")
@pytest.mark.case("B76")
@pytest.mark.suite(backends=["postgres"])
async def test_a_deletion_below_the_floor_is_told_as_compacted_never_passed_over(
    databases: Databases, backend: str
) -> None:
    url = await config_database(databases, backend)
    async with config_server(url) as server:
        acme = server.caller()
        first = (await acme.put(TOOL, "x", tool())).entity.revision
        tombstone = (await acme.delete(TOOL, "x")).revision
        await acme.put(TOOL, "y", tool())
        database = await Database.open(url, "config")
        try:
            await compact(database, first)
            watch = acme.watch(after=first)
            assert [change.entity.deleted for change in await watch.changes(2)] == [True, False]
            watch.cancel()
            await compact(database, tombstone)
        finally:
            await database.close()
        expected = (grpc.StatusCode.OUT_OF_RANGE, "REVISION_COMPACTED", str(tombstone + 1))
        assert await refusal(acme, 0) == expected
        assert await refusal(acme, first) == expected
        watch = acme.watch(after=tombstone)
        assert [change.entity.name for change in await watch.changes(1)] == ["y"]
        watch.cancel()
        snapshot = acme.watch()
        assert [change.entity.name for change in await snapshot.snapshot()] == ["y"]
        snapshot.cancel()
        for call in (acme.diff(TOOL, "x", first), acme.roll_back(TOOL, "x", first)):
            details = await refused(call)
            assert (details.code, details.reason) == expected[:2]
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
