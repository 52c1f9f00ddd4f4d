"""The runtime's data restored to an earlier point: readers and followers learn of it (R14)."""

import shutil
from pathlib import Path

import grpc
import pytest

from tests.store.runtime_pipeline.test_crashes import Server
from tests.support.calls import error_details
from tests.support.descriptors import fresh_id
from tests.support.feeds import follow
from tests.support.processes import BIN, Processes
from tests.support.runtime import Runtime, event
from tests.support.waiting import eventually
from threadkeep.projection.v1 import summary_service_pb2


@pytest.mark.rule("R14", "P1", "P3")
async def test_after_a_restore_old_cursors_are_unknown_and_the_projection_follows(
    processes: Processes, tmp_path: Path
) -> None:
    data, backup = tmp_path / "data", tmp_path / "runtime.backup"
    up = ("up", "--data-dir", str(data), "--log-level", "ERROR")
    process, address = await processes.daemon(*up)
    runtime = Runtime(Server(address), tenant="acme")
    kept, lost = fresh_id("kept"), fresh_id("lost")
    await runtime.create(kept)
    await process.stop()
    shutil.copy(data / "runtime.db", backup)

    process, address = await processes.daemon(*up)
    runtime = Runtime(Server(address), tenant="acme")
    await runtime.create(lost)
    await runtime.commit(kept, events=[event("lost")])
    async with follow(runtime.world) as feed:
        (*_, last) = await feed.events(3)

    async def summaries(runtime: Runtime) -> set[str]:
        listing = summary_service_pb2.ListSessionSummariesRequest()
        page = await runtime.call("SummaryService.ListSessionSummaries", listing)
        return {one.session_id for one in page.sessions}

    async def follows(runtime: Runtime, wanted: set[str]) -> bool:
        return await summaries(runtime) == wanted

    await eventually(lambda: follows(runtime, {kept, lost}))
    await process.stop()

    for file in data.glob("runtime.db*"):
        file.unlink()
    shutil.copy(backup, data / "runtime.db")
    renewed = await processes.start(BIN / "threadkeepd", "renew-log", "--data-dir", data)
    assert await renewed.wait() == 0, renewed.output()
    assert "the log's incarnation is" in renewed.output()

    process, address = await processes.daemon(*up)
    runtime = Runtime(Server(address), tenant="acme")
    await runtime.commit(kept, events=[event("again"), event("again")])
    for request in ({}, {"session_id": kept}):
        async with follow(runtime.world, after=last.cursor, **request) as feed:
            details = error_details(await feed.failure())
        wanted = "CURSOR_INVALID" if request else "CURSOR_UNKNOWN"
        assert details.reason == wanted
    assert details.code in (grpc.StatusCode.OUT_OF_RANGE, grpc.StatusCode.INVALID_ARGUMENT)
    await eventually(lambda: follows(runtime, {kept}))
    # While it runs, the data belongs to the server.
    refused = await processes.start(BIN / "threadkeepd", "renew-log", "--data-dir", data)
    assert await refused.wait() == 6, refused.output()
