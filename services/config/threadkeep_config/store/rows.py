"""Rows as entities and back, and the two forms in which every statement of this service selects them."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import sqlalchemy as sa
from sqlalchemy.sql.expression import ColumnElement

from threadkeep_config.domain.values import API, Content, Entity, EntityType, Key, Source, SourceKind
from threadkeep_config.domain.views import View
from threadkeep_config.tables import entities, scopes

ENTRY_BYTES = 512
"""What a row takes beside its texts, roughly."""


# Looked up a hundred thousand times by a watch: an enum's call is slow.
_TYPES = {int(type): type for type in EntityType}
_SOURCE_KINDS = {int(kind): kind for kind in SourceKind}


def with_scope(table: sa.Table) -> sa.Select[Any]:
    """Selects `entities` or `revisions`, each row with the scope that it is defined in."""
    return sa.select(table, scopes.c.scope).join(scopes, scopes.c.scope_key == table.c.scope_key)


def bounded(statement: sa.Select[Any], *order: str) -> sa.Select[Any]:
    """Cuts an ordered, limited selection of a table's rows after the one that brings their definitions above a size.

    The size is the bound value `max_bytes`. Each row comes with the scope that it is defined in.
    `order` names its columns of order, each perhaps with ` DESC`. Rows that are cut off are never read.
    """
    limited = statement.subquery()

    def sorting(columns: Any) -> list[ColumnElement[Any]]:
        return [
            columns[name.removesuffix(" DESC")].desc() if name.endswith(" DESC") else columns[name] for name in order
        ]

    total = sa.func.sum(limited.c.definition_bytes).over(order_by=sorting(limited.c)).label("total_bytes")
    summed = sa.select(limited, total).subquery()
    within = summed.c.total_bytes - summed.c.definition_bytes <= sa.bindparam("max_bytes", type_=sa.BigInteger)
    with_scopes = summed.join(scopes, scopes.c.scope_key == summed.c.scope_key)
    return sa.select(summed, scopes.c.scope).select_from(with_scopes).where(within).order_by(*sorting(summed.c))


def entity_of(row: Any, scope: str | None = None) -> Entity:
    """The entity of a row. `scope` is its scope's canonical JSON where the row does not carry it."""
    source = Source(_SOURCE_KINDS[row.source_kind], row.source_path) if row.source_path else API
    return Entity(
        key=Key(_TYPES[row.type], row.name, row.scope_key),
        scope=row.scope if scope is None else scope,
        content=Content(source, row.definition, row.digest, row.hidden),
        revision=row.revision,
        deleted=row.deleted,
        create_time=row.create_time,
        update_time=row.update_time,
    )


def key_values(key: Key) -> dict[str, Any]:
    """The columns of a key."""
    return {"type": int(key.type), "name": key.name, "scope_key": key.scope_key}


def content_values(content: Content) -> dict[str, Any]:
    """The columns of a content."""
    return {
        "hidden": content.hidden,
        "definition": content.definition,
        "definition_bytes": len(content.definition.encode()),
        "digest": content.digest,
        "source_kind": int(content.source.kind),
        "source_path": content.source.path,
    }


def size_of(entity: Entity) -> int:
    """Bytes that the entity takes in an answer or in memory, roughly and not too low."""
    key = entity.key
    texts = (entity.content.definition, entity.scope, entity.content.source.path, key.name)
    return ENTRY_BYTES + sum(len(text) if text.isascii() else len(text.encode()) for text in texts)


def padded(values: Sequence[Any]) -> list[Any]:
    """The values, the last repeated up to a power of two: so that few different statements are ever prepared."""
    wanted = 1
    while wanted < len(values):
        wanted *= 2
    return [*values, *[values[-1]] * (wanted - len(values))] if values else []


def in_view(table: sa.Table, view: View) -> ColumnElement[bool]:
    """The condition for rows that the view sees. Values for it come from `view_values`."""
    conditions: list[ColumnElement[bool]] = []
    if view.scope_keys is not None:
        conditions.append(table.c.scope_key.in_(sa.bindparam("scope_keys", expanding=True)))
    if view.own_key is not None:
        conditions.append(
            sa.or_(
                table.c.type != sa.literal(int(EntityType.AGENT), sa.SmallInteger),
                table.c.scope_key == sa.bindparam("own_key"),
                table.c.source_kind == sa.literal(int(SourceKind.FILE), sa.SmallInteger),
            )
        )
    return sa.and_(sa.true(), *conditions)


def view_values(view: View) -> dict[str, Any]:
    """The bound values of `in_view`."""
    values: dict[str, Any] = {}
    if view.scope_keys is not None:
        # No scope at all is a key that no scope has.
        values["scope_keys"] = padded(view.scope_keys or ("",))
    if view.own_key is not None:
        values["own_key"] = view.own_key
    return values


CONTENT_COLUMNS = tuple(content_values(Content(API)))
KEY = (entities.c.type, entities.c.name, entities.c.scope_key)
