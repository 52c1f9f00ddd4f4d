"""Uploads: verified, append-only, once per request_id, and invisible until they are whole (A1, A3, X3)."""

import asyncio
import hashlib
from collections.abc import AsyncIterator

import grpc
import pytest

from tests.support.artifacts import MIB, SECONDS, Stub, download, frames, header, send, trailer, upload
from tests.support.calls import REPLAY_KEY, Metadata, refused, scope
from tests.support.descriptors import fresh_id
from threadkeep.artifacts.v1 import artifact_pb2, transfer_pb2
from threadkeep.artifacts.v1 import artifact_service_pb2 as pb

CONTENT = bytes(range(256)) * 5000 + b"\x00 the end"


async def _latest(stub: Stub, metadata: Metadata, artifact_id: str) -> int:
    answer = await stub.GetArtifact(pb.GetArtifactRequest(artifact_id=artifact_id), metadata=metadata)
    return answer.version.version


async def _count(stub: Stub, metadata: Metadata) -> int:
    return len((await stub.ListArtifacts(pb.ListArtifactsRequest(), metadata=metadata)).artifacts)


@pytest.mark.rule("A1", "A3")
async def test_an_upload_makes_a_version_that_says_what_was_written(stub: Stub, acme: Metadata) -> None:
    head = header(
        type="report",
        media_type="text/markdown",
        labels={"язык": "ru"},
        session_id="s-1",
        task_id="t-1",
        run_id="r-1",
        checkpoint_id="c-1",
    )
    version = await upload(stub, acme, CONTENT, head)
    assert (version.version, version.size) == (1, len(CONTENT))
    assert version.sha256 == hashlib.sha256(CONTENT).hexdigest()
    head.metadata.visibility = artifact_pb2.VISIBILITY_PUBLIC
    assert version.metadata == head.metadata
    assert version.create_time == version.artifact_create_time
    read = await stub.GetArtifact(pb.GetArtifactRequest(artifact_id=version.artifact_id), metadata=acme)
    assert read.version == version
    assert await download(stub, acme, version.artifact_id) == CONTENT


@pytest.mark.rule("A3")
@pytest.mark.parametrize("size", [0, 1, MIB - 1, MIB, MIB + 1, 3 * MIB])
async def test_content_of_any_size_comes_back_as_it_was(stub: Stub, acme: Metadata, size: int) -> None:
    content = b"\x00" * min(size, 1) + hashlib.shake_256(str(size).encode()).digest(max(0, size - 1))
    version = await upload(stub, acme, content, name="no ending")
    assert version.metadata.media_type == "application/octet-stream"
    assert await download(stub, acme, version.artifact_id) == content


@pytest.mark.rule("A3")
async def test_the_size_of_the_chunks_makes_no_difference(stub: Stub, acme: Metadata) -> None:
    head = header()
    one = await send(stub, acme, frames(CONTENT[:5000], head, cut=1))
    head.request_id = fresh_id()
    other = await send(stub, acme, frames(CONTENT[:5000], head, cut=4999))
    first, second = (await one).version, (await other).version
    assert first.sha256 == second.sha256
    assert await download(stub, acme, first.artifact_id) == await download(stub, acme, second.artifact_id)


@pytest.mark.rule("A1")
async def test_versions_are_append_only_and_old_ones_stay(stub: Stub, acme: Metadata) -> None:
    first = await upload(stub, acme, b"one")
    second = await upload(stub, acme, b"two", name="renamed.md", artifact_id=first.artifact_id)
    assert (second.version, second.metadata.name) == (2, "renamed.md")
    assert second.artifact_create_time == first.create_time
    assert await download(stub, acme, first.artifact_id, version=1) == b"one"
    assert await download(stub, acme, first.artifact_id) == b"two"


@pytest.mark.rule("A1")
async def test_an_id_of_ones_own_is_used_once(stub: Stub, acme: Metadata) -> None:
    mine = fresh_id("report")
    created = await upload(stub, acme, b"one", artifact_id=mine, create_only=True)
    assert created.artifact_id == mine
    again = frames(b"two", header(artifact_id=mine, create_only=True))
    error = await refused(stub.UploadVersion(iter(again), metadata=acme))
    assert (error.code, error.reason) == (grpc.StatusCode.ALREADY_EXISTS, "ID_TAKEN")
    assert await _latest(stub, acme, mine) == 1


@pytest.mark.rule("X2")
async def test_a_version_for_an_artifact_that_is_not_there_is_refused(stub: Stub, acme: Metadata) -> None:
    foreign = await upload(stub, scope(tenant=fresh_id("other")), b"theirs")
    answers = set()
    for artifact_id in (foreign.artifact_id, fresh_id()):
        requests = frames(b"mine", header(artifact_id=artifact_id))
        error = await refused(stub.UploadVersion(iter(requests), metadata=acme))
        answers.add((error.code, error.reason, error.raw))
    assert {answer[:2] for answer in answers} == {(grpc.StatusCode.NOT_FOUND, "ARTIFACT_NOT_FOUND")}
    assert len(answers) == 1


@pytest.mark.rule("A2", "X2")
async def test_two_scopes_use_one_id_for_two_things(stub: Stub, acme: Metadata) -> None:
    other, mine = scope(tenant=fresh_id("other")), fresh_id("shared")
    await upload(stub, acme, b"acme's", artifact_id=mine, create_only=True)
    await upload(stub, other, b"other's", artifact_id=mine, create_only=True)
    assert await download(stub, acme, mine) == b"acme's"
    assert await download(stub, other, mine) == b"other's"


@pytest.mark.rule("A1", "X4")
async def test_expected_version_compares_and_sets(stub: Stub, acme: Metadata) -> None:
    mine = fresh_id()
    await upload(stub, acme, b"one", artifact_id=mine, expected_version=0)
    await upload(stub, acme, b"two", artifact_id=mine, expected_version=1)
    for stale in (0, 1, 3):
        requests = frames(b"three", header(artifact_id=mine, expected_version=stale))
        error = await refused(stub.UploadVersion(iter(requests), metadata=acme))
        assert (error.code, error.reason) == (grpc.StatusCode.ABORTED, "REVISION_CONFLICT")
        assert error.metadata["current_revision"] == "2"
    assert await _latest(stub, acme, mine) == 2


@pytest.mark.rule("A1", "X4")
async def test_of_racing_writers_with_one_expectation_one_wins(stub: Stub, acme: Metadata) -> None:
    mine = (await upload(stub, acme, b"zero")).artifact_id
    calls = [
        stub.UploadVersion(
            iter(frames(b"%d" % number, header(artifact_id=mine, expected_version=1))), metadata=acme, timeout=SECONDS
        )
        for number in range(8)
    ]
    ends = await asyncio.gather(*(asyncio.wait_for(call.code(), SECONDS) for call in calls))
    assert sorted(end.name for end in ends) == ["ABORTED"] * 7 + ["OK"]
    assert await _latest(stub, acme, mine) == 2


@pytest.mark.rule("A1")
async def test_racing_writers_without_expectation_all_get_a_version(stub: Stub, acme: Metadata) -> None:
    mine = (await upload(stub, acme, b"zero")).artifact_id
    done = await asyncio.gather(*(upload(stub, acme, b"%d" % n, artifact_id=mine) for n in range(8)))
    assert sorted(version.version for version in done) == list(range(2, 10))


@pytest.mark.rule("A3")
@pytest.mark.parametrize("part", ["size", "sha256"])
async def test_an_upload_whose_bytes_are_not_the_announced_ones_leaves_nothing(
    stub: Stub, acme: Metadata, part: str
) -> None:
    end = trailer(b"content")
    if part == "size":
        end.size += 1
    else:
        end.sha256 = trailer(b"another").sha256
    error = await refused(stub.UploadVersion(iter(frames(b"content", end=end)), metadata=acme))
    assert (error.code, error.reason) == (grpc.StatusCode.FAILED_PRECONDITION, "UPLOAD_MISMATCH")
    assert error.metadata["field"] == f"trailer.{part}"
    assert await _count(stub, acme) == 0


@pytest.mark.rule("A3")
async def test_an_upload_that_breaks_off_leaves_nothing_visible(stub: Stub, acme: Metadata) -> None:
    mine, head = fresh_id(), header(create_only=True)
    head.artifact_id = mine
    sent = asyncio.Event()

    async def breaks_off() -> AsyncIterator[transfer_pb2.UploadVersionRequest]:
        for frame in frames(CONTENT * 3, head)[:-1]:
            yield frame
        sent.set()
        await asyncio.Event().wait()

    call = stub.UploadVersion(breaks_off(), metadata=acme)
    await asyncio.wait_for(sent.wait(), SECONDS)
    call.cancel()
    assert await _count(stub, acme) == 0
    error = await refused(stub.GetArtifact(pb.GetArtifactRequest(artifact_id=mine), metadata=acme))
    assert error.reason == "ARTIFACT_NOT_FOUND"
    # The same request may be sent again, and succeeds.
    assert (await upload(stub, acme, CONTENT * 3, head)).artifact_id == mine


@pytest.mark.parametrize(
    ("requests", "field"),
    [
        ([], "header"),
        (frames(b"x")[1:], "header"),
        (frames(b"x")[2:], "header"),
        ([transfer_pb2.UploadVersionRequest()], "header"),
        ([*frames(b"x"), frames(b"x")[1]], "chunk"),
        ([*frames(b"x"), frames(b"x")[2]], "trailer"),
        ([*frames(b"x"), frames(b"x")[0]], "header"),
        ([*frames(b"x"), transfer_pb2.UploadVersionRequest()], "part"),
        (frames(b"x")[:-1], "trailer"),
        ([frames(b"x")[0], transfer_pb2.UploadVersionRequest()], "part"),
        ([frames(b"x")[0], frames(b"x")[0]], "header"),
        (
            [frames(b"x")[0], transfer_pb2.UploadVersionRequest(trailer=transfer_pb2.UploadTrailer(size=1))],
            "trailer.sha256",
        ),
        (frames(b"", end=transfer_pb2.UploadTrailer(size=-1, sha256="0" * 64)), "trailer.size"),
        (frames(b"x", header(media_type="nonsense")), "header.metadata.media_type"),
        (frames(b"x", header(labels={"a\nb": "c"})), "header.metadata.labels"),
        (frames(b"x", header(type="a\tb")), "header.metadata.type"),
        (frames(b"x", header(artifact_id="a", create_only=True, expected_version=4)), "header.expected_version"),
    ],
)
async def test_an_upload_in_the_wrong_form_is_refused_by_field(
    stub: Stub, acme: Metadata, requests: list[transfer_pb2.UploadVersionRequest], field: str
) -> None:
    error = await refused(stub.UploadVersion(iter(requests), metadata=acme, timeout=SECONDS))
    assert (error.code, error.reason) == (grpc.StatusCode.INVALID_ARGUMENT, "FIELD_INVALID")
    assert field in error.violations
    assert await _count(stub, acme) == 0


@pytest.mark.rule("X9")
async def test_a_chunk_beyond_the_limit_is_refused_and_says_the_way_out(stub: Stub, acme: Metadata) -> None:
    big = b"x" * (MIB + 1)
    error = await refused(stub.UploadVersion(iter(frames(big, cut=len(big))), metadata=acme))
    assert (error.code, error.reason) == (grpc.StatusCode.RESOURCE_EXHAUSTED, "LIMIT_EXCEEDED")
    assert error.metadata["limit"] == "max_chunk_bytes"
    assert error.metadata["maximum"] == str(MIB)
    assert "smaller chunks" in error.metadata["advice"]


@pytest.mark.rule("X9")
@pytest.mark.suite(
    backends=["memory"], topologies=["embedded"], settings={"artifacts": {"limits": {"max_artifact_bytes": 10}}}
)
async def test_content_beyond_the_limit_is_refused(suite, acme: Metadata) -> None:  # type: ignore[no-untyped-def]
    small = suite.stub(Stub)
    assert (await upload(small, acme, b"0123456789")).size == 10
    error = await refused(small.UploadVersion(iter(frames(b"0123456789a", cut=3)), metadata=acme))
    assert (error.reason, error.metadata["limit"]) == ("LIMIT_EXCEEDED", "max_artifact_bytes")


@pytest.mark.rule("X3")
async def test_a_retry_of_a_finished_upload_gives_the_first_response(stub: Stub, acme: Metadata) -> None:
    requests = frames(CONTENT)
    first = await send(stub, acme, requests)
    again = await send(stub, acme, requests)
    assert await first == await again
    trailing = dict(await again.trailing_metadata())
    assert trailing[REPLAY_KEY] == "1"
    assert REPLAY_KEY not in dict(await first.trailing_metadata())
    assert await _count(stub, acme) == 1


@pytest.mark.rule("X3")
@pytest.mark.parametrize("changed", ["content", "metadata"])
async def test_a_request_id_used_for_another_upload_is_refused(stub: Stub, acme: Metadata, changed: str) -> None:
    head = header()
    version = await upload(stub, acme, b"content", head)
    content = b"content"
    if changed == "content":
        content = b"another"
    else:
        head.metadata.name = "another"
    error = await refused(stub.UploadVersion(iter(frames(content, head)), metadata=acme))
    assert (error.code, error.reason) == (grpc.StatusCode.ALREADY_EXISTS, "REQUEST_ID_REUSED")
    assert await _latest(stub, acme, version.artifact_id) == 1
    assert await download(stub, acme, version.artifact_id) == b"content"


@pytest.mark.rule("X3")
async def test_an_upload_sent_many_times_at_once_has_one_effect(stub: Stub, acme: Metadata) -> None:
    requests = frames(CONTENT)
    answers = await asyncio.gather(*(send(stub, acme, requests) for _ in range(6)))
    assert len({(await answer).SerializeToString(deterministic=True) for answer in answers}) == 1
    assert await _count(stub, acme) == 1


@pytest.mark.rule("X3")
async def test_a_refused_upload_leaves_its_request_id_free(stub: Stub, acme: Metadata) -> None:
    head = header()
    wrong = frames(b"content", head, trailer(b"another"))
    assert (await refused(stub.UploadVersion(iter(wrong), metadata=acme))).reason == "UPLOAD_MISMATCH"
    assert (await upload(stub, acme, b"content", head)).version == 1
