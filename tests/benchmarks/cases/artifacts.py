"""What content costs on its way in and out, and a list among many versions."""

from __future__ import annotations

import asyncio
import hashlib
import json
import os
import time
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping
from typing import ClassVar

from tests.benchmarks.harness import Case, median_latency
from tests.support.artifacts import MIB, header
from tests.support.calls import Metadata, scope
from tests.support.descriptors import fresh_id
from threadkeep.artifacts.v1 import artifact_pb2, artifact_service_pb2_grpc, transfer_pb2
from threadkeep.artifacts.v1 import artifact_service_pb2 as pb

PIECE = MIB // 2


class _Content(Case):
    services = ("artifacts",)
    unit = "MiB/s"
    at_least = True

    async def prepare(self) -> None:
        """Content that nothing compresses, new in each upload."""
        self.stub = artifact_service_pb2_grpc.ArtifactServiceStub(self.stage.channel())
        self.metadata: Metadata = scope(tenant=fresh_id("tenant"))
        self.count = 256 if self.scale.name == "full" else 32
        self.noise = os.urandom(MIB)

    async def upload(self) -> artifact_pb2.ArtifactVersion:
        """One upload of `count` MiB."""
        digest = hashlib.sha256()
        first = os.urandom(PIECE)

        async def parts() -> AsyncIterator[transfer_pb2.UploadVersionRequest]:
            yield transfer_pb2.UploadVersionRequest(header=header("noise.bin"))
            for number in range(2 * self.count):
                piece = first if number == 0 else self.noise[number % 2 * PIECE :][:PIECE]
                digest.update(piece)
                yield transfer_pb2.UploadVersionRequest(chunk=piece)
            trailer = transfer_pb2.UploadTrailer(size=self.count * MIB, sha256=digest.hexdigest())
            yield transfer_pb2.UploadVersionRequest(trailer=trailer)

        version: artifact_pb2.ArtifactVersion = (await self.stub.UploadVersion(parts(), metadata=self.metadata)).version
        return version

    async def download(self, artifact_id: str) -> float:
        """One download: MiB per second."""
        started = time.perf_counter()
        request = transfer_pb2.DownloadVersionRequest(artifact_id=artifact_id)
        received = 0
        async for frame in self.stub.DownloadVersion(request, metadata=self.metadata):
            received += len(frame.chunk)
        assert received == self.count * MIB
        return self.count / (time.perf_counter() - started)


class ArtifactUpload(_Content):
    """In."""

    name = "artifact.upload"
    what = "an upload into the database, against bare inserts of its rows"
    target = 0.6

    async def product(self) -> float:
        """An upload."""
        started = time.perf_counter()
        await self.upload()
        return self.count / (time.perf_counter() - started)

    async def baseline(self) -> float:
        """Rows of 1 MiB, a transaction each."""
        database = await self.stage.database("artifacts")
        try:
            await database.execute("CREATE TABLE IF NOT EXISTS bare (number bigint, content bytea)")
            started = time.perf_counter()
            for number in range(self.count):
                await database.execute("INSERT INTO bare VALUES ($1, $2)", number, self.noise)
            seconds = time.perf_counter() - started
            await database.execute("TRUNCATE bare")
        finally:
            await database.close()
        return self.count / seconds


class ArtifactDownload(_Content):
    """Out."""

    name = "artifact.download"
    what = "a download from the database, against an empty stream of as many bytes"
    target = 0.25

    async def prepare(self) -> None:
        """Something to download."""
        await super().prepare()
        self.artifact_id = (await self.upload()).artifact_id

    async def product(self) -> float:
        """A download."""
        return await self.download(self.artifact_id)

    async def baseline(self) -> float:
        """S, in messages of 1 MiB."""
        started = time.perf_counter()
        async for _ in self.stage.echo_stream(json.dumps({"count": self.count, "size": MIB}).encode()):
            pass
        return self.count / (time.perf_counter() - started)


class _Directory(_Content):
    environment: ClassVar[Mapping[str, str]] = {
        "THREADKEEP_ARTIFACTS_CONTENT": "directory",
        "THREADKEEP_ARTIFACTS_DIRECTORY": "{folder}",
    }
    target = 0.6

    async def prepare(self) -> None:
        """1 GiB at full scale."""
        await super().prepare()
        if self.scale.name == "full":
            self.count = 1024

    async def baseline(self) -> float:
        """The slower of an empty stream and of the disk, flushed after each 4 MiB."""
        started = time.perf_counter()
        async for _ in self.stage.echo_stream(json.dumps({"count": self.count, "size": MIB}).encode()):
            pass
        streamed = self.count / (time.perf_counter() - started)
        return min(streamed, await asyncio.to_thread(self._written))

    def _written(self) -> float:
        path = self.stage.folder() / "bare"
        started = time.perf_counter()
        with path.open("wb", buffering=0) as file:
            for number in range(self.count):
                file.write(self.noise)
                if number % 4 == 3:
                    os.fsync(file.fileno())
        seconds = time.perf_counter() - started
        path.unlink()
        return self.count / seconds


class ArtifactUploadDirectory(_Directory):
    """In."""

    name = "artifact.directory.upload"
    what = "an upload into a directory, against the slower of an empty stream and the disk"

    async def product(self) -> float:
        """An upload."""
        started = time.perf_counter()
        await self.upload()
        return self.count / (time.perf_counter() - started)


class ArtifactDownloadDirectory(_Directory):
    """Out."""

    name = "artifact.directory.download"
    what = "a download from a directory, against the slower of an empty stream and the disk"

    async def prepare(self) -> None:
        """Something to download."""
        await super().prepare()
        self.artifact_id = (await self.upload()).artifact_id

    async def product(self) -> float:
        """A download."""
        return await self.download(self.artifact_id)


class _Memory(_Directory):
    unit = "bytes"
    target = 1.0
    at_least = False

    async def prepare(self) -> None:
        """Something to download."""
        self.idle = self.stage.resident_bytes()
        await super().prepare()
        self.artifact_id = (await self.upload()).artifact_id

    async def baseline(self) -> float:
        """The bound."""
        return float(64 * MIB)

    async def grown(self, transfer: Awaitable[object]) -> float:
        """The most that the server holds during a transfer, beyond what it held before the first one."""
        self.stage.forget_peak()
        await transfer
        return float(self.stage.peak_bytes() - self.idle)


class ArtifactUploadMemory(_Memory):
    """In."""

    name = "artifact.memory.upload"
    what = "server memory that an upload into a directory takes at most, against 64 MiB"

    async def product(self) -> float:
        """An upload."""
        return await self.grown(self.upload())


class ArtifactDownloadMemory(_Memory):
    """Out."""

    name = "artifact.memory.download"
    what = "server memory that a download from a directory takes at most, against 64 MiB"

    async def product(self) -> float:
        """A download."""
        return await self.grown(self.download(self.artifact_id))


class _Parallel(_Directory):
    target = 0.8
    streams = 16

    async def prepare(self) -> None:
        """Something to download; the streams together move as much as the one."""
        await super().prepare()
        self.count = max(8, self.count // self.streams)
        self.artifact_id = (await self.upload()).artifact_id

    async def in_parallel(self, transfer: Callable[[], Awaitable[object]]) -> float:
        """MiB per second of all streams together."""
        started = time.perf_counter()
        await asyncio.gather(*(transfer() for _ in range(self.streams)))
        return self.streams * self.count / (time.perf_counter() - started)

    async def one_after_the_other(self, transfer: Callable[[], Awaitable[object]]) -> float:
        """MiB per second of one stream at a time."""
        started = time.perf_counter()
        for _ in range(self.streams):
            await transfer()
        return self.streams * self.count / (time.perf_counter() - started)


class ArtifactUploadParallel(_Parallel):
    """In."""

    name = "artifact.parallel.upload"
    what = "16 uploads into a directory at once, against one at a time"

    async def product(self) -> float:
        """At once."""
        return await self.in_parallel(self.upload)

    async def baseline(self) -> float:
        """One at a time."""
        return await self.one_after_the_other(self.upload)


class ArtifactDownloadParallel(_Parallel):
    """Out."""

    name = "artifact.parallel.download"
    what = "16 downloads from a directory at once, against one at a time"

    async def product(self) -> float:
        """At once."""
        return await self.in_parallel(lambda: self.download(self.artifact_id))

    async def baseline(self) -> float:
        """One at a time."""
        return await self.one_after_the_other(lambda: self.download(self.artifact_id))


class ArtifactList(Case):
    """Number of versions."""

    name = "artifact.list"
    what = "median page of artifacts among many versions, against one among 1,000"
    unit = "s"
    target = 1.5
    at_least = False
    services = ("artifacts",)

    async def prepare(self) -> None:
        """A scope with many and one with 1,000, made from one artifact by statements."""
        self.stub = artifact_service_pb2_grpc.ArtifactServiceStub(self.stage.channel())
        self.many, self.few = scope(tenant=fresh_id("many")), scope(tenant=fresh_id("few"))
        for metadata, count in ((self.many, self.scale.rows), (self.few, 1000)):
            await self._fill(metadata, count)

    async def product(self) -> float:
        """Among many."""
        return await self._page(self.many)

    async def baseline(self) -> float:
        """Among 1,000."""
        return await self._page(self.few)

    async def _page(self, metadata: Metadata) -> float:
        request = pb.ListArtifactsRequest(type="report")
        return await median_latency(200, lambda: self.stub.ListArtifacts(request, metadata=metadata))

    async def _fill(self, metadata: Metadata, count: int) -> None:
        create = transfer_pb2.CreateVersionRequest(
            request_id=fresh_id(),
            metadata=artifact_pb2.ArtifactMetadata(name="a", type="report"),
            content=b"x",
            artifact_id="a0",
            create_only=True,
        )
        await self.stub.CreateVersion(create, metadata=metadata)
        database = await self.stage.database("artifacts")
        try:
            key = await database.fetchval(
                "SELECT scope_key FROM artifacts WHERE artifact_id = 'a0' ORDER BY create_time DESC LIMIT 1"
            )
            for table in ("artifacts", "versions"):
                columns = [
                    row["column_name"]
                    for row in await database.fetch(
                        "SELECT column_name FROM information_schema.columns "
                        "WHERE table_schema = 'artifacts' AND table_name = $1",
                        table,
                    )
                ]
                values = {"artifact_id": "'a' || n", "list_number": "n + 1"}
                picked = ", ".join(values.get(column, f"t.{column}") for column in columns)
                await database.execute(
                    f"INSERT INTO {table} ({', '.join(columns)}) SELECT {picked} FROM {table} t, "
                    f"generate_series(1, {count - 1}) n WHERE t.scope_key = $1 AND t.artifact_id = 'a0'",
                    key,
                )
            await database.execute("ANALYZE")
        finally:
            await database.close()
