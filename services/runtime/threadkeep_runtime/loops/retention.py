"""Applies every scope's policy, every so often, by one replica at a time (R19).

Whose turn it is stands in a row with a time: a replica that dies is followed by another one, and two at once would do
no harm, only the same work.
"""

from __future__ import annotations

import structlog

from threadkeep_chassis.database import Connection, Database
from threadkeep_chassis.ids import new_id
from threadkeep_runtime.commands.retention import Purger
from threadkeep_runtime.domain.retention import Policy
from threadkeep_runtime.store import retention

TURN = "retention"
TURN_SECONDS = 60.0

_log = structlog.get_logger("threadkeep.retention")


class TurnLost(Exception):
    """Another replica does it now."""


class Retention:
    """One replica's part in the work."""

    def __init__(self, database: Database, purger: Purger) -> None:
        self._database = database
        self._purger = purger
        self._owner = new_id()

    async def run_once(self) -> bool:
        """Applies all policies; False if it is another replica's turn. Raises Unavailable."""
        try:
            await self._keep_turn()
            after = ""
            while policies := await self._policies(after):
                for scope_key, policy in policies:
                    await self._purger.apply(scope_key, policy, self._keep_turn)
                    after = scope_key
            await self._purger.sweep_histories(self._keep_turn)
        except TurnLost:
            return False
        return True

    async def _policies(self, after: str) -> list[tuple[str, Policy]]:
        async with self._database.read() as connection:
            return await connection.run(lambda sync: retention.policies_after(sync, after, 100))

    async def _keep_turn(self) -> None:
        async def work(connection: Connection) -> bool:
            now = await connection.now()
            return await connection.run(lambda sync: retention.take_turn(sync, TURN, self._owner, now, TURN_SECONDS))

        if not await self._database.retrying(work):
            raise TurnLost()
