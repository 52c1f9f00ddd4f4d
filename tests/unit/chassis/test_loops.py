"""Background work has one owner (X9)."""

import asyncio

import pytest

from threadkeep_chassis.errors import DatabaseUnavailable
from threadkeep_chassis.loops import Loops
from threadkeep_chassis.signals import EVERYTHING, LocalSignals


async def test_a_loop_that_fails_is_started_again() -> None:
    loops, runs, settled = Loops(), [], asyncio.Event()

    async def work() -> None:
        runs.append(1)
        if len(runs) == 1:
            raise ValueError
        if len(runs) == 2:
            raise DatabaseUnavailable
        settled.set()
        await loops.stopping.wait()

    loops.add("fragile", work)
    await loops.start()
    await asyncio.wait_for(settled.wait(), 10)
    await loops.stop()
    assert len(runs) == 3


async def test_repeated_work_ends_with_the_stop_and_not_within_a_step() -> None:
    loops, steps = Loops(), []

    async def step() -> None:
        steps.append("begun")
        await asyncio.sleep(0.05)
        steps.append("done")

    loops.every("steps", 1000, step)
    await loops.start()
    while not steps:
        await asyncio.sleep(0)
    await asyncio.wait_for(loops.stop(), 5)
    assert steps == ["begun", "done"]


async def test_a_stop_cancels_what_does_not_end_within_the_grace() -> None:
    loops, cancelled = Loops(), asyncio.Event()

    async def stubborn() -> None:
        try:
            await asyncio.Event().wait()
        finally:
            cancelled.set()

    loops.add("stubborn", stubborn)
    await loops.start()
    await asyncio.sleep(0)
    await asyncio.wait_for(loops.stop(grace_seconds=0.05), 5)
    assert cancelled.is_set()


async def test_a_spawned_task_is_owned_and_its_failure_is_logged(capsys: pytest.CaptureFixture[str]) -> None:
    loops = Loops()

    async def fails() -> None:
        raise ValueError("hunter2")

    task = loops.spawn("errand", fails())
    await asyncio.wait([task])
    printed = "".join(capsys.readouterr())
    assert "errand" in printed
    assert "ValueError" in printed
    assert "hunter2" not in printed
    await loops.stop()


async def test_a_signal_between_two_waits_is_not_missed() -> None:
    signals = LocalSignals(poll_seconds=60)
    async with signals.subscribe("a", "b") as changed:
        signals.notify("b")
        assert await changed.wait()
        assert not await changed.wait(timeout=0.01)
        signals.notify("c")
        assert not await changed.wait(timeout=0.01)
        signals.notify(EVERYTHING)
        assert await changed.wait()
        for _ in range(100):
            signals.notify("a")
        assert await changed.wait()
        assert not await changed.wait(timeout=0.01)
    assert signals.subscriptions == 0


@pytest.mark.rule("X9")
async def test_subscriptions_are_bounded() -> None:
    from threadkeep_chassis.errors import LimitExceeded

    signals = LocalSignals(max_subscriptions=1)
    async with signals.subscribe("a"):
        with pytest.raises(LimitExceeded):
            async with signals.subscribe("a"):
                pass
    async with signals.subscribe("a"):
        pass
