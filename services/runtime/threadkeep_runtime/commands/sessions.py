"""Use cases of sessions."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from threadkeep_runtime.commands.base import Origin, UseCases, to_thread
from threadkeep_runtime.domain import commands
from threadkeep_runtime.domain.commands import SessionDraft
from threadkeep_runtime.domain.values import thread_key_of
from threadkeep_runtime.pipeline import Outcome, Render


class SessionUseCases(UseCases):
    """Use cases of sessions."""

    async def create_session(self, origin: Origin, session_id: str, draft: SessionDraft, render: Render) -> Outcome:
        """Raises IdTaken."""
        return await self.submit(origin, commands.CreateSession(**to_thread(origin, session_id), draft=draft), render)

    async def update_session(
        self,
        origin: Origin,
        session_id: str,
        changes: Mapping[str, Any],
        expected_revision: int | None,
        render: Render,
    ) -> Outcome:
        """Raises SessionNotFound, RevisionConflict."""
        command = commands.UpdateSession(
            **to_thread(origin, session_id), changes=changes, expected_revision=expected_revision
        )
        return await self.submit(origin, command, render)

    async def fork_session(
        self,
        origin: Origin,
        source_session_id: str,
        session_id: str,
        draft: SessionDraft,
        commit_sequence: int | None,
        checkpoint: tuple[str, str] | None,
        render: Render,
    ) -> Outcome:
        """Raises SessionNotFound, CommitCompacted, CheckpointNotFound, FieldInvalid (no such commit yet), IdTaken."""
        command = commands.ForkSession(
            **to_thread(origin, session_id),
            source_key=thread_key_of(origin.scope.key, source_session_id),
            draft=draft,
            commit_sequence=commit_sequence,
            checkpoint=checkpoint,
        )
        return await self.submit(origin, command, render)

    async def delete_session(
        self,
        origin: Origin,
        session_id: str,
        artifact_policy: str | None,
        expected_revision: int | None,
        render: Render,
    ) -> Outcome:
        """Deletes, and returns when the last row is gone; a replay goes on where the first call was cut off.

        Raises SessionNotFound, RevisionConflict.
        """
        command = commands.DeleteSession(
            **to_thread(origin, session_id), artifact_policy=artifact_policy, expected_revision=expected_revision
        )
        outcome = await self.submit(origin, command, render)
        await self.sweeper.sweep(command.thread_key)
        return outcome
