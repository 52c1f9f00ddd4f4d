"""Reads one value piece by piece: what a reply left out because it is large (B92)."""

from __future__ import annotations

from typing import Any, NamedTuple

import sqlalchemy as sa
from sqlalchemy.engine import Connection

from threadkeep_chassis.database import Bytes
from threadkeep_runtime.domain.checkpoints import unversioned_key
from threadkeep_runtime.store.statements import of_living
from threadkeep_runtime.tables import checkpoint_blobs, checkpoint_writes


class ValueName(NamedTuple):
    """Where a value lies: a channel's version, or (`task_id` given) a pending write of a checkpoint."""

    thread_key: str
    checkpoint_ns: str
    checkpoint_id: str
    channel: str = ""
    version: str = ""
    """Empty: the channel has none."""
    task_id: str | None = None
    write_index: int = 0

    @property
    def may_change(self) -> bool:
        """True for what a later put or write of the same name replaces: it is read in one piece."""
        return not self.version if self.task_id is None else self.write_index < 0


_B, _W = checkpoint_blobs.c, checkpoint_writes.c
_FIRST, _COUNT = sa.bindparam("first", type_=sa.Integer()), sa.bindparam("count", type_=sa.Integer())


def _piece(blob: Any) -> Any:
    return sa.func.substr(blob, _FIRST, _COUNT, type_=Bytes())


_OF_CHANNEL = sa.select(sa.func.length(_B.blob), _piece(_B.blob)).where(
    _B.thread_id == sa.bindparam("thread"),
    of_living(_B.thread_id),
    _B.checkpoint_ns == sa.bindparam("ns"),
    _B.channel == sa.bindparam("channel"),
    _B.version == sa.bindparam("version"),
)
_OF_WRITE = sa.select(sa.func.length(_W.blob), _piece(_W.blob)).where(
    _W.thread_id == sa.bindparam("thread"),
    of_living(_W.thread_id),
    _W.checkpoint_ns == sa.bindparam("ns"),
    _W.checkpoint_id == sa.bindparam("id"),
    _W.task_id == sa.bindparam("task"),
    _W.idx == sa.bindparam("index"),
)


def read_piece(connection: Connection, name: ValueName, start: int, count: int) -> tuple[int, bytes] | None:
    """The value's size, and up to `count` bytes of it from `start` on; None if it is not there."""
    parameters: dict[str, Any] = {
        "thread": name.thread_key,
        "ns": name.checkpoint_ns,
        "first": start + 1,
        "count": count,
    }
    if name.task_id is None:
        version = name.version or unversioned_key(name.checkpoint_id)
        row = connection.execute(_OF_CHANNEL, {**parameters, "channel": name.channel, "version": version}).first()
    else:
        written = {"id": name.checkpoint_id, "task": name.task_id, "index": name.write_index}
        row = connection.execute(_OF_WRITE, {**parameters, **written}).first()
    return None if row is None or row[0] is None else (row[0], bytes(row[1]))
