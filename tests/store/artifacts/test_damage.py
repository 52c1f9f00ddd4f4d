"""Damaged content is never handed out as if it were whole, and large content never fills the memory (A3)."""

import hashlib
import tracemalloc

import pytest
import sqlalchemy as sa
from sqlalchemy.dialects import sqlite

from tests.store.artifacts.conftest import House, Parts
from tests.support.artifacts import MIB
from tests.support.waiting import eventually
from threadkeep_artifacts.domain.values import ArtifactFilter, ContentClaim
from threadkeep_artifacts.domain.visibility import OPERATOR, Reader
from threadkeep_artifacts.store import listing as rows
from threadkeep_artifacts.tables import artifacts, blob_chunks, blobs
from threadkeep_chassis.errors import CorruptContent

CONTENT = hashlib.shake_256(b"content").digest(3 * MIB)


async def _damage(house: House, statement: sa.Executable) -> None:
    async with house.database.write() as connection:
        await connection.execute(statement)


@pytest.mark.rule("A3")
async def test_a_damaged_chunk_is_found_by_whole_and_partial_reads(house: House) -> None:
    version = await house.upload(CONTENT)
    changed = bytearray(CONTENT[MIB : 2 * MIB])
    changed[17] ^= 1
    await _damage(house, sa.update(blob_chunks).where(blob_chunks.c.chunk_index == 1).values(content=bytes(changed)))
    for offset, length in ((0, 0), (MIB + 100, 5), (2 * MIB - 1, 2)):
        with pytest.raises(CorruptContent) as damaged:
            await house.download(version.artifact_id, offset=offset, length=length)
        assert damaged.value.reason == "CORRUPT_CONTENT"
        assert damaged.value.metadata == {"sha256": version.sha256, "chunk": "1"}
    # What is whole can still be had.
    assert await house.download(version.artifact_id, offset=2 * MIB) == CONTENT[2 * MIB :]


@pytest.mark.rule("A3")
async def test_a_missing_chunk_is_damage_not_an_end(house: House) -> None:
    version = await house.upload(CONTENT)
    await _damage(house, sa.delete(blob_chunks).where(blob_chunks.c.chunk_index == 2))
    with pytest.raises(CorruptContent) as damaged:
        await house.download(version.artifact_id)
    assert version.sha256 in damaged.value.message


@pytest.mark.rule("A3")
async def test_a_wrong_digest_of_the_whole_is_found_when_the_whole_is_read(house: House) -> None:
    version = await house.upload(CONTENT)
    first_two = CONTENT[: 2 * MIB]
    digests = b"".join(hashlib.sha256(CONTENT[at : at + MIB]).digest() for at in range(0, 2 * MIB, MIB))
    await _damage(house, sa.update(blobs).values(size=len(first_two), chunk_digests=digests))
    with pytest.raises(CorruptContent):
        await house.download(version.artifact_id)


@pytest.mark.rule("A3")
async def test_what_was_proven_once_is_proven_for_exactly_these_digests(house: House) -> None:
    version = await house.upload(CONTENT)
    for _ in range(2):
        assert await house.download(version.artifact_id) == CONTENT
    changed = bytearray(CONTENT[:MIB])
    changed[0] ^= 1
    await _damage(house, sa.update(blob_chunks).where(blob_chunks.c.chunk_index == 0).values(content=bytes(changed)))
    with pytest.raises(CorruptContent):
        await house.download(version.artifact_id)
    # Also when the digests of the chunks were changed with them.
    chunks = [bytes(changed), CONTENT[MIB : 2 * MIB], CONTENT[2 * MIB :]]
    digests = b"".join(hashlib.sha256(chunk).digest() for chunk in chunks)
    await _damage(house, sa.update(blobs).values(chunk_digests=digests))
    with pytest.raises(CorruptContent):
        await house.download(version.artifact_id)


@pytest.mark.rule("A3", "X9")
@pytest.mark.suite(backends=["sqlite", "postgres"])
async def test_memory_stays_flat_however_large_the_content_is(house: House) -> None:
    size, piece = 96 * MIB, b"\x5a" * MIB

    async def large(_: bytes) -> Parts:
        digest = hashlib.sha256()
        for _number in range(size // MIB):
            digest.update(piece)
            yield piece
        yield ContentClaim(size, digest.hexdigest())

    tracemalloc.start()
    try:
        version = await house.upload(b"", large)
        read = 0
        key = await _scope_key(house, version.artifact_id)
        found, plan = await house.downloads.open(key, OPERATOR, version.artifact_id, 0, 0, 0)
        async for chunk in house.downloads.read(key, found, plan):
            read += len(chunk)
        _, peak = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert read == size
    assert peak < 24 * MIB


@pytest.mark.rule("A3")
@pytest.mark.suite(backends=["postgres"])
async def test_no_transaction_is_open_while_the_client_sends_or_reads(house: House) -> None:
    """A client that stops in the middle holds no transaction, and so no row and no snapshot."""

    async def open_transactions() -> int:
        async with house.database.read() as connection:
            found: int = await connection.scalar(
                sa.text(
                    "SELECT count(*) FROM pg_stat_activity WHERE datname = current_database() "
                    "AND pid <> pg_backend_pid() AND xact_start IS NOT NULL AND backend_type = 'client backend'"
                )
            )
            return found

    async def all_closed() -> bool:
        return await open_transactions() == 0

    async def watched(content: bytes) -> Parts:
        yield content[:MIB]
        await eventually(all_closed)
        yield content[MIB:]
        yield ContentClaim(len(content), hashlib.sha256(content).hexdigest())

    version = await house.upload(CONTENT[: 2 * MIB], watched)
    key = await _scope_key(house, version.artifact_id)
    found, plan = await house.downloads.open(key, OPERATOR, version.artifact_id, 0, 0, 0)
    async for _ in house.downloads.read(key, found, plan):
        # What is read ahead ends by itself, whatever the client does.
        await eventually(all_closed)


@pytest.mark.rule("A5")
@pytest.mark.suite(backends=["sqlite"])
async def test_lists_read_no_content_and_start_at_an_index_of_their_own(house: House) -> None:
    """What SQLite's planner says; the indexes are the same on PostgreSQL."""
    wanted = {
        "artifacts_by_scope_key_list_number": ArtifactFilter(),
        "artifacts_by_scope_key_name_list_number": ArtifactFilter(name="n"),
        "artifacts_by_scope_key_type_list_number": ArtifactFilter(type="t"),
        "artifacts_by_scope_key_session_id_list_number": ArtifactFilter(session_id="s"),
        "artifacts_by_scope_key_run_id_list_number": ArtifactFilter(run_id="r"),
        "artifacts_by_scope_key_checkpoint_id_list_number": ArtifactFilter(checkpoint_id="c"),
        "artifact_labels_by_scope_key_key_value_list_number": ArtifactFilter(labels={"a": "b"}),
    }
    for index, filters in wanted.items():
        statement = rows.latest_statement("k", Reader(), filters, before=10, limit=50)
        text = str(statement.compile(dialect=sqlite.dialect(), compile_kwargs={"literal_binds": True}))
        async with house.database.read() as connection:
            plan = [row.detail for row in await connection.execute(sa.text(f"EXPLAIN QUERY PLAN {text}"))]
        assert index in plan[0], plan
        assert not any("blob" in step or "TEMP B-TREE" in step for step in plan), plan


async def _scope_key(house: House, artifact_id: str) -> str:
    async with house.database.read() as connection:
        found: str = await connection.scalar(
            sa.select(artifacts.c.scope_key).where(artifacts.c.artifact_id == artifact_id)
        )
    return found
