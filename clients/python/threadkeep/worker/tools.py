"""The tools of an agent: Python callables, HTTP endpoints, tools of MCP servers, and what its skills need."""

from __future__ import annotations

import inspect
from collections.abc import Mapping, Sequence
from typing import Any

from langchain_core.tools import BaseTool, StructuredTool

from threadkeep.worker.entry_points import load_entry_point
from threadkeep.worker.errors import AgentBuildError
from threadkeep.worker.http_tool import http_tool
from threadkeep.worker.manifest import Manifest, ToolSpec
from threadkeep.worker.mcp import SERVER, McpServer
from threadkeep.worker.policy import Policy
from threadkeep.worker.skills import skills_tool

DECISIONS = ("approve", "edit", "reject")
"""What a person may decide where no rule says more."""


async def build_tools(manifest: Manifest, policy: Policy) -> list[BaseTool]:
    """The agent's tools in its order, then those of its MCP servers, then the one that reads its skills.

    Raises AgentBuildError, SecretUnavailable.
    """
    servers = {
        part["name"]: McpServer(part["name"], part["definition"]["mcp_server"], policy) for part in manifest.mcp_servers
    }
    offered = {name: await server.tools() for name, server in servers.items()}
    tools = [_one(spec, offered, policy) for spec in manifest.tools]
    # A server that only a tool names offers just that.
    tools += [tool for name in manifest.agent.get("mcp_servers", ()) for tool in offered[name].values()]
    if manifest.skills:
        tools.append(skills_tool(manifest.skills))
    _refuse_twice(tools)
    return tools


def reviews(manifest: Manifest, tools: Sequence[BaseTool]) -> dict[str, Any]:
    """What HumanInTheLoopMiddleware is told: which tools a person decides about, and how. Raises AgentBuildError."""
    found: dict[str, Any] = {
        spec.name: {"allowed_decisions": [*DECISIONS]}
        for spec in manifest.tools
        if spec.approval_required or _server_asks(manifest, spec)
    }
    names = {tool.name for tool in tools}
    own = {spec.name for spec in manifest.tools}
    for part in manifest.mcp_servers:
        if part["definition"]["mcp_server"].get("approval_required") and part["name"] in manifest.agent.get(
            "mcp_servers", ()
        ):
            found |= {
                tool.name: {"allowed_decisions": [*DECISIONS]}
                for tool in tools
                if tool.name not in own and (tool.metadata or {}).get(SERVER) == part["name"]
            }
    for rule in manifest.agent.get("interrupt_rules", ()):
        if rule["tool"] not in names:
            raise AgentBuildError(f"an interrupt rule names {rule['tool']!r}, which is no tool of {manifest.name!r}")
        found[rule["tool"]] = {"allowed_decisions": [*(rule.get("allowed_decisions") or DECISIONS)]}
        if rule.get("description"):
            found[rule["tool"]]["description"] = rule["description"]
    return found


def _one(spec: ToolSpec, offered: Mapping[str, Mapping[str, BaseTool]], policy: Policy) -> BaseTool:
    if spec.http is not None:
        return http_tool(spec, policy)
    if spec.mcp is None:
        return build_tool(spec, policy.tool_modules)
    server, name = spec.mcp["server"], spec.mcp.get("tool") or spec.name
    tool = offered.get(server, {}).get(name)
    if tool is None:
        raise AgentBuildError(f"MCP server {server} has no tool {name!r}, which the tool {spec.name!r} names")
    return tool.model_copy(update=_changes(spec))


def build_tool(spec: ToolSpec, allowed_modules: Sequence[str]) -> BaseTool:
    """LangChain's tool of a Python callable: name, description and arguments as config says. Raises AgentBuildError."""
    implementation = load_entry_point(spec.entry_point, allowed_modules)
    if isinstance(implementation, BaseTool):
        return implementation.model_copy(update=_changes(spec))
    if not callable(implementation):
        raise AgentBuildError(f"{spec.entry_point} is neither a tool nor callable")
    target = implementation if inspect.isroutine(implementation) else type(implementation).__call__
    kind = "coroutine" if inspect.iscoroutinefunction(target) else "func"
    arguments: dict[str, Any] = {kind: implementation}
    if spec.args_schema is not None:
        arguments["args_schema"] = dict(spec.args_schema)
    description = spec.description or inspect.getdoc(implementation) or spec.name
    return StructuredTool.from_function(name=spec.name, description=description, **arguments)


def _changes(spec: ToolSpec) -> dict[str, Any]:
    changed: dict[str, Any] = {"name": spec.name}
    if spec.description:
        changed["description"] = spec.description
    if spec.args_schema is not None:
        changed["args_schema"] = dict(spec.args_schema)
    return changed


def _server_asks(manifest: Manifest, spec: ToolSpec) -> bool:
    if spec.mcp is None:
        return False
    return any(
        part["name"] == spec.mcp["server"] and part["definition"]["mcp_server"].get("approval_required", False)
        for part in manifest.mcp_servers
    )


def _refuse_twice(tools: Sequence[BaseTool]) -> None:
    seen: set[str] = set()
    for tool in tools:
        if tool.name in seen:
            raise AgentBuildError(f"two tools are named {tool.name!r}; list a server's tools, or name one otherwise")
        seen.add(tool.name)
