"""Errors of the artifacts service; `threadkeep.errors` has them all."""

from __future__ import annotations

from threadkeep._errors import (
    AlreadyExists,
    DataLoss,
    FailedPrecondition,
    NotFound,
    OutOfRange,
    ResourceExhausted,
    Unavailable,
)


class ArtifactNotFound(NotFound):
    """No such artifact, or no such version of it, in the caller's scope, or none that the caller may read."""

    reason = "ARTIFACT_NOT_FOUND"


class UploadNotFound(NotFound):
    """Nothing is kept of an upload of that name; start it again."""

    reason = "UPLOAD_NOT_FOUND"


class PathTaken(AlreadyExists):
    """Another artifact of the session, or outside of sessions, has this path."""

    reason = "PATH_TAKEN"


class UploadMismatch(FailedPrecondition):
    """The upload's bytes do not have the size or digest that was announced."""

    reason = "UPLOAD_MISMATCH"


class ContentNotText(FailedPrecondition):
    """The content is no text in UTF-8."""

    reason = "CONTENT_NOT_TEXT"


class LastVersion(FailedPrecondition):
    """It is the artifact's only version; delete the artifact instead."""

    reason = "LAST_VERSION"


class OffsetOutOfRange(OutOfRange):
    """The offset lies beyond the content's end, or beyond what is kept of an upload."""

    reason = "OFFSET_OUT_OF_RANGE"


class QuotaExceeded(ResourceExhausted):
    """The scope uses as much as it may; `metadata` names `quota`, `maximum`, `actual` and `advice`."""

    reason = "QUOTA_EXCEEDED"


class ContentStoreUnavailable(Unavailable):
    """Where artifact content lies is out of reach, or full."""

    reason = "CONTENT_STORE_UNAVAILABLE"


class CorruptContent(DataLoss):
    """Stored or received content does not have its digest."""

    reason = "CORRUPT_CONTENT"
