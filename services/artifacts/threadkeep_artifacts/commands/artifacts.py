"""Reads of metadata, lists, deletes and what brings them back. Nothing here touches content (A5)."""

from __future__ import annotations

from collections.abc import Sequence

from threadkeep_artifacts.commands.writing import Writing
from threadkeep_artifacts.domain.decisions import refuse_change
from threadkeep_artifacts.domain.errors import ArtifactNotFound, LastVersion
from threadkeep_artifacts.domain.metadata import check_labels
from threadkeep_artifacts.domain.values import ArtifactFilter, ArtifactVersion, Usage
from threadkeep_artifacts.domain.visibility import Reader
from threadkeep_artifacts.store import artifacts, deletions, listing, scopes, versions
from threadkeep_artifacts.store.listing import Place
from threadkeep_chassis.database import Connection, Database
from threadkeep_chassis.errors import Contention, FieldInvalid


class Artifacts:
    """Reads, deletes and restores artifacts of one exact scope (A2), as far as the reader sees them (A6)."""

    def __init__(self, database: Database, writing: Writing) -> None:
        self._database = database
        self._writing = writing

    async def get(self, scope_key: str, reader: Reader, artifact_id: str, version: int) -> ArtifactVersion:
        """A version (0: the latest). Raises ArtifactNotFound, FieldInvalid."""
        if version < 0:
            raise FieldInvalid("version", "must not be negative")
        async with self._database.read() as connection:
            found = await versions.read_version(connection, scope_key, reader, artifact_id, version)
        if found is None:
            raise ArtifactNotFound()
        return found

    async def list_latest(
        self, scope_key: str, reader: Reader, wanted: ArtifactFilter, after: Place | None, limit: int
    ) -> Sequence[tuple[Place, ArtifactVersion]]:
        """The latest version of each artifact that matches, with its place: newest artifact first, or by path.

        Raises FieldInvalid.
        """
        check_labels(wanted.labels, "labels")
        if wanted.path_prefix is not None and wanted.labels:
            raise FieldInvalid("labels", "can't be combined with path_prefix")
        async with self._database.read() as connection:
            return await listing.list_latest(connection, scope_key, reader, wanted, after, limit)

    async def list_versions(
        self, scope_key: str, reader: Reader, artifact_id: str, before: int | None, limit: int
    ) -> Sequence[ArtifactVersion]:
        """The artifact's versions, newest first. Raises ArtifactNotFound."""
        async with self._database.read(snapshot=True) as connection:
            found = await versions.list_versions(connection, scope_key, reader, artifact_id, before, limit)
            # A page may be empty because nothing is left, or because there is nothing that the reader sees.
            if not found and not await versions.list_versions(connection, scope_key, reader, artifact_id, None, 1):
                raise ArtifactNotFound()
        return found

    async def usage(self, scope_key: str) -> Usage:
        """What the scope uses."""
        async with self._database.read() as connection:
            return await scopes.read_usage(connection, scope_key)

    async def delete(
        self, connection: Connection, scope_key: str, reader: Reader, artifact_id: str, expected_version: int | None
    ) -> int:
        """Deletes an artifact, in the transaction of its receipt; gives the number of versions that went.

        Raises ArtifactNotFound, RevisionConflict.
        """
        await scopes.change(connection, scope_key)
        state = await artifacts.read_state(connection, scope_key, artifact_id)
        if (refusal := refuse_change(expected_version, state, reader)) is not None:
            raise refusal
        now = await connection.now()
        if not await artifacts.delete(connection, scope_key, artifact_id, expected_version, now):
            raise Contention()
        count, size = await versions.measure(connection, scope_key, artifact_id)
        await deletions.note(connection, scope_key, artifact_id, deletions.WHOLE, now)
        await scopes.change(connection, scope_key, artifacts=-1, versions=-count, content=-size)
        return count

    async def delete_version(
        self, connection: Connection, scope_key: str, reader: Reader, artifact_id: str, version: int
    ) -> ArtifactVersion:
        """Deletes one version, in the transaction of its receipt; gives the latest that is left.

        Raises ArtifactNotFound, LastVersion, PathTaken (the version that would be the latest has a path that another
        artifact got since).
        """
        await scopes.change(connection, scope_key)
        state = await artifacts.read_state(connection, scope_key, artifact_id)
        gone = await versions.read_version(connection, scope_key, reader, artifact_id, version)
        if state is None or gone is None or version == 0:
            raise ArtifactNotFound()
        now = await connection.now()
        await versions.set_deleted(connection, scope_key, artifact_id, version, now)
        latest = await versions.greatest(connection, scope_key, artifact_id)
        if latest is None:
            raise LastVersion()
        await deletions.note(connection, scope_key, artifact_id, version, now)
        await scopes.change(connection, scope_key, versions=-1, content=-gone.size)
        await self._put_first(connection, scope_key, state.latest_version, latest)
        return latest

    async def restore(
        self, connection: Connection, scope_key: str, reader: Reader, artifact_id: str, version: int
    ) -> ArtifactVersion:
        """Brings an artifact (version 0) or one version back, in the transaction of its receipt; gives the latest.

        Raises ArtifactNotFound, PathTaken, QuotaExceeded.
        """
        await scopes.change(connection, scope_key)
        state = await artifacts.read_state(connection, scope_key, artifact_id)
        back = await versions.read_any(connection, scope_key, artifact_id, version)
        if state is None or back is None or state.is_deleted is not (version == deletions.WHOLE):
            raise ArtifactNotFound()
        metadata = back.metadata
        if not reader.sees(metadata.visibility, metadata.session_id, metadata.run_id):
            raise ArtifactNotFound()
        if not await deletions.take(connection, scope_key, artifact_id, version):
            raise ArtifactNotFound()
        if version == deletions.WHOLE:
            count, size = await versions.measure(connection, scope_key, artifact_id)
            scope = await scopes.change(connection, scope_key, places=1, artifacts=1, versions=count, content=size)
            self._writing.check_quota(scope.usage)
            await self._writing.check_path(connection, scope_key, metadata, artifact_id)
            await artifacts.restore(connection, scope_key, back, scope.last_list_number)
            return back
        await versions.set_deleted(connection, scope_key, artifact_id, version, None)
        scope = await scopes.change(connection, scope_key, versions=1, content=back.size)
        self._writing.check_quota(scope.usage)
        latest = await versions.greatest(connection, scope_key, artifact_id)
        assert latest is not None
        await self._put_first(connection, scope_key, state.latest_version, latest)
        return latest

    async def _put_first(
        self, connection: Connection, scope_key: str, latest_version: int, latest: ArtifactVersion
    ) -> None:
        if latest.version != latest_version:
            await self._writing.check_path(connection, scope_key, latest.metadata, latest.artifact_id)
            await artifacts.set_latest(connection, scope_key, latest)
