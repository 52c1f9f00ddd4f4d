"""Statements of state keys and their values (R11). The newest row of a key at or below a commit is its value then."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import fields
from datetime import datetime
from typing import Any

import sqlalchemy as sa
from sqlalchemy.engine import Connection

from threadkeep_chassis.database import insert_or_ignore, upsert, write_rows
from threadkeep_runtime.domain.commit import Decision
from threadkeep_runtime.domain.state import Declaration, Held, StateValue
from threadkeep_runtime.domain.values import Actor
from threadkeep_runtime.store.statements import one_of, padded
from threadkeep_runtime.tables import state_key_counters, state_keys, state_values, threads

Pair = tuple[str, str]

_newest = state_values.alias("newest")


def _is_newest(thread_key: Any, key: Any, *conditions: Any) -> sa.ColumnElement[bool]:
    """True for the newest row under that key. The key comes from the other tables, so that one row is looked up."""
    found = sa.select(sa.func.max(_newest.c.commit_sequence)).where(
        _newest.c.thread_key == thread_key, _newest.c.key == key, *conditions
    )
    return sa.and_(
        state_values.c.thread_key == thread_key,
        state_values.c.key == key,
        state_values.c.commit_sequence == found.scalar_subquery(),
    )


_DECLARED = sa.select(state_keys).where(
    sa.tuple_(state_keys.c.scope_key, state_keys.c.key).in_(sa.bindparam("pairs", expanding=True))
)
_HEADS = (
    sa.select(state_values)
    .select_from(
        threads.join(state_keys, state_keys.c.scope_key == threads.c.scope_key).join(
            state_values, _is_newest(threads.c.thread_key, state_keys.c.key)
        )
    )
    .where(
        one_of(threads.c.thread_key, "thread_keys"),
        one_of(state_keys.c.key, "keys"),
        sa.tuple_(threads.c.thread_key, state_keys.c.key).in_(sa.bindparam("pairs", expanding=True)),
    )
)
_INSERT_VALUES = sa.insert(state_values)
_ADD_COUNTER = insert_or_ignore(state_key_counters, ["scope_key"])
_COUNT = (
    sa.update(state_key_counters)
    .where(state_key_counters.c.scope_key == sa.bindparam("key_scope_key"))
    .values(count=state_key_counters.c.count + 0)
    .returning(state_key_counters.c.count)
)
_SET_COUNT = (
    sa.update(state_key_counters)
    .where(state_key_counters.c.scope_key == sa.bindparam("key_scope_key"))
    .values(count=sa.bindparam("count"))
)
_DECLARE = upsert(
    state_keys,
    ["scope_key", "key"],
    update=["schema_version", "max_value_bytes", "schema_json", "update_time"],
)
_LIST_KEYS = (
    sa.select(state_keys)
    .where(state_keys.c.scope_key == sa.bindparam("scope_key"), state_keys.c.key > sa.bindparam("after"))
    .order_by(state_keys.c.key)
    .limit(sa.bindparam("count"))
)
# The values of a view: one look into the index per declared key, however long the thread is.
_VIEW = (
    sa.select(state_values)
    .select_from(
        state_keys.join(
            state_values,
            _is_newest(
                sa.bindparam("thread_key"),
                state_keys.c.key,
                _newest.c.commit_sequence <= sa.bindparam("commit_sequence"),
            ),
        )
    )
    .where(
        state_keys.c.scope_key == sa.bindparam("scope_key"),
        state_keys.c.key > sa.bindparam("after"),
        state_values.c.value.is_not(None),
        sa.or_(state_keys.c.lifetime == "THREAD", state_values.c.run_id == sa.bindparam("open_run_id")),
    )
    .order_by(state_keys.c.key)
    .limit(sa.bindparam("count"))
)
_VIEW_SOME = _VIEW.where(one_of(state_keys.c.key, "keys"))


def load_held(connection: Connection, wanted: Sequence[tuple[str, str, str]]) -> dict[str, dict[str, Held]]:
    """By thread key, then by state key: the declared ones of these (thread key, scope key, state key)."""
    declared = load_declarations(connection, {(scope_key, key) for _, scope_key, key in wanted})
    pairs = sorted({(thread_key, key) for thread_key, scope_key, key in wanted if (scope_key, key) in declared})
    heads: dict[Pair, StateValue] = {}
    if pairs:
        bound = {
            "pairs": padded(pairs),
            "thread_keys": padded(sorted({pair[0] for pair in pairs})),
            "keys": padded(sorted({pair[1] for pair in pairs})),
        }
        rows = connection.execute(_HEADS, bound).mappings()
        heads = {(row["thread_key"], row["key"]): value_of(row) for row in rows}
    found: dict[str, dict[str, Held]] = {}
    for thread_key, scope_key, key in wanted:
        declaration = declared.get((scope_key, key))
        if declaration is not None:
            found.setdefault(thread_key, {})[key] = Held(declaration, heads.get((thread_key, key)))
    return found


def load_declarations(connection: Connection, pairs: Iterable[Pair]) -> dict[Pair, Declaration]:
    """The declarations of these (scope key, state key)."""
    wanted = sorted(pairs)
    if not wanted:
        return {}
    rows = connection.execute(_DECLARED, {"pairs": padded(wanted)}).mappings()
    return {(row["scope_key"], row["key"]): declaration_of(row) for row in rows}


def write_values(connection: Connection, writing: Sequence[Decision]) -> None:
    """Writes what the commits set and removed."""
    rows = [
        _value_row(decision.thread.thread_key, value)
        for decision in writing
        for value in decision.state_values
        if decision.thread is not None
    ]
    write_rows(connection, _INSERT_VALUES, rows)


def lock_scope(connection: Connection, scope_key: str) -> int:
    """Locks a scope's declarations and says how many there are."""
    connection.execute(_ADD_COUNTER, {"scope_key": scope_key, "count": 0})
    return int(connection.execute(_COUNT, {"key_scope_key": scope_key}).scalar_one())


def write_declarations(connection: Connection, scope_key: str, changed: Sequence[Declaration], count: int) -> None:
    """Writes declarations, and how many the scope has now, under `lock_scope`."""
    if not changed:
        return
    connection.execute(_DECLARE, [_declaration_row(scope_key, declaration) for declaration in changed])
    connection.execute(_SET_COUNT, {"key_scope_key": scope_key, "count": count})


def list_declarations(connection: Connection, scope_key: str, after: str, count: int) -> list[Declaration]:
    """The scope's keys behind `after`, by name."""
    rows = connection.execute(_LIST_KEYS, {"scope_key": scope_key, "after": after, "count": count}).mappings()
    return [declaration_of(row) for row in rows]


def view_values(
    connection: Connection,
    scope_key: str,
    thread_key: str,
    commit_sequence: int,
    open_run_id: str | None,
    keys: Sequence[str],
    after: str,
    count: int,
) -> list[StateValue]:
    """The values as of a commit, by key, behind `after`; of these keys, or of all."""
    bound: dict[str, Any] = {
        "scope_key": scope_key,
        "thread_key": thread_key,
        "commit_sequence": commit_sequence,
        "open_run_id": open_run_id or "",
        "after": after,
        "count": count,
    }
    if keys:
        bound["keys"] = padded(sorted(set(keys)))
    rows = connection.execute(_VIEW_SOME if keys else _VIEW, bound).mappings()
    return [value_of(row) for row in rows]


_DECLARATION_FIELDS = tuple(field.name for field in fields(Declaration))


def declaration_of(row: Any) -> Declaration:
    """A declaration from its row."""
    found = {name: row[name] for name in _DECLARATION_FIELDS}
    if found["schema_json"] is not None:
        found["schema_json"] = bytes(found["schema_json"]).decode()
    return Declaration(**found)


def _declaration_row(scope_key: str, declaration: Declaration) -> dict[str, Any]:
    row = {name: getattr(declaration, name) for name in _DECLARATION_FIELDS}
    if declaration.schema_json is not None:
        row["schema_json"] = declaration.schema_json.encode()
    return {"scope_key": scope_key, **row}


def value_of(row: Any) -> StateValue:
    """A value from its row."""
    moment: datetime = row["create_time"]
    return StateValue(
        row["key"],
        row["version"],
        row["schema_version"],
        None if row["value"] is None else bytes(row["value"]),
        row["commit_sequence"],
        row["run_id"],
        Actor(row["actor_kind"], row["actor_id"]),
        moment,
    )


def _value_row(thread_key: str, value: StateValue) -> dict[str, Any]:
    return {
        "thread_key": thread_key,
        "key": value.key,
        "commit_sequence": value.commit_sequence,
        "version": value.version,
        "schema_version": value.schema_version,
        "value": value.value,
        "run_id": value.run_id,
        "actor_kind": value.actor.kind,
        "actor_id": value.actor.id,
        "create_time": value.create_time,
    }
