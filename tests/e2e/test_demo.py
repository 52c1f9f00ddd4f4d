"""`make demo`, as a newcomer runs it: the story holds, and the report says what the file says, whatever the file is.

Facts are recomputed here in another way than the example does: from the whole content, or from how it was made.
"""

import asyncio
import hashlib
import json
import os
import re
import sys
import threading
from collections import Counter
from collections.abc import AsyncIterator, Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import pytest

from tests.support.postgres import Postgres

ROOT = Path(__file__).resolve().parents[2]
DEMO = ROOT / "clients" / "examples" / "demo.py"
SECONDS = 240


async def demo(answers: bytes = b"", **environment: str) -> tuple[int, str]:
    """Runs the demo; gives its exit code and what it printed."""
    child = await asyncio.create_subprocess_exec(
        sys.executable,
        DEMO,
        stdin=asyncio.subprocess.PIPE,
        stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.STDOUT,
        cwd=ROOT,
        env={**os.environ, "PYTHONUNBUFFERED": "1", **environment},
    )
    try:
        output, _ = await asyncio.wait_for(child.communicate(answers), SECONDS)
    finally:
        if child.returncode is None:
            child.terminate()
            await child.wait()
    return child.returncode or 0, output.decode()


def reports(output: str) -> list[dict[str, str]]:
    """The facts of every report that was printed."""
    found = []
    for part in output.split("# Report on ")[1:]:
        table = part.split("\n\n", 2)[1]
        rows = [row.strip("| ").split(" | ") for row in table.splitlines()[2:]]
        found.append({row[0]: row[1] for row in rows})
    return found


def facts_of(content: bytes) -> dict[str, str]:
    """The facts, from the whole content at once."""
    text = content.decode("utf-8", "replace")
    lines = text.split("\n")
    if lines[-1] == "":
        lines.pop()
    words = [word.casefold() for word in re.findall(r"[^\W_]+(?:['’][^\W_]+)*", text)]
    ranked = sorted(Counter(words).items(), key=lambda one: (-one[1], one[0]))[:5]
    return {
        "SHA-256": hashlib.sha256(content).hexdigest(),
        "Bytes": str(len(content)),
        "Lines": str(len(lines)),
        "Words": str(len(words)),
        "Headings": str(sum(bool(re.match(r"#{1,6}(\s|$)", line)) for line in lines)),
        "Commonest words": ", ".join(f"{word} ({count})" for word, count in ranked) or "none",
    }


def _shows(output: str, runs: int) -> None:
    assert output.count("every step's effect happened once: 5 tool steps, 5 ledger lines") == runs, output
    assert len(re.findall(r"the event sequence is dense: 1 to \d+", output)) == runs
    assert len(re.findall(r"the late commit of worker-\d was refused: LEASE_LOST", output)) == runs
    assert "Everything was as it must be." in output


@pytest.mark.rule("R1", "R3", "R7", "R8", "R10")
async def test_the_demo_survives_a_stopped_and_a_killed_worker_on_sqlite() -> None:
    code, output = await demo(INPUT="README.md")
    assert code == 0, output
    _shows(output, runs=2)
    assert reports(output) == [facts_of((ROOT / "README.md").read_bytes())] * 2
    assert "SIGSTOP" in output
    assert "SIGKILL" in output


@pytest.mark.rule("R3", "R7", "R8", "R22")
async def test_the_demo_survives_on_postgresql_with_four_processes(postgres: Postgres) -> None:
    url = await postgres.empty_database()
    code, output = await demo(INPUT="README.md", DATABASE=url)
    assert code == 0, output
    _shows(output, runs=2)
    assert output.count("a process of its own on PostgreSQL") == 4
    await postgres.drop(url)


def _large() -> tuple[bytes, dict[str, str]]:
    """20 MB of text whose facts are known from how it is made."""
    paragraph = (
        "## Ships and harbours\n"
        "The ship's crew saw the harbour; the harbour saw the ship.\n"
        "Ünïcödé words — naïve, Ærø, 東京 — count as words do.\n"
        "#hashtag is no heading, nor is\n"
        "####### seven of them.\n"
    )
    count = 20 * 1024 * 1024 // len(paragraph.encode()) + 1
    content = paragraph.encode() * count
    known = {
        "SHA-256": hashlib.sha256(content).hexdigest(),
        "Bytes": str(len(content)),
        "Lines": str(5 * count),
        "Words": str(32 * count),
        "Headings": str(count),
        "Commonest words": f"the ({4 * count}), harbour ({2 * count}), is ({2 * count}), saw ({2 * count}), "
        f"words ({2 * count})",
    }
    return content, known


NOT_UTF8 = b"\xff\xfe# no heading\n# caf\xe9 caf\xe9\n\x80word\x00word\n\xed\xa0\x80 half a pair\r\n#\n" + bytes(
    range(256)
)


@pytest.mark.parametrize("case", ["empty", "large", "not_utf8"])
async def test_the_report_says_what_the_file_says(case: str, tmp_path: Path) -> None:
    if case == "large":
        content, expected = _large()
    else:
        content = b"" if case == "empty" else NOT_UTF8
        expected = facts_of(content)
    path = tmp_path / f"{case} file.txt"
    path.write_bytes(content)
    code, output = await demo(INPUT=str(path), STRIKES="none")
    assert code == 0, output
    assert reports(output) == [expected]


async def test_a_person_who_says_no_keeps_the_report_unpublished() -> None:
    code, output = await demo(b"no\n", INPUT="README.md", ASK="1", STRIKES="none")
    assert code == 0, output
    assert "answered with reject" in output
    assert "4 tool steps, 4 ledger lines" in output


@pytest.mark.parametrize(
    ("environment", "words"),
    [
        ({"INPUT": "no such file"}, "is no file"),
        ({"DATABASE": "mysql://x"}, "PostgreSQL"),
        ({"BASE_URL": "http://127.0.0.1:1/v1"}, "MODEL"),
    ],
)
async def test_what_makes_no_sense_is_refused_in_words(environment: dict[str, str], words: str) -> None:
    code, output = await demo(**environment)
    assert code == 2
    assert words in output
    assert "Traceback" not in output


class _LiveModel:
    """An OpenAI-compatible endpoint that decides by the conversation alone, as a model does."""

    def __init__(self) -> None:
        model = self
        self.calls = 0

        class Handler(BaseHTTPRequestHandler):
            protocol_version = "HTTP/1.1"

            def do_POST(self) -> None:
                asked = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
                model.calls += 1
                body = b"".join(model.answer(asked["messages"])) + b"data: [DONE]\n\n"
                self.send_response(200)
                self.send_header("Content-Type", "text/event-stream")
                self.send_header("Content-Length", str(len(body)))
                self.end_headers()
                self.wfile.write(body)

            def log_message(self, format: str, *args: Any) -> None:
                pass

        self._server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self._server.daemon_threads = True
        threading.Thread(target=self._server.serve_forever, daemon=True).start()
        self.url = f"http://127.0.0.1:{self._server.server_port}/v1"

    def answer(self, messages: list[dict[str, Any]]) -> Iterator[bytes]:
        """The next tool call, or a last word."""
        path = next(one["content"] for one in messages if one["role"] == "user")
        results = [json.loads(one["content"]) for one in messages if one["role"] == "tool"]
        made = len(results)
        arguments: dict[str, Any] = {"path": path}
        if made == 3:
            arguments |= results[0] | results[1] | results[2]
        elif made == 4:
            arguments = {"artifact_id": results[3]["artifact_id"]}
        if made == 5:
            yield self._chunk({"role": "assistant", "content": "Done."})
            yield self._chunk({}, "stop")
            return
        name = ("digest_text", "count_text", "rank_words", "write_report", "publish_report")[made]
        function = {"name": name, "arguments": json.dumps(arguments)}
        call = {"index": 0, "id": f"live-{made}", "type": "function", "function": function}
        yield self._chunk({"role": "assistant", "content": "", "tool_calls": [call]})
        yield self._chunk({}, "tool_calls")

    @staticmethod
    def _chunk(delta: dict[str, Any], finish: str | None = None) -> bytes:
        choice = {"index": 0, "delta": delta, "finish_reason": finish}
        chunk = {"id": "c", "object": "chat.completion.chunk", "created": 1, "model": "m", "choices": [choice]}
        return f"data: {json.dumps(chunk)}\n\n".encode()

    def close(self) -> None:
        """Stops serving."""
        self._server.shutdown()
        self._server.server_close()


@pytest.fixture
async def live_model() -> AsyncIterator[_LiveModel]:
    """A running endpoint."""
    made = _LiveModel()
    yield made
    await asyncio.to_thread(made.close)


async def test_the_demo_runs_on_a_live_model_behind_an_endpoint(live_model: _LiveModel) -> None:
    code, output = await demo(INPUT="README.md", MODEL="some-model", BASE_URL=live_model.url, STRIKES="stop")
    assert code == 0, output
    _shows(output, runs=1)
    assert live_model.calls >= 6
    assert reports(output) == [facts_of((ROOT / "README.md").read_bytes())]
