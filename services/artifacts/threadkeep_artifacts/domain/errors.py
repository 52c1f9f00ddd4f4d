"""What the artifacts service refuses, beside the errors that every service shares."""

from __future__ import annotations

from threadkeep_chassis.errors import (
    AlreadyExists,
    Contention,
    FailedPrecondition,
    NotFound,
    OutOfRange,
    ResourceExhausted,
    Unavailable,
)


class ArtifactNotFound(NotFound):
    """No such artifact, or no such version of it, in the caller's scope."""

    reason = "ARTIFACT_NOT_FOUND"
    default_message = "No such artifact or version in this scope."


class UploadMismatch(FailedPrecondition):
    """The upload's bytes are not what its trailer announced."""

    reason = "UPLOAD_MISMATCH"

    def __init__(self, what: str, announced: int | str, received: int | str) -> None:
        super().__init__(
            f"The trailer announced {what} {announced}; what arrived has {received}. Upload it again.",
            metadata={"field": f"trailer.{what}", "announced": str(announced), "received": str(received)},
        )


class OffsetOutOfRange(OutOfRange):
    """The offset lies beyond the content's end."""

    reason = "OFFSET_OUT_OF_RANGE"

    def __init__(self, offset: int, size: int) -> None:
        super().__init__(
            f"offset {offset} lies beyond the content's end at {size}.",
            metadata={"offset": str(offset), "size": str(size)},
        )


class UploadAbandoned(Contention):
    """The upload was silent for so long that its content was swept. Nothing of it is visible."""

    default_message = "The upload stood still for too long and its content was dropped; retry with the same request_id."


class ChunkTaken(Contention):
    """Another writer of the same upload has kept other bytes in this place."""

    default_message = "Another stream of this upload sent other bytes; send the whole content again."


class ContentStoreUnavailable(Unavailable):
    """Where content lies is out of reach, or full. `store` is its kind, `problem` a word for people."""

    reason = "CONTENT_STORE_UNAVAILABLE"

    def __init__(self, store: str, problem: str) -> None:
        super().__init__(
            f"The content store ({store}) is out of reach or full: {problem}; retry.",
            metadata={"store": store},
            retry_after=0.5,
        )


class UploadNotFound(NotFound):
    """Nothing is kept of an upload of that name."""

    reason = "UPLOAD_NOT_FOUND"
    default_message = "Nothing is kept of an upload of that name; start it again."


class PathTaken(AlreadyExists):
    """Another artifact of the session, or outside of sessions, has this path."""

    reason = "PATH_TAKEN"
    default_message = "Another artifact has this path; add a version to it, or choose another path."


class ContentNotText(FailedPrecondition):
    """The content is no text in UTF-8."""

    reason = "CONTENT_NOT_TEXT"
    default_message = "The content is no text in UTF-8; download both versions instead."


class LastVersion(FailedPrecondition):
    """It is the artifact's only version."""

    reason = "LAST_VERSION"
    default_message = "It is the artifact's only version; delete the artifact instead."


class QuotaExceeded(ResourceExhausted):
    """The scope would use more than it may."""

    reason = "QUOTA_EXCEEDED"

    def __init__(self, quota: str, maximum: int, actual: int) -> None:
        advice = "Delete artifacts or versions that nobody needs, or have the quota raised."
        super().__init__(
            f"The scope's {quota} is {maximum}, this would make it {actual}. {advice}",
            metadata={"quota": quota, "maximum": str(maximum), "actual": str(actual), "advice": advice},
        )


class SessionGone(NotFound):
    """The session was deleted with its artifacts, and gets no new ones."""

    reason = "SESSION_NOT_FOUND"
    default_message = "The session was deleted with its artifacts; it gets no new ones."
