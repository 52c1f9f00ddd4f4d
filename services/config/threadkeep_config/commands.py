"""Use cases: look at what is there, decide, write. One method per RPC but Watch."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping, Sequence, Set
from dataclasses import dataclass, replace
from typing import Any, TypeVar

from google.protobuf.message import Message

from threadkeep_chassis.canonical import canonical_digest, canonical_json, parse_json
from threadkeep_chassis.database import Connection, Database
from threadkeep_chassis.errors import FieldInvalid
from threadkeep_chassis.limits import Limits
from threadkeep_chassis.receipts import idempotent
from threadkeep_chassis.scope import Call, Scope
from threadkeep_chassis.signals import Signals
from threadkeep_config.domain import diff, manifest, resolution, writes
from threadkeep_config.domain.errors import AgentUnresolved, EntityNotFound, RevisionCompacted
from threadkeep_config.domain.values import API, Content, Entity, EntityType, Key
from threadkeep_config.domain.writes import SetAction
from threadkeep_config.store import entities, revisions
from threadkeep_config.store.cache import Entry
from threadkeep_config.store.resolver import Resolver, read_candidates
from threadkeep_config.store.scopes import Views
from threadkeep_config.store.tail import TOPIC

ResponseT = TypeVar("ResponseT", bound=Message)


@dataclass(frozen=True)
class Manifest:
    """An agent with all that it depends on (C9)."""

    document: bytes
    digest: str
    agent_revision: int


@dataclass(frozen=True)
class Explained:
    """One candidate, and why it stands where it stands."""

    entity: Entity
    is_winner: bool
    explanation: str


class Commands:
    """The use cases of config."""

    def __init__(self, database: Database, signals: Signals, views: Views, resolver: Resolver, limits: Limits) -> None:
        self._database = database
        self._signals = signals
        self._resolver = resolver
        self._limits = limits
        self.views = views

    async def once(
        self,
        call: Call,
        request: Message,
        response_type: type[ResponseT],
        work: Callable[[Connection], Awaitable[ResponseT]],
    ) -> ResponseT:
        """Does a mutation once per request_id (X3), in one transaction."""
        return await idempotent(self._database, call, request, response_type, work)

    # -- writes --------------------------------------------------------------------------------------------------------

    async def put(
        self, connection: Connection, key: Key, scope: Scope, content: Content, expected_revision: int | None
    ) -> tuple[Entity, bool]:
        """Puts a content over the API; gives the entity, and whether that made a revision.

        Raises FileManaged, RevisionConflict, LimitExceeded.
        """
        self._limits.check("max_definition_bytes", len(content.definition.encode()))
        current = await entities.lock_or_make(connection, key, scope.canonical.decode())
        change = writes.put(current, content, expected_revision)
        if change is None:
            return current, False
        return (await self._write(connection, [change]))[0], True

    async def delete(self, connection: Connection, key: Key, scope: Scope, expected_revision: int | None) -> Entity:
        """Deletes over the API; gives the tombstone. Raises EntityNotFound, FileManaged, RevisionConflict."""
        current = await entities.lock(connection, key, scope.canonical.decode())
        return (await self._write(connection, [writes.delete(current, expected_revision)]))[0]

    async def roll_back(
        self, connection: Connection, key: Key, scope: Scope, to_revision: int, expected_revision: int | None
    ) -> tuple[Entity, bool]:
        """Puts what the entity said at a revision again. Raises EntityNotFound, and what `put` raises."""
        current = await entities.lock(connection, key, scope.canonical.decode())
        if current is None:
            raise EntityNotFound()
        then = await self._as_of(connection, key, to_revision, "to_revision")
        if then is None or not then.exists:
            raise EntityNotFound("The entity did not exist at to_revision.")
        change = writes.put(current, replace(then.content, source=API), expected_revision)
        if change is None:
            return current, False
        return (await self._write(connection, [change]))[0], True

    async def apply_set(
        self,
        connection: Connection,
        scope: Scope,
        contents: Mapping[tuple[EntityType, str], Content],
        broken: Set[tuple[EntityType, str]],
        *,
        dry_run: bool,
    ) -> tuple[list[tuple[SetAction, Entity]], int]:
        """Makes the scope's file entities what the set says; gives what became of each, and the service's revision."""
        scope_key, text = scope.key, scope.canonical.decode()
        wanted = {Key(type, name, scope_key): content for (type, name), content in contents.items()}
        spared = {Key(type, name, scope_key) for type, name in broken}
        if dry_run:
            current = await entities.read_set(connection, scope_key, text, wanted, await connection.now())
        else:
            current = await entities.lock_set(connection, scope_key, text, wanted)
        steps = writes.plan_set(current, wanted, spared)
        written: dict[Key, Entity] = {}
        if not dry_run:
            written = {entity.key: entity for entity in await self._write(connection, writes.changes(steps))}
        outcome = []
        for step in steps:
            entity = written.get(step.entity.key, step.entity)
            if dry_run and step.change is not None and not step.change.deleted:
                entity = replace(entity, content=step.change.content, deleted=False)
            outcome.append((step.action, entity))
        revision, _ = await revisions.state(connection)
        return outcome, revision

    async def _write(self, connection: Connection, changes: Sequence[writes.Change]) -> list[Entity]:
        written = await entities.write(connection, changes)
        if written:
            connection.after_commit(lambda: self._signals.notify(TOPIC))
        return written

    # -- reads ---------------------------------------------------------------------------------------------------------

    async def get(self, key: Key) -> Entity:
        """The entity. Raises EntityNotFound."""
        async with self._database.read() as connection:
            entity = await entities.find(connection, key)
        if entity is None or not entity.exists:
            raise EntityNotFound()
        return entity

    async def list_entities(
        self,
        scope: Scope,
        *,
        include_inherited: bool,
        types: Sequence[EntityType],
        after: Sequence[Any] | None,
        limit: int,
        max_bytes: int,
    ) -> list[Entity]:
        """Entities of the scope, by key, after the key `after`; on request those that it inherits too."""
        view = self.views.inherited(scope) if include_inherited else self.views.exact(scope)
        async with self._database.read() as connection:
            return await entities.page(connection, view, types=types, after=after, limit=limit, max_bytes=max_bytes)

    async def history(self, key: Key, *, before: int | None, limit: int, max_bytes: int) -> list[Entity]:
        """The entity's revisions before the given one, newest first. Raises EntityNotFound."""
        async with self._database.read() as connection:
            revision, _ = await revisions.state(connection)
            at_most = revision if before is None else before - 1
            found = await revisions.history(connection, key, at_most=at_most, limit=limit, max_bytes=max_bytes)
        if not found and before is None:
            raise EntityNotFound()
        return found

    async def compare(self, key: Key, from_revision: int, to_revision: int) -> list[diff.FieldChange]:
        """What changed between two revisions (0: the current one). Raises EntityNotFound, FieldInvalid."""
        async with self._database.read() as connection:
            newest, _ = await revisions.state(connection)
            to_revision = to_revision or newest
            if to_revision < from_revision:
                raise FieldInvalid("to_revision", "must not lie before from_revision")
            old = await self._as_of(connection, key, from_revision, "from_revision")
            new = await self._as_of(connection, key, to_revision, "to_revision")
        if old is None or new is None:
            raise EntityNotFound()
        return diff.diff(_definition(old), _definition(new))

    async def _as_of(self, connection: Connection, key: Key, revision: int, field: str) -> Entity | None:
        """The entity as it stood at a revision, None if it was not there. Raises FieldInvalid, RevisionCompacted."""
        newest, compacted = await revisions.state(connection)
        if revision < 1:
            raise FieldInvalid(field, "must be at least 1")
        if revision > newest:
            raise FieldInvalid(field, "lies beyond the service's revision")
        found = await revisions.as_of(connection, key, revision)
        if found is None and revision <= compacted and await entities.find(connection, key) is not None:
            raise RevisionCompacted(compacted + 1)
        return found

    async def resolve(self, scope: Scope, type: EntityType, name: str) -> tuple[Entry, int]:
        """The entry of the entity that counts, and the revision that this holds for. Raises EntityNotFound."""
        entry, revision = await self._resolver.resolve(self.views.inherited(scope), (type, name))
        if entry.value is None:
            raise EntityNotFound()
        return entry, revision

    async def explain(self, scope: Scope, type: EntityType, name: str) -> list[Explained]:
        """Every candidate, the strongest first."""
        view = self.views.inherited(scope)
        async with self._database.read() as connection:
            _, found = await read_candidates(connection, [(type, name)], view.scope_keys or ())
        candidates = view.ordered(found.get((type, name), ()))
        names = view.key_names or {}
        texts = resolution.explanations(
            [(entity, names[entity.key.scope_key]) for entity in candidates], self.views.precedence
        )
        counts = resolution.winner(candidates)
        return [Explained(entity, entity is counts, text) for entity, text in zip(candidates, texts, strict=True)]

    async def manifest(self, scope: Scope, agent_name: str) -> tuple[Manifest, int]:
        """The agent's manifest, and the revision that it holds for. Raises AgentUnresolved."""
        key = ("manifest", scope.key, agent_name)
        revision = await self._resolver.fresh()
        entry = self._resolver.cache.get(key)
        if entry is None:
            revision, entry = await self._make_manifest(scope, agent_name)
            if revision == await self._resolver.fresh():
                self._resolver.cache.put(key, entry)
        return entry.value, revision

    async def _make_manifest(self, scope: Scope, agent_name: str) -> tuple[int, Entry]:
        view = self.views.inherited(scope)
        scope_keys = view.scope_keys or ()
        agent = (EntityType.AGENT, agent_name)
        # One snapshot: the agent and what it names are of the same revision.
        async with self._database.read(snapshot=True) as connection:
            revision, found = await read_candidates(connection, [agent], scope_keys)
            counts = resolution.winner(view.ordered(found.get(agent, ())))
            if counts is None:
                raise AgentUnresolved([f"agent {agent_name}"])
            definition = _definition(counts)
            references = manifest.references(definition)
            if references:
                _, found = await read_candidates(connection, references, scope_keys)
        parts: list[tuple[Entity, Mapping[str, Any]]] = [(counts, definition)]
        missing = []
        for reference in references:
            part = resolution.winner(view.ordered(found.get(reference, ())))
            if part is None:
                missing.append(f"{reference[0].field} {reference[1]}")
            else:
                parts.append((part, _definition(part)))
        if missing:
            raise AgentUnresolved(missing)
        document = manifest.manifest(parts)
        made = Manifest(canonical_json(document), canonical_digest(manifest.pinned_content(document)), counts.revision)
        return revision, Entry(made, (agent, *references), len(made.document))


def _definition(entity: Entity) -> dict[str, Any]:
    document: dict[str, Any] = parse_json(entity.content.definition) if entity.content.definition else {}
    return document
