"""What keeps failing is tried less and less often, and never forgotten without bound (R8)."""

import pytest

from threadkeep_chassis.clock import ManualClock
from threadkeep_runtime.loops.backoff import Backoff


@pytest.mark.rule("R8")
def test_each_failure_doubles_the_wait_up_to_a_minute_and_a_success_ends_it() -> None:
    clock = ManualClock()
    backoff = Backoff(clock)
    for seconds in (1, 2, 4, 8, 16, 32, 60, 60):
        backoff.failed("a")
        assert not backoff.is_ready("a")
        assert backoff.is_ready("b")
        clock.advance(seconds - 0.5)
        assert not backoff.is_ready("a")
        clock.advance(0.5)
        assert backoff.is_ready("a")
    backoff.succeeded("a")
    backoff.failed("a")
    clock.advance(1)
    assert backoff.is_ready("a")


@pytest.mark.rule("R8")
def test_the_one_that_failed_longest_ago_is_forgotten_first() -> None:
    backoff = Backoff(ManualClock(), most_keys=2)
    for key in ("a", "b", "a", "c"):
        backoff.failed(key)
    assert [backoff.is_ready(key) for key in ("a", "b", "c")] == [False, True, False]
