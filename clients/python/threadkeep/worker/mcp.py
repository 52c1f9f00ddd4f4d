"""Tools of MCP servers, over langchain-mcp-adapters. Each call has a session of its own: nothing outlives it."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from datetime import timedelta
from typing import Any

from langchain_core.tools import BaseTool, StructuredTool

from threadkeep.worker.errors import AgentBuildError
from threadkeep.worker.policy import Policy, seconds

TIMEOUT_SECONDS = 60.0
SERVER = "threadkeep_mcp_server"
"""Metadata of a tool: the server that it is of."""


class McpServer:
    """A server of a manifest. `definition` is its McpServer message in proto3 JSON."""

    def __init__(self, name: str, definition: Mapping[str, Any], policy: Policy) -> None:
        self.name = name
        self._definition = definition
        self._policy = policy
        self._timeout = seconds(definition, TIMEOUT_SECONDS)
        self.approval_required = bool(definition.get("approval_required", False))
        self._check()

    async def tools(self) -> dict[str, BaseTool]:
        """The server's tools by their names there: those that its definition lists, or all. Raises AgentBuildError."""
        try:
            async with asyncio.timeout(self._timeout), self._session() as session:
                found, cursor = [], None
                while True:
                    page = await session.list_tools(cursor=cursor)
                    found += page.tools
                    cursor = page.nextCursor
                    if not cursor:
                        break
        except AgentBuildError:
            raise
        except Exception as error:
            raise _unreachable(self.name, error) from error
        tools = {one.name: self._tool(one) for one in found}
        listed = self._definition.get("tools", ())
        missing = [name for name in listed if name not in tools]
        if missing:
            raise AgentBuildError(f"MCP server {self.name} has no tool {', '.join(missing)}")
        return {name: tools[name] for name in listed} if listed else tools

    def _tool(self, tool: Any) -> BaseTool:
        from langchain_mcp_adapters.tools import convert_mcp_tool_to_langchain_tool

        shape = convert_mcp_tool_to_langchain_tool(_Never(), tool)  # type: ignore[arg-type]

        async def call(**arguments: Any) -> Any:
            try:
                async with asyncio.timeout(self._timeout), self._session() as session:
                    converted = convert_mcp_tool_to_langchain_tool(session, tool)
                    assert isinstance(converted, StructuredTool)
                    assert converted.coroutine is not None
                    return await converted.coroutine(**arguments)
            except BaseExceptionGroup as group:
                # A session's own tasks may fail beside the call.
                raise _first(group) from group

        assert isinstance(shape, StructuredTool)
        return shape.model_copy(update={"coroutine": call, "metadata": {**(shape.metadata or {}), SERVER: self.name}})

    def _check(self) -> None:
        if "http" in self._definition:
            self._policy.check_origin(self._policy.fill(self._definition["http"]["url"]))
        elif "stdio" in self._definition:
            command = self._definition["stdio"]["command"]
            if command not in self._policy.mcp_commands:
                raise AgentBuildError(f"this worker does not start {command!r}; allow it in its mcp_commands")
        else:
            raise AgentBuildError(f"MCP server {self.name} has no transport that this worker knows")

    @asynccontextmanager
    async def _session(self) -> AsyncIterator[Any]:
        from mcp import ClientSession

        async with self._streams() as (read, write):
            async with ClientSession(read, write, read_timeout_seconds=timedelta(seconds=self._timeout)) as session:
                await session.initialize()
                yield session

    @asynccontextmanager
    async def _streams(self) -> AsyncIterator[tuple[Any, Any]]:
        if "http" in self._definition:
            import httpx
            from mcp.client.streamable_http import streamable_http_client

            http = self._definition["http"]
            url, headers = self._policy.fill(http["url"]), self._policy.headers(http)
            self._policy.check_origin(url)
            async with httpx.AsyncClient(headers=headers, timeout=self._timeout, follow_redirects=False) as client:
                async with streamable_http_client(url, http_client=client) as (read, write, _):
                    yield read, write
            return
        from mcp.client.stdio import StdioServerParameters, get_default_environment, stdio_client

        stdio = self._definition["stdio"]
        environment = {**get_default_environment(), **self._policy.fill_all(stdio.get("environment", {}))}
        for name, reference in stdio.get("environment_references", {}).items():
            environment[name] = self._policy.secrets.resolve(reference)
        arguments = [self._policy.fill(one) for one in stdio.get("arguments", ())]
        parameters = StdioServerParameters(command=stdio["command"], args=arguments, env=environment)
        async with stdio_client(parameters) as (read, write):
            yield read, write


class _Never:
    """Stands for a session where only a tool's shape is wanted."""


def _first(group: BaseExceptionGroup[Any]) -> BaseException:
    error: BaseException = group
    while isinstance(error, BaseExceptionGroup):
        error = error.exceptions[0]
    return error


def _unreachable(name: str, error: Exception) -> AgentBuildError:
    inner = _first(error) if isinstance(error, BaseExceptionGroup) else error
    # Not the error's text: it may hold a URL with what was filled in.
    return AgentBuildError(f"the tools of MCP server {name} can't be read: {type(inner).__name__}")
