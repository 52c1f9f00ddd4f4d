"""`python -m tests.benchmarks [CASE...]`: BENCH_SCALE is small (default) or full. Exits 0 with targets missed."""

from __future__ import annotations

import asyncio
import os
import sys
import time
from contextlib import closing
from pathlib import Path

import uvloop

from tests.benchmarks.cases import CASES
from tests.benchmarks.harness import SCALES, Row, Scale, measure, table, write
from tests.benchmarks.stage import Stage
from tests.support.databases import Databases


async def run(names: list[str], scale: Scale) -> list[Row]:
    """Measures the cases whose names begin with one of `names`, or all."""
    chosen = [case for case in CASES if not names or any(case.name.startswith(name) for name in names)]
    rows: list[Row] = []
    with closing(Databases()) as databases:
        for case in chosen:
            begun = time.monotonic()
            stage = Stage(case.services, case.environment, databases)
            try:
                await stage.open()
                if not rows:
                    print(f"scale {scale.name}; this machine flushes 8 KiB in {stage.flush_seconds() * 1000:.2f} ms")
                rows.append(await measure(case(stage, scale)))
            finally:
                await stage.close()
            took = time.monotonic() - begun
            print(f"{rows[-1].case}: {rows[-1].ratio:.2f} in {took:.0f} s ({case.what})", flush=True)
    return rows


def main() -> None:
    """Runs, prints the table and writes bench.json."""
    scale = SCALES.get(os.environ.get("BENCH_SCALE", "small"))
    known = sorted({case.name for case in CASES})
    names = [name for name in sys.argv[1:] if name]
    if scale is None:
        sys.exit(f"BENCH_SCALE is one of {', '.join(SCALES)}")
    unknown = [name for name in names if not any(one.startswith(name) for one in known)]
    if unknown:
        sys.exit(f"no case begins with {', '.join(unknown)}; there are {', '.join(known)}")
    with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
        rows = runner.run(run(names, scale))
    print("\n" + table(rows))
    write(rows, Path("bench.json"))
    missed = [row.case for row in rows if not row.met]
    print(f"\n{len(rows) - len(missed)} of {len(rows)} targets met")
    if missed:
        print(f"not met: {', '.join(missed)}")


if __name__ == "__main__":
    main()
