"""What tests of the artifacts service share."""

from collections.abc import AsyncIterator

import pytest

from tests.support.calls import Metadata, scope
from tests.support.databases import Databases
from tests.support.descriptors import fresh_id
from tests.support.suite import Suite
from threadkeep.artifacts.v1 import artifact_service_pb2_grpc


@pytest.fixture
def stub(shared_suite: Suite) -> artifact_service_pb2_grpc.ArtifactServiceStub:
    """The artifacts service of a suite that other tests use too."""
    return shared_suite.stub(artifact_service_pb2_grpc.ArtifactServiceStub)


@pytest.fixture
def acme() -> Metadata:
    """Metadata of a scope that no other test uses."""
    return scope(tenant=fresh_id("acme"))


@pytest.fixture
async def suite_with_quotas(databases: Databases) -> AsyncIterator[artifact_service_pb2_grpc.ArtifactServiceStub]:
    """An artifacts service whose scopes may have 3 versions of 1,000 bytes together."""
    limits = {"max_scope_versions": 3, "max_scope_content_bytes": 1000}
    suite = await Suite.start(
        databases, "sqlite", "embedded", {"artifacts": {"limits": limits}}, services=["artifacts"]
    )
    yield suite.stub(artifact_service_pb2_grpc.ArtifactServiceStub)
    await suite.close()
