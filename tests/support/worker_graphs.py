"""Graphs for tests of workers, in this process or in one of their own, and tools for agents from manifests.

A node enters (it makes the file `enter-NAME`), waits while `hold-NAME` exists, and then has its effect: a line in the
ledger. The folder is FOLDER in the environment.
"""

import asyncio
import operator
import os
import time
from pathlib import Path
from typing import Annotated, Any, TypedDict

from langgraph.graph import START, StateGraph
from langgraph.types import interrupt

from threadkeep.worker import current_run

PATIENCE = 60.0


class Log(TypedDict):
    """What the nodes say, in order."""

    log: Annotated[list[Any], operator.add]


class Folder:
    """Gates and ledger."""

    def __init__(self, path: Path | str | None = None) -> None:
        self.path = Path(path or os.environ["FOLDER"])

    def hold(self, *names: str) -> None:
        """Nodes of these names wait before their effect."""
        for name in names:
            (self.path / f"hold-{name}").touch()

    def free(self, *names: str) -> None:
        """They wait no more."""
        for name in names:
            (self.path / f"hold-{name}").unlink()

    def has_entered(self, name: str) -> bool:
        """True once a node of this name began."""
        return (self.path / f"enter-{name}").exists()

    def leave(self, name: str) -> None:
        """Forgets that it began."""
        (self.path / f"enter-{name}").unlink()

    def effects(self) -> list[str]:
        """The names of the effects, in order."""
        ledger = self.path / "ledger"
        return ledger.read_text().split() if ledger.exists() else []

    async def pass_through(self, name: str) -> None:
        """What a node does."""
        (self.path / f"enter-{name}").touch()
        deadline = time.monotonic() + PATIENCE
        while (self.path / f"hold-{name}").exists():
            assert time.monotonic() < deadline, "nobody freed the node"
            await asyncio.sleep(0.005)
        with (self.path / "ledger").open("a") as ledger:
            ledger.write(f"{name}\n")


def _node(name: str) -> Any:
    async def node(state: Log) -> Log:
        await Folder().pass_through(name)
        return {"log": [name]}

    return node


def steps(build: Any) -> Any:
    """Four nodes in a row: a, b, c, d."""
    graph = StateGraph(Log)
    for before, name in ((START, "a"), ("a", "b"), ("b", "c"), ("c", "d")):
        graph.add_node(name, _node(name)).add_edge(before, name)
    return graph


def fan(build: Any) -> Any:
    """Two nodes side by side, `quick` and `slow`, then `last`."""
    graph = StateGraph(Log)
    for name in ("quick", "slow"):
        graph.add_node(name, _node(name)).add_edge(START, name)
    return graph.add_node("last", _node("last")).add_edge(["quick", "slow"], "last")


def nested(build: Any) -> Any:
    """A graph inside a graph: a, then (b, c), then d."""
    inner = StateGraph(Log)
    for before, name in ((START, "b"), ("b", "c")):
        inner.add_node(name, _node(name)).add_edge(before, name)
    # The inner graph gives the whole log back; what the outer had of it is not new.
    compiled = inner.compile(checkpointer=True)

    async def call(state: Log) -> Log:
        done = await compiled.ainvoke({"log": []})
        return {"log": done["log"]}

    graph = StateGraph(Log)
    graph.add_node("a", _node("a")).add_edge(START, "a")
    graph.add_node("inner", call).add_edge("a", "inner")
    return graph.add_node("d", _node("d")).add_edge("inner", "d")


def nested_sync(build: Any) -> Any:
    """Graphs that are run synchronously inside nodes: in a node's thread, and on the event loop itself."""
    inner = StateGraph(Log)
    for before, name in ((START, "x"), ("x", "y")):
        inner.add_node(name, lambda state, name=name: {"log": [name]}).add_edge(before, name)
    compiled = inner.compile(checkpointer=True)

    def in_a_thread(state: Log) -> Log:
        return {"log": compiled.invoke({"log": []})["log"]}

    async def on_the_loop(state: Log) -> Log:
        return {"log": compiled.invoke({"log": []})["log"]}

    graph = StateGraph(Log)
    graph.add_node("thread", in_a_thread).add_edge(START, "thread")
    return graph.add_node("loop", on_the_loop).add_edge("thread", "loop")


def questions(build: Any) -> Any:
    """One node asks twice, and passes a gate in between."""

    async def ask(state: Log) -> Log:
        first = interrupt({"question": 1})
        await Folder().pass_through("between")
        second = interrupt({"question": 2})
        return {"log": [first, second]}

    return StateGraph(Log).add_node("ask", ask).add_edge(START, "ask")


def two_at_once(build: Any) -> Any:
    """Two nodes side by side ask; `beside` has an effect meanwhile."""

    def left(state: Log) -> Log:
        return {"log": [("left", interrupt("left?"))]}

    def right(state: Log) -> Log:
        return {"log": [("right", interrupt("right?"))]}

    graph = StateGraph(Log)
    for name, node in (("left", left), ("right", right), ("beside", _node("beside"))):
        graph.add_node(name, node).add_edge(START, name)
    return graph


def says_interrupt(build: Any) -> Any:
    """State that looks like an interrupt and is none."""
    return StateGraph(Log).add_node("say", lambda state: {"log": ["__interrupt__"]}).add_edge(START, "say")


def fails(build: Any) -> Any:
    """Raises."""

    def node(state: Log) -> Log:
        raise ValueError("no luck")

    return StateGraph(Log).add_node("fail", node).add_edge(START, "fail")


def fails_twice(build: Any) -> Any:
    """One node that works, then one that has no connection the first two times, after a question."""

    async def flaky(state: Log) -> Log:
        answer = interrupt("who?")
        await Folder().pass_through("try")
        if Folder().effects().count("try") < 3:
            raise ConnectionResetError("nobody there")
        return {"log": [answer]}

    graph = StateGraph(Log).add_node("a", _node("a")).add_node("flaky", flaky)
    return graph.add_edge(START, "a").add_edge("a", "flaky")


def forever(build: Any) -> Any:
    """Never ends by itself."""
    graph = StateGraph(Log).add_node("a", lambda state: {"log": ["a"]})
    return graph.add_edge(START, "a").add_edge("a", "a")


def blocks(build: Any) -> Any:
    """Blocks a thread until it is freed, and can't be cancelled."""

    def node(state: Log) -> Log:
        asyncio.run(Folder().pass_through("blocked"))
        return {"log": ["blocked"]}

    return StateGraph(Log).add_node("block", node).add_edge(START, "block")


GRAPHS = {
    graph.__name__: graph
    for graph in (
        steps,
        fan,
        nested,
        nested_sync,
        questions,
        two_at_once,
        says_interrupt,
        fails,
        fails_twice,
        forever,
        blocks,
    )
}


# --- tools


def count_words(text: str) -> dict[str, int]:
    """Counts the words of a text."""
    run = current_run()
    return {"words": len(text.split()), "epoch": run.epoch}


def note(text: str) -> str:
    """Notes a text."""
    return text


def write_report(title: str, body: str) -> str:
    """Writes a report as an artifact, and a note beside it as a file."""
    run = current_run()
    text = f"# {title}\n\n{body}\n"
    version = run.artifacts.save(
        "report.md", text, once="report", type="report", path="/report.md", visibility="private"
    )
    files = run.artifacts.files()
    read = files.read("/report.md").file_data
    assert read is not None
    assert read["content"] == text
    files.write("/notes.md", body)
    with (Folder().path / "ledger").open("a") as ledger:
        ledger.write("report\n")
    return version.artifact_id
