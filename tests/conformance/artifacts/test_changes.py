"""Versions without an upload, changes that are versions, deletes that can be undone, differences, quotas (A1, A7)."""

import hashlib

import grpc
import pytest
from google.protobuf import field_mask_pb2

from tests.support.artifacts import Stub, download, upload
from tests.support.calls import Metadata, refused, scope
from tests.support.descriptors import fresh_id
from threadkeep.artifacts.v1 import artifact_pb2, transfer_pb2
from threadkeep.artifacts.v1 import artifact_service_pb2 as pb

pytestmark = pytest.mark.suite(topologies=["embedded"])

TEXT = b"one\ntwo\nthree\n"


def metadata(name: str = "a.txt", **more: object) -> artifact_pb2.ArtifactMetadata:
    return artifact_pb2.ArtifactMetadata(name=name, **more)  # type: ignore[arg-type]


async def create(stub: Stub, acme: Metadata, content: bytes = TEXT, **more: object) -> artifact_pb2.ArtifactVersion:
    said = {key: more.pop(key) for key in list(more) if key not in ("artifact_id", "create_only", "expected_version")}
    request = transfer_pb2.CreateVersionRequest(
        request_id=fresh_id(),
        content=content,
        metadata=metadata(**said),
        **more,  # type: ignore[arg-type]
    )
    return (await stub.CreateVersion(request, metadata=acme)).version


def copying(sha256: str, **more: object) -> transfer_pb2.CopyVersionRequest:
    return transfer_pb2.CopyVersionRequest(
        request_id=fresh_id(),
        metadata=metadata("copy.txt"),
        sha256=sha256,
        **more,  # type: ignore[arg-type]
    )


def updating(artifact_id: str, *paths: str, expected: int | None = None, **said: object) -> pb.UpdateArtifactRequest:
    request = pb.UpdateArtifactRequest(
        request_id=fresh_id(),
        artifact_id=artifact_id,
        metadata=artifact_pb2.ArtifactMetadata(**said),  # type: ignore[arg-type]
        update_mask=field_mask_pb2.FieldMask(paths=paths),
    )
    if expected is not None:
        request.expected_version = expected
    return request


def deleting(artifact_id: str, version: int = 0) -> pb.DeleteArtifactRequest | pb.DeleteVersionRequest:
    if version:
        return pb.DeleteVersionRequest(request_id=fresh_id(), artifact_id=artifact_id, version=version)
    return pb.DeleteArtifactRequest(request_id=fresh_id(), artifact_id=artifact_id)


def restoring(artifact_id: str, version: int = 0) -> pb.RestoreArtifactRequest:
    return pb.RestoreArtifactRequest(request_id=fresh_id(), artifact_id=artifact_id, version=version)


async def latest(stub: Stub, acme: Metadata, artifact_id: str, version: int = 0) -> artifact_pb2.ArtifactVersion:
    request = pb.GetArtifactRequest(artifact_id=artifact_id, version=version)
    return (await stub.GetArtifact(request, metadata=acme)).version


async def listed(stub: Stub, acme: Metadata, **filters: object) -> list[str]:
    page = await stub.ListArtifacts(pb.ListArtifactsRequest(**filters), metadata=acme)  # type: ignore[arg-type]
    return [one.artifact_id for one in page.artifacts]


@pytest.mark.rule("A1", "A3", "X3")
async def test_small_content_comes_inline_and_once(stub: Stub, acme: Metadata) -> None:
    request = transfer_pb2.CreateVersionRequest(request_id=fresh_id(), content=TEXT, metadata=metadata("notes.md"))
    first = await stub.CreateVersion(request, metadata=acme)
    assert await stub.CreateVersion(request, metadata=acme) == first
    assert first.version.sha256 == hashlib.sha256(TEXT).hexdigest()
    assert first.version.metadata.media_type == "text/markdown"
    assert await download(stub, acme, first.version.artifact_id) == TEXT
    request.content = b"other"
    assert (await refused(stub.CreateVersion(request, metadata=acme))).reason == "REQUEST_ID_REUSED"
    large = transfer_pb2.CreateVersionRequest(
        request_id=fresh_id(), content=b"x" * (1024 * 1024 + 1), metadata=metadata()
    )
    error = await refused(stub.CreateVersion(large, metadata=acme))
    assert (error.reason, error.metadata["limit"]) == ("LIMIT_EXCEEDED", "max_inline_bytes")
    assert "UploadVersion" in error.metadata["advice"]


@pytest.mark.rule("A3")
@pytest.mark.parametrize(
    ("name", "content", "media_type"),
    [
        ("plan.MD", b"\x00", "text/markdown"),
        ("unknown.xyz", b"\x89PNG\r\n\x1a\nrest", "image/png"),
        ("unknown", "grün".encode(), "text/plain"),
        ("unknown", "ü".encode() * 300, "text/plain"),
        ("unknown", b"a\x00b", "application/octet-stream"),
        ("unknown", b"", "application/octet-stream"),
    ],
)
async def test_a_media_type_that_is_not_given_is_detected(
    stub: Stub, acme: Metadata, name: str, content: bytes, media_type: str
) -> None:
    assert (await create(stub, acme, content, name=name)).metadata.media_type == media_type


@pytest.mark.rule("A3", "X2")
async def test_content_is_copied_by_its_digest_within_the_scope_only(stub: Stub, acme: Metadata) -> None:
    source = await create(stub, acme)
    copy = (await stub.CopyVersion(copying(source.sha256), metadata=acme)).version
    assert (copy.version, copy.size, copy.metadata.media_type) == (1, len(TEXT), "text/plain")
    second = (await stub.CopyVersion(copying(source.sha256, artifact_id=copy.artifact_id), metadata=acme)).version
    assert (second.version, second.metadata.parent_version) == (2, 1)
    used = await stub.GetUsage(pb.GetUsageRequest(), metadata=acme)
    assert (used.artifact_count, used.version_count, used.content_bytes) == (2, 3, 3 * len(TEXT))
    assert used.stored_bytes == len(TEXT)
    for digest, caller in ((source.sha256, scope(tenant=fresh_id("other"))), ("0" * 64, acme)):
        error = await refused(stub.CopyVersion(copying(digest), metadata=caller))
        assert (error.code, error.reason) == (grpc.StatusCode.NOT_FOUND, "ARTIFACT_NOT_FOUND")
    # What was deleted is nobody's source any more.
    for one in (source, copy):
        await stub.DeleteArtifact(deleting(one.artifact_id), metadata=acme)
    assert (await refused(stub.CopyVersion(copying(source.sha256), metadata=acme))).reason == "ARTIFACT_NOT_FOUND"


@pytest.mark.rule("A1", "X4")
async def test_changed_metadata_is_a_version_with_the_same_content(stub: Stub, acme: Metadata) -> None:
    first = await create(stub, acme, labels={"a": "1", "b": "2"}, type="report")
    request = updating(first.artifact_id, "name", "labels", name="b.txt", labels={"c": "3"}, expected=1)
    second = (await stub.UpdateArtifact(request, metadata=acme)).version
    assert (await stub.UpdateArtifact(request, metadata=acme)).version == second
    assert (second.version, second.sha256, second.metadata.parent_version) == (2, first.sha256, 1)
    assert (second.metadata.name, dict(second.metadata.labels), second.metadata.type) == ("b.txt", {"c": "3"}, "report")
    assert await listed(stub, acme, labels={"a": "1"}) == []
    assert await listed(stub, acme, labels={"c": "3"}, name="b.txt") == [first.artifact_id]
    assert (await latest(stub, acme, first.artifact_id, 1)).metadata.name == "a.txt"
    stale = await refused(stub.UpdateArtifact(updating(first.artifact_id, "name", name="x", expected=1), metadata=acme))
    assert (stale.reason, stale.metadata["current_revision"]) == ("REVISION_CONFLICT", "2")
    for wrong in (
        updating(first.artifact_id),
        updating(first.artifact_id, "sha256"),
        updating(first.artifact_id, "labels.a"),
    ):
        assert "update_mask" in (await refused(stub.UpdateArtifact(wrong, metadata=acme))).violations
    for wrong, field in ((updating(first.artifact_id, "name"), "metadata.name"),):
        assert field in (await refused(stub.UpdateArtifact(wrong, metadata=acme))).violations


@pytest.mark.rule("A1", "A8")
async def test_lineage_comes_back_as_it_was_said(stub: Stub, acme: Metadata) -> None:
    source = await create(stub, acme)
    reference = artifact_pb2.ArtifactReference(artifact_id=source.artifact_id, version=1)
    made = await create(stub, acme, b"x", produced_from=[reference], session_id="s", task_id="t", checkpoint_id="c")
    assert list(made.metadata.produced_from) == [reference]
    assert not made.metadata.HasField("parent_version")
    assert await listed(stub, acme, task_id="t") == [made.artifact_id]
    again = await create(stub, acme, b"y", artifact_id=made.artifact_id)
    third = await create(stub, acme, b"z", artifact_id=made.artifact_id, parent_version=1)
    assert (again.metadata.parent_version, third.metadata.parent_version) == (1, 1)


@pytest.mark.rule("A1", "A7")
async def test_a_deleted_version_is_gone_until_it_is_restored(stub: Stub, acme: Metadata) -> None:
    mine = (await create(stub, acme, b"1", name="first.txt")).artifact_id
    await create(stub, acme, b"2", artifact_id=mine, name="second.txt", labels={"k": "v"})
    gone = await stub.DeleteVersion(deleting(mine, 2), metadata=acme)
    assert gone.latest == await latest(stub, acme, mine)
    assert gone.latest.version == 1
    assert await listed(stub, acme, name="first.txt") == [mine]
    assert await listed(stub, acme, labels={"k": "v"}) == []
    for call in (
        stub.GetArtifact(pb.GetArtifactRequest(artifact_id=mine, version=2), metadata=acme),
        stub.DownloadVersion(transfer_pb2.DownloadVersionRequest(artifact_id=mine, version=2), metadata=acme).read(),
        stub.DeleteVersion(deleting(mine, 2), metadata=acme),
        stub.DeleteVersion(deleting(mine, 3), metadata=acme),
    ):
        assert (await refused(call)).reason == "ARTIFACT_NOT_FOUND"
    last = await refused(stub.DeleteVersion(deleting(mine, 1), metadata=acme))
    assert (last.code, last.reason) == (grpc.StatusCode.FAILED_PRECONDITION, "LAST_VERSION")
    # Its number is not given again.
    assert (await create(stub, acme, b"3", artifact_id=mine, expected_version=1)).version == 3
    back = await stub.RestoreArtifact(restoring(mine, 2), metadata=acme)
    assert back.latest.version == 3
    assert await download(stub, acme, mine, version=2) == b"2"
    assert (await refused(stub.RestoreArtifact(restoring(mine, 2), metadata=acme))).reason == "ARTIFACT_NOT_FOUND"
    await stub.DeleteVersion(deleting(mine, 3), metadata=acme)
    assert await listed(stub, acme, labels={"k": "v"}) == [mine]
    assert (await stub.RestoreArtifact(restoring(mine, 3), metadata=acme)).latest.version == 3


@pytest.mark.rule("A7", "X3")
async def test_a_deleted_artifact_comes_back_whole(stub: Stub, acme: Metadata) -> None:
    mine = (await create(stub, acme, b"1", labels={"k": "v"}, path="/a")).artifact_id
    await create(stub, acme, b"22", artifact_id=mine, labels={"k": "w"}, path="/a")
    await create(stub, acme, b"333", artifact_id=mine, labels={"k": "w"}, path="/a")
    await stub.DeleteVersion(deleting(mine, 2), metadata=acme)
    other = (await create(stub, acme, b"other")).artifact_id
    used = await stub.GetUsage(pb.GetUsageRequest(), metadata=acme)
    for nothing in (restoring(mine), restoring(fresh_id()), restoring(mine, 3)):
        assert (await refused(stub.RestoreArtifact(nothing, metadata=acme))).reason == "ARTIFACT_NOT_FOUND"
    before = await latest(stub, acme, mine)
    assert (await stub.DeleteArtifact(deleting(mine), metadata=acme)).version_count == 2
    # Its path is free meanwhile, its id is not.
    taken = await create(stub, acme, b"4", path="/a")
    assert (await refused(stub.RestoreArtifact(restoring(mine), metadata=acme))).reason == "PATH_TAKEN"
    await stub.DeleteArtifact(deleting(taken.artifact_id), metadata=acme)
    foreign = await refused(stub.RestoreArtifact(restoring(mine), metadata=scope(tenant=fresh_id("other"))))
    assert foreign.reason == "ARTIFACT_NOT_FOUND"
    request = restoring(mine)
    assert (await stub.RestoreArtifact(request, metadata=acme)).latest == before
    assert (await stub.RestoreArtifact(request, metadata=acme)).latest == before
    assert await listed(stub, acme) == [mine, other]
    assert await listed(stub, acme, labels={"k": "w"}) == [mine]
    assert await stub.GetUsage(pb.GetUsageRequest(), metadata=acme) == pb.GetUsageResponse(
        artifact_count=2,
        version_count=3,
        content_bytes=used.content_bytes,
        # What was deleted is stored until it is reclaimed.
        stored_bytes=used.stored_bytes + 1,
        max_version_count=used.max_version_count,
        max_content_bytes=used.max_content_bytes,
    )


@pytest.mark.rule("A8")
@pytest.mark.case("B12")
async def test_paths_are_compared_character_by_character_and_list_in_order(stub: Stub, acme: Metadata) -> None:
    paths = ["/a_b/x", "/aXb/x", "/a-b/x", "/a%/y", "/a/%", "/a\\_b", "/a", "/a.b/é"]
    ids = {path: (await create(stub, acme, session_id="s", path=path)).artifact_id for path in paths}
    await create(stub, acme, session_id="s")
    elsewhere = (await create(stub, acme, session_id="other", path="/a_b/x")).artifact_id

    async def under(prefix: str, **more: object) -> list[str]:
        found, token = [], ""
        while True:
            request = pb.ListArtifactsRequest(path_prefix=prefix, page_size=2, page_token=token, **more)  # type: ignore[arg-type]
            page = await stub.ListArtifacts(request, metadata=acme)
            found += [one.metadata.path for one in page.artifacts]
            if not (token := page.next_page_token):
                return found

    assert await under("/", session_id="s") == sorted(paths)
    for prefix in ("/a_b/", "/a%", "/a\\", "/a/", "/%", "/_", "/A"):
        assert await under(prefix, session_id="s") == sorted(path for path in paths if path.startswith(prefix))
    assert await under("/a_b/x") == ["/a_b/x", "/a_b/x"]
    # One artifact of a session has a path; another session's, and none's, may have it too.
    error = await refused(
        stub.CreateVersion(
            transfer_pb2.CreateVersionRequest(
                request_id=fresh_id(), metadata=metadata(session_id="s", path="/a"), content=b""
            ),
            metadata=acme,
        )
    )
    assert (error.code, error.reason) == (grpc.StatusCode.ALREADY_EXISTS, "PATH_TAKEN")
    assert (await create(stub, acme, artifact_id=ids["/a"], session_id="s", path="/a")).version == 2
    moved = updating(elsewhere, "session_id", session_id="s")
    assert (await refused(stub.UpdateArtifact(moved, metadata=acme))).reason == "PATH_TAKEN"


@pytest.mark.rule("A8", "X8")
@pytest.mark.parametrize("path", ["", "/", "a/b", "/a/", "/a//b", "/a/../b", "/./a", "/..", "/a\x01", "/" + "x" * 256])
async def test_a_path_has_one_spelling(stub: Stub, acme: Metadata, path: str) -> None:
    request = transfer_pb2.CreateVersionRequest(request_id=fresh_id(), metadata=metadata(path=path), content=b"")
    assert "metadata.path" in "".join((await refused(stub.CreateVersion(request, metadata=acme))).violations)


@pytest.mark.rule("A8", "X8")
async def test_the_longest_names_of_all_fit_together(stub: Stub, acme: Metadata) -> None:
    def longest(count: int) -> str:
        # Four bytes each, and nothing that could be compressed.
        return "".join(chr(0x10000 + int.from_bytes(hashlib.sha256(b"%d" % n).digest()[:2])) for n in range(count))

    path = "/" + "/".join(longest(85) for _ in range(3))
    session_id, artifact_id = longest(256), longest(256)
    made = await create(
        stub,
        acme,
        artifact_id=artifact_id,
        create_only=True,
        session_id=session_id,
        path=path,
        name=longest(256),
        labels={longest(256): longest(256)},
    )
    assert made.metadata.path == path
    found = await listed(stub, acme, path_prefix=path[:-1], session_id=session_id)
    assert found == [artifact_id]
    assert await listed(stub, acme, labels={longest(256): longest(256)}) == [artifact_id]


@pytest.mark.rule("A1")
async def test_versions_of_a_text_are_compared_line_by_line(stub: Stub, acme: Metadata) -> None:
    mine = (await create(stub, acme, TEXT)).artifact_id
    await create(stub, acme, b"one\n2\nthree\nfour", artifact_id=mine)
    await create(stub, acme, b"\xff\xfe", artifact_id=mine)

    def request(start: int, end: int, **more: int) -> pb.DiffVersionsRequest:
        return pb.DiffVersionsRequest(artifact_id=mine, from_version=start, to_version=end, **more)

    found = await stub.DiffVersions(request(1, 2), metadata=acme)
    assert found.diff == (
        "--- a.txt (version 1)\n+++ a.txt (version 2)\n@@ -1,3 +1,4 @@\n one\n-two\n+2\n three\n+four\n"
        "\\ No newline at end of file\n"
    )
    assert (found.added_lines, found.removed_lines) == (2, 1)
    assert " one" not in (await stub.DiffVersions(request(1, 2, context_lines=0), metadata=acme)).diff
    assert (await stub.DiffVersions(request(1, 1), metadata=acme)).diff == ""
    assert (await refused(stub.DiffVersions(request(1, 3), metadata=acme))).reason == "CONTENT_NOT_TEXT"
    assert (await refused(stub.DiffVersions(request(1, 9), metadata=acme))).reason == "ARTIFACT_NOT_FOUND"
    long = (await create(stub, acme, b"\n" * 20_001)).artifact_id
    error = await refused(stub.DiffVersions(pb.DiffVersionsRequest(artifact_id=long, from_version=1), metadata=acme))
    assert error.metadata["limit"] == "max_diff_lines"
    assert "from_version" in (await refused(stub.DiffVersions(request(0, 1), metadata=acme))).violations


@pytest.mark.rule("X9")
async def test_a_quota_names_itself_and_what_is_deleted_counts_no_more(suite_with_quotas: Stub, acme: Metadata) -> None:
    stub = suite_with_quotas
    mine = [(await create(stub, acme, b"%d" % number)).artifact_id for number in range(3)]
    asked = transfer_pb2.CreateVersionRequest(request_id=fresh_id(), metadata=metadata(), content=b"4")
    error = await refused(stub.CreateVersion(asked, metadata=acme))
    assert (error.code, error.reason) == (grpc.StatusCode.RESOURCE_EXHAUSTED, "QUOTA_EXCEEDED")
    assert (error.metadata["quota"], error.metadata["maximum"], error.metadata["actual"]) == (
        "max_scope_versions",
        "3",
        "4",
    )
    update = updating(mine[0], "type", type="x")
    assert (await refused(stub.UpdateArtifact(update, metadata=acme))).reason == "QUOTA_EXCEEDED"
    await stub.DeleteArtifact(deleting(mine[0]), metadata=acme)
    await stub.CreateVersion(asked, metadata=acme)
    assert (await refused(stub.RestoreArtifact(restoring(mine[0]), metadata=acme))).reason == "QUOTA_EXCEEDED"
    # Another scope has its own.
    large = await refused(upload(stub, scope(tenant=fresh_id("other")), b"x" * 1001))
    assert large.metadata["quota"] == "max_scope_content_bytes"
