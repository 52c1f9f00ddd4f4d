"""Who may read what (A6): every read, list, copy and change of a version asks, and a lease is the runtime's word."""

import json
from typing import Any

import pytest
from google.protobuf import field_mask_pb2

from tests.support.artifacts import Stub, upload
from tests.support.calls import Metadata, grant_all, refused, scope
from tests.support.descriptors import fresh_id
from tests.support.runtime import SUCCEEDED, Runtime
from tests.support.suite import Suite
from threadkeep.artifacts.v1 import artifact_pb2, transfer_pb2
from threadkeep.artifacts.v1 import artifact_service_pb2 as pb

pytestmark = pytest.mark.suite(backends=["sqlite", "postgres"])

PRIVATE, RUN, PUBLIC = (
    artifact_pb2.VISIBILITY_PRIVATE,
    artifact_pb2.VISIBILITY_RUN,
    artifact_pb2.VISIBILITY_PUBLIC,
)


def reading_as(**claims: Any) -> Metadata:
    return (("threadkeep-reader-bin", json.dumps(claims).encode()),)


async def seen(stub: Stub, who: Metadata, artifact_id: str, sha256: str) -> bool:
    """Whether the caller sees version 1: every way to ask must say the same."""
    request_id = fresh_id()
    get = pb.GetArtifactRequest(artifact_id=artifact_id, version=1)
    download = transfer_pb2.DownloadVersionRequest(artifact_id=artifact_id, version=1)
    listing = await stub.ListArtifacts(pb.ListArtifactsRequest(), metadata=who)
    files = await stub.ListArtifacts(pb.ListArtifactsRequest(path_prefix="/"), metadata=who)
    ways: list[bool] = [
        artifact_id in [one.artifact_id for one in listing.artifacts],
        artifact_id in [one.artifact_id for one in files.artifacts],
    ]
    copy = transfer_pb2.CopyVersionRequest(
        request_id=request_id, sha256=sha256, metadata=artifact_pb2.ArtifactMetadata(name="copy")
    )
    update = pb.UpdateArtifactRequest(
        request_id=fresh_id(),
        artifact_id=artifact_id,
        # No such version: what is seen is a conflict.
        expected_version=99,
        metadata=artifact_pb2.ArtifactMetadata(name="x"),
        update_mask=field_mask_pb2.FieldMask(paths=["name"]),
    )
    delete = pb.DeleteArtifactRequest(request_id=fresh_id(), artifact_id=artifact_id, expected_version=99)
    more = transfer_pb2.CreateVersionRequest(
        request_id=fresh_id(),
        artifact_id=artifact_id,
        expected_version=99,
        metadata=artifact_pb2.ArtifactMetadata(name="x"),
    )
    only = pb.DeleteVersionRequest(request_id=fresh_id(), artifact_id=artifact_id, version=1)
    for call in (
        lambda: stub.GetArtifact(get, metadata=who),
        lambda: stub.DownloadVersion(download, metadata=who).read(),
        lambda: stub.ListVersions(pb.ListVersionsRequest(artifact_id=artifact_id), metadata=who),
        lambda: stub.DiffVersions(pb.DiffVersionsRequest(artifact_id=artifact_id, from_version=1), metadata=who),
        lambda: stub.CopyVersion(copy, metadata=who),
        lambda: stub.UpdateArtifact(update, metadata=who),
        lambda: stub.DeleteArtifact(delete, metadata=who),
        lambda: stub.CreateVersion(more, metadata=who),
        lambda: stub.DeleteVersion(only, metadata=who),
    ):
        try:
            answer = await call()
        except Exception:
            ways.append((await refused(call())).reason != "ARTIFACT_NOT_FOUND")
            continue
        if isinstance(answer, transfer_pb2.CopyVersionResponse):
            gone = pb.DeleteArtifactRequest(request_id=fresh_id(), artifact_id=answer.version.artifact_id)
            await stub.DeleteArtifact(gone, metadata=who)
        ways.append(True)
    assert len(set(ways)) == 1, ways
    return ways[0]


@pytest.mark.rule("A6", "X2")
async def test_each_reader_sees_what_it_may_and_the_rest_is_not_there(shared_suite: Suite, stub: Stub) -> None:
    values = {"tenant": fresh_id("acme")}
    runtime = Runtime(shared_suite, **values)
    held = await runtime.world.lease()
    session_id, run_id, epoch = held.run.session_id, held.run.run_id, held.lease.epoch
    plain = scope(**values)
    made = {}
    for visibility in (PRIVATE, RUN, PUBLIC):
        name = artifact_pb2.Visibility.Name(visibility)
        made[visibility] = await upload(
            stub,
            plain,
            name.encode(),
            name=name,
            visibility=visibility,
            session_id=session_id,
            run_id=run_id,
            path=f"/{name}",
        )

    async def sees(who: Metadata) -> set[int]:
        return {kind for kind, one in made.items() if await seen(stub, who, one.artifact_id, one.sha256)}

    holder = plain + reading_as(run_id=run_id, epoch=epoch)
    assert await sees(plain) == {PUBLIC}
    assert await sees(plain + reading_as(session_id=session_id)) == {RUN, PUBLIC}
    assert await sees(plain + reading_as(session_id=fresh_id("other"))) == {PUBLIC}
    assert await sees(holder) == {PRIVATE, RUN, PUBLIC}
    assert await sees(plain + grant_all()) == {PRIVATE, RUN, PUBLIC}
    for stale in (reading_as(run_id=run_id, epoch=epoch + 1), reading_as(run_id=fresh_id("run"), epoch=1)):
        assert await sees(plain + stale) == {PUBLIC}
    # Another scope's reader is nobody, whatever it says.
    other = scope(tenant=fresh_id("other"))
    assert await sees(other + reading_as(session_id=session_id, run_id=run_id, epoch=epoch)) == set()
    await runtime.world.commit(session_id=session_id, lease=held.lease, ended=SUCCEEDED)
    # The lease is gone; a yes of the runtime counts for a moment.
    from tests.support.waiting import eventually

    async def forgotten() -> bool:
        return await sees(holder) == {PUBLIC}

    await eventually(forgotten)


@pytest.mark.rule("A6")
async def test_a_reader_of_one_version_does_not_see_the_others(stub: Stub, acme: Metadata) -> None:
    mine = (await upload(stub, acme, b"draft", visibility=RUN, session_id="s")).artifact_id
    reader = acme + reading_as(session_id="s")
    await upload(stub, reader, b"published", artifact_id=mine, visibility=PUBLIC)
    versions = pb.ListVersionsRequest(artifact_id=mine)
    assert [one.version for one in (await stub.ListVersions(versions, metadata=acme)).versions] == [2]
    assert [one.version for one in (await stub.ListVersions(versions, metadata=reader)).versions] == [2, 1]
    compare = pb.DiffVersionsRequest(artifact_id=mine, from_version=1)
    assert (await refused(stub.DiffVersions(compare, metadata=acme))).reason == "ARTIFACT_NOT_FOUND"
    delete = pb.DeleteVersionRequest(request_id=fresh_id(), artifact_id=mine, version=1)
    assert (await refused(stub.DeleteVersion(delete, metadata=acme))).reason == "ARTIFACT_NOT_FOUND"
    # What is left after a delete is shown to whom it may be shown.
    delete.version = 2
    assert not (await stub.DeleteVersion(delete, metadata=acme)).HasField("latest")
    restore = pb.RestoreArtifactRequest(request_id=fresh_id(), artifact_id=mine)
    gone = pb.DeleteArtifactRequest(request_id=fresh_id(), artifact_id=mine)
    assert (await refused(stub.DeleteArtifact(gone, metadata=acme))).reason == "ARTIFACT_NOT_FOUND"
    await stub.DeleteArtifact(gone, metadata=reader)
    assert (await refused(stub.RestoreArtifact(restore, metadata=acme))).reason == "ARTIFACT_NOT_FOUND"
    assert (await stub.RestoreArtifact(restore, metadata=reader)).latest.version == 1


@pytest.mark.rule("A6")
@pytest.mark.parametrize(("visibility", "field"), [(PRIVATE, "run_id"), (RUN, "session_id")])
async def test_what_is_not_for_all_says_whose_it_is(stub: Stub, acme: Metadata, visibility: int, field: str) -> None:
    error = await refused(upload(stub, acme, b"x", visibility=visibility))
    assert f"header.metadata.{field}" in error.violations


@pytest.mark.rule("A6", "X8")
@pytest.mark.parametrize(
    "header", [b"{", b"[]", b'{"role":"admin"}', b'{"session_id":""}', b'{"run_id":"r"}', b'{"run_id":"r","epoch":"1"}']
)
async def test_a_reader_that_says_nothing_legal_is_refused(stub: Stub, acme: Metadata, header: bytes) -> None:
    who = (*acme, ("threadkeep-reader-bin", header))
    assert (
        "threadkeep-reader-bin"
        in (await refused(stub.ListArtifacts(pb.ListArtifactsRequest(), metadata=who))).violations
    )
