"""The ledger: one line for each effect of a tool, in a file that no service knows.

It is how the demo sees from outside that every step happened once.
"""

from __future__ import annotations

import json
import os
from pathlib import Path

from threadkeep.worker import RunContext

VARIABLE = "THREADKEEP_DEMO_LEDGER"


def record(run: RunContext, step: str, call_id: str) -> None:
    """Appends a line, whole and for good. Without a ledger in the environment nothing is written."""
    path = os.environ.get(VARIABLE)
    if not path:
        return
    facts = {"run_id": run.run_id, "epoch": run.epoch, "step": step, "call_id": call_id, "pid": os.getpid()}
    handle = os.open(path, os.O_WRONLY | os.O_APPEND | os.O_CREAT, 0o644)
    try:
        # One write: lines of several processes never mix.
        os.write(handle, (json.dumps(facts) + "\n").encode())
        os.fsync(handle)
    finally:
        os.close(handle)


def read(path: Path) -> list[dict[str, object]]:
    """The lines, oldest first."""
    return [json.loads(line) for line in path.read_text().splitlines()] if path.exists() else []
