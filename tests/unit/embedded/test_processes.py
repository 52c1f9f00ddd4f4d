"""The parent of several processes, over small commands: starts, deaths, stops (R22, B97)."""

import asyncio
import os
import signal
import sys
from collections.abc import AsyncIterator, Mapping
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest

from tests.support.waiting import eventually
from threadkeep_embedded.processes import Part, Patience, StartFailed, Supervisor

CHILD = """
import asyncio, os, signal, sys
from pathlib import Path
from threadkeep_embedded.processes import Link, Part

part = Part.take()
folder = Path(part.settings["folder"])
with (folder / f"starts.{part.index}").open("a") as starts:
    starts.write(f"{os.getpid()}\\n")
if (folder / "broken").exists():
    sys.exit(4)

async def main():
    link, stop = Link(part), asyncio.Event()
    for number in (signal.SIGTERM, signal.SIGINT):
        asyncio.get_running_loop().add_signal_handler(number, stop.set)
    link.watch(stop.is_set)
    link.serves({"pid": os.getpid(), "address": part.listen})
    await stop.wait()
    if (folder / "stuck").exists():
        (folder / f"stopping.{part.index}").touch()
        await asyncio.Event().wait()
    (folder / f"stopped.{part.index}").touch()

asyncio.run(main())
"""
QUICK = Patience(first_wait=0.01, longest_wait=0.02, starts=3, stop_margin=20.0)


class Fleet:
    """Two small processes under a supervisor in this process."""

    def __init__(self, folder: Path, patience: Patience = QUICK, grace_seconds: float = 0.0) -> None:
        self.folder = folder
        parts = [Part(index, "somewhere:1", {"folder": str(folder)}) for index in range(2)]
        self.supervisor = Supervisor(
            [sys.executable, "-c", CHILD], parts, grace_seconds=grace_seconds, patience=patience
        )
        self.serving: asyncio.Future[list[Mapping[str, Any]]] = asyncio.get_running_loop().create_future()
        self.running = asyncio.create_task(self.supervisor.run(self.serving.set_result))

    async def reports(self) -> list[Mapping[str, Any]]:
        """What they said once all served."""
        await asyncio.wait({self.serving, self.running}, return_when=asyncio.FIRST_COMPLETED)
        if self.running.done():
            self.running.result()
        return self.serving.result()

    def starts(self, index: int) -> list[int]:
        """The process ids of each start."""
        path = self.folder / f"starts.{index}"
        return [int(line) for line in path.read_text().splitlines()] if path.exists() else []

    def has(self, name: str) -> bool:
        """Whether a process left this mark."""
        return (self.folder / name).exists()


@pytest.fixture
async def fleets(tmp_path: Path) -> AsyncIterator[list[Fleet]]:
    made: list[Fleet] = []
    yield made
    for fleet in made:
        if not fleet.running.done():
            fleet.running.cancel()
        with suppress(asyncio.CancelledError, StartFailed):
            await fleet.running


@pytest.fixture
async def fleet(fleets: list[Fleet], tmp_path: Path) -> Fleet:
    fleets.append(Fleet(tmp_path))
    return fleets[0]


@pytest.mark.rule("R22")
async def test_all_serve_before_that_is_said_and_a_signal_stops_them_in_order(fleet: Fleet) -> None:
    reports = await fleet.reports()
    assert [report["pid"] for report in reports] == [*fleet.starts(0), *fleet.starts(1)]
    os.kill(os.getpid(), signal.SIGTERM)
    await asyncio.wait_for(fleet.running, 30)
    assert fleet.has("stopped.0")
    assert fleet.has("stopped.1")
    assert not fleet.supervisor.was_hurried


@pytest.mark.rule("R22")
async def test_one_that_dies_is_started_again_and_the_other_is_left_alone(fleet: Fleet) -> None:
    reports = await fleet.reports()
    for number in range(1, 4):
        os.kill(fleet.starts(1)[-1], signal.SIGKILL)
        await eventually(lambda number=number: len(fleet.starts(1)) > number)  # type: ignore[misc]
    assert fleet.starts(0) == [reports[0]["pid"]]


async def test_what_keeps_the_first_from_starting_ends_all_with_its_code(fleets: list[Fleet], tmp_path: Path) -> None:
    (tmp_path / "broken").touch()
    fleets.append(Fleet(tmp_path))
    with pytest.raises(StartFailed, match="process 0 ended with exit code 4 before it served") as failure:
        await fleets[0].reports()
    assert failure.value.code == 4
    assert (len(fleets[0].starts(0)), fleets[0].starts(1)) == (1, [])


async def test_one_that_can_not_start_again_ends_all_after_some_tries(fleet: Fleet) -> None:
    await fleet.reports()
    (fleet.folder / "broken").touch()
    os.kill(fleet.starts(1)[0], signal.SIGKILL)
    with pytest.raises(StartFailed, match="process 1 ended with exit code 4 before it served, 3 times in a row"):
        await asyncio.wait_for(fleet.running, 60)
    assert len(fleet.starts(1)) == 1 + QUICK.starts
    assert fleet.has("stopped.0"), "the other one stopped in order"


async def test_a_second_signal_ends_them_at_once(fleets: list[Fleet], tmp_path: Path) -> None:
    (tmp_path / "stuck").touch()
    fleets.append(Fleet(tmp_path, grace_seconds=600))
    await fleets[0].reports()
    os.kill(os.getpid(), signal.SIGINT)
    await eventually(lambda: fleets[0].has("stopping.0") and fleets[0].has("stopping.1"))
    os.kill(os.getpid(), signal.SIGINT)
    await asyncio.wait_for(fleets[0].running, 30)
    assert fleets[0].supervisor.was_hurried


async def test_one_that_does_not_stop_within_the_grace_is_killed(fleets: list[Fleet], tmp_path: Path) -> None:
    (tmp_path / "stuck").touch()
    fleets.append(Fleet(tmp_path, Patience(stop_margin=0.1)))
    reports = await fleets[0].reports()
    os.kill(os.getpid(), signal.SIGTERM)
    await asyncio.wait_for(fleets[0].running, 30)
    for report in reports:
        with pytest.raises(ProcessLookupError):
            os.kill(report["pid"], 0)


async def test_a_process_told_nothing_is_no_part_and_passes_nothing_on(monkeypatch: pytest.MonkeyPatch) -> None:
    assert Part.take() is None
    part = Part(3, "127.0.0.1:1", {"reuse_port": True})
    monkeypatch.setenv("THREADKEEPD_PART", part.told(link=7))
    assert Part.take() == Part(3, "127.0.0.1:1", {"reuse_port": True}, 7)
    assert Part.take() is None
