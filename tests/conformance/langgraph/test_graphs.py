"""Real graphs over our saver do, step by step, what they do over LangGraph's memory saver."""

import asyncio
import operator
import uuid
from collections.abc import Awaitable, Callable
from typing import Annotated, Any, TypedDict

import pytest
from langchain_core.language_models.fake_chat_models import GenericFakeChatModel
from langchain_core.messages import AIMessage, AnyMessage, HumanMessage
from langgraph.channels import DeltaChannel
from langgraph.checkpoint.memory import InMemorySaver
from langgraph.func import entrypoint, task
from langgraph.graph import END, START, StateGraph
from langgraph.graph.message import add_messages
from langgraph.types import Command, Send, interrupt

from tests.support.graph_traces import Run
from tests.support.waiting import eventually
from threadkeep.langgraph import ThreadkeepSaver

pytestmark = [pytest.mark.rule("R18", "R20", "R22"), pytest.mark.suite(topologies=["split"])]


class Log(TypedDict):
    """What the nodes say, in order."""

    log: Annotated[list[Any], operator.add]


def says(name: str) -> Callable[[Any], dict[str, Any]]:
    """A node that says its name."""
    return lambda state: {"log": [name]}


def line(*names: str, **nodes: Any) -> StateGraph[Any]:
    """Nodes one after the other."""
    builder = StateGraph(Log)
    for name in names:
        builder.add_node(name, nodes.get(name, says(name)))
    for before, after in zip((START, *names), names, strict=False):
        builder.add_edge(before, after)
    return builder


async def history_and_forks(make: Callable[[Any], Run]) -> Run:
    """Time travel: read, go back, fork by an update and by an input, and go on from the latest."""
    run = make(line("a", "b", "c"))
    await run.invoke({"log": ["in"]})
    past = await run.history()
    after_a = next(one for one in past if one.next == ("b",))
    await run.state(after_a.config)
    await run.invoke(None, after_a.config)
    await run.history()
    fork = await run.update(after_a.config, {"log": ["changed"]}, as_node="a")
    await run.state(fork)
    await run.invoke(None, fork)
    # What comes without a checkpoint id goes on from the latest, whatever was travelled to before.
    await run.invoke({"log": ["again"]})
    await run.invoke({"log": ["from the past"]}, after_a.config)
    await run.state()
    await run.history(limit=3)
    await run.history(before=after_a.config)
    await run.history(filter={"source": "fork"})
    await run.history(filter={"source": "update"})
    await run.tuples(filter={"step": 1})
    await run.tuples(filter={"source": "loop", "step": 2}, limit=1)
    return run


async def updates(make: Callable[[Any], Run]) -> Run:
    """Updates of a thread that is new, that waits before a node, and on behalf of nodes."""
    run = make(line("a", "b", "c"))
    await run.update(run.config(), {"log": ["seed"]}, as_node="a")
    await run.state()
    await run.invoke(None, interrupt_before=["c"])
    await run.state()
    await run.update(run.config(), {"log": ["by hand"]}, as_node="c")
    await run.state()
    await run.update(run.config(), None, as_node=END)
    await run.invoke(None)
    await run.history()
    return run


async def subgraphs(make: Callable[[Any], Run]) -> Run:
    """A graph in a graph that asks: its state, its namespaces, and its own history."""

    def asks(state: Any) -> Any:
        return {"log": ["answer: " + interrupt({"question": "name?"})]}

    inner = line("before", "asks", "after", asks=asks).compile()
    remembering = line("notes").compile(checkpointer=True)
    run = make(line("first", "inner", "remembering", "last", inner=inner, remembering=remembering))
    await run.stream({"log": ["in"]}, subgraphs=True, stream_mode="updates")
    state = await run.state(subgraphs=True)
    await run.history(state.tasks[0].state.config)
    await run.update(state.tasks[0].state.config, {"log": ["added inside"]})
    await run.state(subgraphs=True)
    await run.stream(Command(resume="Ada"), subgraphs=True, stream_mode=["updates", "values"])
    await run.invoke({"log": ["again"]})
    await run.invoke(Command(resume="Bob"))
    await run.history()
    listed = await run.tuples({"configurable": {"thread_id": "traced"}})
    run.note("namespaces", sorted({one.config["configurable"]["checkpoint_ns"].split(":")[0] for one in listed}))
    return run


async def parallel_questions(make: Callable[[Any], Run]) -> Run:
    """Branches that ask side by side are answered one by one, by interrupt id; a finished branch does not run again."""
    ran: list[str] = []

    def ask(state: Any) -> Any:
        return {"log": [f"{state['name']}: {interrupt(state['name'])}"]}

    def plain(state: Any) -> Any:
        ran.append("plain")
        return {"log": ["plain"]}

    def fan_out(state: Any) -> list[Send]:
        return [*(Send("ask", {"name": name}) for name in ("one", "two", "three")), Send("plain", {})]

    builder = StateGraph(Log).add_node("ask", ask).add_node("plain", plain).add_node("join", says("join"))
    builder.add_conditional_edges(START, fan_out, ["ask", "plain"]).add_edge("ask", "join").add_edge("plain", "join")
    run = make(builder)
    await run.invoke({"log": ["in"]})
    state = await run.state()
    asked = {one.value: one.id for one in state.interrupts}
    await run.invoke(Command(resume={asked["two"]: "2"}))
    await run.state()
    await run.invoke(Command(resume={asked["one"]: "1", asked["three"]: None}))
    await run.state()
    assert ran == ["plain"]
    return run


async def errors_and_retries(make: Callable[[Any], Run]) -> Run:
    """A step that fails keeps what its finished siblings wrote, and only the failed one runs again."""
    ran: list[str] = []

    def sibling_is_saved() -> bool:
        found = run.saver.get_tuple(run.config())
        return found is not None and any(channel == "log" for _, channel, _ in found.pending_writes or ())

    def fails_once(state: Any) -> Any:
        ran.append("fails")
        if ran.count("fails") == 1:
            asyncio.run(eventually(sibling_is_saved))
            raise ValueError("once")
        return {"log": ["recovered"]}

    def works(state: Any) -> Any:
        ran.append("works")
        return {"log": ["works"]}

    builder = StateGraph(Log).add_node("fails", fails_once).add_node("works", works).add_node("join", says("join"))
    builder.add_edge(START, "works").add_edge(START, "fails").add_edge(["works", "fails"], "join")
    run = make(builder)
    await run.invoke({"log": ["in"]})
    await run.state()
    await run.invoke(None)
    await run.history()
    assert ran.count("works") == 1
    return run


async def streams(make: Callable[[Any], Run]) -> Run:
    """Every streaming mode, with a question on the way."""
    from langgraph.config import get_stream_writer

    class Talk(TypedDict):
        messages: Annotated[list[AnyMessage], add_messages]

    async def asyncio_model(state: Any) -> Any:
        get_stream_writer()({"progress": len(state["messages"])})
        return {"messages": [await model.ainvoke(state["messages"])]}

    def thread_model(state: Any) -> Any:
        get_stream_writer()({"progress": len(state["messages"])})
        return {"messages": [model.invoke(state["messages"])]}

    def ask(state: Any) -> Any:
        return {"messages": [HumanMessage(interrupt("more?"), id="answer")]}

    replies = (AIMessage(f"reply number {number}", id=f"reply-{number}") for number in range(8))
    model = GenericFakeChatModel(messages=replies)
    builder = StateGraph(Talk).add_node("ask", ask)
    run = make(builder.add_edge("model", "ask"), model=(asyncio_model, thread_model))
    modes = ["values", "updates", "messages", "custom", "checkpoints", "tasks", "debug"]
    await run.stream({"messages": [HumanMessage("hi", id="in")]}, stream_mode=modes)
    await run.stream(Command(resume="yes"), stream_mode=modes)
    for mode in modes:
        await run.stream({"messages": [HumanMessage("hi", id=f"in-{mode}")]}, stream_mode=mode, durability="exit")
    return run


async def commands_and_durability(make: Callable[[Any], Run]) -> Run:
    """Nodes that say where to go, loops, and each durability on one thread."""

    def route(state: Any) -> Command[Any]:
        count = state["log"].count("work")
        return Command(goto="work" if count < 3 else END, update={"log": [f"route {count}"]})

    builder = StateGraph(Log).add_node("route", route, destinations=("work", END)).add_node("work", says("work"))
    run = make(builder.add_edge(START, "route").add_edge("work", "route"))
    for durability in ("sync", "async", "exit"):
        await run.invoke({"log": [durability]}, durability=durability)
        await run.history()
    await run.invoke({"log": ["too long"]}, {**run.config(), "recursion_limit": 1})
    await run.state()
    return run


async def delta_channels(make: Callable[[Any], Run]) -> Run:
    """Channels that are stored as what changed, over snapshots, forks and updates."""

    class Notes(TypedDict):
        notes: Annotated[list[Any], DeltaChannel(_extend, snapshot_frequency=4)]
        count: int

    def note(state: Any) -> Any:
        return {"notes": [f"note {state['count']}"], "count": state["count"] + 1}

    builder = StateGraph(Notes).add_node("note", note).add_edge(START, "note")
    builder.add_conditional_edges("note", lambda state: "note" if state["count"] % 6 else END, ["note", END])
    run = make(builder)
    await run.invoke({"notes": ["in"], "count": 0})
    past = await run.history()
    middle = past[len(past) // 2]
    await run.invoke({"notes": ["more"], "count": 1})
    fork = await run.update(middle.config, {"notes": ["forked"]}, as_node="note")
    await run.invoke(None, fork)
    await run.history()
    return run


def _extend(held: list[Any], writes: list[Any]) -> list[Any]:
    return [*held, *(one for write in writes for one in write)]


async def functions(make: Callable[[Any], Run]) -> Run:
    """The functional API: tasks, a question, and what the last call saved."""
    ran: list[int] = []

    @task
    def double(number: int) -> int:
        ran.append(number)
        return 2 * number

    @entrypoint()
    def flow(number: int, *, previous: Any = None) -> Any:
        doubled = [double(one).result() for one in range(number)]
        factor = interrupt("factor?")
        return entrypoint.final(value=(previous, doubled, factor), save=sum(doubled) * factor)

    run = make(flow)
    await run.invoke(4)
    await run.invoke(Command(resume=10))
    assert ran == [0, 1, 2, 3]
    await run.invoke(2)
    await run.invoke(Command(resume=5))
    await run.history()
    return run


async def odd_names(make: Callable[[Any], Run]) -> Run:
    """Backslashes, quotes and Unicode in names of channels, nodes and metadata come back as they went in."""
    odd = ["back\\slash", "quo'te\"s", "ünï ℝ 🧵", "per%cent_under", "{brace} $1 ?"]
    state: Any = TypedDict("Odd", dict.fromkeys(odd, Annotated[list[Any], operator.add]))  # type: ignore[operator]
    builder = StateGraph(state)
    for name in odd:
        builder.add_node("node " + name, lambda _, name=name: {name: [interrupt(name)]})
        builder.add_edge(START, "node " + name)
    run = make(builder)
    numbers = {"zero": -0.0, "large": 1e22, "back\\slash": "quo'te\"s ünï"}
    config = {**run.config(), "metadata": numbers}
    await run.invoke({odd[0]: [{odd[1]: odd[2]}]}, config)
    asked = {one.value: one.id for one in (await run.state()).interrupts}
    assert sorted(asked) == sorted(odd)
    await run.invoke(Command(resume={asked[name]: name for name in odd[1:]}), config)
    await run.state()
    await run.invoke(Command(resume={asked[odd[0]]: odd}), config)
    past = await run.history()
    assert [str(one.metadata["zero"]) for one in past if one.metadata] == ["-0.0"] * len(past)
    await run.tuples(filter={"back\\slash": "quo'te\"s ünï", "large": 1e22})
    await run.tuples(filter={"quo'te\"s": 1})
    return run


SCENARIOS: list[Callable[[Callable[..., Run]], Awaitable[Run]]] = [
    history_and_forks, updates, subgraphs, parallel_questions, errors_and_retries, streams, commands_and_durability,
    delta_channels, functions, odd_names,
]  # fmt: skip


async def traced(scenario: Callable[[Callable[..., Run]], Awaitable[Run]], saver: Any, mode: str) -> list[Any]:
    def make(builder: Any, model: Any = None) -> Run:
        if model is not None:
            builder.add_node("model", model[0] if mode == "async" else model[1]).add_edge(START, "model")
        return Run(builder, saver, mode)

    return (await scenario(make)).shared()


@pytest.mark.case("B19", "B35", "B36")
@pytest.mark.parametrize("mode", ["sync", "async"])
@pytest.mark.parametrize("scenario", SCENARIOS, ids=lambda one: one.__name__)
async def test_a_graph_does_step_by_step_what_it_does_over_the_memory_saver(
    saver: ThreadkeepSaver, scenario: Any, mode: str
) -> None:
    expected = await traced(scenario, InMemorySaver(), mode)
    found = await traced(scenario, saver, mode)
    assert len(expected) > 3
    for step, (ours, theirs) in enumerate(zip(found, expected, strict=True)):
        assert ours == theirs, f"step {step}"


@pytest.mark.case("B32")
@pytest.mark.parametrize("mode", ["sync", "async"])
async def test_a_prune_between_questions_makes_no_tool_run_again(saver: ThreadkeepSaver, mode: str) -> None:
    ran: list[str] = []

    def tools(state: Any) -> Any:
        # A turn with three calls, each approved by a person; what ran before is LangGraph's to remember.
        said = []
        for name in ("one", "two", "three"):
            said.append(f"{name}: {approve(name)}")
        return {"log": said}

    def approve(name: str) -> Any:
        answer = interrupt(name)
        if answer not in ran:
            ran.append(answer)
        return answer

    run = Run(line("tools", "end", tools=tools), saver, mode)
    await run.invoke({"log": ["in"]})
    await run.invoke(Command(resume="first"))
    await saver.aprune(["traced"])
    assert len(await run.tuples()) == 1
    await run.invoke(Command(resume="second"))
    await saver.aprune(["traced"])
    await run.invoke(Command(resume="third"))
    state = await run.state()
    assert state.values["log"] == ["in", "one: first", "two: second", "three: third", "end"]
    assert ran == ["first", "second", "third"]


@pytest.mark.case("B32")
async def test_a_prune_between_answers_keeps_what_finished_branches_wrote(saver: ThreadkeepSaver) -> None:
    ran: list[str] = []

    def tool(state: Any) -> Any:
        answer = interrupt(state["name"])
        ran.append(state["name"])
        return {"log": [f"{state['name']}: {answer}"]}

    builder = StateGraph(Log).add_node("tool", tool)
    builder.add_conditional_edges(START, lambda _: [Send("tool", {"name": name}) for name in "abc"], ["tool"])
    run = Run(builder, saver, "async")
    await run.invoke({"log": []})
    asked = {one.value: one.id for one in (await run.state()).interrupts}
    for name in "abc":
        await run.invoke(Command(resume={asked[name]: name.upper()}))
        await saver.aprune(["traced"])
    assert (await run.state()).values["log"] == ["a: A", "b: B", "c: C"]
    assert ran == ["a", "b", "c"]


async def test_threads_of_one_graph_do_not_meet(saver: ThreadkeepSaver) -> None:
    graph = line("a").compile(checkpointer=saver)
    names = [uuid.uuid4().hex, "ünï ℝ 🧵", "with/slash%_\\", "x" * 256]
    for name in names:
        await graph.ainvoke({"log": [name]}, {"configurable": {"thread_id": name}})
    for name in names:
        assert (await graph.aget_state({"configurable": {"thread_id": name}})).values["log"] == [name, "a"]
