"""Downloads, lists and deletes: exact scope, verified content, pages, filters (A2, A3, A5, X5)."""

import asyncio

import grpc
import pytest

from tests.support.artifacts import MIB, Stub, download, download_frames, frames, header, upload
from tests.support.calls import Metadata, refused, scope
from tests.support.descriptors import fresh_id
from threadkeep.artifacts.v1 import artifact_pb2, transfer_pb2
from threadkeep.artifacts.v1 import artifact_service_pb2 as pb

CONTENT = bytes(range(256)) * (10 * 1024) + b"tail"  # two and a half chunks


async def _list(stub: Stub, metadata: Metadata, **filters: object) -> list[artifact_pb2.ArtifactVersion]:
    request = pb.ListArtifactsRequest(**filters)  # type: ignore[arg-type]
    return list((await stub.ListArtifacts(request, metadata=metadata)).artifacts)


async def _first_error(stub: Stub, metadata: Metadata, **request: object):  # type: ignore[no-untyped-def]
    call = stub.DownloadVersion(transfer_pb2.DownloadVersionRequest(**request), metadata=metadata)  # type: ignore[arg-type]
    return await refused(call.read())


@pytest.mark.rule("A3")
@pytest.mark.parametrize("offset", [0, 1, MIB - 1, MIB, MIB + 7, 2 * MIB + 99, len(CONTENT) - 1, len(CONTENT)])
@pytest.mark.parametrize("length", [0, 1, MIB, MIB + 3])
async def test_a_download_resumes_at_any_offset(stub: Stub, acme: Metadata, offset: int, length: int) -> None:
    mine = (await upload(stub, acme, CONTENT)).artifact_id
    found = await download(stub, acme, mine, offset=offset, length=length)
    assert found == (CONTENT[offset:] if length == 0 else CONTENT[offset : offset + length])


@pytest.mark.rule("A3")
async def test_a_download_says_first_what_it_is_and_then_sends_bounded_chunks(stub: Stub, acme: Metadata) -> None:
    version = await upload(stub, acme, CONTENT)
    got = [frame async for frame in download_frames(stub, acme, version.artifact_id, offset=5)]
    assert got[0].version == version
    assert [frame.WhichOneof("part") for frame in got[1:]] == ["chunk"] * 3
    assert max(len(frame.chunk) for frame in got) <= MIB


@pytest.mark.rule("A3")
async def test_an_offset_beyond_the_end_is_out_of_range(stub: Stub, acme: Metadata) -> None:
    mine = (await upload(stub, acme, b"12345")).artifact_id
    error = await _first_error(stub, acme, artifact_id=mine, offset=6)
    assert (error.code, error.reason) == (grpc.StatusCode.OUT_OF_RANGE, "OFFSET_OUT_OF_RANGE")
    assert error.metadata["size"] == "5"
    for field in ("offset", "length", "version"):
        error = await _first_error(stub, acme, artifact_id=mine, **{field: -1})
        assert field in error.violations


@pytest.mark.rule("A2", "X2")
async def test_a_foreign_artifact_is_as_absent_as_one_that_never_was(stub: Stub, acme: Metadata) -> None:
    values = {"tenant": fresh_id("owner")}
    foreign = (await upload(stub, scope(**values), b"theirs")).artifact_id
    inside = scope(**values, user="narrower")
    for reader in (acme, inside):
        for artifact_id in (foreign, fresh_id()):
            answers = [
                await _first_error(stub, reader, artifact_id=artifact_id),
                await refused(stub.GetArtifact(pb.GetArtifactRequest(artifact_id=artifact_id), metadata=reader)),
                await refused(stub.ListVersions(pb.ListVersionsRequest(artifact_id=artifact_id), metadata=reader)),
                await refused(
                    stub.DeleteArtifact(
                        pb.DeleteArtifactRequest(request_id=fresh_id(), artifact_id=artifact_id), metadata=reader
                    )
                ),
            ]
            assert {(one.code, one.reason) for one in answers} == {(grpc.StatusCode.NOT_FOUND, "ARTIFACT_NOT_FOUND")}
            assert len({one.raw for one in answers}) == 1
        assert await _list(stub, reader) == []


@pytest.mark.rule("A1")
async def test_a_version_that_never_was_is_not_found(stub: Stub, acme: Metadata) -> None:
    mine = (await upload(stub, acme, b"one")).artifact_id
    for version in (2, 2**62):
        request = pb.GetArtifactRequest(artifact_id=mine, version=version)
        assert (await refused(stub.GetArtifact(request, metadata=acme))).reason == "ARTIFACT_NOT_FOUND"
    request = pb.GetArtifactRequest(artifact_id=mine, version=-1)
    assert "version" in (await refused(stub.GetArtifact(request, metadata=acme))).violations


@pytest.mark.rule("A5", "X5")
async def test_a_list_is_paged_newest_first_and_survives_deletes(stub: Stub, acme: Metadata) -> None:
    made = [(await upload(stub, acme, b"%d" % number)).artifact_id for number in range(7)]
    seen: list[str] = []
    token = ""
    while True:
        page = await stub.ListArtifacts(pb.ListArtifactsRequest(page_size=2, page_token=token), metadata=acme)
        seen += [one.artifact_id for one in page.artifacts]
        token = page.next_page_token
        if not token:
            break
        # The row that the page stopped at goes; the next page is not disturbed.
        request = pb.DeleteArtifactRequest(request_id=fresh_id(), artifact_id=seen[-1])
        await stub.DeleteArtifact(request, metadata=acme)
    assert seen == made[::-1]


@pytest.mark.rule("X5")
async def test_a_foreign_or_edited_page_token_is_refused(stub: Stub, acme: Metadata) -> None:
    for number in range(3):
        await upload(stub, acme, b"%d" % number)
    page = await stub.ListArtifacts(pb.ListArtifactsRequest(page_size=1), metadata=acme)
    token = page.next_page_token
    attempts = [
        (pb.ListArtifactsRequest(page_token=token[:-1] + ("A" if token[-1] != "A" else "B")), acme),
        (pb.ListArtifactsRequest(page_token=token, name="report.md"), acme),
        (pb.ListArtifactsRequest(page_token=token), scope(tenant=fresh_id("other"))),
    ]
    for request, metadata in attempts:
        error = await refused(stub.ListArtifacts(request, metadata=metadata))
        assert error.reason == "PAGE_TOKEN_INVALID"


@pytest.mark.rule("A5")
async def test_lists_filter_by_what_the_latest_version_says(stub: Stub, acme: Metadata) -> None:
    one = (
        await upload(stub, acme, b"1", name="a", type="x", session_id="s", run_id="r", labels={"k": "v"})
    ).artifact_id
    two = (
        await upload(
            stub, acme, b"2", name="b", type="x", session_id="t", checkpoint_id="c", labels={"k": "v", "l": "w"}
        )
    ).artifact_id
    three = (await upload(stub, acme, b"3", name="a", type="y", labels={"k": "w"})).artifact_id

    async def ids(**filters: object) -> list[str]:
        return [version.artifact_id for version in await _list(stub, acme, **filters)]

    assert await ids() == [three, two, one]
    assert await ids(name="a") == [three, one]
    assert await ids(type="x") == [two, one]
    assert await ids(type="x", name="a") == [one]
    assert await ids(session_id="s") == [one]
    assert await ids(run_id="r") == [one]
    assert await ids(checkpoint_id="c") == [two]
    assert await ids(labels={"k": "v"}) == [two, one]
    assert await ids(labels={"k": "v", "l": "w"}) == [two]
    assert await ids(labels={"l": "v"}) == []
    assert await ids(labels={"k": "v"}, session_id="s") == [one]
    # A new version moves the artifact to where its own words put it, in its old place.
    await upload(stub, acme, b"4", name="b", artifact_id=one)
    assert await ids(labels={"k": "v"}) == [two]
    assert await ids(name="b") == [two, one]
    assert await ids(session_id="s") == []


@pytest.mark.rule("A5")
@pytest.mark.case("B12")
async def test_wildcards_in_names_and_labels_are_plain_characters(stub: Stub, acme: Metadata) -> None:
    for name in ("john_doe", "john-doe", "johnXdoe", "%", "foo", "foobar", "back\\slash"):
        await upload(stub, acme, name.encode(), name=name, labels={"of": name})
    for name, count in (("john_doe", 1), ("%", 1), ("foo", 1), ("back\\slash", 1), ("_", 0), ("\\", 0)):
        assert len(await _list(stub, acme, name=name)) == count
        assert len(await _list(stub, acme, labels={"of": name})) == count


@pytest.mark.rule("X5", "X9")
@pytest.mark.case("B92")
async def test_a_page_of_large_metadata_is_bounded_by_bytes(stub: Stub, acme: Metadata) -> None:
    labels = {f"{number:03d}{'k' * 250}": "ü" * 256 for number in range(64)}
    made = await asyncio.gather(*(upload(stub, acme, b"%d" % n, labels=labels) for n in range(80)))
    seen: set[str] = set()
    token = ""
    while True:
        page = await stub.ListArtifacts(pb.ListArtifactsRequest(page_size=1000, page_token=token), metadata=acme)
        assert page.ByteSize() < 4 * MIB
        seen |= {one.artifact_id for one in page.artifacts}
        token = page.next_page_token
        if not token:
            break
    assert seen == {one.artifact_id for one in made}


@pytest.mark.rule("A1", "X5")
async def test_versions_are_listed_newest_first_in_pages(stub: Stub, acme: Metadata) -> None:
    mine = (await upload(stub, acme, b"1")).artifact_id
    for number in range(2, 6):
        await upload(stub, acme, b"%d" % number, artifact_id=mine)
    seen: list[int] = []
    token = ""
    while True:
        request = pb.ListVersionsRequest(artifact_id=mine, page_size=2, page_token=token)
        page = await stub.ListVersions(request, metadata=acme)
        seen += [version.version for version in page.versions]
        token = page.next_page_token
        if not token:
            break
    assert seen == [5, 4, 3, 2, 1]


@pytest.mark.rule("A1", "A7")
async def test_a_deleted_artifact_is_gone_and_its_id_stays_taken(stub: Stub, acme: Metadata) -> None:
    mine = (await upload(stub, acme, b"1", session_id="s", labels={"k": "v"})).artifact_id
    await upload(stub, acme, b"2", artifact_id=mine, session_id="s", labels={"k": "v"})
    request = pb.DeleteArtifactRequest(request_id=fresh_id(), artifact_id=mine)
    assert (await stub.DeleteArtifact(request, metadata=acme)).version_count == 2
    assert (await stub.DeleteArtifact(request, metadata=acme)).version_count == 2  # a replay
    assert await _list(stub, acme) == await _list(stub, acme, session_id="s") == []
    assert await _list(stub, acme, labels={"k": "v"}) == []
    assert (await _first_error(stub, acme, artifact_id=mine, version=1)).reason == "ARTIFACT_NOT_FOUND"
    create = frames(b"3", header(artifact_id=mine, create_only=True))
    assert (await refused(stub.UploadVersion(iter(create), metadata=acme))).reason == "ID_TAKEN"
    append = frames(b"3", header(artifact_id=mine))
    assert (await refused(stub.UploadVersion(iter(append), metadata=acme))).reason == "ARTIFACT_NOT_FOUND"
    again = pb.DeleteArtifactRequest(request_id=fresh_id(), artifact_id=mine)
    assert (await refused(stub.DeleteArtifact(again, metadata=acme))).reason == "ARTIFACT_NOT_FOUND"


@pytest.mark.rule("A1", "X4")
async def test_a_delete_compares_the_latest_version(stub: Stub, acme: Metadata) -> None:
    mine = (await upload(stub, acme, b"1")).artifact_id
    stale = pb.DeleteArtifactRequest(request_id=fresh_id(), artifact_id=mine, expected_version=2)
    error = await refused(stub.DeleteArtifact(stale, metadata=acme))
    assert (error.reason, error.metadata["current_revision"]) == ("REVISION_CONFLICT", "1")
    fitting = pb.DeleteArtifactRequest(request_id=fresh_id(), artifact_id=mine, expected_version=1)
    assert (await stub.DeleteArtifact(fitting, metadata=acme)).version_count == 1
