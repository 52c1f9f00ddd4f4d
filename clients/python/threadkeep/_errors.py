"""The base of all errors and their families, one per gRPC code. Users import them from `threadkeep.errors`."""

from __future__ import annotations

import base64
import binascii
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import ClassVar

import grpc


@dataclass(frozen=True, slots=True)
class Violation:
    """A field that breaks a rule: its path in the request, and the rule."""

    field: str
    description: str


class ThreadkeepError(Exception):
    """A call that did not succeed.

    `reason` is the stable reason, empty when the error is not threadkeep's (a broken connection, a proxy). `code` is
    the gRPC status code. `metadata` is what ErrorInfo carried. `retry_after` is in seconds, if the server said when.
    """

    reason: ClassVar[str] = ""
    code: grpc.StatusCode = grpc.StatusCode.UNKNOWN

    def __init__(
        self,
        message: str = "",
        *,
        code: grpc.StatusCode | None = None,
        metadata: Mapping[str, str] | None = None,
        violations: Iterable[Violation] = (),
        retry_after: float | None = None,
        resource: tuple[str, str] | None = None,
    ) -> None:
        super().__init__(message)
        self.message = message
        if code is not None:
            self.code = code
        self.metadata = dict(metadata or {})
        self.violations = tuple(violations)
        self.retry_after = retry_after
        self.resource = resource

    def __str__(self) -> str:
        head = self.reason or self.code.name
        fields = "; ".join(f"{v.field}: {v.description}" for v in self.violations if v.field not in self.message)
        return f"{head}: {self.message}" + (f" ({fields})" if fields else "")

    @property
    def resume_cursor(self) -> bytes | None:
        """Where a broken subscription goes on, or the oldest cursor that is left. None: the error names none."""
        text = self.metadata.get("resume_cursor") or self.metadata.get("oldest_cursor")
        try:
            return base64.b64decode(text, validate=True) if text else None
        except binascii.Error:
            return None

    @property
    def resume_revision(self) -> int | None:
        """Where a broken watch goes on, or the oldest revision that is left. None: the error names none."""
        return self._number("resume_revision") or self._number("oldest_revision")

    def _number(self, key: str) -> int | None:
        text = self.metadata.get(key, "")
        return int(text) if text.isdigit() else None


class NotFound(ThreadkeepError):
    """It is absent, or belongs to another scope, which is the same."""

    code = grpc.StatusCode.NOT_FOUND


class AlreadyExists(ThreadkeepError):
    """It exists already."""

    code = grpc.StatusCode.ALREADY_EXISTS


class Aborted(ThreadkeepError):
    """A concurrent change won."""

    code = grpc.StatusCode.ABORTED


class FailedPrecondition(ThreadkeepError):
    """The current state forbids it."""

    code = grpc.StatusCode.FAILED_PRECONDITION


class InvalidArgument(ThreadkeepError):
    """The request can't be right in any state. `violations` name the fields."""

    code = grpc.StatusCode.INVALID_ARGUMENT


class OutOfRange(ThreadkeepError):
    """A position outside what is kept."""

    code = grpc.StatusCode.OUT_OF_RANGE


class DeadlineExceeded(ThreadkeepError):
    """It did not happen in time. A mutation may have happened all the same."""

    code = grpc.StatusCode.DEADLINE_EXCEEDED


class ResourceExhausted(ThreadkeepError):
    """A limit was reached."""

    code = grpc.StatusCode.RESOURCE_EXHAUSTED


class Unavailable(ThreadkeepError):
    """Not now. The client has retried already; retrying later with the same request_id is safe."""

    code = grpc.StatusCode.UNAVAILABLE


class DataLoss(ThreadkeepError):
    """What is stored or received is not what was written."""

    code = grpc.StatusCode.DATA_LOSS


class Unauthenticated(ThreadkeepError):
    """No trusted identity."""

    code = grpc.StatusCode.UNAUTHENTICATED


class PermissionDenied(ThreadkeepError):
    """The identity may not do it."""

    code = grpc.StatusCode.PERMISSION_DENIED


class Internal(ThreadkeepError):
    """A fault of the server, or of something between it and us."""

    code = grpc.StatusCode.INTERNAL


class Cancelled(ThreadkeepError):
    """The caller gave the call up."""

    code = grpc.StatusCode.CANCELLED


class Unimplemented(ThreadkeepError):
    """The server does not know this method: it is older than this client, or another service."""

    code = grpc.StatusCode.UNIMPLEMENTED
