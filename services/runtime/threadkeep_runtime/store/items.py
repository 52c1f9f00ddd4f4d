"""Statements of memory items (R21): puts and deletes, reads by key, and the sweep of what has expired.

A scope's puts are counted by its row in `store_counters`, which a put locks first: the order of items is the counter's,
and two puts can't deadlock.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from datetime import datetime, timedelta
from typing import Any

import sqlalchemy as sa
from sqlalchemy.engine import Connection

from threadkeep_chassis.database import insert
from threadkeep_runtime.domain.store_items import ItemKey, ItemPut, StoredItem
from threadkeep_runtime.store.statements import padded
from threadkeep_runtime.tables import store_counters, store_items

_ITEM = store_items.c
_OF_SCOPE = _ITEM.scope_key == sa.bindparam("scope_key", type_=sa.Text())
LIVE = sa.or_(
    _ITEM.expire_time.is_(None), _ITEM.expire_time > sa.bindparam("now", type_=_ITEM.expire_time.type)
)  # fmt: skip
"""Expired means gone, swept or not; bind `now`."""
ITEM_COLUMNS = (
    _ITEM.namespace,
    _ITEM.key,
    _ITEM.value,
    _ITEM.create_time,
    _ITEM.update_time,
    _ITEM.expire_time,
    _ITEM.ttl_microseconds,
    _ITEM.sequence,
)
_MICROSECOND = timedelta(microseconds=1)

_count = insert(store_counters)
_COUNT = _count.on_conflict_do_update(
    index_elements=["scope_key"], set_={"sequence": store_counters.c.sequence + _count.excluded.sequence}
).returning(store_counters.c.sequence)
_put = insert(store_items)
_REPLACED = ("value", "update_time", "expire_time", "ttl_microseconds", "sequence", "vectors", "dimensions")
_PUT = _put.on_conflict_do_update(
    index_elements=["scope_key", "namespace", "key"],
    set_={
        **{name: _put.excluded[name] for name in _REPLACED},
        # What has expired was gone: the item is a new one.
        "create_time": sa.case(
            (_ITEM.expire_time <= _put.excluded.update_time, _put.excluded.create_time), else_=_ITEM.create_time
        ),
    },
)
_DELETE = sa.delete(store_items).where(
    _ITEM.scope_key == sa.bindparam("of_scope"),
    _ITEM.namespace == sa.bindparam("of_namespace"),
    _ITEM.key == sa.bindparam("of_key"),
)
_GET = sa.select(*ITEM_COLUMNS).where(
    _OF_SCOPE, sa.tuple_(_ITEM.namespace, _ITEM.key).in_(sa.bindparam("keys", expanding=True)), LIVE
)
_REFRESH = (
    sa.update(store_items)
    .where(
        _ITEM.scope_key == sa.bindparam("of_scope"),
        _ITEM.sequence == sa.bindparam("of_sequence"),
        _ITEM.expire_time > sa.bindparam("now", type_=_ITEM.expire_time.type),
    )
    .values(expire_time=sa.bindparam("until", type_=_ITEM.expire_time.type))
)
_KEY = (_ITEM.scope_key, _ITEM.namespace, _ITEM.key)
_EXPIRED = (
    sa.select(*_KEY)
    .where(_ITEM.expire_time.is_not(None), _ITEM.expire_time <= sa.bindparam("now", type_=_ITEM.expire_time.type))
    .limit(sa.bindparam("most"))
)
_SWEEP = sa.delete(store_items).where(
    sa.tuple_(*_KEY).in_(sa.bindparam("keys", expanding=True)),
    _ITEM.expire_time <= sa.bindparam("now", type_=_ITEM.expire_time.type),
)


def apply_puts(connection: Connection, scope_key: str, ops: Mapping[ItemKey, ItemPut | None], now: datetime) -> None:
    """Stores and deletes (None) items of a scope, each once."""
    puts = [put for put in ops.values() if put is not None]
    deletes = sorted(at for at, put in ops.items() if put is None)
    if puts:
        last = connection.scalar(_COUNT, {"scope_key": scope_key, "sequence": len(puts)})
        assert last is not None
        first = last - len(puts) + 1
        connection.execute(_PUT, [_row(scope_key, put, first + index, now) for index, put in enumerate(puts)])
    if deletes:
        connection.execute(
            _DELETE, [{"of_scope": scope_key, "of_namespace": at.namespace, "of_key": at.key} for at in deletes]
        )


def _row(scope_key: str, put: ItemPut, sequence: int, now: datetime) -> dict[str, Any]:
    return {
        "scope_key": scope_key,
        "namespace": put.at.namespace,
        "key": put.at.key,
        "value": put.value_json,
        "create_time": now,
        "update_time": now,
        "expire_time": None if put.ttl is None else now + put.ttl,
        "ttl_microseconds": None if put.ttl is None else put.ttl // _MICROSECOND,
        "sequence": sequence,
        "vectors": put.vectors,
        "dimensions": put.dimensions,
    }


def load_items(
    connection: Connection, scope_key: str, keys: Sequence[ItemKey], now: datetime
) -> dict[ItemKey, StoredItem]:
    """Those of the items that are there."""
    if not keys:
        return {}
    rows = connection.execute(_GET, {"scope_key": scope_key, "keys": padded([tuple(key) for key in keys]), "now": now})
    return {item.at: item for row in rows for item in (item_of(row),)}


def item_of(row: Any) -> StoredItem:
    """The item of a row of `ITEM_COLUMNS`."""
    return StoredItem(
        at=ItemKey(row.namespace, row.key),
        value_json=bytes(row.value),
        create_time=row.create_time,
        update_time=row.update_time,
        expire_time=row.expire_time,
        ttl=None if row.ttl_microseconds is None else row.ttl_microseconds * _MICROSECOND,
        sequence=row.sequence,
    )


def refresh(connection: Connection, scope_key: str, items: Sequence[StoredItem], now: datetime) -> None:
    """Starts the time to live of these items anew; of those that were put again meanwhile it is new already."""
    rows = [
        {"of_scope": scope_key, "of_sequence": item.sequence, "now": now, "until": now + item.ttl}
        for item in sorted(items, key=lambda item: item.sequence)
        if item.ttl is not None
    ]
    if rows:
        connection.execute(_REFRESH, rows)


def sweep(connection: Connection, now: datetime, most: int) -> int:
    """Deletes up to `most` expired items of any scope; returns how many it found."""
    keys = [tuple(row) for row in connection.execute(_EXPIRED, {"now": now, "most": most})]
    if keys:
        connection.execute(_SWEEP, {"keys": padded(sorted(keys)), "now": now})
    return len(keys)
