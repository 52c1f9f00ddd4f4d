"""Metrics and traces of a server (X15). Labels are methods, codes and names; never scopes, ids or payloads."""

from __future__ import annotations

import os
import random
import re
from bisect import bisect_left
from collections.abc import Iterator, Mapping
from itertools import accumulate

from opentelemetry import propagate, trace
from opentelemetry.context import Context
from opentelemetry.trace import Span, SpanKind, Status, StatusCode
from prometheus_client import CollectorRegistry
from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, HistogramMetricFamily, Metric
from prometheus_client.registry import Collector

from threadkeep_chassis.scope import Trace

_TRACEPARENT = re.compile(r"00-([0-9a-f]{32})-([0-9a-f]{16})-[0-9a-f]{2}\Z")
_BUCKETS = (0.0005, 0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1, 2.5, 5, 10, 30)


class MethodMetrics:
    """What is counted of one method. Plain numbers, touched by the event loop alone: a call pays no lock for them."""

    __slots__ = ("buckets", "codes", "messages", "open", "seconds")

    def __init__(self) -> None:
        self.codes: dict[str, int] = {}
        self.buckets = [0] * (len(_BUCKETS) + 1)
        self.seconds = 0.0
        self.open = 0
        self.messages = 0

    def ended(self, code: str, seconds: float) -> None:
        """Counts a call that ended."""
        self.codes[code] = self.codes.get(code, 0) + 1
        self.buckets[bisect_left(_BUCKETS, seconds)] += 1
        self.seconds += seconds
        self.open -= 1


class RpcMetrics(Collector):
    """Rates and latencies by method and code, open calls, streamed messages."""

    def __init__(self, registry: CollectorRegistry) -> None:
        self._methods: dict[str, MethodMetrics] = {}
        registry.register(self)

    def method(self, method: str) -> MethodMetrics:
        """The method's numbers. Ask once per known method: each one is kept."""
        return self._methods.setdefault(method, MethodMetrics())

    def collect(self) -> Iterator[Metric]:
        """What Prometheus reads."""
        handled = CounterMetricFamily("threadkeep_rpcs", "Calls that ended", labels=["method", "code"])
        seconds = HistogramMetricFamily("threadkeep_rpc_seconds", "Duration of calls", labels=["method"])
        under_way = GaugeMetricFamily("threadkeep_rpcs_open", "Calls under way", labels=["method"])
        messages = CounterMetricFamily(
            "threadkeep_rpc_stream_messages", "Messages sent on response streams", labels=["method"]
        )
        for name, numbers in list(self._methods.items()):
            for code, count in list(numbers.codes.items()):
                handled.add_metric([name, code], count)
            totals = list(accumulate(numbers.buckets))
            bounds = [*(str(bound) for bound in _BUCKETS), "+Inf"]
            seconds.add_metric([name], list(zip(bounds, totals, strict=True)), numbers.seconds)
            under_way.add_metric([name], numbers.open)
            messages.add_metric([name], numbers.messages)
        yield from (handled, seconds, under_way, messages)


class Tracing:
    """Spans of calls. Without a configured OpenTelemetry SDK it only carries the caller's trace context on."""

    def __init__(self, provider: trace.TracerProvider | None = None) -> None:
        """`provider`: the installed one if None. An SDK is installed before the server is built, or not at all."""
        provider = provider or trace.get_tracer_provider()
        self._tracer = provider.get_tracer("threadkeep")
        self.is_recording = not isinstance(provider, (trace.ProxyTracerProvider, trace.NoOpTracerProvider))

    def start(self, method: str, metadata: Mapping[str, str | bytes]) -> tuple[Span | None, Trace]:
        """The span of a call (None if nothing records) and the context that goes into rows, logs and further calls."""
        inbound = str(metadata.get("traceparent", ""))
        match = _TRACEPARENT.match(inbound) if inbound else None
        state = str(metadata.get("tracestate", ""))[:512] if match else ""
        if not self.is_recording:
            if match:
                return None, Trace(match.group(1), inbound, state)
            # Ids, not secrets.
            trace_id, span_id = f"{random.getrandbits(128):032x}", f"{random.getrandbits(64):016x}"
            return None, Trace(trace_id, f"00-{trace_id}-{span_id}-00")
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
