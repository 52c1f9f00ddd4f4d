"""What an agent depends on, and the manifest that pins it (C9). Definitions come as the JSON of their messages."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from threadkeep_config.domain import defaults
from threadkeep_config.domain.values import Entity, EntityType

Reference = tuple[EntityType, str]

MAX_DEPTH = 8
"""How deep sub-agents may lie below the agent."""

Part = tuple[Entity, Mapping[str, Any]]
"""An entity and its definition."""


@dataclass
class Node:
    """An agent of a manifest, while it is being put together: the agent itself, or one that it may give work to."""

    name: str
    path: tuple[str, ...] = ()
    """The names of the agents above it."""
    agent: Part | None = None
    defaults: Part | None = None
    subagents: list[Node] = field(default_factory=list)
    provider: str | None = None
    """The provider that it gets because it names none."""

    @property
    def effective(self) -> dict[str, Any]:
        """The agent's definition with the defaults filled in."""
        assert self.agent is not None
        return defaults.fill_in(self.agent[1], self.defaults[1] if self.defaults is not None else None)


def defaults_name(agent: Mapping[str, Any]) -> str:
    """The name of the Defaults that an agent takes."""
    return str(agent["agent"].get("defaults") or defaults.USUAL)


def references(agent: Mapping[str, Any]) -> list[Reference]:
    """What an effective agent names, but for its sub-agents: provider, tools, skills, MCP servers, sandbox profile."""
    body = agent["agent"]
    named = [(EntityType.PROVIDER, body["provider"])] if body.get("provider") else []
    named += [(EntityType.TOOL, name) for name in body.get("tools", ())]
    named += [(EntityType.SKILL, name) for name in body.get("skills", ())]
    named += [(EntityType.MCP_SERVER, name) for name in body.get("mcp_servers", ())]
    if body.get("sandbox_profile"):
        named.append((EntityType.SANDBOX_PROFILE, body["sandbox_profile"]))
    return named


def server_of(tool: Mapping[str, Any]) -> str | None:
    """The MCP server that a tool's definition names."""
    name: str | None = tool["tool"].get("mcp", {}).get("server")
    return name


def manifest(node: Node, parts: Mapping[Reference, Part]) -> dict[str, Any]:
    """The manifest's JSON value. `parts` holds all that the node and the agents below it refer to."""
    assert node.agent is not None
    effective = node.effective
    body = effective["agent"]
    entity = node.agent[0]
    document: dict[str, Any] = {"agent": _part((entity, effective)), "tools": []}
    provider = body.get("provider") or node.provider
    if provider:
        document["provider"] = _part(parts[EntityType.PROVIDER, provider])
    tools = [parts[EntityType.TOOL, name] for name in body.get("tools", ())]
    servers = [*body.get("mcp_servers", ()), *filter(None, (server_of(definition) for _, definition in tools))]
    lists = {
        "tools": tools,
        "skills": [parts[EntityType.SKILL, name] for name in body.get("skills", ())],
        "mcp_servers": [parts[EntityType.MCP_SERVER, name] for name in dict.fromkeys(servers)],
    }
    document |= {name: [_part(one) for one in found] for name, found in lists.items() if found}
    if body.get("sandbox_profile"):
        document["sandbox_profile"] = _part(parts[EntityType.SANDBOX_PROFILE, body["sandbox_profile"]])
    if node.defaults is not None:
        document["defaults"] = _part(node.defaults)
    if node.subagents:
        document["subagents"] = [manifest(one, parts) for one in node.subagents]
    return document


def _part(part: Part) -> dict[str, Any]:
    entity, definition = part
    return {
        "name": entity.key.name,
        "revision": entity.revision,
        "digest": entity.content.digest,
        "definition": definition,
    }


def pinned_content(document: Mapping[str, Any]) -> dict[str, Any]:
    """What the manifest's digest covers: all of it but the revisions, so that equal contents have equal digests."""

    def without_revision(value: Any) -> Any:
        if isinstance(value, list):
            return [without_revision(one) for one in value]
        if "definition" in value:
            return {name: inner for name, inner in value.items() if name != "revision"}
        return {name: without_revision(inner) for name, inner in value.items()}

    content: dict[str, Any] = without_revision(document)
    return content
