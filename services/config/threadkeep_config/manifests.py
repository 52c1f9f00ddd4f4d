"""Puts manifests together (C9): one snapshot of an agent and of all that it and its sub-agents name."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from threadkeep_chassis.canonical import canonical_digest, canonical_json
from threadkeep_chassis.database import Connection, Database
from threadkeep_chassis.limits import Limits
from threadkeep_chassis.scope import Scope
from threadkeep_config.domain import manifest
from threadkeep_config.domain.errors import AgentUnresolved
from threadkeep_config.domain.manifest import Node, Part, Reference
from threadkeep_config.domain.values import EntityType
from threadkeep_config.domain.views import View
from threadkeep_config.store.cache import ANY_NAME, Entry
from threadkeep_config.store.candidates import read_counting
from threadkeep_config.store.counting import counting, shown_definition
from threadkeep_config.store.entities import names_with_priority
from threadkeep_config.store.resolver import Resolver
from threadkeep_config.store.scopes import Views


@dataclass(frozen=True)
class Manifest:
    """An agent with all that it depends on."""

    document: bytes
    digest: str
    agent_revision: int


class Manifests:
    """Makes manifests, and keeps them in the resolver's cache."""

    def __init__(self, database: Database, views: Views, resolver: Resolver, limits: Limits) -> None:
        self._database = database
        self._views = views
        self._resolver = resolver
        self._limits = limits

    async def manifest(self, scope: Scope, agent_name: str) -> tuple[Manifest, int]:
        """The agent's manifest, and the revision that it holds for. Raises AgentUnresolved, LimitExceeded."""
        key = ("manifest", scope.key, agent_name)
        revision = await self._resolver.fresh()
        entry = self._resolver.cache.get(key)
        if entry is None:
            revision, entry = await self._make(scope, agent_name)
            if revision == await self._resolver.fresh():
                self._resolver.cache.put(key, entry)
        return entry.value, revision

    async def _make(self, scope: Scope, agent_name: str) -> tuple[int, Entry]:
        # One snapshot: the agent and what it names are of the same revision.
        async with self._database.read(snapshot=True) as connection:
            reading = _Reading(connection, self._views.inherited(scope), self._limits)
            root = await reading.tree(agent_name)
        if reading.missing:
            raise AgentUnresolved(list(dict.fromkeys(reading.missing)))
        assert root.agent is not None
        document = manifest.manifest(root, reading.parts)
        text = canonical_json(document)
        self._limits.check("max_manifest_bytes", len(text))
        made = Manifest(text, canonical_digest(manifest.pinned_content(document)), root.agent[0].revision)
        return reading.revision, Entry(made, tuple(reading.asked), len(text))


class _Reading:
    """Reads what a manifest needs, level by level."""

    def __init__(self, connection: Connection, view: View, limits: Limits) -> None:
        self._connection = connection
        self._view = view
        self._limits = limits
        self._bytes = 0
        self.revision = 0
        self.parts: dict[Reference, Part] = {}
        self.asked: dict[Reference, None] = {}
        """All that was looked for, found or not: what the manifest would change with."""
        self.missing: list[str] = []

    async def tree(self, agent_name: str) -> Node:
        """The agent and those below it. What does not resolve is in `missing`."""
        root = Node(agent_name)
        level, count = [root], 0
        while level:
            count += len(level)
            self._limits.check("max_manifest_agents", count)
            await self._read_agents(level)
            level = [one for one in level if one.agent is not None]
            await self._read_parts(level)
            level = [inner for one in level for inner in self._below(one)]
        return root

    async def _read_agents(self, level: Sequence[Node]) -> None:
        await self._read((EntityType.AGENT, one.name) for one in level)
        for one in level:
            one.agent = self._part((EntityType.AGENT, one.name))
        known = [(one, one.agent[1]) for one in level if one.agent is not None]
        await self._read((EntityType.DEFAULTS, manifest.defaults_name(agent)) for _, agent in known)
        for one, agent in known:
            reference = (EntityType.DEFAULTS, manifest.defaults_name(agent))
            # The usual defaults need not be there; those that an agent names itself must.
            one.defaults = self._part(reference) if agent["agent"].get("defaults") else self.parts.get(reference)

    async def _read_parts(self, level: Sequence[Node]) -> None:
        named = [reference for one in level for reference in manifest.references(one.effective)]
        await self._read(named)
        parts = [self._part(reference) for reference in named]
        servers = [manifest.server_of(part[1]) for part in parts if part and part[0].key.type is EntityType.TOOL]
        references = [(EntityType.MCP_SERVER, name) for name in servers if name is not None]
        await self._read(references)
        for reference in references:
            self._part(reference)
        without = [one for one in level if not one.effective["agent"].get("provider")]
        if without:
            provider = await self._provider_by_priority()
            for one in without:
                one.provider = provider

    def _below(self, node: Node) -> list[Node]:
        path = (*node.path, node.name)
        for name in node.effective["agent"].get("subagents", ()):
            if name in path:
                self.missing.append(f"agent {name} (it leads back to itself)")
            elif len(path) > manifest.MAX_DEPTH:
                self.missing.append(f"agent {name} (more than {manifest.MAX_DEPTH} agents deep)")
            else:
                node.subagents.append(Node(name, path))
        return node.subagents

    async def _provider_by_priority(self) -> str | None:
        self.asked[EntityType.PROVIDER, ANY_NAME] = None
        names = await names_with_priority(self._connection, self._view)
        await self._read((EntityType.PROVIDER, name) for name in names)
        found = []
        for name in names:
            part = self.parts.get((EntityType.PROVIDER, name))
            priority = part[1]["provider"].get("priority") if part is not None else None
            if priority is not None:
                found.append((priority, name))
        return min(found)[1] if found else None

    async def _read(self, references: Iterable[Reference]) -> None:
        unknown = [reference for reference in dict.fromkeys(references) if reference not in self.asked]
        if not unknown:
            return
        self.asked.update(dict.fromkeys(unknown))
        self.revision, found = await read_counting(
            self._connection,
            self._view,
            unknown,
            lambda size: self._limits.check("max_manifest_bytes", self._bytes + size),
        )
        for reference in unknown:
            entity = counting(found.get(reference, ()))
            if entity is not None:
                self._bytes += len(entity.content.definition.encode())
                self.parts[reference] = (entity, shown_definition(entity))

    def _part(self, reference: Reference) -> Part | None:
        part = self.parts.get(reference)
        if part is None:
            self.missing.append(f"{reference[0].field} {reference[1]}")
        return part
