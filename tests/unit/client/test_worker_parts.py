"""The parts of a worker that need no server: inputs, results, manifests, tools, secrets, failures."""

import asyncio
import json
from pathlib import Path
from typing import Any, TypedDict

import pytest
from google.protobuf import json_format
from langchain_core.exceptions import ModelRateLimitError
from langchain_core.messages import AIMessage, HumanMessage, SystemMessage
from langchain_core.tools import tool
from langgraph.errors import GraphRecursionError
from langgraph.graph import START, StateGraph

from tests.support.waiting import eventually
from threadkeep._api.values import to_input
from threadkeep.common.v1 import payload_pb2
from threadkeep.config.v1 import entity_pb2
from threadkeep.errors import LimitExceeded
from threadkeep.langgraph import StrictSerializer
from threadkeep.runtime.v1 import task_pb2
from threadkeep.worker import AgentBuildError, NoRunContext, SecretUnavailable, ToolSpec, current_run
from threadkeep.worker.agents import Agents, build_tool, load_entry_point
from threadkeep.worker.failures import to_failure
from threadkeep.worker.inputs import graph_input, result_payload
from threadkeep.worker.manifest import Manifest, parse_manifest
from threadkeep.worker.policy import Policy
from threadkeep.worker.schemas import state_types
from threadkeep.worker.secrets import Secrets

HERE = "test_worker_parts"


# --- inputs and results


@pytest.mark.rule("P2")
def test_input_messages_keep_their_ids() -> None:
    given = [{"role": "system", "content": "s"}, {"role": "user", "content": ["a", {"type": "image"}], "id": "m-1"}]
    messages = graph_input(task_pb2.Task(input=to_input(given)), StrictSerializer())["messages"]
    assert messages == [
        SystemMessage("s"),
        HumanMessage([{"type": "text", "text": "a"}, {"type": "image"}], id="m-1"),
    ]


def test_a_payload_is_the_graphs_own_input() -> None:
    assert graph_input(task_pb2.Task(input=to_input({"n": [1]})), StrictSerializer()) == {"n": [1]}
    kind, data = StrictSerializer().dumps_typed({"m": HumanMessage("x")})
    payload = payload_pb2.Payload(content_type=f"application/vnd.langgraph.{kind}", data=data)
    assert graph_input(task_pb2.Task(input=to_input(payload)), StrictSerializer()) == {"m": HumanMessage("x")}


@pytest.mark.parametrize(
    ("output", "result"),
    [
        ({"n": 1, "o": object()}, {"n": 1}),
        ([1, "a"], [1, "a"]),
        (None, None),
        (
            {"messages": [HumanMessage("q"), AIMessage("a", id="m-2")], "n": 1},
            {"text": "a", "message_id": "m-2", "n": 1},
        ),
    ],
)
def test_a_result_is_what_of_the_output_is_json(output: Any, result: Any) -> None:
    payload = result_payload(output)
    assert payload is not None
    assert json.loads(payload.data) == result


def test_an_output_that_is_no_json_at_all_gives_no_result() -> None:
    assert result_payload(object()) is None


# --- manifests and agents


def _entry(name: str, **definition: Any) -> dict[str, Any]:
    message = entity_pb2.Definition(**definition)
    value = json_format.MessageToDict(message, preserving_proto_field_name=True)
    return {"name": name, "revision": 3, "digest": "d", "definition": value}


def test_a_manifest_is_read_as_config_writes_it() -> None:
    tools = [
        entity_pb2.Tool(
            description="counts",
            python=entity_pb2.PythonEntryPoint(entry_point=f"{HERE}:count"),
            args_schema_json='{"type": "object"}',
            approval_required=True,
        ),
        entity_pb2.Tool(python=entity_pb2.PythonEntryPoint(entry_point="a.b:c")),
    ]
    document = {
        "agent": _entry("writer", agent=entity_pb2.Agent(system_prompt="p", provider="s", model="m", max_steps=7)),
        "provider": _entry("s", provider=entity_pb2.Provider(type="scripted", model="other")),
        "tools": [_entry("count", tool=tools[0]), _entry("c", tool=tools[1])],
    }
    manifest = parse_manifest(json.dumps(document).encode(), "digest")
    assert (manifest.name, manifest.digest, manifest.system_prompt) == ("writer", "digest", "p")
    assert (manifest.model, manifest.max_steps) == ("m", 7)
    assert manifest.provider["type"] == "scripted"
    assert [*manifest.tools] == [
        ToolSpec("count", "counts", f"{HERE}:count", {"type": "object"}, True),
        ToolSpec("c", "", "a.b:c", None, False),
    ]


@pytest.mark.parametrize(
    ("entry_point", "allowed"),
    [
        ("json:loads", []),
        ("json:loads", ["js"]),
        ("jsonx.tool:loads", ["json"]),
        ("json", ["json"]),
        ("json:absent", ["json"]),
        ("json.absent:x", ["json"]),
        (":x", [""]),
    ],
)
def test_only_allowed_modules_are_imported(entry_point: str, allowed: list[str]) -> None:
    with pytest.raises(AgentBuildError):
        load_entry_point(entry_point, allowed)


def test_a_module_inside_an_allowed_package_is_allowed() -> None:
    import json.decoder

    assert load_entry_point("json.decoder:JSONDecoder.decode", ["json"]) is json.decoder.JSONDecoder.decode


def plain(text: str, times: int = 2) -> str:
    """Repeats a text."""
    return text * times


async def waiting(text: str) -> str:
    """Repeats a text, later."""
    return text * 3


@tool
def made(text: str) -> str:
    """A tool already."""
    return text


@pytest.fixture
def tools_module(monkeypatch: pytest.MonkeyPatch) -> str:
    import sys
    import types

    module = types.ModuleType("tools_of_this_test")
    module.plain, module.waiting, module.made, module.number = plain, waiting, made, 3  # type: ignore[attr-defined]
    monkeypatch.setitem(sys.modules, module.__name__, module)
    return module.__name__


async def test_tools_come_from_functions_coroutines_and_tools(tools_module: str) -> None:
    def build(attribute: str, **fields: Any) -> Any:
        spec = ToolSpec(
            "named", fields.pop("description", ""), f"{tools_module}:{attribute}", fields.pop("schema", None), False
        )
        return build_tool(spec, [tools_module])

    repeat = build("plain")
    assert (repeat.name, repeat.description) == ("named", "Repeats a text.")
    assert await repeat.ainvoke({"text": "ab"}) == "abab"
    assert await build("waiting", description="says more").ainvoke({"text": "a"}) == "aaa"
    schema = {"type": "object", "properties": {"text": {"type": "string"}}, "required": ["text"]}
    wrapped = build("made", schema=schema, description="changed")
    assert (wrapped.name, wrapped.description, wrapped.args) == ("named", "changed", schema["properties"])
    assert (made.name, made.description) == ("made", "A tool already.")
    with pytest.raises(AgentBuildError, match="neither"):
        build("number")


class _State(TypedDict):
    n: int


def _graph(build: Any) -> Any:
    return StateGraph(_State).add_node("a", lambda state: state).add_edge(START, "a")


def _manifest(digest: str = "1", name: str = "g", **agent: Any) -> Manifest:
    return Manifest(name, digest, agent, {}, ())


@pytest.mark.rule("C9")
async def test_graphs_are_kept_by_digest_and_model_while_they_may_be_of_use() -> None:
    built = []

    def factory(build: Any) -> Any:
        built.append(build.model_name)
        return _graph(build)

    agents = Agents({"g": factory}, Policy(), kept=2)
    one = _manifest("1", model="m")
    async with agents.lease(one) as first, agents.lease(one) as again:
        assert first is again
        async with agents.lease(one, "other") as other:
            assert other is not first
        async with agents.lease(_manifest("2", model="m")):
            pass
        async with agents.lease(_manifest("3", model="m")):
            pass
        async with agents.lease(one) as still:
            assert still is first, "what a run uses is not dropped, however many others there are"
    assert built == ["m", "other", "m", "m"]
    assert len(agents) == 2
    await agents.close()
    assert len(agents) == 0


@pytest.mark.rule("C9")
async def test_a_graph_that_is_idle_goes_with_its_models_and_comes_back_from_its_manifest() -> None:
    closed: list[str] = []

    class Model:
        def __init__(self, name: str) -> None:
            self.name = name

        async def aclose(self) -> None:
            closed.append(self.name)

    def factory(build: Any) -> Any:
        build.models.append(Model(build.manifest.digest))
        return _graph(build)

    agents = Agents({"g": factory}, Policy(), idle_seconds=0)
    async with agents.lease(_manifest("1")):
        async with agents.lease(_manifest("2")):
            pass
        assert closed == ["2"]
    assert closed == ["2", "1"]
    async with agents.lease(_manifest("1")):
        assert len(agents) == 1
    assert closed == ["2", "1", "1"]


@pytest.mark.rule("C9")
async def test_the_last_graph_goes_though_no_run_ends_after_it() -> None:
    agents = Agents({"g": _graph}, Policy(), idle_seconds=0.05)
    async with agents.lease(_manifest("1")):
        pass
    assert len(agents) == 1
    await eventually(lambda: len(agents) == 0)
    await agents.close()


async def test_many_runs_of_one_agent_build_it_once() -> None:
    built = []

    async def factory(build: Any) -> Any:
        built.append(build)
        await asyncio.sleep(0)
        return _graph(build)

    agents = Agents({"g": factory}, Policy())

    async def use() -> Any:
        async with agents.lease(_manifest()) as one:
            return one

    found = await asyncio.gather(*(use() for _ in range(10)))
    assert len(built) == 1
    assert all(one is found[0] for one in found)


async def _built(agents: Agents, manifest: Manifest) -> None:
    async with agents.lease(manifest):
        pass


async def test_a_graph_that_can_not_be_run_says_why() -> None:
    nothing = Agents({"g": lambda build: None}, Policy())
    breakpoints = Agents({"g": lambda build: _graph(build).compile(interrupt_before=["a"])}, Policy())
    with pytest.raises(AgentBuildError, match="no LangGraph graph"):
        await _built(nothing, _manifest())
    with pytest.raises(AgentBuildError, match="static breakpoints"):
        await _built(breakpoints, _manifest())
    with pytest.raises(AgentBuildError, match="no provider"):
        await _built(Agents({}, Policy()), _manifest())


def test_the_classes_of_a_graphs_schemas_may_be_built() -> None:
    import dataclasses

    @dataclasses.dataclass
    class Order:
        n: int

    class State(TypedDict):
        order: Order

    graph = StateGraph(State).add_node("a", lambda state: state).add_edge(START, "a").compile()
    assert (Order.__module__, "Order") in {*state_types(graph)}


# --- secrets, context, failures


@pytest.mark.rule("C8", "X11")
def test_secrets_are_resolved_where_they_are_allowed(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("A_KEY", "s3cret")
    (tmp_path / "key").write_text("from a file\n")
    assert Secrets().resolve("env:A_KEY") == "s3cret"
    assert Secrets([f"file:{tmp_path}/"]).resolve(f"file:{tmp_path}/key") == "from a file"
    for secrets, reference in [
        (Secrets(["env:OTHER"]), "env:A_KEY"),
        (Secrets([f"file:{tmp_path}/"]), f"file:{tmp_path}/../x"),
        (Secrets(), "env:NOT_THERE"),
        (Secrets(), f"file:{tmp_path}/absent"),
        (Secrets(), "s3cret"),
    ]:
        with pytest.raises(SecretUnavailable) as caught:
            secrets.resolve(reference)
        assert "from a file" not in str(caught.value)


def test_there_is_no_anonymous_run() -> None:
    with pytest.raises(NoRunContext):
        current_run()
    graph = StateGraph(_State).add_node("a", lambda state: {"n": current_run().epoch}).add_edge(START, "a").compile()
    with pytest.raises(NoRunContext, match="not started by a threadkeep worker"):
        graph.invoke({"n": 1})


@pytest.mark.parametrize(
    ("error", "code"),
    [
        (ValueError("x\x00\ud83d"), "exception.ValueError"),
        (AgentBuildError("x"), "agent_build_failed"),
        (GraphRecursionError("x"), "max_steps_exceeded"),
        (LimitExceeded("x"), "threadkeep.limit_exceeded"),
        (SecretUnavailable("x"), "secret_unavailable"),
    ],
)
def test_a_failure_has_a_stable_code(error: Exception, code: str) -> None:
    failure = to_failure(error)
    assert failure.code == code
    assert failure.message.startswith("x") or failure.message
    assert to_failure(ValueError("y" * 100_000)).message == "y" * 8192


@pytest.mark.rule("R7")
def test_connections_and_rate_limits_are_retryable_and_nothing_else_unless_said() -> None:
    assert to_failure(ConnectionRefusedError()).retryable
    assert to_failure(ModelRateLimitError("slow down")).retryable
    assert not to_failure(ValueError()).retryable
    assert to_failure(ValueError(), lambda error: True).retryable
