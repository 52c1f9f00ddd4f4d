"""Applies what the runtime's log says of deleted sessions: their artifacts go, if the owner chose so (A7).

Every step can be repeated: the cursor moves after what lies before it was applied.
"""

from __future__ import annotations

from datetime import timedelta

from threadkeep_artifacts.commands.artifacts import Artifacts
from threadkeep_artifacts.domain.errors import ArtifactNotFound
from threadkeep_artifacts.domain.visibility import OPERATOR
from threadkeep_artifacts.store import followers, scopes
from threadkeep_chassis.database import Connection, Database

DELETE_BATCH = 100


class FollowingLost(Exception):
    """Another replica follows now."""


class Following:
    """The follower's transactions."""

    def __init__(self, database: Database, artifacts: Artifacts, owner: str, ttl: timedelta) -> None:
        """`owner` signs the right to follow, which lasts for `ttl` unless it is renewed."""
        self._database = database
        self._artifacts = artifacts
        self._owner = owner
        self._ttl = ttl

    async def acquire(self) -> bytes | None:
        """Takes the right to follow; gives the cursor, or None while another replica has it."""
        return await self._database.retrying(lambda connection: followers.acquire(connection, self._owner, self._ttl))

    async def renew(self) -> None:
        """Prolongs it. Raises FollowingLost."""
        if not await self._database.retrying(lambda connection: followers.renew(connection, self._owner, self._ttl)):
            raise FollowingLost()

    async def advance(self, cursor: bytes) -> None:
        """Moves the cursor. Raises FollowingLost."""
        if not await self._database.retrying(lambda connection: followers.advance(connection, self._owner, cursor)):
            raise FollowingLost()

    async def release(self) -> None:
        """Gives it up."""
        await self._database.retrying(lambda connection: followers.release(connection, self._owner))

    async def delete_session(self, scope_key: str, session_id: str) -> int:
        """Deletes the artifacts of a deleted session, and lets no late writer make new ones; gives how many."""

        async def note(connection: Connection) -> None:
            # Under the scope's row: a writer is before this, and found below, or after it, and refused.
            await scopes.change(connection, scope_key)
            await followers.note_session(connection, scope_key, session_id)

        await self._database.retrying(note)
        deleted = 0
        while True:
            async with self._database.read() as connection:
                found = await followers.artifacts_of(connection, scope_key, session_id, DELETE_BATCH)
            if not found:
                return deleted
            for artifact_id in found:
                deleted += await self._delete(scope_key, artifact_id)

    async def _delete(self, scope_key: str, artifact_id: str) -> bool:
        async def work(connection: Connection) -> None:
            await self._artifacts.delete(connection, scope_key, OPERATOR, artifact_id, None)

        try:
            await self._database.retrying(work)
        except ArtifactNotFound:
            # Somebody else deleted it just now.
            return False
        return True
