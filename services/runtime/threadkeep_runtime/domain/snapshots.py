"""What a commit keeps of its thread's open run, so that the thread can be looked at as of that commit (R12).

Only what changes in a run is kept; the rest stands in the run's own row for good.
"""

from __future__ import annotations

import json
from dataclasses import dataclass, replace
from datetime import UTC, datetime, timedelta
from typing import Any

from threadkeep_runtime.domain.values import Run, Task

_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
_MICROSECOND = timedelta(microseconds=1)


@dataclass(frozen=True, slots=True)
class OpenRun:
    """A run that was open after a commit."""

    run_id: str
    state: str
    epoch: int = 0
    crash_count: int = 0
    worker_id: str = ""
    last_checkpoint_id: str | None = None
    start_time: datetime | None = None
    ticket_ids: tuple[str, ...] = ()
    """The tickets that it waited for."""

    def at(self, run: Run) -> Run:
        """The run as it stood then, from the run as it stands now."""
        return replace(
            run,
            state=self.state,
            cause=None,
            epoch=self.epoch,
            crash_count=self.crash_count,
            worker_id=self.worker_id,
            last_checkpoint_id=self.last_checkpoint_id,
            failure=None,
            start_time=self.start_time,
            end_time=None,
            last_event_sequence=None,
        )


def open_run_text(run: Run, task: Task) -> str:
    """The run as a JSON object; what is at its default is left out."""
    kept: dict[str, Any] = {"run_id": run.run_id, "state": run.state}
    if run.epoch:
        kept["epoch"] = run.epoch
        kept["worker_id"] = run.worker_id
    if run.crash_count:
        kept["crash_count"] = run.crash_count
    if run.last_checkpoint_id is not None:
        kept["last_checkpoint_id"] = run.last_checkpoint_id
    if run.start_time is not None:
        kept["start_time"] = (run.start_time - _EPOCH) // _MICROSECOND
    if task.open_ticket_ids:
        kept["ticket_ids"] = task.open_ticket_ids
    return json.dumps(kept, ensure_ascii=False, separators=(",", ":"))


def open_run_of(text: str) -> OpenRun | None:
    """Reads what `open_run_text` wrote; None from an empty object."""
    kept = json.loads(text)
    if not kept:
        return None
    if "start_time" in kept:
        kept["start_time"] = _EPOCH + kept["start_time"] * _MICROSECOND
    kept["ticket_ids"] = tuple(kept.get("ticket_ids", ()))
    return OpenRun(**kept)
