"""A suite whose runtime lives by a clock that a test moves: time decides there, and nobody waits for it."""

from collections.abc import AsyncIterator
from typing import Any

import pytest

from tests.support.databases import Databases
from tests.support.runtime import Runtime
from tests.support.suite import Suite
from threadkeep_chassis.clock import ManualClock

LOOKS: dict[str, dict[str, Any]] = {"runtime": {"recovery_interval_seconds": 0.05, "signal_poll_seconds": 0.1}}


class Timed(Runtime):
    """One scope of such a suite."""

    def __init__(self, suite: Suite, clock: ManualClock) -> None:
        super().__init__(suite)
        self.suite, self.clock = suite, clock


@pytest.fixture
async def timed(databases: Databases, backend: str) -> AsyncIterator[Timed]:
    """A scope of a suite with a clock of its own, on each backend."""
    clock = ManualClock()
    suite = await Suite.start(databases, backend, "embedded", LOOKS, ("config", "runtime"), clock)
    yield Timed(suite, clock)
    await suite.close()
