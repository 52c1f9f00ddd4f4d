"""`openai_compatible` against a real HTTP endpoint on the loopback: fragments, refusals, faults, cut connections."""

import json
import threading
import time
from collections.abc import Callable, Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

import pytest
from langchain_core.messages import HumanMessage

from threadkeep.config.v1 import entity_pb2
from threadkeep.runtime.v1 import task_pb2
from threadkeep.worker.errors import StreamCut
from threadkeep.worker.models import build_model
from threadkeep.worker.secrets import Secrets

pytestmark = pytest.mark.suite(backends=["sqlite"], topologies=["embedded"])


class Endpoint:
    """Answers chat completions as a test says, one answer after the other, and keeps what it was asked."""

    def __init__(self) -> None:
        self.answers: list[Callable[[BaseHTTPRequestHandler], None]] = []
        self.asked: list[tuple[float, dict[str, str], dict[str, Any]]] = []
        endpoint = self

        class Handler(BaseHTTPRequestHandler):
            protocol_version = "HTTP/1.1"

            def do_POST(self) -> None:
                body = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
                endpoint.asked.append((time.monotonic(), {k.lower(): v for k, v in self.headers.items()}, body))
                assert self.path == "/v1/chat/completions", self.path
                endpoint.answers.pop(0)(self)

            def log_message(self, format: str, *args: Any) -> None:
                pass

        self._server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self._server.daemon_threads = True
        threading.Thread(target=self._server.serve_forever, daemon=True).start()
        self.url = f"http://127.0.0.1:{self._server.server_port}/v1"

    def close(self) -> None:
        """Stops serving."""
        self._server.shutdown()
        self._server.server_close()


@pytest.fixture
def endpoint() -> Iterator[Endpoint]:
    """The endpoint."""
    made = Endpoint()
    yield made
    made.close()


def _delta(finish: str | None = None, **delta: Any) -> bytes:
    choice = {"index": 0, "delta": delta, "finish_reason": finish}
    chunk = {"id": "c-1", "object": "chat.completion.chunk", "created": 1, "model": "m", "choices": [choice]}
    return f"data: {json.dumps(chunk)}\n\n".encode()


def _call(**function: str) -> list[dict[str, Any]]:
    first = {"id": "call-1", "type": "function"} if "name" in function else {}
    return [{"index": 0, **first, "function": function}]


def stream(*parts: bytes, cut: str = "") -> Callable[[BaseHTTPRequestHandler], None]:
    """A streamed answer; `cut` "chunk" breaks the connection in a chunk, "end" ends it as if all were said."""

    def answer(request: BaseHTTPRequestHandler) -> None:
        request.send_response(200)
        request.send_header("Content-Type", "text/event-stream")
        request.send_header("Transfer-Encoding", "chunked")
        request.end_headers()
        for part in parts if cut else (*parts, b"data: [DONE]\n\n"):
            request.wfile.write(f"{len(part):x}\r\n".encode() + part + b"\r\n")
        if cut == "chunk":
            request.wfile.write(b"ffff\r\ndata: {")
            request.close_connection = True
            request.wfile.flush()
            request.connection.shutdown(2)
            return
        request.wfile.write(b"0\r\n\r\n")

    return answer


def refuse(status: int, **headers: str) -> Callable[[BaseHTTPRequestHandler], None]:
    """An error."""

    def answer(request: BaseHTTPRequestHandler) -> None:
        body = b'{"error": {"message": "not now", "type": "test"}}'
        request.send_response(status)
        request.send_header("Content-Type", "application/json")
        request.send_header("Content-Length", str(len(body)))
        for name, value in headers.items():
            request.send_header(name.replace("_", "-"), value)
        request.end_headers()
        request.wfile.write(body)

    return answer


CALLS = stream(
    _delta(role="assistant", content=""),
    _delta(tool_calls=_call(name="count", arguments="")),
    _delta(tool_calls=_call(arguments='{"te')),
    _delta(tool_calls=_call(arguments='xt": "a b')),
    _delta(tool_calls=_call(arguments=' c"}')),
    _delta("tool_calls"),
)
SAYS = stream(_delta(role="assistant", content="It has "), _delta(content="three words."), _delta("stop"))


async def _agent(site: Any, endpoint: Endpoint, monkeypatch: pytest.MonkeyPatch, **provider: Any) -> None:
    monkeypatch.setenv("KEY_OF_THIS_TEST", "k-123")
    fields = {"type": "openai_compatible", "model": "m", "endpoint": endpoint.url, "max_retries": 2, **provider}
    await site.client.config.put("http", entity_pb2.Provider(api_key_reference="env:KEY_OF_THIS_TEST", **fields))
    entry_point = entity_pb2.PythonEntryPoint(entry_point="tests.support.worker_graphs:count_words")
    await site.client.config.put("count", entity_pb2.Tool(description="Counts words.", python=entry_point))
    await site.agent("counter", system_prompt="Count.", provider="http", tools=["count"])
    site.worker(provider_origins=[endpoint.url])


@pytest.mark.rule("C8", "C9")
async def test_streamed_fragments_of_a_tool_call_become_one_call(
    site: Any, endpoint: Endpoint, monkeypatch: pytest.MonkeyPatch
) -> None:
    endpoint.answers = [CALLS, SAYS]
    await _agent(site, endpoint, monkeypatch)
    result = await site.completed(await site.submit("counter", "Count: a b c"))
    assert result["text"] == "It has three words."
    (_, headers, first), (_, _, second) = endpoint.asked
    assert headers["authorization"] == "Bearer k-123"
    assert first["stream"] is True
    assert [one["role"] for one in first["messages"]] == ["system", "user"]
    assert first["tools"][0]["function"]["name"] == "count"
    call, answer = second["messages"][-2:]
    assert json.loads(call["tool_calls"][0]["function"]["arguments"]) == {"text": "a b c"}
    assert json.loads(answer["content"])["words"] == 3


async def test_a_refusal_with_retry_after_is_waited_for(
    site: Any, endpoint: Endpoint, monkeypatch: pytest.MonkeyPatch
) -> None:
    endpoint.answers = [refuse(429, Retry_After="1"), SAYS]
    await _agent(site, endpoint, monkeypatch)
    result = await site.completed(await site.submit("counter", "Count: a b c"))
    assert result["text"] == "It has three words."
    assert endpoint.asked[1][0] - endpoint.asked[0][0] >= 1.0


async def test_a_fault_of_the_endpoint_is_tried_again(
    site: Any, endpoint: Endpoint, monkeypatch: pytest.MonkeyPatch
) -> None:
    endpoint.answers = [refuse(500), SAYS]
    await _agent(site, endpoint, monkeypatch)
    assert (await site.completed(await site.submit("counter", "Count")))["text"] == "It has three words."


@pytest.mark.rule("R7")
async def test_a_fault_that_stays_fails_the_task_by_name(
    site: Any, endpoint: Endpoint, monkeypatch: pytest.MonkeyPatch
) -> None:
    endpoint.answers = [refuse(500)] * 3
    await _agent(site, endpoint, monkeypatch)
    ended = await site.ended(await site.submit("counter", "Count"))
    assert (ended.state, ended.failure.code) == (task_pb2.TASK_STATE_FAILED, "model_error")
    assert "k-123" not in ended.failure.message
    assert len(endpoint.asked) == 3


@pytest.mark.parametrize("cut", ["chunk", "end"])
async def test_an_answer_that_breaks_off_is_asked_for_again(
    site: Any, endpoint: Endpoint, monkeypatch: pytest.MonkeyPatch, cut: str
) -> None:
    half = stream(_delta(role="assistant", content="It has "), _delta(content="nine hun"), cut=cut)
    half_call = stream(_delta(tool_calls=_call(name="count", arguments='{"te')), cut=cut)
    endpoint.answers = [half_call, CALLS, half, SAYS]
    await _agent(site, endpoint, monkeypatch)
    task = await site.submit("counter", "Count: a b c")
    assert (await site.completed(task))["text"] == "It has three words."
    assert len(endpoint.asked) == 4
    # Nothing of the halves is in the conversation.
    said = json.dumps(endpoint.asked[-1][2]["messages"])
    assert "nine hun" not in said
    assert said.count('"tool_calls"') == 1


async def test_half_an_answer_is_no_answer_outside_of_agents_either(endpoint: Endpoint) -> None:
    endpoint.answers = [stream(_delta(role="assistant", content="half"), cut="end")] * 2
    provider = {"type": "openai_compatible", "model": "m", "endpoint": endpoint.url, "timeout": "5s"}
    model = build_model(provider, "", Secrets())
    with pytest.raises(StreamCut):
        list(model.stream([HumanMessage("x")]))
    with pytest.raises(StreamCut):
        [chunk async for chunk in model.astream([HumanMessage("x")])]
    await model.aclose()  # type: ignore[attr-defined]
