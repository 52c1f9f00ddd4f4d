"""Runs one scenario on a graph over any saver and notes what a user sees, in terms that two runs share.

Ids differ from run to run: each is replaced by a number, in the order of its first appearance; so are times.
"""

import asyncio
import re
from collections.abc import AsyncIterator, Iterator, Mapping
from typing import Any

from langgraph.checkpoint.base import BaseCheckpointSaver
from langgraph.graph import StateGraph
from langgraph.pregel import Pregel
from langgraph.types import Interrupt, StateSnapshot

_ID = re.compile(r"[0-9a-f]{8}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{12}|\b[0-9a-f]{32}\b")
_TIME = re.compile(r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d[0-9.]*(\+00:00|Z)?")


class Run:
    """One run of a scenario: a compiled graph, called synchronously (in a thread) or on the event loop."""

    def __init__(
        self, builder: StateGraph[Any] | Pregel, saver: BaseCheckpointSaver[Any], mode: str, **more: Any
    ) -> None:
        if isinstance(builder, Pregel):
            self.graph: Any = builder.copy({"checkpointer": saver})
        else:
            self.graph = builder.compile(checkpointer=saver, **more)
        self.saver = saver
        self.mode = mode
        self.trace: list[Any] = []

    def config(self, **configurable: Any) -> Any:
        """The config of the run's thread."""
        return {"configurable": {"thread_id": "traced", **configurable}}

    async def invoke(self, value: Any, config: Any = None, **options: Any) -> Any:
        """Invokes, and notes what comes or is raised."""
        try:
            found = await self._call("invoke", value, config or self.config(), **options)
        except Exception as error:
            found = (type(error).__name__, str(error))
        return self.note("invoke", found)

    async def stream(self, value: Any, config: Any = None, **options: Any) -> list[Any]:
        """Streams, and notes every chunk."""
        return self.note("stream", await self._listed("stream", value, config or self.config(), **options))

    async def state(self, config: Any = None, **options: Any) -> StateSnapshot:
        """Reads the state, and notes it."""
        return self.note("state", await self._call("get_state", config or self.config(), **options))

    async def history(self, config: Any = None, **options: Any) -> list[StateSnapshot]:
        """Reads the history, newest first, and notes it."""
        return self.note("history", await self._listed("get_state_history", config or self.config(), **options))

    async def update(self, config: Any, values: Any, **options: Any) -> Any:
        """Updates the state, and notes the new config."""
        return self.note("update", await self._call("update_state", config, values, **options))

    async def tuples(self, config: Any = None, **filters: Any) -> list[Any]:
        """Lists checkpoint tuples, and notes what every saver gives alike."""
        if self.mode == "sync":
            found = await asyncio.to_thread(lambda: [*self.saver.list(config or self.config(), **filters)])
        else:
            found = [one async for one in self.saver.alist(config or self.config(), **filters)]
        # The memory saver lists namespace by namespace.
        found.sort(key=lambda one: one.checkpoint["id"], reverse=True)
        seen = [(one.checkpoint["id"], dict(one.metadata), one.checkpoint["channel_values"]) for one in found]
        self.note("tuples", seen)
        return found

    def note(self, what: str, value: Any) -> Any:
        """Notes something; gives it back."""
        self.trace.append((what, _plain(value)))
        return value

    def shared(self) -> list[Any]:
        """The trace in terms that two runs share."""
        numbers: dict[str, str] = {}

        def named(match: re.Match[str]) -> str:
            return numbers.setdefault(match[0], f"id-{len(numbers)}")

        def walk(value: Any) -> Any:
            if isinstance(value, str):
                return _TIME.sub("time", _ID.sub(named, value))
            if isinstance(value, dict):
                return {walk(key): walk(one) for key, one in value.items()}
            if isinstance(value, list | tuple | set | frozenset):
                return [walk(one) for one in (sorted(value) if isinstance(value, set | frozenset) else value)]
            return value

        return [walk(one) for one in self.trace]

    async def _call(self, name: str, *arguments: Any, **options: Any) -> Any:
        if self.mode == "sync":
            return await asyncio.to_thread(getattr(self.graph, name), *arguments, **options)
        return await getattr(self.graph, "a" + name)(*arguments, **options)

    async def _listed(self, name: str, *arguments: Any, **options: Any) -> list[Any]:
        if self.mode == "sync":
            found: Iterator[Any] = getattr(self.graph, name)(*arguments, **options)
            return await asyncio.to_thread(list, found)
        items: AsyncIterator[Any] = getattr(self.graph, "a" + name)(*arguments, **options)
        return [one async for one in items]


def _plain(value: Any) -> Any:
    """Plain values of what LangGraph hands out."""
    if isinstance(value, StateSnapshot):
        tasks = [
            (
                task.id,
                task.name,
                task.path,
                str(task.error),
                _plain(list(task.interrupts)),
                _plain(task.state),
                _plain(task.result),
            )
            for task in value.tasks
        ]
        return {
            "values": _plain(value.values),
            "next": list(value.next),
            "config": _plain(value.config),
            "parent": _plain(value.parent_config),
            "metadata": _plain(value.metadata),
            "tasks": sorted(tasks, key=lambda task: (str(task[1]), str(task[2]))),
            "interrupts": _plain(list(value.interrupts)),
        }
    if isinstance(value, Interrupt):
        return {"interrupt": _plain(value.value), "id": value.id}
    if isinstance(value, Mapping):
        # `checkpoint_map` and other keys of LangGraph's own runs are in the order in which they were made.
        return {_plain(key): _plain(one) for key, one in value.items()}
    if isinstance(value, list | tuple):
        if value and all(isinstance(one, Interrupt) for one in value):
            # Branches that run side by side ask in no fixed order.
            value = sorted(value, key=lambda one: str(one.value))
        return [_plain(one) for one in value]
    if isinstance(value, set | frozenset):
        return sorted(_plain(one) for one in value)
    if hasattr(value, "model_dump"):
        return {"class": type(value).__name__, **_plain(value.model_dump())}
    if isinstance(value, Exception):
        return repr(value)
    return value
