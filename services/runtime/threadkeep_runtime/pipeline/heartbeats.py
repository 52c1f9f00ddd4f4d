"""Heartbeats in batches: they update lease rows and are no commits (R8)."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence

import structlog

from threadkeep_chassis.database import Connection, Database
from threadkeep_chassis.errors import Internal, ShuttingDown, ThreadkeepError
from threadkeep_chassis.logs import fault_facts
from threadkeep_runtime.domain.errors import LeaseLost, RunNotFound
from threadkeep_runtime.store import leases
from threadkeep_runtime.store.leases import Beat, Renewed

_log = structlog.get_logger("threadkeep.heartbeats")

Answer = asyncio.Future[Renewed | ThreadkeepError]


class Heartbeats:
    """Gathers heartbeats and renews their leases together."""

    def __init__(self, database: Database, *, max_batch: int = 256) -> None:
        self._database = database
        self._max_batch = max_batch
        self._waiting: list[tuple[Beat, Answer]] = []
        self._arrived = asyncio.Event()
        self._closing = False

    async def renew(self, beat: Beat) -> Renewed:
        """Renews a lease. Raises RunNotFound, LeaseLost, and what a lost database raises."""
        if self._closing:
            raise ShuttingDown()
        answer: Answer = asyncio.get_running_loop().create_future()
        self._waiting.append((beat, answer))
        self._arrived.set()
        outcome = await asyncio.shield(answer)
        if isinstance(outcome, ThreadkeepError):
            raise outcome
        return outcome

    async def run(self) -> None:
        """Works until `close`."""
        while self._waiting or not self._closing:
            if not self._waiting:
                self._arrived.clear()
                await self._arrived.wait()
                continue
            batch, self._waiting = self._waiting[: self._max_batch], self._waiting[self._max_batch :]
            outcomes: list[Renewed | ThreadkeepError]
            try:
                outcomes = await self._renew_all([beat for beat, _ in batch])
            except ThreadkeepError as error:
                outcomes = [error] * len(batch)
            except Exception as error:
                _log.error("heartbeats failed", **fault_facts(error))
                outcomes = [Internal()] * len(batch)
            except BaseException:
                outcomes = [ShuttingDown()] * len(batch)
                raise
            finally:
                for (_, answer), outcome in zip(batch, outcomes, strict=True):
                    if not answer.done():
                        answer.set_result(outcome)

    def close(self) -> None:
        """Takes no more; `run` ends once what waits is done."""
        self._closing = True
        self._arrived.set()

    async def _renew_all(self, beats: Sequence[Beat]) -> list[Renewed | ThreadkeepError]:
        async def work(connection: Connection) -> list[Renewed | bool | None]:
            now = await connection.now()
            return await connection.run(lambda sync: leases.renew(sync, beats, now))

        answers = await self._database.retrying(work)
        return [
            answer if isinstance(answer, Renewed) else RunNotFound() if answer is None else LeaseLost()
            for answer in answers
        ]
