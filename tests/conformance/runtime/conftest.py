"""What tests of the runtime service share."""

import pytest

from tests.support.examples.world import World
from tests.support.suite import Suite


@pytest.fixture
def world(shared_suite: Suite) -> World:
    """A scope that no other test uses, in a suite that other tests use too."""
    return World(shared_suite)
