"""A fork that the server does not survive is all or nothing, and sending it again finishes it (R18, X3)."""

import grpc
import pytest

from tests.store.runtime_life.test_sweep import fill, served
from tests.support.calls import refused
from tests.support.checkpoints import Saver
from tests.support.databases import Databases
from tests.support.descriptors import fresh_id
from tests.support.processes import Processes
from tests.support.suite import migrate_one
from threadkeep.runtime.v1 import session_service_pb2

pb = session_service_pb2


@pytest.mark.rule("R18", "X3")
@pytest.mark.suite(backends=["sqlite", "postgres"])
@pytest.mark.parametrize("failpoint", ["before_commit", "after_commit"])
async def test_a_fork_killed_midway_is_whole_after_the_second_call(
    processes: Processes, databases: Databases, database_url: str, backend: str, failpoint: str
) -> None:
    await migrate_one(database_url, "runtime")
    source, target, values = fresh_id("source"), fresh_id("fork"), {"tenant": fresh_id("tenant")}
    draft = pb.SessionDraft(session_id=target)
    request = pb.ForkSessionRequest(request_id=fresh_id(), session_id=source, session=draft)
    async with served(processes, database_url, values) as (_, runtime):
        await fill(runtime, source)
    async with served(processes, database_url, values, f"failpoint={failpoint}") as (process, runtime):
        with pytest.raises(grpc.RpcError):
            await runtime.call("SessionService.ForkSession", request)
        assert await process.wait() == -9
    async with served(processes, database_url, values) as (_, runtime):
        if failpoint == "before_commit":
            assert (await refused(runtime.session(target))).reason == "SESSION_NOT_FOUND"
        answer = await runtime.call("SessionService.ForkSession", request)
        assert answer.receipt.replay == (failpoint == "after_commit")
        copied, original = Saver(runtime.world, target), Saver(runtime.world, source)
        assert len(await copied.list()) == len(await original.list()) == 4
        assert (await runtime.types(target)).count("session.created") == 1
