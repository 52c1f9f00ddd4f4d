"""Spans of calls, for processes that use OpenTelemetry; for others this costs one look."""

from __future__ import annotations

import sys
from types import TracebackType
from typing import TYPE_CHECKING

from threadkeep._errors import ThreadkeepError

if TYPE_CHECKING:
    from opentelemetry.trace import Span


class CallSpan:
    """A client span around one logical call, its retries included; `metadata` carries it to the server (W3C).

    It is not made the current one: a stream's span lives as long as its iterator, which may be left in between.
    """

    __slots__ = ("_span", "metadata")

    def __init__(self, path: str) -> None:
        self._span: Span | None = None
        self.metadata: tuple[tuple[str, str], ...] = ()
        if "opentelemetry" not in sys.modules:
            return
        from opentelemetry import propagate, trace

        service, _, name = path.lstrip("/").partition("/")
        span = trace.get_tracer("threadkeep.client").start_span(
            f"{service}/{name}",
            kind=trace.SpanKind.CLIENT,
            attributes={"rpc.system": "grpc", "rpc.service": service, "rpc.method": name},
        )
        carrier: dict[str, str] = {}
        is_real = span.get_span_context().is_valid
        propagate.inject(carrier, trace.set_span_in_context(span) if is_real else None)
        self.metadata = tuple(carrier.items())
        self._span = span if is_real else None

    def __enter__(self) -> CallSpan:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        if self._span is None:
            return
        if isinstance(error, Exception):
            from opentelemetry.trace import Status, StatusCode

            kind_of = (error.reason or error.code.name) if isinstance(error, ThreadkeepError) else type(error).__name__
            self._span.set_attribute("error.type", kind_of)
            # The name alone: texts may quote what was sent (X11).
            self._span.set_status(Status(StatusCode.ERROR))
        self._span.end()
