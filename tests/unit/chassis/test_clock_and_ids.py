"""Time as an argument, and ids that grow (X10)."""

import asyncio
import re

import pytest

from threadkeep_chassis.clock import ManualClock, SystemClock
from threadkeep_chassis.ids import IdFactory, new_id

UUID7 = re.compile("[0-9a-f]{8}-[0-9a-f]{4}-7[0-9a-f]{3}-[89ab][0-9a-f]{3}-[0-9a-f]{12}")


@pytest.mark.rule("X10")
async def test_a_manual_clock_wakes_sleepers_when_their_time_has_come() -> None:
    clock = ManualClock()
    woken: list[int] = []

    async def sleeper(seconds: int) -> None:
        await clock.sleep(seconds)
        woken.append(seconds)

    tasks = [asyncio.create_task(sleeper(seconds)) for seconds in (3, 1, 2)]
    await asyncio.sleep(0)
    start = clock.now()
    clock.advance(2)
    await asyncio.gather(tasks[1], tasks[2])
    assert woken == [1, 2]
    assert (clock.now() - start).total_seconds() == clock.monotonic() == 2
    clock.advance(1)
    await asyncio.gather(*tasks)
    assert woken == [1, 2, 3]


@pytest.mark.rule("X10")
def test_the_system_clock_is_aware_and_in_utc() -> None:
    offset = SystemClock().now().utcoffset()
    assert offset is not None
    assert not offset


def test_ids_are_uuid7_and_unique() -> None:
    ids = [new_id() for _ in range(10_000)]
    assert all(UUID7.fullmatch(one) for one in ids)
    assert ids == sorted(set(ids))


@pytest.mark.rule("X10")
def test_ids_grow_while_the_clock_stands_and_when_it_goes_back() -> None:
    times = iter([1000] * 6000 + [500] * 6000 + [1001] * 10)
    factory = IdFactory(now_ms=lambda: next(times))
    ids = [factory.new_id() for _ in range(12_010)]
    assert ids == sorted(set(ids))
