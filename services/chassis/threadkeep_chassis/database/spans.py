"""OpenTelemetry spans of database work, below the span of the call that it is done for (X15).

Background work has no span, and neither has anything while no SDK is installed: then this costs one look.
"""

from __future__ import annotations

from collections.abc import Sequence
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


def recording_span() -> Span | None:
    """The span that is current, if it records: kept by work that another task does for it."""
    span = trace.get_current_span()
    return span if span.is_recording() else None


class shared_write:
    """Spans `db.write` of one transaction that serves several calls: one below each of their spans."""

    def __init__(self, parents: Sequence[Span | None], backend: str) -> None:
        self._parents = [parent for parent in parents if parent is not None]
        self._attributes: dict[str, str | int] = {"db.system.name": backend, "threadkeep.batch.commits": len(parents)}
        self._spans: list[Span] = []

    def __enter__(self) -> None:
        self._spans = [
            _tracer.start_span(
                "db.write", trace.set_span_in_context(parent), kind=SpanKind.CLIENT, attributes=self._attributes
            )
            for parent in self._parents
        ]

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        for span in self._spans:
            if kind is not None:
                span.set_attribute("error.type", kind.__name__)
            span.end()
