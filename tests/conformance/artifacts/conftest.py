"""What tests of the artifacts service share."""

import pytest

from tests.support.calls import Metadata, scope
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
