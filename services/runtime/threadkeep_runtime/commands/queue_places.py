"""How many tasks may wait in a queue for their first worker, per scope (X9, R24).

The count is taken from the tables now and then, and carried on by what this server has let in since; so the limit is
exact for one server, and with several it may be exceeded by what the others let in between two counts.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from dataclasses import dataclass

from threadkeep_chassis.database import Database
from threadkeep_chassis.errors import LimitExceeded
from threadkeep_runtime.store import waiting

FRESH_SECONDS = 1.0
"""How long a count is good when little waits: longer with many, whose count takes its time."""
COUNTED_PER_SECOND = 50_000
FULL_SECONDS = 0.05
"""How long a count is good that leaves no place."""
MOST_QUEUES = 10_000


@dataclass(slots=True)
class _Known:
    count: int = 0
    counted_at: float = float("-inf")
    admitted: int = 0
    """Let in since the count."""
    under_way: int = 0
    """Let in, and not yet told what became of it."""


class QueuePlaces:
    """The places of queues, as one server knows them."""

    def __init__(self, database: Database, default: int, limits: Mapping[str, int]) -> None:
        """`limits` by queue; `default` for the others."""
        self._database = database
        self._default = default
        self._limits = limits
        self._known: OrderedDict[tuple[str, str], _Known] = OrderedDict()

    @asynccontextmanager
    async def place(self, scope_key: str, queue: str) -> AsyncIterator[None]:
        """Holds a place while a task is submitted. Raises LimitExceeded."""
        most = self._limits.get(queue, self._default)
        known = self._known.setdefault((scope_key, queue), _Known())
        self._known.move_to_end((scope_key, queue))
        if len(self._known) > MOST_QUEUES:
            self._known.popitem(last=False)
        if not self._is_fresh(known, most):
            await self._count(known, scope_key, queue, most)
        taken = known.count + known.admitted
        if taken >= most:
            raise LimitExceeded(
                "max_queued_tasks",
                most,
                taken + 1,
                "Per scope and queue. Let workers catch up, use another queue, or cancel tasks (CancelTasks).",
            )
        known.admitted += 1
        known.under_way += 1
        try:
            yield
        finally:
            known.under_way -= 1

    def _is_fresh(self, known: _Known, most: int) -> bool:
        age = self._database.clock.monotonic() - known.counted_at
        if known.count + known.admitted >= most:
            return age < FULL_SECONDS
        return age < FRESH_SECONDS + known.count / COUNTED_PER_SECOND

    async def _count(self, known: _Known, scope_key: str, queue: str, most: int) -> None:
        asked_at = self._database.clock.monotonic()
        under_way = known.under_way
        before = known.admitted
        async with self._database.read() as connection:
            count = await connection.run(lambda sync: waiting.queued_count(sync, scope_key, queue, most))
        known.count, known.counted_at = count, asked_at
        # Who was under way may be counted already or not; whoever came while the count was taken is not.
        known.admitted = under_way + known.admitted - before
