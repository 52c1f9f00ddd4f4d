"""Use cases: look at what is there, decide, write. One method per RPC but Watch."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping, Sequence, Set
from dataclasses import dataclass, replace
from typing import Any, TypeVar

from google.protobuf.message import Message

from threadkeep_chassis.database import Connection, Database
from threadkeep_chassis.errors import FieldInvalid
from threadkeep_chassis.limits import Limits
from threadkeep_chassis.receipts import idempotent
from threadkeep_chassis.scope import Call, Scope
from threadkeep_chassis.signals import Signals
from threadkeep_config import wire
from threadkeep_config.documents import Documents
from threadkeep_config.domain import defaults, diff, resolution, writes
from threadkeep_config.domain.errors import EntityNotFound, RevisionCompacted
from threadkeep_config.domain.manifest import Reference
from threadkeep_config.domain.values import API, Content, Entity, EntityType, Key
from threadkeep_config.domain.writes import SetAction
from threadkeep_config.manifests import Manifest, Manifests
from threadkeep_config.store import entities, revisions
from threadkeep_config.store.cache import Entry
from threadkeep_config.store.candidates import read_candidates
from threadkeep_config.store.counting import definition_of, shown_definition
from threadkeep_config.store.resolver import Resolver
from threadkeep_config.store.scopes import Views
from threadkeep_config.store.tail import TOPIC

ResponseT = TypeVar("ResponseT", bound=Message)


@dataclass(frozen=True)
class Explained:
    """One candidate, and why it stands where it stands."""

    entity: Entity
    is_winner: bool
    explanation: str
    counting_fields: Sequence[str] = ()
    """Of Defaults: the fields that count from it."""


@dataclass(frozen=True)
class SetOutcome:
    """What became of one entity of a set."""

    action: SetAction
    entity: Entity
    """As it is now; in a dry run, as it would be."""
    before: Entity
    change: writes.Change | None

    def fields(self) -> list[diff.FieldChange]:
        """Which fields change."""
        if self.change is None:
            return []
        new = shown_definition(replace(self.before, content=self.change.content)) if not self.change.deleted else {}
        return diff.diff(shown_definition(self.before) if self.before.exists else {}, new)


@dataclass(frozen=True)
class AppliedSet:
    """What became of a set."""

    outcome: Sequence[SetOutcome]
    """By key."""
    refused: Mapping[Reference, tuple[str, str]]
    """Documents that their schemas refuse: (path of the field, rule)."""
    revision: int
    """The service's revision after it."""


class Commands:
    """The use cases of config."""

    def __init__(self, database: Database, signals: Signals, views: Views, resolver: Resolver, limits: Limits) -> None:
        self._database = database
        self._signals = signals
        self._resolver = resolver
        self._manifests = Manifests(database, views, resolver, limits)
        self._documents = Documents()
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

        Raises FileManaged, RevisionConflict, LimitExceeded, FieldInvalid (a document that its schema refuses).
        """
        await self._check_content(connection, key, scope, content)
        current = await entities.lock_or_make(connection, key, scope.canonical.decode())
        return await self._put(connection, current, content, expected_revision)

    async def update(
        self,
        connection: Connection,
        key: Key,
        scope: Scope,
        change: Callable[[dict[str, Any]], Content],
        expected_revision: int | None,
    ) -> tuple[Entity, bool]:
        """Puts what `change` makes of the definition that is there. Raises EntityNotFound, and what `put` raises."""
        current = await entities.lock(connection, key, scope.canonical.decode())
        if current is None or not current.exists or current.content.hidden:
            raise EntityNotFound()
        writes.check_writable(current, expected_revision)
        content = change(definition_of(current))
        await self._check_content(connection, key, scope, content)
        return await self._put(connection, current, content, expected_revision)

    async def _put(
        self, connection: Connection, current: Entity, content: Content, expected_revision: int | None
    ) -> tuple[Entity, bool]:
        change = writes.put(current, content, expected_revision)
        if change is None:
            return current, False
        return (await self._write(connection, [change]))[0], True

    async def _check_content(self, connection: Connection, key: Key, scope: Scope, content: Content) -> None:
        self._limits.check("max_definition_bytes", len(content.definition.encode()))
        if key.type is EntityType.CUSTOM and content.definition:
            fault = await self._documents.fault(connection, self.views.inherited(scope), content)
            if fault is not None:
                raise FieldInvalid(f"definition.{fault[0]}", fault[1])

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
        writes.check_writable(current, expected_revision)
        if then.content.definition:
            # It was written under the rules of its time.
            wire.check_definition(key.type, definition_of(then))
        await self._check_content(connection, key, scope, then.content)
        return await self._put(connection, current, replace(then.content, source=API), expected_revision)

    async def apply_set(
        self,
        connection: Connection,
        scope: Scope,
        contents: Mapping[tuple[EntityType, str], Content],
        broken: Set[tuple[EntityType, str]],
        *,
        dry_run: bool,
        keep_missing: bool = False,
    ) -> AppliedSet:
        """Makes the scope's file entities what the set says."""
        scope_key, text = scope.key, scope.canonical.decode()
        # Before rows are made: one that is made must be written.
        refused = await self._documents.faults_of_set(connection, self.views.inherited(scope), contents, broken)
        wanted = {Key(*one, scope_key): content for one, content in contents.items() if one not in refused}
        spared = {Key(*one, scope_key) for one in (*broken, *refused)}
        if dry_run:
            current = await entities.read_set(connection, scope_key, text, wanted, await connection.now())
        else:
            current = await entities.lock_set(connection, scope_key, text, wanted)
        steps = writes.plan_set(current, wanted, spared, keep_missing=keep_missing)
        written: dict[Key, Entity] = {}
        if not dry_run:
            written = {entity.key: entity for entity in await self._write(connection, writes.changes(steps))}
        outcome = []
        for step in steps:
            entity = written.get(step.entity.key, step.entity)
            if dry_run and step.change is not None and not step.change.deleted:
                entity = replace(entity, content=step.change.content, deleted=False)
            outcome.append(SetOutcome(step.action, entity, step.entity, step.change))
        revision, _ = await revisions.state(connection)
        return AppliedSet(outcome, refused, revision)

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
        return diff.diff(shown_definition(old), shown_definition(new))

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

    async def resolve_many(self, scope: Scope, references: Sequence[Reference]) -> tuple[list[Entry], int]:
        """The entries of the entities that count (with None for a value where none does), all as of one revision.

        Raises LimitExceeded.
        """

        def check(size: int) -> None:
            self._limits.check("max_message_bytes", size)

        entries, revision = await self._resolver.resolve_many(self.views.inherited(scope), references, check)
        check(sum(entry.size for entry in entries))
        return entries, revision

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
        fields: list[list[str]] = [[] for _ in candidates]
        if counts is not None and type is EntityType.DEFAULTS:
            merged = defaults.counting_fields([definition_of(one) for one in resolution.layers(candidates)])
            fields[: len(merged)] = merged
        return [
            Explained(entity, entity is counts, text, counted)
            for entity, text, counted in zip(candidates, texts, fields, strict=True)
        ]

    async def manifest(self, scope: Scope, agent_name: str) -> tuple[Manifest, int]:
        """The agent's manifest, and the revision that it holds for. Raises AgentUnresolved, LimitExceeded."""
        return await self._manifests.manifest(scope, agent_name)
