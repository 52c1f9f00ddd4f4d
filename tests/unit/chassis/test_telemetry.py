"""Spans, trace context and logs (X11, X15)."""

import json

import pytest
from opentelemetry.sdk.trace import TracerProvider
from opentelemetry.sdk.trace.export import SimpleSpanProcessor
from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter
from opentelemetry.trace import SpanKind, StatusCode
from prometheus_client import CollectorRegistry

from threadkeep_chassis.logs import fault_facts
from threadkeep_chassis.telemetry import RpcMetrics, Tracing

METHOD = "/threadkeep.probe.v1.ProbeService/Change"
PARENT = "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01"


@pytest.fixture
def exporter() -> InMemorySpanExporter:
    return InMemorySpanExporter()


@pytest.fixture
def tracing(exporter: InMemorySpanExporter) -> Tracing:
    provider = TracerProvider()
    provider.add_span_processor(SimpleSpanProcessor(exporter))
    return Tracing(provider)


@pytest.mark.rule("X15")
def test_a_call_is_a_server_span_under_its_callers(tracing: Tracing, exporter: InMemorySpanExporter) -> None:
    span, context = tracing.start(METHOD, {"traceparent": PARENT, "tracestate": "a=b"})
    tracing.end(span, "ABORTED")
    (done,) = exporter.get_finished_spans()
    assert done.name == "threadkeep.probe.v1.ProbeService/Change"
    assert done.kind is SpanKind.SERVER
    assert done.parent is not None
    assert f"{done.parent.span_id:016x}" == "b7ad6b7169203331"
    assert context.trace_id == "0af7651916cd43dd8448eb211c80319c"
    assert done.context is not None
    assert context.traceparent == f"00-{context.trace_id}-{done.context.span_id:016x}-01"
    assert done.attributes is not None
    assert done.attributes["rpc.grpc.status_code_name"] == "ABORTED"
    assert done.status.status_code is not StatusCode.ERROR


@pytest.mark.rule("X15")
def test_a_fault_marks_its_span(tracing: Tracing, exporter: InMemorySpanExporter) -> None:
    span, _ = tracing.start(METHOD, {})
    tracing.end(span, "INTERNAL")
    (done,) = exporter.get_finished_spans()
    assert done.parent is None
    assert done.status.status_code is StatusCode.ERROR


@pytest.mark.rule("X15")
@pytest.mark.parametrize("header", ["", "x", PARENT[:-1], PARENT.upper(), PARENT + "0", "00-" + "g" * 32 + PARENT[35:]])
def test_a_malformed_trace_context_is_not_passed_on(header: str) -> None:
    span, context = Tracing().start(METHOD, {"traceparent": header, "tracestate": "a=b"})
    assert span is None
    assert context.trace_id != PARENT[3:35]
    assert context.tracestate == ""
    assert len(context.traceparent) == len(PARENT)


@pytest.mark.rule("X15")
def test_latencies_fall_into_their_buckets() -> None:
    registry = CollectorRegistry()
    numbers = RpcMetrics(registry).method("m")
    for seconds in (0.0001, 0.0005, 0.3, 99.0):
        numbers.open += 1
        numbers.ended("OK", seconds)

    def bucket(bound: str) -> float | None:
        return registry.get_sample_value("threadkeep_rpc_seconds_bucket", {"method": "m", "le": bound})

    assert [bucket(bound) for bound in ("0.0005", "0.25", "0.5", "30", "+Inf")] == [2, 2, 3, 3, 4]
    assert registry.get_sample_value("threadkeep_rpc_seconds_count", {"method": "m"}) == 4
    assert registry.get_sample_value("threadkeep_rpcs_open", {"method": "m"}) == 0


@pytest.mark.rule("X11")
def test_a_fault_is_logged_by_type_and_place_and_not_by_text() -> None:
    try:
        try:
            raise KeyError("hunter2")
        except KeyError as error:
            raise ValueError("hunter2") from error
    except ValueError as error:
        facts = fault_facts(error)
    assert facts["error"] == "ValueError from KeyError"
    assert "test_telemetry.py" in facts["frames"][-1]
    assert "hunter2" not in json.dumps(facts)
