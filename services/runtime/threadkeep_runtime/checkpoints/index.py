"""What the tables say about checkpoints that a commit names: read under the thread's lock, where ids can't tell."""

from __future__ import annotations

from collections.abc import Mapping, Set

import sqlalchemy as sa
from sqlalchemy.engine import Connection

from threadkeep_runtime.store.statements import padded
from threadkeep_runtime.tables import checkpoints

_KEY = (checkpoints.c.thread_id, checkpoints.c.checkpoint_ns, checkpoints.c.checkpoint_id)
_EXISTING = sa.select(*_KEY).where(sa.tuple_(*_KEY).in_(sa.bindparam("keys", expanding=True)))
_GREATEST = (
    sa.select(checkpoints.c.checkpoint_id)
    .where(checkpoints.c.thread_id == sa.bindparam("thread_key"), checkpoints.c.checkpoint_ns == sa.bindparam("ns"))
    .order_by(checkpoints.c.checkpoint_id.desc())
    .limit(1)
)

Index = tuple[frozenset[tuple[str, str]], dict[str, str]]


def load_indexes(connection: Connection, wanted: Mapping[str, Set[tuple[str, str]]]) -> dict[str, Index]:
    """Per thread key: those of the wanted (checkpoint_ns, checkpoint_id) that have a row, and greatest ids.

    The greatest id of a namespace is looked up only if one of its ids is missing; that is where it decides. One
    statement, and one more for each such namespace.
    """
    keys = [(thread_key, *name) for thread_key, names in wanted.items() for name in sorted(names)]
    existing: dict[str, set[tuple[str, str]]] = {thread_key: set() for thread_key in wanted}
    if keys:
        for thread_key, namespace, checkpoint_id in connection.execute(_EXISTING, {"keys": padded(keys)}):
            existing[thread_key].add((namespace, checkpoint_id))
    found: dict[str, Index] = {}
    for thread_key, names in wanted.items():
        greatest: dict[str, str] = {}
        for namespace in sorted({namespace for namespace, _ in names - existing[thread_key]}):
            top = connection.scalar(_GREATEST, {"thread_key": thread_key, "ns": namespace})
            if top is not None:
                greatest[namespace] = top
        found[thread_key] = (frozenset(existing[thread_key]), greatest)
    return found
