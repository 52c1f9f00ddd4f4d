"""A commit with staged values that the server does not survive is all or nothing, and sending it again finishes it."""

import grpc
import pytest
import sqlalchemy as sa

from tests.store.runtime_pipeline.test_crashes import Server, serving
from tests.support.checkpoints import put
from tests.support.databases import Databases
from tests.support.descriptors import fresh_id
from tests.support.processes import Processes
from tests.support.runtime import Runtime
from tests.support.suite import migrate_one
from threadkeep.runtime.v1 import checkpoint_pb2
from threadkeep.runtime.v1 import checkpoint_service_pb2 as pb
from threadkeep_chassis.database import Database
from threadkeep_runtime.tables import checkpoint_blobs, checkpoints, staged_chunks


async def rows(url: str) -> list[int]:
    """How many checkpoints, values and staged chunks there are."""
    database = await Database.open(url, "runtime")
    try:
        async with database.read() as connection:
            return [
                await connection.scalar(sa.select(sa.func.count()).select_from(table))
                for table in (checkpoints, checkpoint_blobs, staged_chunks)
            ]
    finally:
        await database.close()


@pytest.mark.rule("X7", "R1", "R20")
@pytest.mark.case("B92")
@pytest.mark.suite(backends=["sqlite", "postgres"])
@pytest.mark.parametrize("died", ["before_commit", "after_commit"])
async def test_a_commit_killed_midway_keeps_its_staged_values_or_has_used_them_up(
    processes: Processes, databases: Databases, database_url: str, backend: str, died: str
) -> None:
    await migrate_one(database_url, "runtime")
    nowhere = Runtime(Server("127.0.0.1:1"))
    staged = checkpoint_pb2.StagedValue(staged_id="large", chunk_count=3, size=300_000)
    value = checkpoint_pb2.ChannelValue(channel="a", version="1", type="bytes", staged=staged)
    request = pb.PutCheckpointRequest(request_id=fresh_id(), session_id=fresh_id("session"), put=put(1, value))
    async with serving(processes, database_url, nowhere) as (_, runtime):
        for index in range(3):
            chunk = pb.StageChunkRequest(
                request_id=fresh_id(), staged_id="large", index=index, data=bytes([index]) * 100_000
            )
            await runtime.call("CheckpointService.StageChunk", chunk)
    assert await rows(database_url) == [0, 0, 3]

    async with serving(processes, database_url, nowhere, died) as (process, runtime):
        with pytest.raises(grpc.RpcError):
            await runtime.call("CheckpointService.PutCheckpoint", request)
        assert await process.wait() == -9
    assert await rows(database_url) == ([0, 0, 3] if died == "before_commit" else [1, 1, 0])

    async with serving(processes, database_url, nowhere) as (_, runtime):
        response = await runtime.call("CheckpointService.PutCheckpoint", request)
        assert response.receipt.replay == (died == "after_commit")
        get = pb.GetCheckpointRequest(session_id=request.session_id)
        (found,) = (await runtime.call("CheckpointService.GetCheckpoint", get)).checkpoint.channel_values
        assert found.data == b"".join(bytes([index]) * 100_000 for index in range(3))
    assert await rows(database_url) == [1, 1, 0]
