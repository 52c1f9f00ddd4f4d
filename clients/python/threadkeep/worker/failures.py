"""What a run's failure says: a stable code, and a text for people."""

from __future__ import annotations

from collections.abc import Callable

from langchain_core.exceptions import (
    ContextOverflowError,
    ModelAuthenticationError,
    ModelConnectionError,
    ModelError,
    ModelRateLimitError,
    ModelTimeoutError,
)
from langgraph.errors import GraphRecursionError

from threadkeep.errors import ThreadkeepError
from threadkeep.langgraph.serde import DecodingRefused, EncodingRefused
from threadkeep.runtime.v1 import run_pb2
from threadkeep.worker.errors import AgentBuildError
from threadkeep.worker.secrets import SecretUnavailable

LONGEST_MESSAGE = 8192

_CODES: tuple[tuple[type[BaseException], str], ...] = (
    (AgentBuildError, "agent_build_failed"),
    (SecretUnavailable, "secret_unavailable"),
    (GraphRecursionError, "max_steps_exceeded"),
    (DecodingRefused, "decoding_refused"),
    (EncodingRefused, "encoding_refused"),
    (ContextOverflowError, "model_context_exceeded"),
    (ModelAuthenticationError, "model_unauthenticated"),
    (ModelRateLimitError, "model_rate_limited"),
    (ModelConnectionError, "model_unreachable"),
    (ModelTimeoutError, "model_timeout"),
    (ModelError, "model_error"),
)


_PASSING = (ModelRateLimitError, ModelConnectionError, ModelTimeoutError, ConnectionError)
"""Somebody else was out of reach, or asked us to come later."""


def is_passing(error: BaseException) -> bool:
    """True if another attempt may do better: connections that failed, and rate limits."""
    return isinstance(error, _PASSING)


def to_failure(error: BaseException, retryable: Callable[[BaseException], bool] = is_passing) -> run_pb2.Failure:
    """The failure of an error. Errors without a code of ours have their class as code: `exception.ValueError`."""
    code = next((code for kind, code in _CODES if isinstance(error, kind)), None)
    if code is None and isinstance(error, ThreadkeepError) and error.reason:
        code = f"threadkeep.{error.reason.lower()}"
    text = str(error).replace("\x00", "").encode("utf-8", "replace").decode()
    return run_pb2.Failure(
        code=code or f"exception.{type(error).__name__}"[:256],
        message=text[:LONGEST_MESSAGE],
        retryable=retryable(error),
    )
