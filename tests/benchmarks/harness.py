"""Cases, their pairs of measurements, and the table that comes out."""

from __future__ import annotations

import asyncio
import json
import statistics
import time
from abc import ABC, abstractmethod
from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import ClassVar

from tests.benchmarks.stage import Stage

Call = Callable[[], Awaitable[object]]


@dataclass(frozen=True)
class Scale:
    """How much work a run does."""

    name: str
    pairs: int
    """Measurements of the product and of its baseline, taken in turns."""
    seconds: float
    """Length of one measurement of a rate."""
    rows: int
    """Size of what the specification calls a million rows."""


SCALES = {
    "small": Scale("small", pairs=5, seconds=0.4, rows=20_000),
    "full": Scale("full", pairs=7, seconds=5.0, rows=1_000_000),
}


class Case(ABC):
    """One row of the table: a figure of the product and one of its baseline."""

    name: ClassVar[str]
    what: ClassVar[str]
    """What is compared with what, for readers of the table."""
    unit: ClassVar[str]
    target: ClassVar[float]
    at_least: ClassVar[bool]
    """True if the ratio should be at least the target, False if at most."""
    services: ClassVar[tuple[str, ...]] = ("config", "runtime")
    """What runs in the measured process."""
    environment: ClassVar[Mapping[str, str]] = {}
    """What that process is told beside; `{folder}` in a value is a folder of its own, on the database's disk."""

    def __init__(self, stage: Stage, scale: Scale) -> None:
        self.stage = stage
        self.scale = scale

    async def prepare(self) -> None:  # noqa: B027
        """Makes the state that is measured on."""

    @abstractmethod
    async def product(self) -> float:
        """One measurement of threadkeep."""

    @abstractmethod
    async def baseline(self) -> float:
        """One measurement of the baseline, in the same unit."""

    async def clean_up(self) -> None:  # noqa: B027
        """Ends what `prepare` began."""


@dataclass(frozen=True)
class Row:
    """What a case came to. The ratio is the median of the pairs' ratios; low and high are their ends."""

    case: str
    what: str
    unit: str
    product: float
    baseline: float
    ratio: float
    low: float
    high: float
    target: float
    at_least: bool
    met: bool


async def measure(case: Case) -> Row:
    """Prepares a case, warms both sides up with one pair that does not count, and measures."""
    try:
        await case.prepare()
        await case.product()
        await case.baseline()
        products, baselines = [], []
        for _ in range(case.scale.pairs):
            products.append(await case.product())
            baselines.append(await case.baseline())
    finally:
        await case.clean_up()
    return row_of(case, products, baselines)


def row_of(case: Case, products: Sequence[float], baselines: Sequence[float]) -> Row:
    """The row of measured pairs."""
    ratios = [product / baseline for product, baseline in zip(products, baselines, strict=True)]
    ratio = statistics.median(ratios)
    return Row(
        case=case.name,
        what=case.what,
        unit=case.unit,
        product=statistics.median(products),
        baseline=statistics.median(baselines),
        ratio=ratio,
        low=min(ratios),
        high=max(ratios),
        target=case.target,
        at_least=case.at_least,
        met=ratio >= case.target if case.at_least else ratio <= case.target,
    )


async def rate(seconds: float, calls: Sequence[Call]) -> float:
    """Calls per second that these callers get done, each with one call at a time, in about `seconds`."""
    done = 0
    started = time.perf_counter()
    end = started + seconds

    async def caller(call: Call) -> None:
        nonlocal done
        while time.perf_counter() < end:
            await call()
            done += 1

    await asyncio.gather(*(caller(call) for call in calls))
    return done / (time.perf_counter() - started)


async def median_latency(count: int, call: Call) -> float:
    """Seconds that one caller waits in the middle case of `count` calls."""
    times = []
    for _ in range(count):
        started = time.perf_counter()
        await call()
        times.append(time.perf_counter() - started)
    return statistics.median(times)


def table(rows: Sequence[Row]) -> str:
    """The table for people."""
    lines = [
        ("case", "product", "baseline", "unit", "ratio", "low..high", "target", ""),
        *(
            (
                row.case,
                _figure(row.product),
                _figure(row.baseline),
                row.unit,
                f"{row.ratio:.2f}",
                f"{row.low:.2f}..{row.high:.2f}",
                f"{'>=' if row.at_least else '<='} {row.target:g}",
                "met" if row.met else "NOT MET",
            )
            for row in rows
        ),
    ]
    widths = [max(len(line[column]) for line in lines) for column in range(len(lines[0]))]
    return "\n".join("  ".join(cell.ljust(width) for cell, width in zip(line, widths, strict=True)) for line in lines)


def write(rows: Sequence[Row], path: Path) -> None:
    """The same for programs."""
    path.write_text(json.dumps([asdict(row) for row in rows], indent=1) + "\n")


def _figure(value: float) -> str:
    return f"{value:,.0f}" if value >= 100 else f"{value:.3g}"
