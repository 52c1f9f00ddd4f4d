"""Use cases of LangGraph's savers."""

from __future__ import annotations

from collections.abc import Sequence

from threadkeep_chassis.database import SyncConnection
from threadkeep_runtime.checkpoints import sessions_of_runs
from threadkeep_runtime.commands.base import Origin, UseCases, answered_before, to_thread
from threadkeep_runtime.domain import commands
from threadkeep_runtime.domain.errors import RunNotFound
from threadkeep_runtime.domain.values import LeaseRef, thread_key_of
from threadkeep_runtime.pipeline import Outcome, Render, Work
from threadkeep_runtime.store import reads


class CheckpointUseCases(UseCases):
    """Use cases of LangGraph's savers."""

    async def delete_checkpoints(
        self, origin: Origin, session_id: str, lease: LeaseRef | None, render: Render
    ) -> Outcome:
        """Raises RunNotFound, LeaseLost, LeaseRequired."""
        return await self.submit(
            origin, commands.DeleteCheckpoints(**to_thread(origin, session_id), lease=lease), render
        )

    async def prune_checkpoints(
        self, origin: Origin, session_id: str, lease: LeaseRef | None, render: Render
    ) -> Outcome:
        """Keeps the latest. Raises RunNotFound, LeaseLost, LeaseRequired."""
        return await self.submit(
            origin, commands.RemoveCheckpoints(**to_thread(origin, session_id), lease=lease), render
        )

    async def copy_checkpoints(
        self, origin: Origin, source_session_id: str, session_id: str, lease: LeaseRef | None, render: Render
    ) -> Outcome:
        """Raises RunNotFound, LeaseLost, LeaseRequired, IdTaken."""
        command = commands.CopyCheckpoints(
            **to_thread(origin, session_id), source_key=thread_key_of(origin.scope.key, source_session_id), lease=lease
        )
        return await self.submit(origin, command, render)

    async def delete_for_runs(
        self, origin: Origin, run_ids: Sequence[str], lease: LeaseRef | None, render: Render
    ) -> Outcome:
        """One commit for each session, then the receipt: a call that was cut off goes on.

        Raises RunNotFound (of the lease), LeaseLost, LeaseRequired.
        """
        wanted = tuple(sorted(set(run_ids)))

        def look(connection: SyncConnection) -> Outcome | tuple[list[str], str | None]:
            answered = answered_before(connection, origin.request)
            if answered is not None:
                return answered
            leased = None if lease is None else reads.find_run(connection, origin.scope.key, lease.run_id)
            if lease is not None and leased is None:
                raise RunNotFound()
            sessions = sessions_of_runs(connection, origin.scope.key, wanted)
            return sessions, None if leased is None else leased.run.session_id

        async with self.database.read() as connection:
            found = await connection.run(look)
        if isinstance(found, Outcome):
            return found
        sessions, leased_session = found
        for session_id in sessions:
            held = lease if session_id == leased_session else None
            command = commands.RemoveCheckpoints(**to_thread(origin, session_id), run_ids=wanted, lease=held)
            await self.pipeline.submit(Work(command, size=origin.size))
        # No session has this id: nothing is committed but the receipt.
        return await self.submit(origin, commands.RemoveCheckpoints(**to_thread(origin, ""), run_ids=wanted), render)
