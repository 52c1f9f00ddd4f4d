"""Recovers expired leases, ends what was canceled, lets deadlines pass, opens what is due (R8, R9, R10, R24).

A loop only finds candidates. What happens to them is a command like any other, decided under the thread's lock, where
another replica's work, or a late heartbeat, shows. So it is done once, however many look. What fails is left alone for
a while and passed by: nothing waits behind it.
"""

from __future__ import annotations

import asyncio
import random
from collections.abc import Callable, Hashable, Sequence
from datetime import datetime
from typing import Any

import structlog

from threadkeep_chassis.database import Database, SyncConnection
from threadkeep_chassis.errors import ThreadkeepError, Unavailable
from threadkeep_chassis.logs import fault_facts
from threadkeep_runtime.domain.commands import (
    Command,
    EndCanceled,
    OpenDueTask,
    PassDeadline,
    RecoverLease,
    TimeOutAttempt,
    TimeOutTask,
)
from threadkeep_runtime.domain.errors import NothingToRecover
from threadkeep_runtime.domain.values import SYSTEM
from threadkeep_runtime.loops.backoff import Backoff
from threadkeep_runtime.pipeline import Pipeline, Work
from threadkeep_runtime.store import leases, waiting

_log = structlog.get_logger("threadkeep.recovery")

BATCH = 256

Find = Callable[[SyncConnection, datetime, int, int], Sequence[Any]]
"""A search: at this time, so many rows, after so many."""


class Recovery:
    """One look at everything that is due, and the commits that follow."""

    def __init__(self, database: Database, pipeline: Pipeline) -> None:
        self._database = database
        self._pipeline = pipeline
        self._backoff = Backoff(database.clock)

    async def run_once(self) -> int:
        """Deals with what is due now; returns how many commits came of it."""
        done = await self._each(
            leases.grace_over, lambda due: EndCanceled(**_of(due), run_id=due.run_id, epoch=due.epoch)
        )
        done += await self._each(
            leases.attempts_over,
            lambda due: TimeOutAttempt(**_of(due), run_id=due.run_id, epoch=due.epoch, jitter=random.random()),
        )
        done += await self._each(waiting.timed_out, lambda due: TimeOutTask(**_of(due), task_id=due.task_id))
        for find in (leases.expired, leases.orphaned):
            done += await self._each(find, lambda due: RecoverLease(**_of(due), run_id=due.run_id, epoch=due.epoch))
        done += await self._each(leases.deadlines_passed, lambda due: PassDeadline(**_of(due), ticket_id=due.ticket_id))
        done += await self._each(waiting.due, lambda due: OpenDueTask(**_of(due)))
        return done

    async def _each(self, find: Find, command: Callable[[Any], Command]) -> int:
        """All that one search finds, page by page. What stays due is passed by; the next look begins at the first."""
        done = stayed = 0
        while True:
            due = await self._page(find, stayed)
            commands = [command(one) for one in due]
            keys = [(one.kind, *key) for one, key in zip(commands, due, strict=True)]
            ready = [(key, one) for key, one in zip(keys, commands, strict=True) if self._backoff.is_ready(key)]
            outcomes = await asyncio.gather(*(self._commit(key, one) for key, one in ready))
            committed = sum(outcome is True for outcome in outcomes)
            done += committed
            stayed += len(due) - committed
            away = [outcome for outcome in outcomes if isinstance(outcome, Unavailable)]
            if away and len(away) == len(outcomes):
                raise away[0]
            if len(due) < BATCH:
                return done

    async def _page(self, find: Find, offset: int) -> Sequence[Any]:
        async with self._database.read() as connection:
            now = await connection.now()
            return await connection.run(lambda sync: find(sync, now, BATCH, offset))

    async def _commit(self, key: Hashable, command: Command) -> bool | Unavailable:
        """True if a commit came of it. A failure is logged and puts the next attempt off."""
        try:
            await self._pipeline.submit(Work(command))
        except NothingToRecover:
            self._backoff.succeeded(key)
            return False
        except Unavailable as error:
            self._backoff.failed(key)
            return error
        except ThreadkeepError as error:
            _log.warning("recovery refused", kind=command.kind, reason=error.reason)
            self._backoff.failed(key)
            return False
        except Exception as error:
            _log.error("recovery failed", kind=command.kind, **fault_facts(error))
            self._backoff.failed(key)
            return False
        self._backoff.succeeded(key)
        self._pipeline.metrics.recovered(command.kind)
        return True


def _of(due: Any) -> dict[str, Any]:
    return {
        "scope_key": due.scope_key,
        "session_id": due.session_id,
        "thread_key": due.thread_key,
        "actor": SYSTEM,
    }
