"""Every test of this folder works in a scope of its own on a suite of the services that the projection needs."""

import pytest

from tests.support.examples.world import World
from tests.support.projection import Talk
from tests.support.suite import Suite

SERVICES = ["config", "runtime", "projection"]


@pytest.fixture
def world(shared_suite: Suite) -> World:
    """A scope of its own."""
    return World(shared_suite)


@pytest.fixture
async def talk(world: World) -> Talk:
    """A new conversation in that scope."""
    return await Talk.begin(world)
