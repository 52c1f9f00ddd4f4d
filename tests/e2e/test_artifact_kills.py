"""The artifacts service dies by SIGKILL at a random byte of an upload, again and again (A3, A7).

Afterwards no version is visible without its content, the client's retry succeeds and makes one version, and after the
sweep nothing is stored that no version needs. `ARTIFACT_KILLS` in the environment says how often, `KILL_SEED` repeats a
run.
"""

import asyncio
import contextlib
import hashlib
import os
import random
import sqlite3
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import grpc
import pytest

from tests.support.artifacts import MIB, SECONDS, Stub, download, frames, header
from tests.support.calls import scope
from tests.support.descriptors import fresh_id
from tests.support.mortal import OPTIONS
from tests.support.processes import Process, Processes
from tests.support.suite import migrate_one
from tests.support.waiting import eventually
from threadkeep.artifacts.v1 import artifact_service_pb2 as pb
from threadkeep.artifacts.v1 import artifact_service_pb2_grpc, transfer_pb2

KILLS = int(os.environ.get("ARTIFACT_KILLS") or 3)
PIECE = 64 * 1024
ACME = scope(tenant="acme")


class Mortal:
    """An artifacts service in a process of its own, on its data and address."""

    def __init__(self, processes: Processes, folder: Path, content: str) -> None:
        self._processes, self.folder, self.content = processes, folder, content
        self._process: Process | None = None
        self.address = "127.0.0.1:0"

    async def live(self, **settings: Any) -> None:
        """Starts it; settings beside those of the content store."""
        told = {
            "artifacts_content": self.content,
            "artifacts_directory": self.folder / "content",
            "artifacts_sweep_interval_seconds": 0.05,
            "artifacts_garbage_grace_seconds": 0,
            **settings,
        }
        sets = [part for name, value in told.items() for part in ("--set", f"{name}={value}")]
        # Nobody is there; the follower of deleted sessions waits.
        command = ("serve", "artifacts", "--data-dir", self.folder, "--runtime-address", "127.0.0.1:1")
        self._process, self.address = await self._processes.daemon(
            *command, *sets, "--log-level", "ERROR", listen=self.address
        )

    async def die(self) -> None:
        """SIGKILL."""
        assert self._process is not None
        await self._process.kill()

    def stored(self) -> tuple[int, int]:
        """How many chunks are stored, and how many uploads are remembered."""
        with contextlib.closing(sqlite3.connect(f"file:{self.folder / 'artifacts.db'}?mode=ro", uri=True)) as opened:
            (staged,) = opened.execute("SELECT count(*) FROM staged_blobs").fetchone()
            (rows,) = opened.execute("SELECT count(*) FROM blob_chunks").fetchone()
        files = [one for one in (self.folder / "content").rglob("*") if one.is_file()]
        return rows + len(files), staged


@pytest.mark.rule("A3", "A7", "X3")
@pytest.mark.parametrize("content_store", ["database", "directory"])
async def test_a_kill_at_any_byte_of_an_upload_leaves_all_or_nothing(
    processes: Processes, tmp_path: Path, content_store: str
) -> None:
    seed = int(os.environ.get("KILL_SEED") or random.randrange(1 << 32))
    print("seed", seed)
    choose = random.Random(seed)
    await migrate_one(f"sqlite:///{tmp_path / 'artifacts.db'}", "artifacts")
    service = Mortal(processes, tmp_path, content_store)
    await service.live()
    channel = grpc.aio.insecure_channel(service.address, OPTIONS)
    stub = artifact_service_pb2_grpc.ArtifactServiceStub(channel)
    contents: dict[str, bytes] = {}
    for number in range(KILLS):
        content = choose.randbytes(choose.randrange(0, 6 * MIB))
        head = header(upload_id=fresh_id("upload") if number % 2 else None, artifact_id=f"a{number}", create_only=True)
        # Also beyond the last byte: while the version is being made, or after the answer.
        strike = choose.randrange(0, len(content) + 4 * PIECE)
        acknowledged = await _upload_until(stub, service, head, content, strike, choose.random() * 0.02)
        await service.die()
        await service.live()
        await eventually(lambda: _answers(stub), timeout=60)
        await _all_is_whole(stub, {**contents, head.artifact_id: content}, must_be_there=[*contents, *acknowledged])
        again = transfer_pb2.UploadHeader()
        again.CopyFrom(head)
        if head.upload_id:
            with contextlib.suppress(grpc.aio.AioRpcError):
                asked = transfer_pb2.ResumeUploadRequest(upload_id=head.upload_id)
                again.offset = (await stub.ResumeUpload(asked, metadata=ACME)).offset
        rest = frames(content[again.offset :], again, _trailer(content))
        version = (await stub.UploadVersion(iter(rest), metadata=ACME, timeout=SECONDS)).version
        assert (version.version, version.sha256) == (1, hashlib.sha256(content).hexdigest())
        contents[head.artifact_id] = content
    await service.die()
    # Uploads that the dead servers left open are given up, and forgotten, in this life.
    await service.live(artifacts_upload_ttl_seconds=0.2)
    await eventually(lambda: _answers(stub), timeout=60)
    size = {"database": MIB, "directory": 4 * MIB}[content_store]
    needed = sum(-(-len(content) // size) for content in dict.fromkeys(contents.values()))
    await eventually(lambda: service.stored() == (needed, 0), timeout=60, interval=0.1)
    await _all_is_whole(stub, contents, must_be_there=[*contents])
    await channel.close()


async def _upload_until(
    stub: Stub, service: Mortal, head: transfer_pb2.UploadHeader, content: bytes, strike: int, pause: float
) -> list[str]:
    """Uploads, and kills the service once `strike` bytes were sent, or `pause` seconds after all were.

    Gives the artifact's id if the upload was acknowledged nevertheless.
    """
    killing: list[asyncio.Task[None]] = []

    def kill() -> None:
        if not killing:
            killing.append(asyncio.create_task(service.die()))

    async def parts() -> AsyncIterator[transfer_pb2.UploadVersionRequest]:
        sent = 0
        for frame in frames(content, head, cut=PIECE):
            yield frame
            sent += len(frame.chunk)
            if sent >= strike:
                kill()
        asyncio.get_running_loop().call_later(pause, kill)

    try:
        await stub.UploadVersion(parts(), metadata=ACME, timeout=SECONDS)
    except grpc.aio.AioRpcError:
        return []
    finally:
        kill()
        await killing[0]
    return [head.artifact_id]


async def _all_is_whole(stub: Stub, contents: dict[str, bytes], must_be_there: list[str]) -> None:
    """Every visible version has its content, and what was acknowledged is there."""
    page = await stub.ListArtifacts(pb.ListArtifactsRequest(page_size=1000), metadata=ACME)
    seen = {one.artifact_id: one for one in page.artifacts}
    assert set(must_be_there) <= set(seen) <= set(contents)
    for artifact_id in seen:
        assert await download(stub, ACME, artifact_id) == contents[artifact_id]


async def _answers(stub: Stub) -> bool:
    try:
        await stub.GetUsage(pb.GetUsageRequest(), metadata=ACME, timeout=5)
    except grpc.aio.AioRpcError:
        return False
    return True


def _trailer(content: bytes) -> transfer_pb2.UploadTrailer:
    return transfer_pb2.UploadTrailer(size=len(content), sha256=hashlib.sha256(content).hexdigest())
