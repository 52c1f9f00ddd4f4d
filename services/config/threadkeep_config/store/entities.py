"""Statements on entities: reading them, and the one way in which they change.

Locks are taken in this order: the scope's row (by those who apply a set), entities by key, and last the counter.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import replace
from datetime import datetime
from functools import lru_cache
from itertools import groupby
from typing import Any

import sqlalchemy as sa
from sqlalchemy.sql.expression import ColumnElement

from threadkeep_chassis.database import Connection, contains_text, insert_or_ignore, locked_in_key_order
from threadkeep_config.domain.values import API, Content, Entity, EntityType, Key, SourceKind
from threadkeep_config.domain.views import View
from threadkeep_config.domain.writes import Change
from threadkeep_config.store import revisions as log
from threadkeep_config.store.rows import (
    CONTENT_COLUMNS,
    KEY,
    bounded,
    content_values,
    entity_of,
    in_view,
    key_values,
    padded,
    view_values,
    with_scope,
)
from threadkeep_config.tables import entities, scopes

NAMES_PER_STATEMENT = 512
_AFTER_KEY = ("after_type", "after_name", "after_scope_key")

WRITTEN_COLUMNS = ("revision", "deleted", "create_time", "update_time", *CONTENT_COLUMNS)

_THIS = sa.and_(
    entities.c.type == sa.bindparam("type"),
    entities.c.name == sa.bindparam("name"),
    entities.c.scope_key == sa.bindparam("scope_key"),
)
_ONE = with_scope(entities).where(_THIS)
_LOCK = locked_in_key_order(sa.select(entities).where(_THIS), *KEY)
_OF_NAMES = sa.select(entities).where(
    entities.c.type == sa.bindparam("type"),
    entities.c.name.in_(sa.bindparam("names", expanding=True)),
    entities.c.scope_key == sa.bindparam("scope_key"),
)
_LOCK_MANY = locked_in_key_order(_OF_NAMES, *KEY)
_FILE_KEYS = sa.select(entities.c.type, entities.c.name).where(
    entities.c.scope_key == sa.bindparam("scope_key"),
    entities.c.source_kind == sa.literal(int(SourceKind.FILE), sa.SmallInteger),
    entities.c.deleted.is_(False),
)
_PLACEHOLDER = insert_or_ignore(entities, ["type", "name", "scope_key"])
_SCOPE = insert_or_ignore(scopes, ["scope_key"])
_LOCK_SCOPE = sa.select(scopes.c.scope_key).where(scopes.c.scope_key == sa.bindparam("scope_key")).with_for_update()
# Compare and set (X4): the row must still be as it was locked.
_UPDATE = (
    sa.update(entities)
    .where(
        entities.c.type == sa.bindparam("key_type"),
        entities.c.name == sa.bindparam("key_name"),
        entities.c.scope_key == sa.bindparam("key_scope_key"),
        entities.c.revision == sa.bindparam("seen_revision"),
    )
    .values({name: sa.bindparam(name) for name in WRITTEN_COLUMNS})
)


async def find(connection: Connection, key: Key) -> Entity | None:
    """Reads one entity; tombstones too."""
    row = (await connection.execute(_ONE, key_values(key))).first()
    return None if row is None else entity_of(row)


async def page(
    connection: Connection,
    view: View,
    *,
    types: Sequence[EntityType],
    after: Sequence[Any] | None,
    limit: int,
    max_bytes: int,
    changed_after: int | None = None,
) -> list[Entity]:
    """Entities that the view sees, by key, after the key `after`: at most `limit`, cut where they exceed `max_bytes`.

    Tombstones are left out; with `changed_after` those of later revisions are in.
    """
    values: dict[str, Any] = {**view_values(view), "max_bytes": max_bytes, "limit": limit}
    if changed_after is not None:
        values["changed_after"] = changed_after
    if types:
        values["types"] = padded([int(type) for type in types])
    if after is not None:
        values.update(zip(_AFTER_KEY, after, strict=True))
    statement = _page(
        view.scope_keys is not None, view.own_key is not None, bool(types), after is not None, changed_after is not None
    )
    return [entity_of(row) for row in await connection.execute(statement, values)]


@lru_cache(32)
def _page(some_scopes: bool, own: bool, some_types: bool, goes_on: bool, with_changed: bool) -> sa.Select[Any]:
    """The statement of a page, one object for each form: one made for a single call is compiled, and lies about."""
    alive: ColumnElement[bool] = entities.c.deleted.is_(False)
    if with_changed:
        alive = sa.or_(alive, entities.c.revision > sa.bindparam("changed_after"))
    view = View(() if some_scopes else None, "" if own else None)
    statement = sa.select(entities).where(in_view(entities, view), alive)
    if goes_on:
        bound = (sa.bindparam(name, type_=column.type) for name, column in zip(_AFTER_KEY, KEY, strict=True))
        statement = statement.where(sa.tuple_(*KEY) > sa.tuple_(*bound))
    if some_types:
        statement = statement.where(entities.c.type.in_(sa.bindparam("types", expanding=True)))
    statement = statement.order_by(*KEY).limit(sa.bindparam("limit"))
    return bounded(statement, "type", "name", "scope_key")


async def lock(connection: Connection, key: Key, scope: str) -> Entity | None:
    """Locks one entity and reads it; None where there is no row."""
    row = (await connection.execute(_LOCK, key_values(key))).first()
    return None if row is None else entity_of(row, scope)


async def lock_or_make(connection: Connection, key: Key, scope: str) -> Entity:
    """The same, making a row where there is none: an entity of revision 0 that only this transaction sees.

    Whoever makes one either writes it or rolls back.
    """
    found = await lock(connection, key, scope)
    if found is None:
        await _make(connection, [key], scope)
        found = await lock(connection, key, scope)
        assert found is not None
    return found


async def lock_set(connection: Connection, scope_key: str, scope: str, wanted: Iterable[Key]) -> dict[Key, Entity]:
    """Locks the scope for sets, and its wanted and file entities; makes those wanted that have no row."""
    await _make_scope(connection, scope_key, scope)
    await connection.execute(_LOCK_SCOPE, {"scope_key": scope_key})
    keys = sorted({*wanted, *await file_keys(connection, scope_key)})
    found = await _read_many(connection, _LOCK_MANY, keys, scope)
    missing = [key for key in keys if key not in found]
    if missing:
        await _make(connection, missing, scope)
        found.update(await _read_many(connection, _LOCK_MANY, missing, scope))
    return found


async def read_set(
    connection: Connection, scope_key: str, scope: str, wanted: Iterable[Key], now: datetime
) -> dict[Key, Entity]:
    """What `lock_set` gives, without a lock or a row made."""
    keys = sorted({*wanted, *await file_keys(connection, scope_key)})
    found = await _read_many(connection, _OF_NAMES, keys, scope)
    return {key: found.get(key) or _never_written(key, scope, now) for key in keys}


async def file_keys(connection: Connection, scope_key: str) -> list[Key]:
    """The keys of the scope's file entities."""
    rows = await connection.execute(_FILE_KEYS, {"scope_key": scope_key})
    return [Key(EntityType(row.type), row.name, scope_key) for row in rows]


async def names_with_priority(connection: Connection, view: View) -> list[str]:
    """The names of providers that have a priority in some scope of the view; the first thousand."""
    statement = (
        sa.select(entities.c.name)
        .distinct()
        .where(
            in_view(entities, view),
            entities.c.type == sa.literal(int(EntityType.PROVIDER), sa.SmallInteger),
            entities.c.deleted.is_(False),
            # Definitions are canonical JSON, in which no text can hold these characters.
            contains_text(entities.c.definition, '"priority":'),
        )
        .order_by(entities.c.name)
        .limit(1000)
    )
    return [row.name for row in await connection.execute(statement, view_values(view))]


async def write(connection: Connection, changes: Sequence[Change]) -> list[Entity]:
    """Makes one revision per change, in their order, of entities that this transaction has locked.

    The counter's row stays locked until the transaction ends, so that revisions become visible in their order (C5).
    """
    if not changes:
        return []
    # Before the counter is locked: from then on every round trip is one that other writers wait for.
    now = await connection.now()
    revision = await log.take_revisions(connection, len(changes)) - len(changes)
    written = []
    for change in changes:
        revision += 1
        before = change.before
        create_time = before.create_time if before.revision else now
        written.append(
            replace(
                before,
                content=change.content,
                revision=revision,
                deleted=change.deleted,
                create_time=create_time,
                update_time=now,
            )
        )
    rows = [
        {
            "key_type": int(entity.key.type),
            "key_name": entity.key.name,
            "key_scope_key": entity.key.scope_key,
            "seen_revision": change.before.revision,
            "revision": entity.revision,
            "deleted": entity.deleted,
            "create_time": entity.create_time,
            "update_time": now,
            **content_values(entity.content),
        }
        for change, entity in zip(changes, written, strict=True)
    ]
    if len(rows) == 1:
        result = await connection.execute(_UPDATE, rows[0])
        if result.rowcount != 1:
            raise RuntimeError("an entity changed while it was locked")
    else:
        await connection.execute(_UPDATE, rows)
    await log.append(connection, written)
    return written


async def _make(connection: Connection, keys: Sequence[Key], scope: str) -> None:
    """Makes rows in key order, so that two transactions never wait for each other's."""
    await _make_scope(connection, keys[0].scope_key, scope)
    now = await connection.now()
    blank = {"revision": 0, "deleted": True, "create_time": now, "update_time": now, **content_values(Content(API))}
    await connection.execute(_PLACEHOLDER, [{**key_values(key), **blank} for key in keys])


async def _make_scope(connection: Connection, scope_key: str, scope: str) -> None:
    await connection.execute(_SCOPE, {"scope_key": scope_key, "scope": scope})


async def _read_many(
    connection: Connection, statement: sa.Select[Any], keys: Sequence[Key], scope: str
) -> dict[Key, Entity]:
    found: dict[Key, Entity] = {}
    for type, of_type in groupby(keys, key=lambda key: key.type):
        names = list(of_type)
        for start in range(0, len(names), NAMES_PER_STATEMENT):
            some = names[start : start + NAMES_PER_STATEMENT]
            values = {
                "type": int(type),
                "names": padded([key.name for key in some]),
                "scope_key": some[0].scope_key,
            }
            for row in await connection.execute(statement, values):
                entity = entity_of(row, scope)
                found[entity.key] = entity
    return found


def _never_written(key: Key, scope: str, now: datetime) -> Entity:
    return Entity(key, scope, Content(API), revision=0, deleted=True, create_time=now, update_time=now)
