"""The sweep reclaims what nothing needs, and never what an upload in progress or a new reference needs (A7, B104)."""

import asyncio
import random
from collections.abc import Awaitable, Callable
from datetime import datetime

import pytest
import sqlalchemy as sa

from tests.store.artifacts.conftest import GRACE, UPLOAD_TTL, House, Parts, claim_of
from tests.support.artifacts import MIB
from tests.support.waiting import eventually
from threadkeep_artifacts.domain.errors import ArtifactNotFound, UploadAbandoned
from threadkeep_artifacts.domain.visibility import OPERATOR
from threadkeep_artifacts.store import contents
from threadkeep_artifacts.tables import blobs, staged_blobs, versions
from threadkeep_chassis.errors import FieldInvalid
from threadkeep_chassis.scope import Scope


@pytest.mark.rule("A3")
async def test_equal_content_is_stored_once_per_scope(house: House) -> None:
    content = b"same" * MIB
    ids = [(await house.upload(content, name=f"{number}")).artifact_id for number in range(3)]
    await house.upload(content, artifact_id=ids[0])
    await house.upload(content, scope="globex")
    await house.sweep.once()
    assert await house.left_over() == (2, 0, 8)
    assert [await house.download(one) for one in ids] == [content] * 3


@pytest.mark.rule("A1", "A3")
async def test_ten_parallel_uploads_of_equal_bytes_are_ten_versions_and_one_blob(house: House) -> None:
    content = b"equal" * MIB
    mine = (await house.upload(b"first")).artifact_id
    made = await asyncio.gather(*(house.upload(content, artifact_id=mine) for _ in range(10)))
    assert sorted(one.version for one in made) == list(range(2, 12))
    await house.sweep.once()
    assert await house.left_over() == (2, 0, 6)


@pytest.mark.rule("A3", "A7")
async def test_a_broken_upload_leaves_chunks_only_until_the_next_sweep(house: House) -> None:
    async def breaks(content: bytes) -> Parts:
        yield content[:MIB]
        yield content[MIB : 2 * MIB]

    with pytest.raises(FieldInvalid):
        await house.upload(b"x" * (3 * MIB), breaks)
    assert await house.left_over() == (0, 1, 2)
    swept = await house.sweep.once()
    assert swept.removed_chunks == 2
    assert await house.left_over() == (0, 0, 0)


@pytest.mark.rule("A7")
@pytest.mark.case("B104")
async def test_the_chunks_of_a_dead_server_are_swept_after_silence(house: House) -> None:
    async def open_(connection):  # type: ignore[no-untyped-def]
        await contents.open_stage(connection, "orphan", "nobody", await connection.now())

    await house.database.retrying(open_)
    await house.store.write_chunk("orphan", 0, b"lost")
    await house.sweep.once()
    assert await house.left_over() == (0, 1, 1)
    house.clock.advance(UPLOAD_TTL + 1)
    assert (await house.sweep.once()).abandoned_uploads == 1
    assert await house.left_over() == (0, 1, 0)
    # Its writer was only asleep, and wakes up: a later pass takes that too, and then forgets the upload.
    await house.store.write_chunk("orphan", 1, b"late")
    house.clock.advance(UPLOAD_TTL + 1)
    await house.sweep.once()
    assert await house.left_over() == (0, 0, 0)


@pytest.mark.rule("A7")
@pytest.mark.case("B104")
async def test_an_upload_that_is_slow_but_alive_is_never_swept(house: House) -> None:
    content = b"slow" * MIB

    async def touched_at() -> datetime:
        async with house.database.read() as connection:
            found: datetime = await connection.scalar(sa.select(staged_blobs.c.touch_time))
            return found

    async def slow(content: bytes) -> Parts:
        for at in range(0, len(content), MIB):
            for _ in range(8):
                # The upload sleeps until a quarter of its time is over; then it shows itself.
                await eventually(lambda: house.clock.sleeper_count)
                before = await touched_at()
                house.clock.advance(UPLOAD_TTL / 4)
                await eventually(lambda: _is_later(touched_at, before))  # noqa: B023
                assert (await house.eager_sweep.once()).abandoned_uploads == 0
            yield content[at : at + MIB]
        yield claim_of(content)

    version = await house.upload(content, slow)
    assert await house.download(version.artifact_id) == content


@pytest.mark.rule("A3", "A7")
@pytest.mark.case("B104")
async def test_an_upload_that_was_given_up_is_refused_and_may_be_sent_again(house: House) -> None:
    content = b"ab" * MIB

    async def given_up(content: bytes) -> Parts:
        yield content[:MIB]
        async with house.database.write() as connection:
            await contents.abandon_stages(connection, house.clock.now().replace(year=2100), house.clock.now())
        await house.sweep.once()
        yield content[MIB : 2 * MIB]
        yield claim_of(content)

    with pytest.raises(UploadAbandoned):
        await house.upload(content, given_up, request_id="again")
    version = await house.upload(content, request_id="again")
    house.clock.advance(2 * UPLOAD_TTL)
    await house.sweep.once()
    assert await house.download(version.artifact_id) == content
    assert await house.left_over() == (1, 0, 2)


@pytest.mark.rule("A7")
async def test_unreferenced_content_goes_after_its_grace(house: House) -> None:
    mine = (await house.upload(b"x" * MIB)).artifact_id
    await house.upload(b"y" * MIB, artifact_id=mine)
    kept = (await house.upload(b"y" * MIB)).artifact_id
    assert await house.delete(mine) == 2
    with pytest.raises(ArtifactNotFound):
        await house.download(mine)
    await house.sweep.once()
    assert await house.count(blobs) == 2
    house.clock.advance(GRACE + 1)
    assert (await house.sweep.once()).condemned_blobs == 1
    await house.sweep.once()
    assert await house.left_over() == (1, 0, 1)
    assert await house.download(kept) == b"y" * MIB


@pytest.mark.rule("A3", "A7")
async def test_a_download_under_way_outlives_a_delete_within_the_grace(house: House) -> None:
    content = b"z" * (6 * MIB)
    mine = (await house.upload(content)).artifact_id
    key = Scope({"tenant": "acme"}).key
    version, plan = await house.downloads.open(key, OPERATOR, mine, 0, 0, 0)
    reading = house.downloads.read(key, version, plan)
    got = await anext(reading)
    await house.delete(mine)
    await house.sweep.once()
    got += await anext(reading)
    # Beyond the grace the reader is told that the artifact is gone, not that it is damaged.
    await house.eager_sweep.once()
    await house.eager_sweep.once()
    rest = bytearray()

    async def read_on() -> None:
        async for chunk in reading:
            rest.extend(chunk)

    with pytest.raises(ArtifactNotFound):
        await read_on()
    got += rest
    assert got == content[: len(got)]
    assert len(got) < len(content)


@pytest.mark.rule("A7")
@pytest.mark.case("B104")
async def test_content_just_dropped_may_be_referred_to_again_at_once(house: House) -> None:
    first = (await house.upload(b"back")).artifact_id
    await house.delete(first)
    second = (await house.upload(b"back")).artifact_id
    house.clock.advance(2 * GRACE)
    await house.sweep.once()
    assert await house.download(second) == b"back"
    assert await house.left_over() == (1, 0, 1)


@pytest.mark.rule("A7")
@pytest.mark.case("B104")
async def test_a_sweep_racing_pointers_back_to_old_digests_leaves_no_dangling_reference(
    house: House, backend: str
) -> None:
    """Writers keep deleting and uploading the same few contents while sweeps without any grace run beside them."""
    rounds = {"memory": 40, "sqlite": 20, "postgres": 30}[backend]
    pool = [b"content %d" % number for number in range(5)]
    seed = random.randrange(2**32)
    print("seed", seed)
    done = asyncio.Event()

    async def sweeps() -> int:
        condemned = 0
        while not done.is_set():
            condemned += (await house.eager_sweep.once()).condemned_blobs
            await asyncio.sleep(0)
        return condemned

    async def writes(number: int) -> None:
        choose = random.Random(seed + number)
        for _ in range(rounds):
            content = choose.choice(pool)
            version = await house.upload(content)
            assert await house.download(version.artifact_id) == content
            await house.delete(version.artifact_id)

    sweeping = [asyncio.create_task(sweeps()) for _ in range(2)]
    try:
        await asyncio.gather(*(writes(number) for number in range(3)))
    finally:
        done.set()
    condemned = sum(await asyncio.gather(*sweeping))
    assert condemned, "the sweeps must have had something to race about"
    while (await house.eager_sweep.once()).removed_chunks or await house.count(staged_blobs):
        pass
    assert await house.left_over() == (0, 0, 0)


@pytest.mark.rule("A7")
async def test_reference_counts_are_what_the_versions_say(house: House) -> None:
    mine = (await house.upload(b"a")).artifact_id
    other = (await house.upload(b"b")).artifact_id
    for content in (b"a", b"b", b"b"):
        await house.upload(content, artifact_id=mine)
    await house.delete(other)
    async with house.database.read() as connection:
        counted = {
            row.sha256: row.reference_count
            for row in await connection.execute(sa.select(blobs.c.sha256, blobs.c.reference_count))
        }
        true = {
            row.sha256: row.n
            for row in await connection.execute(
                sa.select(versions.c.sha256, sa.func.count().label("n")).group_by(versions.c.sha256)
            )
        }
    assert counted == true


async def _is_later(read: Callable[[], Awaitable[datetime]], before: datetime) -> bool:
    return await read() > before
