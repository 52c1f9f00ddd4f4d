"""What a table of ratios says: the direction of each target, and the median of pairs."""

import json
from pathlib import Path

import pytest

from tests.benchmarks.cases import CASES
from tests.benchmarks.harness import SCALES, Case, Row, measure, rate, row_of, table, write
from tests.benchmarks.stage import Stage


class Probe(Case):
    """Gives what it is told."""

    name, what, unit, target, at_least = "probe", "one against the other", "calls/s", 0.5, True

    def __init__(self) -> None:
        super().__init__(Stage(()), SCALES["small"])
        self.calls: list[str] = []

    async def product(self) -> float:
        self.calls.append("product")
        return 6.0

    async def baseline(self) -> float:
        self.calls.append("baseline")
        return 10.0

    async def clean_up(self) -> None:
        self.calls.append("end")


async def test_pairs_are_taken_in_turns_after_one_that_does_not_count() -> None:
    probe = Probe()
    row = await measure(probe)
    assert probe.calls == ["product", "baseline"] * (SCALES["small"].pairs + 1) + ["end"]
    assert (row.product, row.baseline, row.ratio, row.met) == (6.0, 10.0, 0.6, True)


def test_the_ratio_is_the_median_of_the_pairs_and_its_ends_are_told() -> None:
    row = row_of(Probe(), [1.0, 4.0, 9.0], [10.0, 10.0, 10.0])
    assert (row.ratio, row.low, row.high, row.met) == (0.4, 0.1, 0.9, False)


@pytest.mark.parametrize(("at_least", "met"), [(True, True), (False, False)])
def test_a_target_has_a_direction(at_least: bool, met: bool) -> None:
    probe = Probe()
    probe.at_least = at_least  # type: ignore[misc]
    assert row_of(probe, [9.0], [10.0]).met is met


def test_what_is_missed_is_said(tmp_path: Path) -> None:
    rows: list[Row] = [row_of(Probe(), [1.0], [10.0]), row_of(Probe(), [1234.5], [10.0])]
    lines = table(rows).splitlines()
    assert "NOT MET" in lines[1]
    assert "1,234" in lines[2]
    write(rows, tmp_path / "bench.json")
    assert [row["met"] for row in json.loads((tmp_path / "bench.json").read_text())] == [False, True]


async def test_a_rate_counts_every_caller() -> None:
    calls = []

    async def call() -> None:
        calls.append(1)
        await asyncio_turn()

    per_second = await rate(0.05, [call] * 3)
    assert len(calls) >= 3
    assert per_second > 0


async def asyncio_turn() -> None:
    import asyncio

    await asyncio.sleep(0)


def test_names_are_unique_and_say_what_they_compare() -> None:
    assert len({case.name for case in CASES}) == len(CASES)
    assert all(", against " in case.what for case in CASES)
