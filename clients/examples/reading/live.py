"""The same agent on a live model: its graph from the manifest, with the demo's gate before one of the model's calls.

A scripted model holds its own call; a live one can't, so a middleware does it.
"""

from __future__ import annotations

import asyncio
import os
import time
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any

from langchain.agents import create_agent
from langchain.agents.middleware import AgentMiddleware, HumanInTheLoopMiddleware
from langchain_core.messages import ToolMessage

from threadkeep.worker import AgentBuild, RunContext

HELD_AFTER = 2
"""Tool results after which the model's call waits at the gate."""
HELD_SECONDS = 300.0


class Gate(AgentMiddleware):
    """Holds the model's call that follows the second tool result until the demo opens the gate."""

    async def awrap_model_call(self, request: Any, handler: Callable[[Any], Awaitable[Any]]) -> Any:
        """Waits, then calls the model."""
        gates = os.environ.get("THREADKEEP_DEMO_GATES")
        if gates and sum(isinstance(one, ToolMessage) for one in request.messages) == HELD_AFTER:
            await asyncio.to_thread(_pass, Path(gates))
        return await handler(request)


def _pass(gates: Path) -> None:
    (gates / "held").touch()
    deadline = time.monotonic() + HELD_SECONDS
    while not (gates / "go").exists():
        if time.monotonic() > deadline:
            raise TimeoutError("nobody opened the gate")
        time.sleep(0.02)


async def build(build: AgentBuild) -> Any:
    """The agent's graph, as the worker would build it, with the gate."""
    reviewed = [spec.name for spec in build.manifest.tools if spec.approval_required]
    decisions: dict[str, Any] = {name: {"allowed_decisions": ["approve", "reject"]} for name in reviewed}
    return create_agent(
        build.model(),
        await build.tools(),
        system_prompt=build.manifest.system_prompt or None,
        middleware=[Gate(), HumanInTheLoopMiddleware(interrupt_on=decisions)],
        context_schema=RunContext,
        name=build.manifest.name,
    )
