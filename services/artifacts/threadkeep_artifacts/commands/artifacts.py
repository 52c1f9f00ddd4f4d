"""Reads of metadata, lists, and deletes. Nothing here touches content (A5)."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Sequence

from threadkeep_artifacts.domain.decisions import refuse_delete
from threadkeep_artifacts.domain.errors import ArtifactNotFound
from threadkeep_artifacts.domain.metadata import check_labels
from threadkeep_artifacts.domain.values import ArtifactFilter, ArtifactVersion
from threadkeep_artifacts.store import artifacts, contents, versions
from threadkeep_chassis.database import Connection, Database
from threadkeep_chassis.errors import Contention, FieldInvalid


class Artifacts:
    """Reads and deletes artifacts of one exact scope (A2)."""

    def __init__(self, database: Database) -> None:
        self._database = database

    async def get(self, scope_key: str, artifact_id: str, version: int) -> ArtifactVersion:
        """A version (0: the latest). Raises ArtifactNotFound, FieldInvalid."""
        if version < 0:
            raise FieldInvalid("version", "must not be negative")
        async with self._database.read() as connection:
            found = await versions.read_version(connection, scope_key, artifact_id, version)
        if found is None:
            raise ArtifactNotFound()
        return found

    async def list_latest(
        self, scope_key: str, wanted: ArtifactFilter, before: int | None, limit: int
    ) -> Sequence[tuple[int, ArtifactVersion]]:
        """The latest version of each artifact that matches, newest artifact first, with its place in the list."""
        check_labels(wanted.labels, "labels")
        async with self._database.read() as connection:
            return await artifacts.list_latest(connection, scope_key, wanted, before, limit)

    async def list_versions(
        self, scope_key: str, artifact_id: str, before: int | None, limit: int
    ) -> Sequence[ArtifactVersion]:
        """The artifact's versions, newest first. Raises ArtifactNotFound."""
        async with self._database.read(snapshot=True) as connection:
            state = await artifacts.read_state(connection, scope_key, artifact_id)
            if state is None or state.is_deleted:
                raise ArtifactNotFound()
            return await versions.list_versions(connection, scope_key, artifact_id, before, limit)

    def delete(
        self, scope_key: str, artifact_id: str, expected_version: int | None
    ) -> Callable[[Connection], Awaitable[int]]:
        """The work of a delete, for the transaction of its receipt; gives the number of versions that went.

        Raises ArtifactNotFound, RevisionConflict, FieldInvalid.
        """

        async def work(connection: Connection) -> int:
            now = await connection.now()
            if not await artifacts.delete(connection, scope_key, artifact_id, expected_version, now):
                state = await artifacts.read_state(connection, scope_key, artifact_id)
                refusal = refuse_delete(expected_version, state)
                raise refusal if refusal is not None else Contention()
            counts = await versions.delete_versions(connection, scope_key, artifact_id)
            await contents.release(connection, scope_key, counts, now)
            return sum(counts.values())

        return work
