"""Metrics and traces of a server (X15). Labels are methods, codes and names; never scopes, ids or payloads."""

from __future__ import annotations

import os
import re
from collections.abc import Mapping

from opentelemetry import propagate, trace
from opentelemetry.context import Context
from opentelemetry.trace import Span, SpanKind, Status, StatusCode
from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram

from threadkeep_chassis.scope import Trace

_TRACEPARENT = re.compile(r"00-([0-9a-f]{32})-([0-9a-f]{16})-[0-9a-f]{2}\Z")
_BUCKETS = (0.0005, 0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1, 2.5, 5, 10, 30)


class RpcMetrics:
    """Rates and latencies by method and code, open calls, streamed messages."""

    def __init__(self, registry: CollectorRegistry) -> None:
        self._handled = Counter("threadkeep_rpcs", "Calls that ended", ["method", "code"], registry=registry)
        self._seconds = Histogram(
            "threadkeep_rpc_seconds", "Duration of calls", ["method"], registry=registry, buckets=_BUCKETS
        )
        self._open = Gauge("threadkeep_rpcs_open", "Calls under way", ["method"], registry=registry)
        self._messages = Counter(
            "threadkeep_rpc_stream_messages", "Messages sent on response streams", ["method"], registry=registry
        )
        self._children: dict[str, tuple[Histogram, Gauge, Counter]] = {}
        self._codes: dict[tuple[str, str], Counter] = {}

    def method(self, method: str) -> tuple[Histogram, Gauge, Counter]:
        """The (seconds, open, messages) of a method."""
        found = self._children.get(method)
        if found is None:
            found = (self._seconds.labels(method), self._open.labels(method), self._messages.labels(method))
            self._children[method] = found
        return found

    def handled(self, method: str, code: str) -> None:
        """Counts a call that ended."""
        found = self._codes.get((method, code))
        if found is None:
            found = self._codes[method, code] = self._handled.labels(method, code)
        found.inc()


class Tracing:
    """Spans of calls. Without a configured OpenTelemetry SDK it only carries the caller's trace context on."""

    def __init__(self) -> None:
        self._tracer = trace.get_tracer("threadkeep")

    @property
    def is_recording(self) -> bool:
        """True once an SDK's tracer provider is installed."""
        return not isinstance(trace.get_tracer_provider(), (trace.ProxyTracerProvider, trace.NoOpTracerProvider))

    def start(self, method: str, metadata: Mapping[str, str | bytes]) -> tuple[Span | None, Trace]:
        """The span of a call (None if nothing records) and the context that goes into rows, logs and further calls."""
        inbound = str(metadata.get("traceparent", ""))
        state = str(metadata.get("tracestate", ""))[:512]
        match = _TRACEPARENT.match(inbound)
        if not self.is_recording:
            if match:
                return None, Trace(match.group(1), inbound, state)
            trace_id = os.urandom(16).hex()
            return None, Trace(trace_id, f"00-{trace_id}-{os.urandom(8).hex()}-00")
        parent: Context = propagate.extract({"traceparent": inbound, "tracestate": state} if match else {})
        service, _, name = method.lstrip("/").partition("/")
        span = self._tracer.start_span(
            f"{service}/{name}",
            context=parent,
            kind=SpanKind.SERVER,
            attributes={"rpc.system": "grpc", "rpc.service": service, "rpc.method": name},
        )
        context = span.get_span_context()
        carrier = f"00-{context.trace_id:032x}-{context.span_id:016x}-{int(context.trace_flags):02x}"
        return span, Trace(f"{context.trace_id:032x}", carrier, state)

    @staticmethod
    def end(span: Span | None, code: str) -> None:
        """Ends the span with the call's status code."""
        if span is None:
            return
        span.set_attribute("rpc.grpc.status_code_name", code)
        if code in ("INTERNAL", "UNKNOWN", "DATA_LOSS"):
            span.set_status(Status(StatusCode.ERROR))
        span.end()


def configure_tracing(service_name: str) -> None:
    """Installs the OpenTelemetry SDK with an OTLP exporter, if OTEL_EXPORTER_OTLP_ENDPOINT is set."""
    if not os.environ.get("OTEL_EXPORTER_OTLP_ENDPOINT"):
        return
    try:
        from opentelemetry.exporter.otlp.proto.grpc.trace_exporter import (  # type: ignore[import-not-found, unused-ignore]
            OTLPSpanExporter,
        )
    except ImportError as error:
        raise RuntimeError(
            "OTEL_EXPORTER_OTLP_ENDPOINT is set, but opentelemetry-exporter-otlp-proto-grpc is not installed"
        ) from error
    from opentelemetry.sdk.resources import Resource
    from opentelemetry.sdk.trace import TracerProvider
    from opentelemetry.sdk.trace.export import BatchSpanProcessor

    provider = TracerProvider(resource=Resource.create({"service.name": service_name}))
    provider.add_span_processor(BatchSpanProcessor(OTLPSpanExporter()))
    trace.set_tracer_provider(provider)
