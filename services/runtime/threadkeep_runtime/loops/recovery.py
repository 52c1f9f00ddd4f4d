"""Recovers expired leases, ends what was canceled, and lets ticket deadlines pass (R8, R9, R10).

A loop only finds candidates. What happens to them is a command like any other, decided under the thread's lock, where
another replica's work, or a late heartbeat, shows. So it is done once, however many look.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from datetime import datetime
from typing import Any

import structlog

from threadkeep_chassis.database import Database, SyncConnection
from threadkeep_chassis.errors import ThreadkeepError, Unavailable
from threadkeep_runtime.domain.commands import Command, EndCanceled, PassDeadline, RecoverLease
from threadkeep_runtime.domain.errors import NothingToRecover
from threadkeep_runtime.domain.values import SYSTEM
from threadkeep_runtime.pipeline import Pipeline, Work
from threadkeep_runtime.store import leases

_log = structlog.get_logger("threadkeep.recovery")

BATCH = 256


class Recovery:
    """One look at everything that is due, and the commits that follow."""

    def __init__(self, database: Database, pipeline: Pipeline) -> None:
        self._database = database
        self._pipeline = pipeline

    async def run_once(self) -> int:
        """Deals with what is due now; returns how many commits came of it."""
        done = await self._each(
            leases.grace_over, lambda due: EndCanceled(**_of(due), run_id=due.run_id, epoch=due.epoch)
        )
        done += await self._each(
            leases.expired, lambda due: RecoverLease(**_of(due), run_id=due.run_id, epoch=due.epoch)
        )
        done += await self._each(leases.deadlines_passed, lambda due: PassDeadline(**_of(due), ticket_id=due.ticket_id))
        return done

    async def _each(
        self, find: Callable[[SyncConnection, datetime, int], Sequence[Any]], command: Callable[[Any], Command]
    ) -> int:
        async with self._database.read() as connection:
            now = await connection.now()
            due = await connection.run(lambda sync: find(sync, now, BATCH))
        return sum(await asyncio.gather(*(self._commit(command(one)) for one in due)))

    async def _commit(self, command: Command) -> int:
        try:
            await self._pipeline.submit(Work(command))
        except NothingToRecover:
            return 0
        except Unavailable:
            raise
        except ThreadkeepError as error:
            # The next look finds it again.
            _log.warning("recovery refused", kind=command.kind, reason=error.reason)
            return 0
        self._pipeline.metrics.recovered(command.kind)
        return 1


def _of(due: Any) -> dict[str, Any]:
    return {
        "scope_key": due.scope_key,
        "session_id": due.session_id,
        "thread_key": due.thread_key,
        "actor": SYSTEM,
    }
