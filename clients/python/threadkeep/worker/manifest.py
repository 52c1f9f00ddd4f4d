"""The pinned manifest of a task, as config wrote it: the agent with all that it depends on. Pure."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

Part = Mapping[str, Any]
"""`name`, `revision`, `digest` and `definition`."""


@dataclass(frozen=True)
class ToolSpec:
    """A tool of an agent. One of `entry_point`, `mcp` and `http` says how it is called."""

    name: str
    description: str
    entry_point: str
    args_schema: Mapping[str, Any] | None
    approval_required: bool
    mcp: Mapping[str, Any] | None = None
    http: Mapping[str, Any] | None = None


@dataclass(frozen=True)
class Manifest:
    """An agent as it was pinned. `agent` and `provider` are definitions in proto3 JSON; no provider is an empty one."""

    name: str
    digest: str
    agent: Mapping[str, Any]
    """With the defaults filled in."""
    provider: Mapping[str, Any]
    tools: Sequence[ToolSpec]
    skills: Sequence[Part] = ()
    mcp_servers: Sequence[Part] = ()
    """Those that the agent names, then those that only its tools name."""
    sandbox_profile: Part | None = None
    subagents: Sequence[Manifest] = field(default=(), repr=False)

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

    @property
    def response_schema(self) -> Mapping[str, Any] | None:
        """JSON Schema of the answer; None for text."""
        text = self.agent.get("response_schema_json", "")
        return json.loads(text) if text else None

    def all(self) -> Iterator[Manifest]:
        """The agent and all below it."""
        yield self
        for one in self.subagents:
            yield from one.all()


def parse_manifest(document: bytes, digest: str) -> Manifest:
    """Reads a manifest; `config.v1.ResolveManifestResponse` says what it holds."""
    return _manifest(json.loads(document) if document else {}, digest)


def _manifest(value: Mapping[str, Any], digest: str) -> Manifest:
    agent = value.get("agent", {})
    return Manifest(
        name=agent.get("name", ""),
        digest=digest,
        agent=_definition(agent, "agent"),
        provider=_definition(value.get("provider", {}), "provider"),
        tools=tuple(_tool(entry) for entry in value.get("tools", ())),
        skills=tuple(value.get("skills", ())),
        mcp_servers=tuple(value.get("mcp_servers", ())),
        sandbox_profile=value.get("sandbox_profile"),
        subagents=tuple(_manifest(one, digest) for one in value.get("subagents", ())),
    )


def _tool(entry: Part) -> ToolSpec:
    definition = _definition(entry, "tool")
    schema = definition.get("args_schema_json", "")
    return ToolSpec(
        name=entry["name"],
        description=definition.get("description", ""),
        entry_point=definition.get("python", {}).get("entry_point", ""),
        args_schema=json.loads(schema) if schema else None,
        approval_required=bool(definition.get("approval_required", False)),
        mcp=definition.get("mcp"),
        http=definition.get("http"),
    )


def _definition(entry: Part, kind: str) -> Mapping[str, Any]:
    definition: Mapping[str, Any] = entry.get("definition", {})
    # The contract's Definition message is a oneof of the types.
    inner = definition.get(kind)
    return inner if isinstance(inner, Mapping) and len(definition) == 1 else definition
