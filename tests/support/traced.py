"""A process with OpenTelemetry's SDK: makes calls to a suite of its own, and prints spans and log lines as JSON.

A process installs one SDK, and before anything asks for it: so this is a script, and no fixture.
"""

import asyncio
import contextlib
import io
import json
from typing import Any

from opentelemetry import trace
from opentelemetry.sdk.trace import TracerProvider
from opentelemetry.sdk.trace.export import SimpleSpanProcessor
from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter

from tests.support.databases import Databases
from tests.support.suite import Suite
from threadkeep import AsyncClient, Client, errors
from threadkeep.config.v1 import entity_pb2
from threadkeep_chassis.logs import configure_logs


async def calls(suite: Suite) -> None:
    """One submission with its peers and its database work, a refusal, a stream, a blocking call."""
    tracer = trace.get_tracer("application")
    scope = {"tenant": "acme-corp"}
    async with AsyncClient(suite.addresses, scope=scope) as client:
        await client.config.put("a", entity_pb2.Agent(description="Greets."))
        with tracer.start_as_current_span("submits"):
            task = (await client.tasks.submit("hello", agent_name="a")).task
        with tracer.start_as_current_span("misses"), contextlib.suppress(errors.NotFound):
            await client.tasks.get("nobody")
        with tracer.start_as_current_span("follows"):
            async with client.events.subscribe(session_id=task.session_id) as feed:
                await anext(aiter(feed))
    with Client(suite.addresses, scope=scope) as blocking, tracer.start_as_current_span("blocks"):
        await asyncio.to_thread(blocking.tasks.get, task.task_id)


def shown(span: Any) -> dict[str, Any]:
    """What a test looks at."""
    return {
        "name": span.name,
        "kind": span.kind.name,
        "trace": f"{span.context.trace_id:032x}",
        "id": f"{span.context.span_id:016x}",
        "parent": None if span.parent is None else f"{span.parent.span_id:016x}",
        "attributes": dict(span.attributes or {}),
        "status": span.status.status_code.name,
    }


async def main() -> None:
    """Prints one JSON object."""
    exporter = InMemorySpanExporter()
    provider = TracerProvider()
    provider.add_span_processor(SimpleSpanProcessor(exporter))
    trace.set_tracer_provider(provider)
    logs = io.StringIO()
    with contextlib.redirect_stderr(logs):
        configure_logs("DEBUG")
        databases = Databases()
        suite = await Suite.start(databases, "memory", "split", services=("config", "runtime"))
        try:
            await calls(suite)
        finally:
            await suite.close()
            databases.close()
    lines = [json.loads(line) for line in logs.getvalue().splitlines() if line.startswith("{")]
    print(json.dumps({"spans": [shown(one) for one in exporter.get_finished_spans()], "logs": lines}))


if __name__ == "__main__":
    asyncio.run(main())
