"""Staged values: chunks that wait for the commit that names them (B92). What no commit uses up is swept."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from datetime import datetime

import sqlalchemy as sa
from sqlalchemy.engine import Connection

from threadkeep_chassis.database import locked_in_key_order, upsert
from threadkeep_runtime.domain.checkpoints import StagedValue
from threadkeep_runtime.store.statements import one_of, padded
from threadkeep_runtime.tables import staged_chunks

_S = staged_chunks.c
_SCOPE = _S.scope_key == sa.bindparam("of_scope")
_VALUE = _S.staged_id == sa.bindparam("of_value")
_PUT = upsert(staged_chunks, ["scope_key", "staged_id", "idx"], update=["size", "create_time", "chunk"])
_SIZES = sa.select(
    sa.func.coalesce(sa.func.sum(_S.size), 0),
    sa.func.coalesce(sa.func.sum(sa.case((_VALUE, _S.size), else_=0)), 0),
).where(_SCOPE, sa.not_(sa.and_(_VALUE, _S.idx == sa.bindparam("but"))))
# The lock keeps a sweep away until the commit has copied the chunks.
_LOCK = locked_in_key_order(
    sa.select(_S.staged_id, _S.idx, _S.size).where(_SCOPE, one_of(_S.staged_id, "ids")), _S.staged_id, _S.idx
)
_CHUNKS = sa.select(_S.chunk).where(_SCOPE, _VALUE).order_by(_S.idx)
_DISCARD = sa.delete(staged_chunks).where(_SCOPE, one_of(_S.staged_id, "ids"))
_latest = staged_chunks.alias("latest")
_IS_OLD = ~sa.exists().where(
    _latest.c.scope_key == _S.scope_key,
    _latest.c.staged_id == _S.staged_id,
    _latest.c.create_time >= sa.bindparam("limit"),
)
_OLD = (
    sa.select(_S.scope_key, _S.staged_id, _S.idx)
    .where(_S.create_time < sa.bindparam("limit"), _IS_OLD)
    .order_by(_S.scope_key, _S.staged_id, _S.idx)
    .limit(sa.bindparam("most"))
)
# Said again: a chunk may have been staged anew since they were found.
_SWEEP = sa.delete(staged_chunks).where(
    sa.tuple_(_S.scope_key, _S.staged_id, _S.idx).in_(sa.bindparam("keys", expanding=True)),
    _S.create_time < sa.bindparam("limit"),
)


def stage_chunk(
    connection: Connection, scope_key: str, staged_id: str, index: int, chunk: bytes, now: datetime
) -> tuple[int, int]:
    """Stages one chunk. Returns the bytes that the scope, and the value, have staged with it."""
    sizes = {"of_scope": scope_key, "of_value": staged_id, "but": index}
    of_scope, of_value = connection.execute(_SIZES, sizes).one()
    connection.execute(
        _PUT,
        {
            "scope_key": scope_key,
            "staged_id": staged_id,
            "idx": index,
            "size": len(chunk),
            "create_time": now,
            "chunk": chunk,
        },
    )
    return int(of_scope) + len(chunk), int(of_value) + len(chunk)


def load_staged(connection: Connection, scope_key: str, staged_ids: Iterable[str]) -> dict[str, StagedValue]:
    """Locks the chunks of these values and says what is there, of those that have no gap."""
    ids = sorted(set(staged_ids))
    places: dict[str, list[tuple[int, int]]] = {}
    for staged_id, index, size in connection.execute(_LOCK, {"of_scope": scope_key, "ids": padded(ids)}):
        places.setdefault(staged_id, []).append((index, size))
    return {
        staged_id: StagedValue(staged_id, len(found), sum(size for _, size in found))
        for staged_id, found in places.items()
        if [index for index, _ in found] == list(range(len(found)))
    }


def staged_data(connection: Connection, scope_key: str, staged_id: str) -> bytes:
    """The value, whole."""
    return b"".join(map(bytes, connection.scalars(_CHUNKS, {"of_scope": scope_key, "of_value": staged_id})))


def discard_staged(connection: Connection, scope_key: str, staged_ids: Sequence[str]) -> None:
    """Deletes values that are used up."""
    connection.execute(_DISCARD, {"of_scope": scope_key, "ids": padded(sorted(set(staged_ids)))})


def sweep_staged(connection: Connection, older_than: datetime, most: int) -> int:
    """Deletes up to `most` chunks of values whose latest chunk is older; returns how many it found."""
    keys = [tuple(row) for row in connection.execute(_OLD, {"limit": older_than, "most": most})]
    if keys:
        connection.execute(_SWEEP, {"keys": padded(keys), "limit": older_than})
    return len(keys)
