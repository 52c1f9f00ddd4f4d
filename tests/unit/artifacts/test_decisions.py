"""Which uploads and deletes may go ahead, as a table; and which metadata is refused."""

import pytest

from threadkeep_artifacts.domain.decisions import ArtifactState, check_intent, refuse_change, refuse_upload
from threadkeep_artifacts.domain.metadata import check_labels, check_metadata
from threadkeep_artifacts.domain.values import ArtifactMetadata, UploadIntent
from threadkeep_artifacts.domain.visibility import Reader
from threadkeep_chassis.errors import FieldInvalid

LIVE, DELETED = ArtifactState(3), ArtifactState(3, is_deleted=True)


def _intent(artifact_id: str | None = "a", **more: object) -> UploadIntent:
    return UploadIntent("r", ArtifactMetadata("report.md"), artifact_id, **more)  # type: ignore[arg-type]


@pytest.mark.rule("A1", "X4")
@pytest.mark.parametrize(
    ("intent", "state", "reason"),
    [
        (_intent(), LIVE, ""),
        (_intent(), None, "ARTIFACT_NOT_FOUND"),
        (_intent(), DELETED, "ARTIFACT_NOT_FOUND"),
        (_intent(create_only=True), None, ""),
        (_intent(create_only=True), LIVE, "ID_TAKEN"),
        (_intent(create_only=True), DELETED, "ID_TAKEN"),
        (_intent(expected_version=0), None, ""),
        (_intent(expected_version=0), LIVE, "REVISION_CONFLICT"),
        (_intent(expected_version=0), DELETED, "ID_TAKEN"),
        (_intent(expected_version=3), LIVE, ""),
        (_intent(expected_version=2), LIVE, "REVISION_CONFLICT"),
        (_intent(expected_version=3), None, "ARTIFACT_NOT_FOUND"),
        (_intent(expected_version=3), DELETED, "ARTIFACT_NOT_FOUND"),
        (_intent(None), None, ""),
    ],
)
def test_an_upload_is_refused_with(intent: UploadIntent, state: ArtifactState | None, reason: str) -> None:
    refusal = refuse_upload(intent, "a", state, Reader())
    assert (refusal.reason if refusal else "") == reason


@pytest.mark.rule("A1")
@pytest.mark.parametrize(
    ("expected", "state", "reason"),
    [
        (None, LIVE, ""),
        (3, LIVE, ""),
        (2, LIVE, "REVISION_CONFLICT"),
        (None, None, "ARTIFACT_NOT_FOUND"),
        (3, DELETED, "ARTIFACT_NOT_FOUND"),
    ],
)
def test_a_delete_is_refused_with(expected: int | None, state: ArtifactState | None, reason: str) -> None:
    refusal = refuse_change(expected, state, Reader())
    assert (refusal.reason if refusal else "") == reason


@pytest.mark.parametrize(
    "intent",
    [_intent(create_only=True, expected_version=2), _intent(None, expected_version=2)],
)
def test_a_header_that_contradicts_itself_is_refused(intent: UploadIntent) -> None:
    with pytest.raises(FieldInvalid) as refused:
        check_intent(intent)
    assert refused.value.field == "header.expected_version"


@pytest.mark.rule("X8", "X9")
@pytest.mark.parametrize(
    ("metadata", "field"),
    [
        (ArtifactMetadata("n", type="a\x00b"), "m.type"),
        (ArtifactMetadata("n", media_type="markdown"), "m.media_type"),
        (ArtifactMetadata("n", media_type="text/plain\r\nX-Evil: 1"), "m.media_type"),
        (ArtifactMetadata("n", labels={"": "v"}), "m.labels"),
        (ArtifactMetadata("n", labels={"k" * 257: "v"}), "m.labels"),
        (ArtifactMetadata("n", labels={"k": "v" * 257}), "m.labels"),
        (ArtifactMetadata("n", labels={"k": "a\x00b"}), "m.labels"),
        (ArtifactMetadata("n", labels={str(number): "v" for number in range(65)}), "m.labels"),
    ],
)
def test_metadata_that_cannot_be_kept_is_refused_by_field(metadata: ArtifactMetadata, field: str) -> None:
    with pytest.raises(FieldInvalid) as refused:
        check_metadata(metadata, "m")
    assert refused.value.field == field


def test_good_metadata_passes() -> None:
    check_metadata(ArtifactMetadata("n", type="Bericht ü", media_type="text/markdown; charset=utf-8"), "m")
    check_labels({"k" * 256: "", "ключ": "значение"}, "labels")
