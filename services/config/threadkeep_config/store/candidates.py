"""Candidates of resolution: what there is of some types and names in some scopes, all of it or what counts alone."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import sqlalchemy as sa

from threadkeep_chassis.database import Connection
from threadkeep_config.domain import resolution
from threadkeep_config.domain.manifest import Reference
from threadkeep_config.domain.values import Entity, EntityType, Key
from threadkeep_config.domain.views import View
from threadkeep_config.store.rows import entity_of, padded
from threadkeep_config.tables import counter, entities, scopes


def _candidates(*columns: Any) -> sa.Select[Any]:
    asked = sa.and_(
        entities.c.type.in_(sa.bindparam("types", expanding=True)),
        entities.c.name.in_(sa.bindparam("names", expanding=True)),
        entities.c.scope_key.in_(sa.bindparam("scope_keys", expanding=True)),
        entities.c.deleted.is_(False),
    )
    return (
        sa.select(counter.c.revision.label("config_revision"), *columns)
        .select_from(counter.outerjoin(entities, asked).outerjoin(scopes, scopes.c.scope_key == entities.c.scope_key))
        .where(counter.c.id == 1)
    )


_CANDIDATES = _candidates(entities, scopes.c.scope)
_WITHOUT_TEXT = _candidates(
    *(column for column in entities.c if column.name != "definition"),
    sa.literal("").label("definition"),
    scopes.c.scope,
)
_CHOSEN = (
    sa.select(entities, scopes.c.scope)
    .join(scopes, scopes.c.scope_key == entities.c.scope_key)
    .where(
        sa.tuple_(entities.c.type, entities.c.name, entities.c.scope_key).in_(sa.bindparam("keys", expanding=True)),
        entities.c.deleted.is_(False),
    )
)


async def read_candidates(
    connection: Connection, references: Sequence[Reference], scope_keys: Sequence[str]
) -> tuple[int, dict[Reference, list[Entity]]]:
    """The service's revision and, as of it, what there is of these types and names in these scopes; one statement.

    It may hold more than was asked for.
    """
    revision, found, _ = await _read(connection, _CANDIDATES, references, scope_keys)
    return revision, found


async def read_counting(
    connection: Connection, view: View, references: Sequence[Reference], check: Callable[[int], None]
) -> tuple[int, dict[Reference, list[Entity]]]:
    """The service's revision and, of each reference, the candidates that count, the strongest first. In a snapshot.

    `check` is told how many bytes of definitions the answer has at least, and may raise, before any of them is read.
    """
    revision, found, sizes = await _read(connection, _WITHOUT_TEXT, references, view.scope_keys or ())
    chosen: dict[Reference, list[Entity]] = {}
    for reference in references:
        candidates = view.ordered(found.get(reference, ()))
        # Defaults merge: the answer has all of the strongest, and of the others what it leaves out.
        counts = resolution.layers(candidates) if reference[0] is EntityType.DEFAULTS else candidates[:1]
        if resolution.winner(candidates) is not None:
            chosen[reference] = list(counts)
    check(sum(sizes[each[0].key] for each in chosen.values()))
    keys = [(int(one.key.type), one.key.name, one.key.scope_key) for each in chosen.values() for one in each]
    texts = {}
    if keys:
        rows = await connection.execute(_CHOSEN, {"keys": padded(sorted(set(keys)))})
        texts = {entity.key: entity for entity in map(entity_of, rows)}
    return revision, {reference: [texts[one.key] for one in each] for reference, each in chosen.items()}


async def _read(
    connection: Connection, statement: sa.Select[Any], references: Sequence[Reference], scope_keys: Sequence[str]
) -> tuple[int, dict[Reference, list[Entity]], dict[Key, int]]:
    values = {
        "types": padded(sorted({int(type) for type, _ in references})),
        "names": padded(sorted({name for _, name in references})),
        "scope_keys": padded(sorted(set(scope_keys))),
    }
    found: dict[Reference, list[Entity]] = {}
    sizes: dict[Key, int] = {}
    revision = 0
    for row in await connection.execute(statement, values):
        revision = row.config_revision
        if row.name is not None:
            entity = entity_of(row)
            found.setdefault((entity.key.type, entity.key.name), []).append(entity)
            sizes[entity.key] = row.definition_bytes
    return revision, found, sizes
