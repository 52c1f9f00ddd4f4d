"""Spans, trace context and logs (X11, X15)."""

import contextvars
import json
from collections.abc import Iterator

import pytest
import structlog
from opentelemetry import trace
from opentelemetry.sdk.trace import TracerProvider
from opentelemetry.sdk.trace.export import SimpleSpanProcessor
from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter
from opentelemetry.trace import SpanKind, StatusCode
from prometheus_client import CollectorRegistry

from threadkeep_chassis.database import Database
from threadkeep_chassis.logs import configure_logs, fault_facts
from threadkeep_chassis.scope import Call, Scope, Trace, enter_call
from threadkeep_chassis.telemetry import RpcMetrics, Tracing

METHOD = "/threadkeep.probe.v1.ProbeService/Change"
PARENT = "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01"


@pytest.fixture
def exporter() -> InMemorySpanExporter:
    return InMemorySpanExporter()


@pytest.fixture
def restored_logs() -> Iterator[None]:
    """Lets a test configure logs, which are the process's own."""
    before = structlog.get_config()
    yield
    structlog.configure(**before)


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


@pytest.mark.rule("X15", "X11")
def test_a_log_line_names_the_trace_and_the_scope_key_of_its_call(
    capsys: pytest.CaptureFixture[str], restored_logs: None
) -> None:
    configure_logs("INFO")
    scope = Scope({"tenant": "acme-corp"})

    def within_a_call() -> None:
        enter_call(Call("m", named_scope=scope, trace=Trace("abc", "")))
        structlog.get_logger().info("inside")

    contextvars.copy_context().run(within_a_call)
    structlog.get_logger().info("outside")
    inside, outside = (json.loads(line) for line in capsys.readouterr().err.splitlines())
    assert (inside["event"], inside["trace_id"], inside["scope_key"]) == ("inside", "abc", scope.key)
    assert "trace_id" not in outside
    assert "acme-corp" not in json.dumps(inside)


@pytest.mark.rule("X15")
async def test_database_work_is_a_span_below_its_calls(
    tracing: Tracing, exporter: InMemorySpanExporter, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("threadkeep_chassis.database.spans._tracer", tracing._tracer)
    database = await Database.open("memory:", "probe")
    async with database.read():
        pass
    assert exporter.get_finished_spans() == ()
    span, _ = tracing.start(METHOD, {})
    assert span is not None
    with trace.use_span(span):
        async with database.read():
            pass
        with pytest.raises(LookupError):
            async with database.write():
                raise LookupError
    tracing.end(span, "OK")
    read, write, call = exporter.get_finished_spans()
    assert [read.name, write.name] == ["db.read", "db.write"]
    assert read.parent is not None
    assert call.context is not None
    assert read.parent.span_id == call.context.span_id
    assert dict(write.attributes or {}) == {"db.system.name": "memory", "error.type": "LookupError"}
    await database.close()
