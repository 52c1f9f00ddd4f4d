"""What the artifacts service refuses, beside the errors that every service shares."""

from __future__ import annotations

from threadkeep_chassis.errors import Contention, FailedPrecondition, NotFound, OutOfRange, Unavailable


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
