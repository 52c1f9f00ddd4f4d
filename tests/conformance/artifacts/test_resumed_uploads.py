"""Uploads that go on where they broke (A3): by the caller's name, on what is kept, one stream at a time."""

import asyncio
import contextlib
import hashlib
from collections.abc import AsyncIterator

import grpc
import pytest

from tests.support.artifacts import MIB, SECONDS, Stub, download, frames, header, trailer
from tests.support.calls import Metadata, error_details, refused, scope
from tests.support.descriptors import fresh_id
from tests.support.waiting import eventually
from threadkeep.artifacts.v1 import transfer_pb2

pytestmark = pytest.mark.suite(topologies=["embedded"])

CONTENT = hashlib.shake_256(b"resumed").digest(3 * MIB + 7)


async def kept(stub: Stub, acme: Metadata, upload_id: str) -> int:
    request = transfer_pb2.ResumeUploadRequest(upload_id=upload_id)
    return (await stub.ResumeUpload(request, metadata=acme)).offset


async def begin(stub: Stub, acme: Metadata, head: transfer_pb2.UploadHeader, content: bytes) -> None:
    """Sends the beginning of an upload and breaks off, without a trailer."""
    call = stub.UploadVersion(iter(frames(content, head)[:-1]), metadata=acme, timeout=SECONDS)
    with contextlib.suppress(grpc.aio.AioRpcError):
        await call


def rest(head: transfer_pb2.UploadHeader, offset: int, content: bytes = CONTENT) -> list[object]:
    going_on = transfer_pb2.UploadHeader()
    going_on.CopyFrom(head)
    going_on.offset = offset
    return frames(content[offset:], going_on, trailer(content))  # type: ignore[return-value]


@pytest.mark.rule("A3", "X3")
async def test_a_broken_upload_goes_on_where_it_broke(stub: Stub, acme: Metadata) -> None:
    head = header(upload_id=fresh_id("upload"))
    await begin(stub, acme, head, CONTENT[: 2 * MIB + 5])
    offset = await kept(stub, acme, head.upload_id)
    assert offset == 2 * MIB
    answer = await stub.UploadVersion(iter(rest(head, offset)), metadata=acme, timeout=SECONDS)
    assert answer.version.sha256 == hashlib.sha256(CONTENT).hexdigest()
    assert await download(stub, acme, answer.version.artifact_id) == CONTENT
    # The upload is over, and its retry is the same one, from whatever offset.
    asked = transfer_pb2.ResumeUploadRequest(upload_id=head.upload_id)
    over = await refused(stub.ResumeUpload(asked, metadata=acme))
    assert (over.code, over.reason) == (grpc.StatusCode.NOT_FOUND, "UPLOAD_NOT_FOUND")
    assert await stub.UploadVersion(iter(rest(head, 0)), metadata=acme, timeout=SECONDS) == answer


@pytest.mark.rule("A3", "X2")
async def test_an_offset_that_is_not_kept_is_refused(stub: Stub, acme: Metadata) -> None:
    head = header(upload_id=fresh_id("upload"))
    await begin(stub, acme, head, CONTENT[: 2 * MIB])
    for offset in (5, 3 * MIB):
        error = await refused(stub.UploadVersion(iter(rest(head, offset)), metadata=acme, timeout=SECONDS))
        assert (error.code, error.reason) == (grpc.StatusCode.OUT_OF_RANGE, "OFFSET_OUT_OF_RANGE")
    foreign = scope(tenant=fresh_id("other"))
    unknown = header(upload_id=fresh_id("upload"))
    for caller, one in ((foreign, head), (acme, unknown), (acme, header())):
        error = await refused(stub.UploadVersion(iter(rest(one, MIB)), metadata=caller, timeout=SECONDS))
        assert error.reason == "UPLOAD_NOT_FOUND"
    # An offset of nothing starts again; what was kept is given up.
    answer = await stub.UploadVersion(iter(rest(head, 0)), metadata=acme, timeout=SECONDS)
    assert await download(stub, acme, answer.version.artifact_id) == CONTENT


@pytest.mark.rule("A3")
async def test_other_bytes_than_were_kept_are_found_by_the_digest(stub: Stub, acme: Metadata) -> None:
    head = header(upload_id=fresh_id("upload"))
    await begin(stub, acme, head, b"\x00" * (2 * MIB))
    error = await refused(stub.UploadVersion(iter(rest(head, MIB)), metadata=acme, timeout=SECONDS))
    assert error.reason in ("UPLOAD_MISMATCH", "CONTENTION")
    # What can't become the content is not kept.
    asked = transfer_pb2.ResumeUploadRequest(upload_id=head.upload_id)
    assert (await refused(stub.ResumeUpload(asked, metadata=acme))).reason == "UPLOAD_NOT_FOUND"


@pytest.mark.rule("A3", "A7")
async def test_a_stream_that_is_still_open_loses_its_upload_to_the_one_that_goes_on(stub: Stub, acme: Metadata) -> None:
    head = header(upload_id=fresh_id("upload"))
    goes_on, ends = asyncio.Event(), frames(CONTENT, head)

    async def slowly() -> AsyncIterator[object]:
        for frame in ends[:3]:
            yield frame
        await goes_on.wait()
        for frame in ends[3:]:
            yield frame

    zombie = asyncio.ensure_future(_answer(stub, acme, slowly()))

    async def two_kept() -> bool:
        with contextlib.suppress(grpc.aio.AioRpcError):
            return await kept(stub, acme, head.upload_id) == 2 * MIB
        return False

    await eventually(two_kept)
    going_on = header(upload_id=head.upload_id)
    answer = await stub.UploadVersion(iter(rest(going_on, 2 * MIB)), metadata=acme, timeout=SECONDS)
    goes_on.set()
    assert await zombie == "CONTENTION"
    assert await download(stub, acme, answer.version.artifact_id) == CONTENT


async def _answer(stub: Stub, acme: Metadata, requests: AsyncIterator[object]) -> str:
    try:
        await stub.UploadVersion(requests, metadata=acme, timeout=SECONDS)
    except grpc.aio.AioRpcError as error:
        return error_details(error).reason
    return ""
