"""A delete that the server does not survive is all or nothing, and sending it again finishes it (R19, R20)."""

import grpc
import pytest
import sqlalchemy as sa

from tests.store.runtime_pipeline.test_crashes import Server, serving
from tests.support.checkpoints import Saver, put, value, write, writes
from tests.support.databases import Databases
from tests.support.descriptors import fresh_id
from tests.support.processes import Processes
from tests.support.runtime import Runtime
from tests.support.suite import migrate_one
from threadkeep.runtime.v1 import checkpoint_service_pb2
from threadkeep_chassis.database import Database
from threadkeep_runtime.tables import checkpoint_blobs, checkpoint_writes, checkpoints


async def rows(url: str) -> list[int]:
    """How many rows LangGraph's tables hold."""
    database = await Database.open(url, "runtime")
    try:
        async with database.read() as connection:
            return [
                await connection.scalar(sa.select(sa.func.count()).select_from(table))
                for table in (checkpoints, checkpoint_blobs, checkpoint_writes)
            ]
    finally:
        await database.close()


@pytest.mark.rule("R19", "R20")
@pytest.mark.case("B28")
@pytest.mark.suite(backends=["sqlite", "postgres"])
async def test_a_delete_killed_midway_deletes_nothing_and_again_everything(
    processes: Processes, databases: Databases, database_url: str, backend: str
) -> None:
    await migrate_one(database_url, "runtime")
    nowhere, session_id = Runtime(Server("127.0.0.1:1")), fresh_id("session")
    request = checkpoint_service_pb2.DeleteThreadRequest(request_id=fresh_id(), session_id=session_id)
    async with serving(processes, database_url, nowhere) as (_, runtime):
        saver = Saver(runtime.world, session_id)
        for number in range(1, 4):
            await saver.put(put(number, value("a", str(number))))
            await saver.write(writes(number, write("t", 0)))
    assert await rows(database_url) == [3, 3, 3]

    async with serving(processes, database_url, nowhere, "before_commit") as (process, runtime):
        with pytest.raises(grpc.RpcError):
            await runtime.call("CheckpointService.DeleteThread", request)
        assert await process.wait() == -9
    assert await rows(database_url) == [3, 3, 3]

    async with serving(processes, database_url, nowhere) as (_, runtime):
        assert not (await runtime.call("CheckpointService.DeleteThread", request)).receipt.replay
    assert await rows(database_url) == [0, 0, 0]
