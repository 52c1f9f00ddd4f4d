"""One suite for every blob store (A4): what the port promises, of the database, a directory and a real S3 server."""

import asyncio
import hashlib
import urllib.request
from collections.abc import AsyncIterator, Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest

from tests.store.artifacts.conftest import make_house
from tests.support.artifacts import MIB
from tests.support.buckets import REGION, S3Server, s3_server
from tests.support.databases import Databases
from threadkeep.artifacts.v1 import artifact_pb2
from threadkeep_artifacts.blobs.bucket import BucketBlobs
from threadkeep_artifacts.blobs.database import DatabaseBlobs
from threadkeep_artifacts.blobs.directory import DirectoryBlobs
from threadkeep_artifacts.blobs.port import BlobStore
from threadkeep_artifacts.blobs.routed import RoutedBlobs
from threadkeep_artifacts.commands.signing import Signing
from threadkeep_artifacts.domain.errors import ArtifactNotFound, ChunkTaken, ContentStoreUnavailable
from threadkeep_artifacts.domain.visibility import OPERATOR, Reader
from threadkeep_artifacts.server import MIGRATIONS
from threadkeep_chassis.database import Database
from threadkeep_chassis.errors import CorruptContent
from threadkeep_chassis.migrations import migrate, prepare
from threadkeep_chassis.scope import Scope

BLOB = "0198-blob"
HOSTILE = ["../../etc/passwd", "/absolute", "a/b", "..", "x" * 256, "nul\x01", "dir:été"]


@pytest.fixture(scope="session")
def s3() -> Iterator[S3Server]:
    """The S3 server of this run."""
    with s3_server() as server:
        yield server


@dataclass
class Kept:
    """A blob store, and how its content is damaged behind its back."""

    store: BlobStore
    folder: Path | None = None


@pytest.fixture(params=["memory", "sqlite", "postgres", "directory", "bucket"])
async def kept(request: pytest.FixtureRequest, databases: Databases, tmp_path: Path) -> AsyncIterator[Kept]:
    """Each adapter; the database one on each backend."""
    if request.param == "directory":
        yield Kept(DirectoryBlobs(tmp_path / "content"), tmp_path / "content")
    elif request.param == "bucket":
        server = request.getfixturevalue("s3")
        yield Kept(BucketBlobs(server.bucket(), prefix="/deep/er/", endpoint=server.endpoint, region=REGION))
    else:
        url = await databases.empty(request.param)
        if url != "memory:":
            await migrate(url, MIGRATIONS)
        database = await Database.open(url, "artifacts")
        await prepare(database, MIGRATIONS)
        yield Kept(DatabaseBlobs(database))
        await database.close()
        await databases.drop(url)


@pytest.fixture
async def store(kept: Kept) -> BlobStore:
    """The adapter, started."""
    await kept.store.start()
    return kept.store


@pytest.mark.rule("A4")
async def test_a_chunk_comes_back_as_it_went_in(store: BlobStore) -> None:
    chunks = [b"", b"\x00" * 10, hashlib.shake_256(b"x").digest(store.chunk_bytes)]
    for index, chunk in enumerate(chunks):
        await store.write_chunk(BLOB, index, chunk)
    assert [await store.read_chunk(BLOB, index) for index in range(3)] == chunks
    assert await store.read_chunk(BLOB, 3) is None
    assert await store.read_chunk("other", 0) is None


@pytest.mark.rule("A4")
async def test_the_first_writer_of_a_chunk_wins(store: BlobStore) -> None:
    await store.write_chunk(BLOB, 0, b"first")
    await store.write_chunk(BLOB, 0, b"first")
    with pytest.raises(ChunkTaken):
        await store.write_chunk(BLOB, 0, b"second")
    assert await store.read_chunk(BLOB, 0) == b"first"


@pytest.mark.rule("A4")
async def test_of_many_writers_of_one_chunk_one_wins_and_the_others_learn_it(store: BlobStore) -> None:
    answers = await asyncio.gather(
        *(store.write_chunk(BLOB, 0, b"%d" % number) for number in range(6)), return_exceptions=True
    )
    assert [type(answer) for answer in answers if answer is not None] == [ChunkTaken] * 5
    assert await store.read_chunk(BLOB, 0) == b"%d" % answers.index(None)


@pytest.mark.rule("A4")
async def test_chunks_are_counted_up_to_the_first_gap(store: BlobStore) -> None:
    assert await store.count_chunks(BLOB) == 0
    for index in (1, 0, 3):
        await store.write_chunk(BLOB, index, b"x")
    await store.write_chunk("another", 2, b"y")
    assert await store.count_chunks(BLOB) == 2
    assert await store.count_chunks("another") == 0


@pytest.mark.rule("A4", "A7")
async def test_chunks_are_removed_a_few_at_a_time_and_a_late_writer_may_come_back(store: BlobStore) -> None:
    for index in range(5):
        await store.write_chunk(BLOB, index, b"%d" % index)
    await store.write_chunk("neighbour", 0, b"stays")
    assert await store.remove_chunks(BLOB, 2) == 2
    assert await store.remove_chunks(BLOB, 10) == 3
    assert await store.remove_chunks(BLOB, 10) == 0
    await store.write_chunk(BLOB, 7, b"late")
    assert await store.remove_chunks(BLOB, 10) == 1
    assert await store.count_chunks(BLOB) == 0
    assert await store.read_chunk("neighbour", 0) == b"stays"


@pytest.mark.rule("A4")
@pytest.mark.case("B12")
async def test_no_blob_id_reaches_beyond_its_place(store: BlobStore, kept: Kept, tmp_path: Path) -> None:
    for number, blob_id in enumerate(HOSTILE):
        await store.write_chunk(blob_id, 0, b"%d" % number)
    for number, blob_id in enumerate(HOSTILE):
        assert await store.read_chunk(blob_id, 0) == b"%d" % number
        assert await store.remove_chunks(blob_id, 10) == 1
    if kept.folder is not None:
        assert sorted(one.name for one in tmp_path.iterdir()) == ["content"]
        assert not [one for one in kept.folder.rglob("*") if one.is_file()]


@pytest.mark.rule("A4", "A7")
async def test_what_a_dead_writer_had_begun_in_a_directory_is_no_chunk_and_is_removed(tmp_path: Path) -> None:
    store = DirectoryBlobs(tmp_path)
    await store.start()
    await store.write_chunk(BLOB, 0, b"whole")
    (folder,) = [one.parent for one in tmp_path.rglob("00000000")]
    (folder / "00000001.abc.part").write_bytes(b"ha")
    assert await store.read_chunk(BLOB, 1) is None
    assert await store.count_chunks(BLOB) == 1
    assert await store.remove_chunks(BLOB, 10) == 2
    assert not folder.exists()


@pytest.mark.rule("A4", "X6")
async def test_a_store_that_is_out_of_reach_says_so_and_names_no_place(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("no directory")
    with s3_server() as server:
        bucket = server.bucket()
        gone = BucketBlobs(bucket, endpoint=server.endpoint, region=REGION, timeout_seconds=1.0)
        await gone.start()
        server.die()
    absent = BucketBlobs("absent", endpoint=server.endpoint, region=REGION, timeout_seconds=1.0)
    for store in (DirectoryBlobs(tmp_path / "file" / "below"), absent):
        with pytest.raises(ContentStoreUnavailable) as refused:
            await store.start()
        assert str(tmp_path) not in refused.value.message
        assert server.endpoint not in refused.value.message
    with pytest.raises(ContentStoreUnavailable):
        await gone.write_chunk(BLOB, 0, b"x")


@pytest.fixture(params=["directory", "bucket"])
def outside(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[BlobStore]:
    """The adapters whose content lies outside of the database."""
    if request.param == "directory":
        yield DirectoryBlobs(tmp_path)
        return
    server: S3Server = request.getfixturevalue("s3")
    yield BucketBlobs(server.bucket(), endpoint=server.endpoint, region=REGION)


@pytest.mark.rule("A3", "A4", "A7")
@pytest.mark.suite(backends=["sqlite"])
async def test_the_service_keeps_serves_and_sweeps_content_in_any_store(
    database_url: str, backend: str, outside: BlobStore
) -> None:
    name = "directory" if isinstance(outside, DirectoryBlobs) else "bucket"
    async with make_house(database_url, lambda database: {"database": DatabaseBlobs(database), name: outside}) as house:
        before = (await house.upload(b"kept in the database")).artifact_id
        house.uploads._blobs = house.store = RoutedBlobs(name, house.store._stores)
        content = hashlib.shake_256(b"large").digest(9 * MIB + 17)
        mine = (await house.upload(content)).artifact_id
        assert await house.download(mine) == content
        assert await house.download(mine, offset=4 * MIB - 3, length=MIB) == content[4 * MIB - 3 : 5 * MIB - 3]
        # A change of the setting leaves what was there before.
        assert await house.download(before) == b"kept in the database"
        blob_id = await house.blob_id(mine)
        assert await outside.count_chunks(blob_id) == 3
        await house.delete(mine)
        await house.sweep_all()
        assert await outside.count_chunks(blob_id) == 0


@pytest.mark.rule("A4", "A6")
@pytest.mark.suite(backends=["sqlite"])
async def test_content_in_a_bucket_can_be_had_without_the_server_where_that_is_allowed(
    database_url: str, s3: S3Server
) -> None:
    bucket = BucketBlobs(s3.bucket(), endpoint=s3.endpoint, region=REGION)
    key = Scope({"tenant": "acme"}).key
    async with make_house(database_url, lambda _: {"bucket": bucket}, "bucket") as house:
        content = hashlib.shake_256(b"signed").digest(9 * MIB)
        mine = await house.upload(content, visibility=artifact_pb2.VISIBILITY_RUN, session_id="s")
        signing = Signing(house.downloads, house.store, house.clock, signed_seconds=60.0)
        signed = await signing.sign(key, OPERATOR, mine.artifact_id, 0, 0)
        assert (len(signed.parts), signed.next_part) == (3, 0)
        got = [await asyncio.to_thread(_fetch, part.url) for part in signed.parts]
        assert b"".join(got) == content
        assert [(part.size, part.sha256) for part in signed.parts] == [
            (len(one), hashlib.sha256(one).hexdigest()) for one in got
        ]
        assert (await signing.sign(key, OPERATOR, mine.artifact_id, 0, 2)).parts[0].sha256 == signed.parts[2].sha256
        assert (await signing.sign(key, OPERATOR, mine.artifact_id, 0, 3)).parts == ()
        with pytest.raises(ArtifactNotFound):
            await signing.sign(key, Reader(), mine.artifact_id, 0, 0)
        # By default there are no addresses.
        off = Signing(house.downloads, house.store, house.clock, signed_seconds=0.0)
        assert (await off.sign(key, OPERATOR, mine.artifact_id, 0, 0)).parts == ()


def _fetch(url: str) -> bytes:
    with urllib.request.urlopen(url) as answer:
        found: bytes = answer.read()
        return found


@pytest.mark.rule("A3", "A4")
@pytest.mark.suite(backends=["sqlite"])
@pytest.mark.parametrize("damage", ["changed", "cut", "gone"])
async def test_damage_on_a_disk_is_data_loss_that_names_the_digest(
    database_url: str, backend: str, tmp_path: Path, damage: str
) -> None:
    store = DirectoryBlobs(tmp_path)
    async with make_house(database_url, lambda _: {"directory": store}, "directory") as house:
        content = hashlib.shake_256(b"large").digest(9 * MIB)
        version = await house.upload(content)
        (file,) = tmp_path.rglob("00000001")
        if damage == "gone":
            file.unlink()
        else:
            raw = bytearray(file.read_bytes())
            raw[100] ^= 1
            file.write_bytes(raw if damage == "changed" else raw[:1000])
        for offset in (0, 5 * MIB):
            with pytest.raises(CorruptContent) as damaged:
                await house.download(version.artifact_id, offset=offset)
            assert damaged.value.metadata == {"sha256": version.sha256, "chunk": "1"}


@pytest.mark.rule("A4", "A7")
@pytest.mark.suite(backends=["sqlite"])
async def test_a_store_that_is_set_no_more_does_not_stop_the_sweep(
    database_url: str, backend: str, tmp_path: Path
) -> None:
    store = DirectoryBlobs(tmp_path)
    stores = {"directory": store}
    async with make_house(
        database_url, lambda database: {"database": DatabaseBlobs(database), **stores}, "directory"
    ) as house:
        lost = (await house.upload(b"in the directory")).artifact_id
        house.uploads._blobs = RoutedBlobs("database", house.store._stores)
        other = (await house.upload(b"in the database")).artifact_id
        held = house.store._stores.pop("directory")  # type: ignore[attr-defined]
        for one in (lost, other):
            await house.delete(one)
        await house.sweep_all()
        assert (await house.left_over())[1:] == (1, 0)
        house.store._stores["directory"] = held  # type: ignore[index]
        await house.sweep_all()
        assert await house.left_over() == (0, 0, 0)
