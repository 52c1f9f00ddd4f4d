"""What tests of the config service share."""

import contextlib

import pytest

from tests.support.config import Caller, config_server_on
from tests.support.descriptors import fresh_id


@pytest.fixture(scope="session")
async def _servers(databases):
    async with contextlib.AsyncExitStack() as stack:
        made = {}

        async def get(backend):
            if backend not in made:
                made[backend] = await stack.enter_async_context(config_server_on(databases, backend))
            return made[backend]

        yield get


@pytest.fixture
async def channel(_servers, backend):
    return (await _servers(backend)).channel


@pytest.fixture
def acme(channel) -> Caller:
    """A caller in a scope that no other test uses, in a suite that others use too."""
    return Caller(channel, {"tenant": fresh_id("acme")})


@pytest.fixture
def globex(channel) -> Caller:
    """A caller in another such scope."""
    return Caller(channel, {"tenant": fresh_id("globex")})
