"""What a worker lets definitions do: nothing but what it lists (C8)."""

import json
from typing import Any

import pytest
from langchain.agents.middleware import AgentMiddleware
from langchain_core.tools import tool

from threadkeep.worker import AgentBuild, AgentBuildError, Policy, SandboxProfile, SecretUnavailable, builtin_middleware
from threadkeep.worker.agents import Agents, filled
from threadkeep.worker.http_tool import http_tool
from threadkeep.worker.manifest import Manifest, ToolSpec, parse_manifest
from threadkeep.worker.mcp import McpServer
from threadkeep.worker.middleware import build_middleware
from threadkeep.worker.models import build_model, check_endpoints
from threadkeep.worker.policy import origin_of
from threadkeep.worker.sandbox import build_sandbox
from threadkeep.worker.secrets import Secrets
from threadkeep.worker.skills import skills_prompt, skills_tool
from threadkeep.worker.tools import reviews


@pytest.mark.rule("C8")
def test_variables_are_filled_in_where_they_are_allowed(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HOST_OF_TEST", "h")
    monkeypatch.setenv("EMPTY_OF_TEST", "")
    policy = Policy(variables=["HOST_OF_TEST", "EMPTY_OF_TEST", "ABSENT_OF_TEST"])
    assert policy.fill("http://${HOST_OF_TEST}:${ABSENT_OF_TEST:-80}/$${x}/$y") == "http://h:80/${x}/$y"
    assert policy.fill("${EMPTY_OF_TEST:-d}") == "d"
    for text in ("${ABSENT_OF_TEST}", "${PATH}", "${PATH:-x}"):
        with pytest.raises(AgentBuildError):
            policy.fill(text)
    assert Policy(variables=["*"]).fill("${HOST_OF_TEST}") == "h"
    manifest = Manifest("a", "d", {}, {"type": "x", "endpoint": "${HOST_OF_TEST:-z}", "model": "m"}, ())
    assert filled(manifest, policy).provider == {"type": "x", "endpoint": "h", "model": "m"}


@pytest.mark.rule("C8")
@pytest.mark.parametrize(
    ("url", "allowed"),
    [
        ("https://a.example/x", ["https://a.example"]),
        ("https://a.example:443/x", ["https://a.example"]),
        ("http://A.example:80", ["http://a.example"]),
        ("http://[::1]:8080/", ["http://[::1]:8080"]),
        ("https://b.example", ["*"]),
    ],
)
def test_an_allowed_origin_is_called(url: str, allowed: list[str]) -> None:
    Policy(http_origins=allowed).check_origin(url)


@pytest.mark.rule("C8")
@pytest.mark.parametrize(
    ("url", "allowed"),
    [
        ("https://a.example", []),
        ("http://a.example", ["https://a.example"]),
        ("https://a.example:8443", ["https://a.example"]),
        ("https://a.example.evil", ["https://a.example"]),
        ("https://a.example@evil", ["https://a.example"]),
        ("file:///etc/passwd", ["*x"]),
        ("https://a.example:99999", ["https://a.example"]),
    ],
)
def test_another_origin_is_not(url: str, allowed: list[str]) -> None:
    with pytest.raises(AgentBuildError):
        Policy(http_origins=allowed).check_origin(url)
    assert origin_of("https://a.example:443") == "https://a.example"


@pytest.mark.rule("C8")
@pytest.mark.parametrize(
    "provider",
    [
        {"endpoint": "http://10.0.0.1/v1"},
        {"options_json": '{"base_url": "http://10.0.0.1/v1"}'},
        {"options_json": '{"client_args": {"proxies": {"https": "http://10.0.0.1"}}}'},
        {"endpoint": "https://a.example/v1", "options_json": '{"openai_proxy": "http://10.0.0.1"}'},
        {"options_json": '{"host": "10.0.0.1"}'},
    ],
)
def test_a_provider_is_called_at_listed_origins_alone(provider: dict[str, str]) -> None:
    with pytest.raises(AgentBuildError):
        check_endpoints(provider, Policy(provider_origins=["https://a.example"], http_origins=["*"]))
    if "host" not in provider.get("options_json", ""):
        check_endpoints(provider, Policy(provider_origins=["http://10.0.0.1", "https://a.example"]))
    check_endpoints({"options_json": '{"base_model": "http", "temperature": 0}'}, Policy())


@pytest.mark.rule("C8")
def test_tools_and_servers_beyond_the_lists_are_not_built() -> None:
    endpoint = {"url": "http://10.0.0.1/", "bearer_token_reference": "env:NOT_THERE_OF_TEST"}
    spec = ToolSpec("t", "", "", {"type": "object"}, False, http=endpoint)
    with pytest.raises(AgentBuildError, match="http_origins"):
        http_tool(spec, Policy())
    with pytest.raises(AgentBuildError, match="http_origins"):
        McpServer("m", {"http": {"url": "http://10.0.0.1/"}}, Policy())
    with pytest.raises(AgentBuildError, match="mcp_commands"):
        McpServer("m", {"stdio": {"command": "sh"}}, Policy(mcp_commands=["uvx"]))
    with pytest.raises(AgentBuildError, match="no transport"):
        McpServer("m", {}, Policy())
    with pytest.raises(SecretUnavailable):
        Policy(secrets=Secrets([])).headers(endpoint)


class Marking(AgentMiddleware):
    """Middleware of this test."""

    def __init__(self, mark: str = "x") -> None:
        super().__init__()
        self.mark = mark


def no_middleware() -> int:
    """Gives none."""
    return 3


HERE = __name__


@pytest.mark.rule("C8")
def test_middleware_comes_from_the_lists_in_its_order() -> None:
    policy = Policy(
        middleware={"mark": lambda build, options: Marking(**options), **builtin_middleware("todo", "tool_call_limit")},
        middleware_modules=[HERE],
    )
    build = AgentBuild(Manifest("a", "d", {}, {}, ()), "", policy)
    made = build_middleware(
        build,
        [
            {"name": "mark", "options_json": '{"mark": "one"}'},
            {"entry_point": f"{HERE}:Marking", "options_json": '{"mark": "two"}'},
            {"name": "tool_call_limit", "options_json": '{"run_limit": 3}'},
        ],
    )
    assert [getattr(one, "mark", None) or one.run_limit for one in made] == ["one", "two", 3]
    for wrong in (
        {"name": "summarization"},
        {"entry_point": "os:system"},
        {"entry_point": f"{HERE}:no_middleware"},
        {"name": "mark", "options_json": '{"colour": "red"}'},
    ):
        with pytest.raises(AgentBuildError):
            build_middleware(build, [wrong])
    with pytest.raises(ValueError, match="there is no middleware nonsense"):
        builtin_middleware("nonsense")
    assert len(builtin_middleware()) == 9


def _profile(**body: Any) -> dict[str, Any]:
    return {"name": "box", "definition": {"sandbox_profile": body}}


@pytest.mark.rule("C8", "C9")
async def test_without_a_factory_for_the_kind_nothing_runs() -> None:
    ran = []
    manifest = Manifest("g", "d", {}, {}, (), sandbox_profile=_profile(kind="vm"))
    agents = Agents({"g": lambda build: ran.append(build)}, Policy(sandboxes={"other": lambda profile: None}))  # type: ignore[dict-item, return-value]
    with pytest.raises(AgentBuildError, match="no sandbox of kind 'vm'"):
        async with agents.lease(manifest):
            pass
    assert ran == [], "not even a graph that is registered"
    seen: list[SandboxProfile] = []
    body = {"kind": "vm", "memory_bytes": "9007199254740993", "lifetime": "90s", "cpus": 0.5, "allowed_hosts": ["h"]}
    build_sandbox(_profile(**body), Policy(sandboxes={"vm": seen.append}))  # type: ignore[dict-item]
    (profile,) = seen
    assert (profile.memory_bytes, profile.lifetime_seconds, profile.cpus) == (9007199254740993, 90.0, 0.5)
    assert (profile.allowed_hosts, profile.environment, profile.options_json) == (("h",), {}, "")


@tool
def act(text: str) -> str:
    """Acts."""
    return text


@pytest.mark.rule("R10")
def test_tools_rules_and_servers_say_what_a_person_decides_about() -> None:
    spec = ToolSpec("act", "", "x:y", None, True)
    rules = [{"tool": "act", "allowed_decisions": ["respond"], "description": "Sure?"}]
    assert reviews(Manifest("a", "d", {}, {}, (spec,)), [act]) == {
        "act": {"allowed_decisions": ["approve", "edit", "reject"]}
    }
    assert reviews(Manifest("a", "d", {"interrupt_rules": rules}, {}, (spec,)), [act]) == {
        "act": {"allowed_decisions": ["respond"], "description": "Sure?"}
    }
    with pytest.raises(AgentBuildError, match="no tool"):
        reviews(Manifest("a", "d", {"interrupt_rules": [{"tool": "other"}]}, {}, (spec,)), [act])


SKILL = {
    "description": "Reads PDF files.",
    "instructions": "See scripts/read.py.",
    "files": [{"path": "scripts/read.py", "content": "cHJpbnQoMSk="}, {"path": "x.bin", "content": "/w=="}],
    "allowed_tools": ["Read"],
}


def test_skills_are_disclosed_step_by_step() -> None:
    parts = [{"name": "pdf", "definition": {"skill": SKILL}}]
    prompt = skills_prompt(parts)
    assert "pdf: Reads PDF files." in prompt
    assert "scripts" not in prompt, "the model sees no more until it asks"
    read = skills_tool(parts)
    text = read.invoke({"name": "pdf"})
    assert text.startswith("See scripts/read.py.")
    assert "- x.bin" in text
    assert read.invoke({"name": "pdf", "path": "scripts/read.py"}) == "print(1)"
    assert "/w==" in read.invoke({"name": "pdf", "path": "x.bin"})
    assert "there is no skill" in read.invoke({"name": "other"})
    assert "has no file '../x'" in read.invoke({"name": "pdf", "path": "../x"})


def test_a_manifest_has_its_sub_agents_inside() -> None:
    inner = {
        "agent": {"name": "b", "definition": {"agent": {"response_schema_json": '{"type":"object"}'}}},
        "tools": [],
    }
    document = {
        "agent": {"name": "a", "definition": {"agent": {"max_steps": 3}}},
        "tools": [],
        "skills": [{"name": "pdf", "definition": {"skill": SKILL}}],
        "subagents": [{**inner, "subagents": [inner]}],
    }
    manifest = parse_manifest(json.dumps(document).encode(), "d")
    assert [one.name for one in manifest.all()] == ["a", "b", "b"]
    assert manifest.subagents[0].response_schema == {"type": "object"}
    assert manifest.response_schema is None
    assert [one["name"] for one in manifest.skills] == ["pdf"]


def test_a_region_and_a_role_reach_the_models_client(monkeypatch: pytest.MonkeyPatch) -> None:
    given: dict[str, Any] = {}

    def init_chat_model(name: str, **settings: Any) -> str:
        given.update(settings)
        return name

    import langchain.chat_models

    monkeypatch.setattr(langchain.chat_models, "init_chat_model", init_chat_model)
    build_model({"type": "bedrock_converse", "model": "m", "region": "eu-west-1"}, "", Secrets())
    assert given == {"model_provider": "bedrock_converse", "region_name": "eu-west-1"}
    given.clear()
    build_model({"type": "google_vertexai", "model": "m", "region": "eu"}, "", Secrets())
    assert given["location"] == "eu"
    pytest.importorskip("boto3")
    given.clear()
    monkeypatch.setenv("AWS_ACCESS_KEY_ID", "a")
    monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", "b")
    role = "arn:aws:iam::123456789012:role/x"
    build_model({"type": "bedrock", "model": "m", "region": "eu-west-1", "role": role}, "", Secrets())
    credentials = given["client"]._request_signer._credentials
    assert credentials.method == "assume-role"
