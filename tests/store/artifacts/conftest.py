"""The artifacts service without its server: database, blob store and use cases, with a clock that stands still."""

from collections.abc import AsyncIterator, Callable, Mapping
from contextlib import asynccontextmanager
from dataclasses import dataclass

import pytest
import sqlalchemy as sa

from tests.support.artifacts import header, trailer
from threadkeep.artifacts.v1 import artifact_pb2, transfer_pb2
from threadkeep_artifacts.blobs.database import DatabaseBlobs
from threadkeep_artifacts.blobs.port import BlobStore
from threadkeep_artifacts.blobs.routed import RoutedBlobs
from threadkeep_artifacts.commands.artifacts import Artifacts
from threadkeep_artifacts.commands.downloads import Downloads
from threadkeep_artifacts.commands.sweeping import Sweep
from threadkeep_artifacts.commands.uploads import Uploads
from threadkeep_artifacts.commands.writing import Writing
from threadkeep_artifacts.domain.values import ContentClaim
from threadkeep_artifacts.domain.visibility import OPERATOR
from threadkeep_artifacts.server import LIMITS, MIGRATIONS
from threadkeep_artifacts.service.convert import claim_from_proto, identity_of, intent_from_proto, version_to_proto
from threadkeep_artifacts.tables import blob_chunks, blobs, staged_blobs, versions
from threadkeep_chassis.clock import ManualClock
from threadkeep_chassis.database import Database
from threadkeep_chassis.limits import Limits
from threadkeep_chassis.migrations import migrate, prepare
from threadkeep_chassis.scope import Call, Scope

UPLOAD_TTL = 600.0
GRACE = 60.0

Parts = AsyncIterator[bytes | ContentClaim]


@dataclass
class House:
    """What the tests of this folder work with."""

    database: Database
    clock: ManualClock
    store: RoutedBlobs
    writing: Writing
    uploads: Uploads
    downloads: Downloads
    artifacts: Artifacts
    sweep: Sweep
    eager_sweep: Sweep
    """A sweep that keeps neither what was deleted nor unreferenced content for any time at all."""

    async def upload(
        self, content: bytes, parts: Callable[[bytes], Parts] | None = None, scope: str = "acme", **more: object
    ) -> artifact_pb2.ArtifactVersion:
        """Uploads content; `parts` may send it in another way."""
        head = header(**more)  # type: ignore[arg-type]
        response = await self.uploads.receive(
            _call(scope),
            OPERATOR,
            intent_from_proto(head),
            identity_of(head),
            (parts or whole)(content),
            transfer_pb2.UploadVersionResponse,
            lambda version: transfer_pb2.UploadVersionResponse(version=version_to_proto(version)),
        )
        assert isinstance(response, transfer_pb2.UploadVersionResponse)
        return response.version

    async def download(self, artifact_id: str, scope: str = "acme", offset: int = 0, length: int = 0) -> bytes:
        """Downloads the latest version."""
        key = Scope({"tenant": scope}).key
        version, plan = await self.downloads.open(key, OPERATOR, artifact_id, 0, offset, length)
        return b"".join([chunk async for chunk in self.downloads.read(key, version, plan)])

    async def delete(self, artifact_id: str, scope: str = "acme") -> int:
        """Deletes the artifact."""
        key = Scope({"tenant": scope}).key
        return await self.database.retrying(
            lambda connection: self.artifacts.delete(connection, key, OPERATOR, artifact_id, None)
        )

    async def count(self, table: sa.Table) -> int:
        """How many rows a table has."""
        async with self.database.read() as connection:
            counted: int = await connection.scalar(sa.select(sa.func.count()).select_from(table))
            return counted

    async def left_over(self) -> tuple[int, int, int]:
        """How many (blobs, staged blobs, chunks) there are."""
        return await self.count(blobs), await self.count(staged_blobs), await self.count(blob_chunks)

    async def blob_id(self, artifact_id: str) -> str:
        """Where the artifact's content lies."""
        of = (versions.c.scope_key == blobs.c.scope_key, versions.c.sha256 == blobs.c.sha256)
        async with self.database.read() as connection:
            found: str = await connection.scalar(
                sa.select(blobs.c.blob_id)
                .select_from(versions.join(blobs, sa.and_(*of)))
                .where(versions.c.artifact_id == artifact_id)
            )
            return found

    async def sweep_all(self) -> None:
        """Sweeps without any grace until there is nothing left to do."""
        swept = None
        while swept is None or swept.purged_deletions or swept.condemned_blobs or swept.removed_chunks:
            swept = await self.eager_sweep.once()


async def whole(content: bytes) -> Parts:
    """Sends the content in one chunk (at most 1 MiB each), then its claim."""
    for at in range(0, len(content), 1024 * 1024):
        yield content[at : at + 1024 * 1024]
    yield claim_of(content)


def claim_of(content: bytes) -> ContentClaim:
    """The claim that fits the content."""
    return claim_from_proto(trailer(content))


def _call(scope: str) -> Call:
    return Call("/threadkeep.artifacts.v1.ArtifactService/UploadVersion", named_scope=Scope({"tenant": scope}))


def _sweep(database: Database, store: RoutedBlobs, grace: float, window: float) -> Sweep:
    return Sweep(
        database,
        store,
        upload_ttl_seconds=UPLOAD_TTL,
        garbage_grace_seconds=grace,
        restore_window_seconds=window,
    )


@asynccontextmanager
async def make_house(
    database_url: str,
    stores: Callable[[Database], Mapping[str, BlobStore]] = lambda database: {"database": DatabaseBlobs(database)},
    chosen: str = "database",
) -> AsyncIterator[House]:
    """A house whose content lies in the chosen store."""
    if database_url != "memory:":
        await migrate(database_url, MIGRATIONS)
    clock = ManualClock()
    database = await Database.open(database_url, "artifacts", clock=clock)
    try:
        await prepare(database, MIGRATIONS)
        store = RoutedBlobs(chosen, stores(database))
        await store.start()
        limits = Limits(*LIMITS)
        writing = Writing(limits)
        yield House(
            database,
            clock,
            store,
            writing,
            Uploads(database, store, writing, limits, clock, upload_ttl_seconds=UPLOAD_TTL),
            Downloads(database, store),
            Artifacts(database, writing),
            _sweep(database, store, GRACE, 0.0),
            _sweep(database, store, -1.0, -1.0),
        )
    finally:
        await database.close()


@pytest.fixture
async def house(database_url: str) -> AsyncIterator[House]:
    """On every backend, with content in the database."""
    async with make_house(database_url) as made:
        yield made
