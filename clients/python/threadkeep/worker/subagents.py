"""Sub-agents: agents that an agent gives work to, as one tool. Their steps are checkpointed like the run's own."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from typing import Any

from langchain_core.messages import HumanMessage
from langchain_core.tools import BaseTool, StructuredTool, ToolException

from threadkeep.worker.manifest import Manifest

TOOL_NAME = "delegate"


def delegate_tool(subagents: Sequence[Manifest], graphs: Mapping[str, Any]) -> BaseTool:
    """The tool that gives work to sub-agents; `graphs` has their compiled graphs by name."""

    async def delegate(agent: str, task: str) -> str:
        if agent not in graphs:
            raise ToolException(f"there is no agent {agent!r}; there are {', '.join(graphs)}")
        # In the run of the tool's own superstep: checkpoints, questions and cancellation are the run's.
        output = await graphs[agent].ainvoke({"messages": [HumanMessage(task)]})
        if output.get("structured_response") is not None:
            return json.dumps(output["structured_response"], ensure_ascii=False, default=str)
        return str(output["messages"][-1].text)

    described = "\n".join(f"- {one.name}: {one.agent.get('description', '') or 'no description'}" for one in subagents)
    schema = {
        "type": "object",
        "properties": {
            "agent": {"type": "string", "enum": [one.name for one in subagents]},
            "task": {"type": "string", "description": "What to do, with all that the agent needs to know."},
        },
        "required": ["agent", "task"],
    }
    description = "Gives work to another agent, which knows nothing but what you tell it, and answers once."
    return StructuredTool(
        name=TOOL_NAME,
        description=f"{description}\n{described}",
        args_schema=schema,
        coroutine=delegate,
        handle_tool_error=True,
    )
