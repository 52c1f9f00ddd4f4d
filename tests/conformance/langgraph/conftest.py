"""Savers over a running suite, in a scope of their own."""

import uuid
from collections.abc import AsyncIterator

import pytest

from tests.support.suite import Suite
from threadkeep import AsyncClient
from threadkeep.langgraph import ThreadkeepSaver


@pytest.fixture
async def client(shared_suite: Suite) -> AsyncIterator[AsyncClient]:
    """A client of the suite in a scope that nobody else uses."""
    async with AsyncClient(shared_suite.addresses, scope={"test": uuid.uuid4().hex}) as made:
        yield made


@pytest.fixture
def saver(client: AsyncClient) -> ThreadkeepSaver:
    """A saver in that scope."""
    return ThreadkeepSaver(client)
