"""OpenTelemetry spans of database work, below the span of the call that it is done for (X15).

Background work has no span, and neither has anything while no SDK is installed: then this costs one look.
"""

from __future__ import annotations

from types import TracebackType

from opentelemetry import trace
from opentelemetry.trace import Span, SpanKind

_tracer = trace.get_tracer("threadkeep.database")


class database_span:
    """A span around a block of database work: `db.read` or `db.write`. Statements and values stay out of it (X11)."""

    def __init__(self, work: str, backend: str) -> None:
        self._span: Span | None = None
        if trace.get_current_span().is_recording():
            self._span = _tracer.start_span(f"db.{work}", kind=SpanKind.CLIENT, attributes={"db.system.name": backend})

    async def __aenter__(self) -> None:
        return None

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        if self._span is not None:
            if kind is not None:
                self._span.set_attribute("error.type", kind.__name__)
            self._span.end()
