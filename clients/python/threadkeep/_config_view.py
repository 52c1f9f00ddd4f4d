"""What a scope sees of config, kept in memory: which entity counts, and what changed. No RPC, no I/O.

The rules are the server's (C2, C3): most scope keys win, at equal depth the declared precedence of keys decides; the
winner counts whole, Defaults merge field by field; what is hidden hides what its scope would inherit.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

from threadkeep.config.v1 import config_service_pb2, definition_pb2, entity_pb2, watch_pb2
from threadkeep.config.v1.entity_pb2 import Entity

ScopeId = frozenset[tuple[str, str]]
Key = tuple[int, str, ScopeId]


@dataclass(frozen=True)
class ConfigChange:
    """One change of an entity that the scope sees. `before` is None for a new one, `after` for one that is gone."""

    before: Entity | None
    after: Entity | None

    @property
    def entity(self) -> Entity:
        """The entity after the change, or as it last was."""
        entity = self.after if self.after is not None else self.before
        assert entity is not None
        return entity


class ConfigView:
    """Entities as of one revision. Frames of a watch move it on."""

    def __init__(self) -> None:
        self._entities: dict[Key, Entity] = {}
        self._names: dict[tuple[int, str], dict[ScopeId, Entity]] = {}
        self._incoming: dict[Key, Entity] | None = None
        self.scope: ScopeId = frozenset()
        self.precedence: tuple[str, ...] = ()
        self.revision: int | None = None
        """The service's revision that the view is of; None before the first snapshot was complete."""

    def begin_snapshot(self) -> None:
        """What comes next is a snapshot; until it is complete, the view stays as it is."""
        self._incoming = {}

    def apply(self, frame: config_service_pb2.WatchResponse) -> list[ConfigChange]:
        """Takes a frame; gives what it changed."""
        if frame.HasField("synced"):
            return self._swap(frame.revision)
        if self._incoming is not None:
            for change in frame.changes.changes:
                self._incoming[_key(change.entity)] = change.entity
            return []
        changes = [self._put(change) for change in frame.changes.changes]
        self.revision = max(self.revision or 0, frame.revision)
        return [change for change in changes if change is not None]

    def resolve(self, type: int, name: str) -> Entity | None:
        """The entity that counts, or None. Merged Defaults have no digest."""
        candidates = sorted(self._names.get((type, name), {}).items(), key=lambda pair: self._strength(pair[0]))
        entities = [entity for scope, entity in candidates if self._is_candidate(scope, entity)]
        if not entities or entities[0].hidden:
            return None
        if type != entity_pb2.ENTITY_TYPE_DEFAULTS:
            return entities[0]
        hiding = next((place for place, one in enumerate(entities) if one.hidden), len(entities))
        return _merged(entities[:hiding])

    def get(self, type: int, name: str, scope: ScopeId) -> Entity | None:
        """The entity of exactly this scope."""
        return self._entities.get((type, name, scope))

    def entities(self, types: Iterable[int] = ()) -> list[Entity]:
        """All that the scope sees, by type, name and scope; what is overridden or hidden too."""
        wanted = frozenset(types)
        found = [(key[0], key[1], sorted(key[2]), entity) for key, entity in self._entities.items()]
        return [entity for type, *_, entity in sorted(found, key=lambda one: one[:3]) if not wanted or type in wanted]

    def _swap(self, revision: int) -> list[ConfigChange]:
        new, old = self._incoming or {}, self._entities
        self._incoming = None
        changes = [ConfigChange(old.get(key), entity) for key, entity in new.items() if old.get(key) != entity]
        changes += [ConfigChange(entity, None) for key, entity in old.items() if key not in new]
        names: dict[tuple[int, str], dict[ScopeId, Entity]] = {}
        for key, entity in new.items():
            names.setdefault(key[:2], {})[key[2]] = entity
        self._entities, self._names = new, names
        self.revision = revision
        return sorted(changes, key=lambda change: change.entity.revision)

    def _put(self, change: watch_pb2.EntityChange) -> ConfigChange | None:
        entity = change.entity
        key = _key(entity)
        before = self._entities.get(key)
        # A new dict each time: threads that read the old one find it as it was.
        scopes = {scope: one for scope, one in self._names.get(key[:2], {}).items() if scope != key[2]}
        if not entity.deleted:
            self._entities[key] = scopes[key[2]] = entity
            self._names[key[:2]] = scopes
            return ConfigChange(before, entity)
        self._entities.pop(key, None)
        if scopes:
            self._names[key[:2]] = scopes
        else:
            self._names.pop(key[:2], None)
        return None if before is None else ConfigChange(before, None)

    def _is_candidate(self, scope: ScopeId, entity: Entity) -> bool:
        if not scope <= self.scope:
            return False
        is_file = entity.source.kind == entity_pb2.SOURCE_KIND_FILE
        return entity.type != entity_pb2.ENTITY_TYPE_AGENT or scope == self.scope or is_file

    def _strength(self, scope: ScopeId) -> tuple[int, list[tuple[int, str]]]:
        ranks = {key: (place, "") for place, key in enumerate(self.precedence)}
        return -len(scope), sorted(ranks.get(key, (len(ranks), key)) for key, _ in scope)


def scope_id(scope: Mapping[str, str]) -> ScopeId:
    """A scope as a key of dicts."""
    return frozenset(scope.items())


def _key(entity: Entity) -> Key:
    return entity.type, entity.name, scope_id(entity.scope.values)


def _merged(layers: Sequence[Entity]) -> Entity:
    if len(layers) == 1:
        return layers[0]
    merged = definition_pb2.Defaults()
    for field in definition_pb2.Defaults.DESCRIPTOR.fields:
        for one in layers:
            body = one.definition.defaults
            if body.HasField(field.name):  # type: ignore[arg-type]
                part = definition_pb2.Defaults()
                if field.message_type is not None:
                    getattr(part, field.name).CopyFrom(getattr(body, field.name))
                    getattr(part, field.name).SetInParent()
                else:
                    setattr(part, field.name, getattr(body, field.name))
                merged.MergeFrom(part)
                break
    entity = Entity()
    entity.CopyFrom(layers[0])
    entity.definition.defaults.CopyFrom(merged)
    entity.digest = ""
    entity.revision = max(one.revision for one in layers)
    return entity
