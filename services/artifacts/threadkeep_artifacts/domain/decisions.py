"""Whether a write may go ahead, from what is known of the artifact. The writing statement compares again."""

from __future__ import annotations

from dataclasses import dataclass

from threadkeep_artifacts.domain.errors import ArtifactNotFound
from threadkeep_artifacts.domain.values import UploadIntent
from threadkeep_artifacts.domain.visibility import Reader, Visibility
from threadkeep_chassis.errors import FieldInvalid, IdTaken, RevisionConflict, ThreadkeepError


@dataclass(frozen=True)
class ArtifactState:
    """What the id stands for: an artifact with a latest version, or one that was deleted (latest_version 0)."""

    latest_version: int
    is_deleted: bool = False
    visibility: Visibility = Visibility.PUBLIC
    """Of the latest version; so are session and run."""
    session_id: str | None = None
    run_id: str | None = None

    def is_seen_by(self, reader: Reader) -> bool:
        """True if the reader may know of the latest version."""
        return reader.sees(self.visibility, self.session_id, self.run_id)


def check_intent(intent: UploadIntent) -> None:
    """Raises FieldInvalid if the header contradicts itself."""
    expected = intent.expected_version
    if expected is None:
        return
    if expected > 0 and (intent.create_only or intent.artifact_id is None):
        raise FieldInvalid("header.expected_version", "is 0 or absent for an artifact that is to be new")


def creates(intent: UploadIntent) -> bool:
    """True if the upload is to make a new artifact."""
    return intent.artifact_id is None or intent.create_only or intent.expected_version == 0


def refuse_upload(
    intent: UploadIntent, artifact_id: str, state: ArtifactState | None, reader: Reader
) -> ThreadkeepError | None:
    """Why this upload can't become a version of the artifact, or None if it can. `state` is None for an unused id."""
    if state is None:
        return None if creates(intent) else ArtifactNotFound()
    if state.is_deleted or not state.is_seen_by(reader):
        return IdTaken("artifact", artifact_id) if creates(intent) else ArtifactNotFound()
    if intent.create_only:
        return IdTaken("artifact", artifact_id)
    if intent.expected_version is not None and intent.expected_version != state.latest_version:
        return RevisionConflict(state.latest_version)
    return None


def refuse_change(expected_version: int | None, state: ArtifactState | None, reader: Reader) -> ThreadkeepError | None:
    """Why the artifact can't be changed or deleted, or None if it can."""
    if state is None or state.is_deleted or not state.is_seen_by(reader):
        return ArtifactNotFound()
    if expected_version is not None and expected_version != state.latest_version:
        return RevisionConflict(state.latest_version)
    return None
