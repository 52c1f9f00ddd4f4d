"""The pinned manifest of a task, as config wrote it: the agent with all that it depends on. Pure."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any


@dataclass(frozen=True)
class ToolSpec:
    """A tool of an agent."""

    name: str
    description: str
    entry_point: str
    args_schema: Mapping[str, Any] | None
    approval_required: bool


@dataclass(frozen=True)
class Manifest:
    """An agent as it was pinned. `agent` and `provider` are definitions in proto3 JSON; no provider is an empty one."""

    name: str
    digest: str
    agent: Mapping[str, Any]
    provider: Mapping[str, Any]
    tools: Sequence[ToolSpec]
    others: Mapping[str, Any] = field(default_factory=dict)
    """The manifest's other parts, as config wrote them: `skills`, `mcp_servers`, `sandbox_profile`, `subagents`."""

    @property
    def system_prompt(self) -> str:
        """The agent's system prompt; may be empty."""
        return str(self.agent.get("system_prompt", ""))

    @property
    def model(self) -> str:
        """The model that the agent asks for, or its provider's; may be empty."""
        return str(self.agent.get("model") or self.provider.get("model", ""))

    @property
    def max_steps(self) -> int | None:
        """The largest number of supersteps of one run."""
        steps = self.agent.get("max_steps")
        return None if steps is None else int(steps)


def parse_manifest(document: bytes, digest: str) -> Manifest:
    """Reads a manifest: `{"agent": ENTRY, "provider": ENTRY, "tools": [ENTRY, ...]}`, each entry an object of `name`,
    `revision`, `digest` and `definition`."""
    value = json.loads(document) if document else {}
    agent = value.get("agent", {})
    return Manifest(
        name=agent.get("name", ""),
        digest=digest,
        agent=_definition(agent, "agent"),
        provider=_definition(value.get("provider", {}), "provider"),
        tools=tuple(_tool(entry) for entry in value.get("tools", ())),
        others={name: part for name, part in value.items() if name not in ("agent", "provider", "tools", "defaults")},
    )


def _tool(entry: Mapping[str, Any]) -> ToolSpec:
    definition = _definition(entry, "tool")
    schema = definition.get("args_schema_json", "")
    return ToolSpec(
        name=entry["name"],
        description=definition.get("description", ""),
        entry_point=definition.get("python", {}).get("entry_point", ""),
        args_schema=json.loads(schema) if schema else None,
        approval_required=bool(definition.get("approval_required", False)),
    )


def _definition(entry: Mapping[str, Any], kind: str) -> Mapping[str, Any]:
    definition: Mapping[str, Any] = entry.get("definition", {})
    # The contract's Definition message is a oneof of the types.
    inner = definition.get(kind)
    return inner if isinstance(inner, Mapping) and len(definition) == 1 else definition
