"""Use cases of workers: commits and releases."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from threadkeep_chassis.database import SyncConnection
from threadkeep_runtime.commands.base import Origin, UseCases, answered_before, to_thread
from threadkeep_runtime.domain import commands
from threadkeep_runtime.domain.errors import RunNotFound
from threadkeep_runtime.domain.values import LeaseRef
from threadkeep_runtime.pipeline import Outcome, Render
from threadkeep_runtime.store import reads


class ThreadUseCases(UseCases):
    """Use cases of workers: commits and releases."""

    async def release_run(self, origin: Origin, lease: LeaseRef, render: Render) -> Outcome:
        """Raises RunNotFound, LeaseLost."""

        def look(connection: SyncConnection) -> Outcome | reads.RunRow | None:
            return answered_before(connection, origin.request) or reads.find_run(
                connection, origin.scope.key, lease.run_id
            )

        async with self.database.read() as connection:
            found = await connection.run(look)
        if isinstance(found, Outcome):
            return found
        if found is None:
            raise RunNotFound()
        return await self.submit(
            origin, commands.ReleaseRun(**to_thread(origin, found.run.session_id), lease=lease), render
        )

    async def commit(self, origin: Origin, session_id: str, rest: Mapping[str, Any], render: Render) -> Outcome:
        """A ThreadCommit. `rest` are the command's other fields. Raises what `commit_thread` raises."""
        return await self.submit(origin, commands.CommitThread(**to_thread(origin, session_id), **rest), render)
