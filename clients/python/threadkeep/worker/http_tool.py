"""Tools that are HTTP endpoints: arguments as query or JSON body, the answer as text for the model."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import httpx
from langchain_core.tools import BaseTool, StructuredTool, ToolException

from threadkeep.worker.manifest import ToolSpec
from threadkeep.worker.policy import Policy, seconds

TIMEOUT_SECONDS = 30.0
LONGEST_ANSWER = 1024 * 1024
"""Bytes of an answer that a model gets; what is longer is cut."""


def http_tool(spec: ToolSpec, policy: Policy) -> BaseTool:
    """The tool of a specification. Raises AgentBuildError."""
    endpoint: Mapping[str, Any] = spec.http or {}
    url = policy.fill(endpoint["url"])
    policy.check_origin(url)
    method = endpoint.get("method", "POST")
    timeout = seconds(endpoint, TIMEOUT_SECONDS)

    async def call(**arguments: Any) -> str:
        # Secrets are read anew for each call: a rotated one counts at once, and no graph holds any.
        headers = policy.headers(endpoint)
        sent: dict[str, Any] = {"params": arguments} if method in ("GET", "DELETE") else {"json": arguments}
        try:
            async with httpx.AsyncClient(timeout=timeout, follow_redirects=False) as client:
                async with client.stream(method, url, headers=headers, **sent) as response:
                    text = await _read(response)
        except httpx.HTTPError as error:
            raise ToolException(f"{spec.name} could not be called: {type(error).__name__}") from error
        if not response.is_success:
            raise ToolException(f"{spec.name} answered with status {response.status_code}: {text}")
        return text

    return StructuredTool(
        name=spec.name,
        description=spec.description or spec.name,
        args_schema=dict(spec.args_schema or {"type": "object", "properties": {}}),
        coroutine=call,
        handle_tool_error=True,
    )


async def _read(response: httpx.Response) -> str:
    content = bytearray()
    async for chunk in response.aiter_bytes():
        content += chunk
        if len(content) > LONGEST_ANSWER:
            return content[:LONGEST_ANSWER].decode("utf-8", "replace") + "\n[cut]"
    return content.decode(response.charset_encoding or "utf-8", "replace")
