"""What tests of the config service share."""

import pytest

from tests.support.config import Caller
from tests.support.descriptors import fresh_id
from tests.support.suite import Suite


@pytest.fixture
def acme(shared_suite: Suite) -> Caller:
    """A caller in a scope that no other test uses, in a suite that others use too."""
    return Caller(shared_suite.channel("config"), {"tenant": fresh_id("acme")})


@pytest.fixture
def globex(shared_suite: Suite) -> Caller:
    """A caller in another such scope."""
    return Caller(shared_suite.channel("config"), {"tenant": fresh_id("globex")})
