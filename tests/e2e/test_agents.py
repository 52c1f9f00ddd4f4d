"""Agents built from their manifests: MCP tools, HTTP tools, skills, sub-agents, approval, sandboxes (C9)."""

import contextlib
import json
import sys
from collections.abc import AsyncIterator, Sequence
from typing import Any

import pytest
from google.protobuf import json_format
from langchain_core.tools import BaseTool, StructuredTool

from tests.support.far_tools import endpoint, mcp_over_http
from threadkeep.config.v1 import definition_pb2, entity_pb2
from threadkeep.runtime.v1 import task_pb2
from threadkeep.worker import RunContext, SandboxProfile, builtin_middleware, current_run

pytestmark = pytest.mark.suite(backends=["sqlite"], topologies=["embedded"])

SPLIT = pytest.mark.suite(backends=["postgres"], topologies=["split"])
"""Where a run meets all services: definitions of one, state of another."""


def call(name: str, /, **args: Any) -> dict[str, Any]:
    """A step of a script that calls a tool."""
    return {"tool_calls": [{"name": name, "args": args}]}


async def define(site: Any, *script: dict[str, Any], name: str = "a", **fields: Any) -> None:
    """An agent that plays a script."""
    options = json.dumps({"script": [*script]})
    await site.client.config.put(f"p-{name}", entity_pb2.Provider(type="scripted", options_json=options))
    body = json_format.ParseDict({"provider": f"p-{name}", **fields}, entity_pb2.Agent())
    await site.client.config.put(name, body)


async def server(site: Any, **body: Any) -> None:
    """An MCP server named `files`."""
    await site.client.config.put("files", json_format.ParseDict(body, definition_pb2.McpServer()))


async def note_tool(site: Any, **fields: Any) -> None:
    """A tool named `note`."""
    tool = {"python": {"entry_point": "tests.support.worker_graphs:note"}, **fields}
    await site.client.config.put("note", json_format.ParseDict(tool, entity_pb2.Tool()))


async def said(site: Any, name: str = "a", text: str = "go") -> str:
    """The last words of an agent that ends well."""
    result: str = (await site.completed(await site.submit(name, text)))["text"]
    return result


async def failure(site: Any, name: str = "a") -> tuple[str, str]:
    """Code and text of the failure of a task."""
    ended = await site.ended(await site.submit(name, "go"))
    assert ended.state == task_pb2.TASK_STATE_FAILED
    return ended.failure.code, ended.failure.message


@pytest.mark.rule("C9", "C8")
async def test_tools_of_an_mcp_server_over_http(site: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("MCP_TOKEN_OF_TEST", "t0ken")
    async with mcp_over_http("t0ken") as url:
        origin = url.removesuffix("/mcp")
        monkeypatch.setenv("MCP_ORIGIN_OF_TEST", origin)
        http = {"url": "${MCP_ORIGIN_OF_TEST}/mcp", "bearer_token_reference": "env:MCP_TOKEN_OF_TEST"}
        await server(site, http=http, tools=["read", "fails"])
        await define(site, call("read", path="x"), {"text": "{{tool.read}}"}, mcp_servers=["files"])
        await define(site, call("fails", text="oh"), {"text": "told: {{tool.fails}}"}, name="b", mcp_servers=["files"])
        site.worker(http_origins=[origin], variables=["MCP_ORIGIN_OF_TEST"])
        assert "content of x" in await said(site)
        assert "oh" in await said(site, "b"), "a tool's error is the model's to read"
        monkeypatch.setenv("MCP_TOKEN_OF_TEST", "rotated")
        await server(site, http=http, tools=["read"])
        assert (await failure(site))[0] == "agent_build_failed"


@pytest.mark.rule("C9", "C8")
async def test_tools_of_an_mcp_server_that_the_worker_starts(site: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SECRET_OF_TEST", "s3cret")
    monkeypatch.setenv("OTHER_OF_TEST", "not given")
    stdio = {
        "command": sys.executable,
        "arguments": ["-m", "tests.support.mcp_files"],
        "environment": {"PYTHONPATH": "${PYTHONPATH:-.}", "LITERAL": "$${OTHER_OF_TEST}"},
        "environment_references": {"TOKEN": "env:SECRET_OF_TEST"},
    }
    await server(site, stdio=stdio)
    tool = {"mcp": {"server": "files", "tool": "environment"}, "description": "Reads."}
    await site.client.config.put("env", json_format.ParseDict(tool, entity_pb2.Tool()))
    script = [call("env", name="TOKEN"), call("env", name="LITERAL"), call("env", name="OTHER_OF_TEST")]
    await define(site, *script, {"text": "{{tool.env}}"}, tools=["env"])
    worker = site.worker(mcp_commands=[sys.executable], variables=["PYTHONPATH"])
    task = await site.submit("a", "go")
    await site.completed(task)
    texts = [str(one.parts) for one in await messages(site, task) if one.role == 4]
    assert ["s3cret" in texts[0], "${OTHER_OF_TEST}" in texts[1], "nothing" in texts[2]] == [True] * 3
    await site.stop(worker)
    site.worker()
    assert "mcp_commands" in (await failure(site))[1]


async def messages(site: Any, task: Any) -> list[Any]:
    """The messages of a task's session, once the projection has them."""
    last = [one async for one in site.client.events.list(session_id=task.session_id)][-1]
    return [one async for one in site.client.messages.list(task.session_id, at_least=last.cursor)]


@pytest.mark.rule("C9", "C8")
async def test_an_http_endpoint_is_a_tool(site: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HTTP_TOKEN_OF_TEST", "t0ken")
    schema = json.dumps({"type": "object", "properties": {"q": {"type": "string"}}})
    async with endpoint("found") as (origin, seen), endpoint("gone", status=302, location="http://x") as (moved, _):
        for name, method, url in (("ask", "GET", origin), ("send", "POST", origin), ("moved", "POST", moved)):
            http = {
                "url": url,
                "method": method,
                "headers": {"x-plain": "p"},
                "header_references": {"X-Api-Key": "env:HTTP_TOKEN_OF_TEST"},
            }
            tool = {"http": http, "args_schema_json": schema}
            await site.client.config.put(name, json_format.ParseDict(tool, entity_pb2.Tool()))
        script = [call("ask", q="a b"), call("send", q="c"), call("moved", q="d")]
        text = "{{tool.ask}} {{tool.send}} {{tool.moved}}"
        await define(site, *script, {"text": text}, tools=["ask", "send", "moved"])
        worker = site.worker(http_origins=[origin, moved])
        assert await said(site) == "found found moved answered with status 302: gone"
        first, second = seen.requests
        assert (first["method"], first["query"], first["json"]) == ("GET", "q=a+b", None)
        assert (second["method"], second["json"]) == ("POST", {"q": "c"})
        assert (second["headers"]["x-plain"], second["headers"]["x-api-key"]) == ("p", "t0ken")
        await site.stop(worker)
        site.worker(http_origins=["https://elsewhere.example"])
        assert "http_origins" in (await failure(site))[1]


@pytest.mark.rule("C9")
async def test_skills_are_read_when_they_are_needed(site: Any) -> None:
    body = {
        "description": "Counts.",
        "instructions": "Use how.txt.",
        "files": [{"path": "how.txt", "content": "YnkgaGFuZA=="}],
    }
    await site.client.config.put("count", json_format.ParseDict(body, definition_pb2.Skill()))
    script = [call("read_skill", name="count"), call("read_skill", name="count", path="how.txt")]
    await define(site, *script, {"text": "{{tool.read_skill}}"}, skills=["count"], system_prompt="Be brief.")
    site.worker()
    assert await said(site) == "by hand"


@SPLIT
@pytest.mark.rule("C9", "R10")
async def test_a_sub_agent_works_and_its_questions_are_the_runs(site: Any) -> None:
    await note_tool(site, approval_required=True)
    await define(site, call("note", text="x"), {"text": "noted: {{tool.note}}"}, name="helper", tools=["note"])
    await define(
        site,
        call("delegate", agent="helper", task="note x"),
        {"text": "It said {{tool.delegate}}"},
        subagents=["helper"],
    )
    site.worker()
    task = await site.submit("a", "go")
    (ticket,) = await site.asked(task)
    assert "note" in json.loads(ticket.prompt.data)["action_requests"][0]["name"]
    await site.client.tickets.resolve(ticket.ticket_id, decision="approve")
    result = await site.completed(task)
    assert result["text"] == "It said noted: x"


@SPLIT
@pytest.mark.rule("C9", "R10")
async def test_a_rule_asks_a_person_with_its_own_decisions(site: Any) -> None:
    await site.client.config.put(
        "note",
        json_format.ParseDict({"python": {"entry_point": "tests.support.worker_graphs:note"}}, entity_pb2.Tool()),
    )
    rules = [{"tool": "note", "allowed_decisions": ["respond"], "description": "Answer for it."}]
    await define(site, call("note", text="x"), {"text": "{{tool.note}}"}, tools=["note"], interrupt_rules=rules)
    site.worker()
    task = await site.submit("a", "go")
    (ticket,) = await site.asked(task)
    assert list(ticket.allowed_decisions) == ["respond"]
    await site.client.tickets.resolve(ticket.ticket_id, {"message": "by a person"}, decision="respond")
    assert (await site.completed(task))["text"] == "by a person"


@pytest.mark.rule("C9")
async def test_middleware_and_limits_wrap_an_agents_calls(site: Any) -> None:
    await site.client.config.put(
        "note",
        json_format.ParseDict({"python": {"entry_point": "tests.support.worker_graphs:note"}}, entity_pb2.Tool()),
    )
    script = [*(call("note", text=str(n)) for n in range(4)), {"text": "end"}]
    limit = {"name": "tool_call_limit", "options_json": '{"run_limit": 2, "exit_behavior": "end"}'}
    await define(site, *script, tools=["note"], middleware=[limit])
    await define(site, *script, name="b", tools=["note"], max_model_calls=2)
    await define(site, *script, name="c", tools=["note"], middleware=[{"name": "todo"}])
    site.worker(middleware=builtin_middleware("tool_call_limit"))
    assert "limit" in (await said(site)).lower()
    assert (await failure(site, "b"))[0] == "exception.ModelCallLimitExceededError"
    code, text = await failure(site, "c")
    assert (code, "no middleware 'todo'" in text) == ("agent_build_failed", True)


@pytest.mark.rule("C9")
async def test_an_answer_follows_the_agents_schema(site: Any) -> None:
    schema = {"title": "Answer", "type": "object", "properties": {"n": {"type": "integer"}}, "required": ["n"]}
    await define(site, call("Answer", n=3), response_schema_json=json.dumps(schema))
    site.worker()
    assert (await site.completed(await site.submit("a", "go")))["structured_response"] == {"n": 3}


class Box:
    """A sandbox of this test: it says in which run a tool ran."""

    def __init__(self, profile: SandboxProfile) -> None:
        self.profile = profile
        self.open: list[str] = []
        self.log: list[str] = []

    def tools(self, tools: Sequence[BaseTool]) -> Sequence[BaseTool]:
        """Adds one."""

        def where() -> str:
            assert current_run().run_id in self.open
            return self.profile.image

        return [*tools, StructuredTool.from_function(where, name="where", description="Says where.")]

    @contextlib.asynccontextmanager
    async def run(self, context: RunContext) -> AsyncIterator[None]:
        """Is open for one run."""
        self.open.append(context.run_id)
        self.log.append("open")
        try:
            yield
        finally:
            self.open.remove(context.run_id)
            self.log.append("closed")


@pytest.mark.rule("C9", "C8")
async def test_an_agent_runs_in_its_sandbox_or_not_at_all(site: Any) -> None:
    profile = json_format.ParseDict(
        {"kind": "box", "image": "${IMAGE_OF_TEST:-small}"}, definition_pb2.SandboxProfile()
    )
    await site.client.config.put("box", profile)
    await define(site, call("where"), {"text": "in {{tool.where}}"}, sandbox_profile="box")
    worker = site.worker()
    code, text = await failure(site)
    assert (code, "no sandbox of kind 'box'" in text) == ("agent_build_failed", True)
    await site.stop(worker)
    boxes: list[Box] = []

    def factory(profile: SandboxProfile) -> Box:
        boxes.append(Box(profile))
        return boxes[-1]

    site.worker(sandboxes={"box": factory}, variables=["IMAGE_OF_TEST"])
    assert await said(site) == "in small"
    assert await said(site) == "in small"
    (box,) = boxes
    assert box.log == ["open", "closed"] * 2
    assert box.open == []


@SPLIT
@pytest.mark.rule("C9", "R6")
async def test_a_resumed_run_is_built_from_its_pinned_manifest(site: Any) -> None:
    await note_tool(site, approval_required=True)
    await define(site, call("note", text="x"), {"text": "old: {{tool.note}}"}, tools=["note"])
    worker = site.worker()
    task = await site.submit("a", "go")
    (ticket,) = await site.asked(task)
    await site.stop(worker)
    await define(site, call("note", text="x"), {"text": "new"}, tools=[])
    await site.client.config.delete("tool", "note")
    site.worker()
    await site.client.tickets.resolve(ticket.ticket_id, decision="approve")
    assert (await site.completed(task))["text"] == "old: x"
