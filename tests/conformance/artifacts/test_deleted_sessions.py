"""What becomes of a deleted session's artifacts is what its owner chose (A7): the follower reads the runtime's log."""

import asyncio

import pytest

from tests.support.artifacts import Stub, upload
from tests.support.calls import Metadata, refused, scope
from tests.support.descriptors import fresh_id
from tests.support.runtime import Runtime
from tests.support.suite import Suite
from tests.support.waiting import eventually
from threadkeep.artifacts.v1 import artifact_pb2
from threadkeep.artifacts.v1 import artifact_service_pb2 as pb
from threadkeep.runtime.v1 import session_pb2, session_service_pb2

pytestmark = pytest.mark.suite(backends=["sqlite", "postgres"])


async def delete_session(
    runtime: Runtime, session_id: str, policy: int = session_pb2.ARTIFACT_POLICY_UNSPECIFIED
) -> None:
    request = session_service_pb2.DeleteSessionRequest(
        request_id=fresh_id(), session_id=session_id, artifact_policy=policy
    )
    await runtime.call("SessionService.DeleteSession", request)


async def count(stub: Stub, who: Metadata, session_id: str) -> int:
    page = await stub.ListArtifacts(pb.ListArtifactsRequest(session_id=session_id, page_size=1000), metadata=who)
    return len(page.artifacts)


@pytest.mark.rule("A7", "R19")
async def test_artifacts_follow_the_policy_of_their_deleted_session(shared_suite: Suite, stub: Stub) -> None:
    values = {"tenant": fresh_id("acme")}
    runtime, mine = Runtime(shared_suite, **values), scope(**values)
    gone, kept, other = [(await runtime.create()).session_id for _ in range(3)]
    ids = {}
    for session_id in (gone, kept, other):
        for number in range(3):
            made = await upload(
                stub,
                mine,
                b"%d" % number,
                session_id=session_id,
                # What few may read goes as well.
                visibility=artifact_pb2.VISIBILITY_RUN if number == 0 else artifact_pb2.VISIBILITY_PUBLIC,
            )
            ids.setdefault(session_id, made.artifact_id)
    foreign = scope(tenant=fresh_id("other"))
    await upload(stub, foreign, b"x", session_id=gone)
    await delete_session(runtime, kept, session_pb2.ARTIFACT_POLICY_KEEP)
    await delete_session(runtime, gone, session_pb2.ARTIFACT_POLICY_DELETE)

    async def is_gone() -> bool:
        return await count(stub, mine, gone) == 0

    await eventually(is_gone)
    usage = await stub.GetUsage(pb.GetUsageRequest(), metadata=mine)
    assert usage.artifact_count == 6
    assert await count(stub, mine, kept) == 2
    assert await count(stub, mine, other) == 2
    # The same id in another scope is another session.
    assert await count(stub, foreign, gone) == 1
    # A late writer makes no new ones.
    late = await refused(upload(stub, mine, b"late", session_id=gone))
    assert late.reason == "SESSION_NOT_FOUND"
    assert (await upload(stub, mine, b"late", session_id=kept)).version == 1


@pytest.mark.rule("A7")
@pytest.mark.suite(backends=["sqlite"], topologies=["split"])
async def test_a_session_that_is_deleted_while_nobody_follows_is_found_later(suite: Suite) -> None:
    from threadkeep.artifacts.v1 import artifact_service_pb2_grpc

    runtime = Runtime(suite, tenant="acme")
    stub = suite.stub(artifact_service_pb2_grpc.ArtifactServiceStub)
    sessions = [(await runtime.create()).session_id for _ in range(3)]
    for session_id in sessions:
        await upload(stub, runtime.metadata, b"x", session_id=session_id)

    async def all_gone() -> bool:
        return not sum([await count(stub, runtime.metadata, one) for one in sessions])

    await delete_session(runtime, sessions[0])
    await suite.rehost("artifacts", 0.0)
    await asyncio.gather(*(delete_session(runtime, one) for one in sessions[1:]))
    await eventually(all_gone)
