"""Fixtures of the client's tests: a server that does what a test says, and both clients of it."""

from collections.abc import AsyncIterator, Iterator

import pytest

from tests.support.far_end import FarEnd
from threadkeep import AsyncClient, Client

SCOPE = {"tenant": "åcme", "user": "ü1"}


@pytest.fixture
def far_end() -> Iterator[FarEnd]:
    """The server."""
    server = FarEnd()
    yield server
    server.close()


@pytest.fixture
def client(far_end: FarEnd) -> Iterator[Client]:
    """The synchronous client."""
    with Client(far_end.address, scope=SCOPE, timeout=10) as made:
        yield made


@pytest.fixture
async def async_client(far_end: FarEnd) -> AsyncIterator[AsyncClient]:
    """The asyncio client."""
    async with AsyncClient(far_end.address, scope=SCOPE, timeout=10) as made:
        yield made
