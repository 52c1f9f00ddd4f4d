"""Which blob ids count: staged by uploads, referred to by versions, dropped. The bytes are the blob store's.

Nothing here races, since every change of a blob's or stage's fate is one statement that compares and sets: a sweep that
condemns an unreferenced blob and an upload that refers to it again wait for the same row, and the loser sees it (B104).
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime

import sqlalchemy as sa

from threadkeep_artifacts.domain.values import StoredContent
from threadkeep_artifacts.tables import blobs, staged_blobs
from threadkeep_chassis.database import Connection, insert_or_ignore, locked_in_key_order


@dataclass(frozen=True)
class StageName:
    """A caller's name for an upload, inside its scope."""

    scope_key: str
    upload_id: str


async def open_stage(
    connection: Connection, blob_id: str, holder: str, now: datetime, name: StageName | None = None
) -> None:
    """Declares that a stream writes this blob's chunks from now on. What had the name before is given up."""
    row = {"blob_id": blob_id, "state": "OPEN", "touch_time": now, "holder": holder}
    if name is not None:
        # Its stream may be alive, and wake up: not dropped but abandoned.
        given_up = sa.update(staged_blobs).where(*_named(name))
        await connection.execute(given_up.values(state="ABANDONED", touch_time=now, scope_key=None, upload_id=None))
        row |= {"scope_key": name.scope_key, "upload_id": name.upload_id}
    await connection.execute(sa.insert(staged_blobs), row)


async def find_stage(connection: Connection, name: StageName) -> str | None:
    """The blob id of the open upload of that name."""
    statement = sa.select(staged_blobs.c.blob_id).where(*_named(name), staged_blobs.c.state == "OPEN")
    found: str | None = await connection.scalar(statement)
    return found


async def take_over(connection: Connection, name: StageName, holder: str, now: datetime) -> str | None:
    """Makes another stream the writer of the upload of that name; gives its blob id, None if there is none."""
    statement = sa.update(staged_blobs).where(*_named(name), staged_blobs.c.state == "OPEN")
    statement = statement.values(holder=holder, touch_time=now)
    found: str | None = await connection.scalar(statement.returning(staged_blobs.c.blob_id))
    return found


async def touch_stage(connection: Connection, blob_id: str, holder: str, now: datetime) -> bool:
    """Shows that the upload lives. False if it was given up, or another stream writes it: nothing may be written."""
    statement = sa.update(staged_blobs).where(*_held(blob_id, holder)).values(touch_time=now)
    return (await connection.execute(statement.returning(staged_blobs.c.blob_id))).first() is not None


async def close_stage(connection: Connection, blob_id: str, holder: str) -> bool:
    """Ends the staging, since the chunks become content now. False if the stream lost it before."""
    statement = sa.delete(staged_blobs).where(*_held(blob_id, holder)).returning(staged_blobs.c.blob_id)
    return (await connection.execute(statement)).first() is not None


async def drop_stage(connection: Connection, blob_id: str, holder: str, now: datetime) -> None:
    """Gives the staged chunks to the sweep, unless they became content or the stream lost them."""
    statement = sa.update(staged_blobs).where(*_held(blob_id, holder))
    await connection.execute(statement.values(state="DROPPED", touch_time=now, scope_key=None, upload_id=None))


async def refer_again(connection: Connection, scope_key: str, sha256: str) -> bool:
    """Adds a reference to content that the scope has. False if it has none of this digest."""
    return await _add_reference(connection, scope_key, sha256) is not None


async def refer(connection: Connection, scope_key: str, content: StoredContent, now: datetime) -> bool:
    """Adds a reference to the scope's content of this digest; True if it is new. Other chunks of it are dropped."""
    kept, is_new = await _add_reference(connection, scope_key, content.sha256), False
    if kept is None:
        row = {
            "scope_key": scope_key,
            "sha256": content.sha256,
            "blob_id": content.blob_id,
            "size": content.size,
            "chunk_bytes": content.chunk_bytes,
            "chunk_digests": content.chunk_digests,
            "reference_count": 1,
        }
        statement = insert_or_ignore(blobs, ["scope_key", "sha256"]).values(row).returning(blobs.c.blob_id)
        kept = (await connection.execute(statement)).scalar()
        is_new = kept is not None
    if kept is None:
        # Another upload of the same content committed in between.
        kept = await _add_reference(connection, scope_key, content.sha256)
    if kept != content.blob_id:
        row = {"blob_id": content.blob_id, "state": "DROPPED", "touch_time": now}
        await connection.execute(sa.insert(staged_blobs), row)
        return False
    return is_new


async def release(connection: Connection, scope_key: str, counts: Mapping[str, int], now: datetime) -> None:
    """Takes back references: how many, by digest."""
    if not counts:
        return
    # In key order, so that two deletes can't deadlock.
    of_scope = sa.select(blobs.c.sha256).where(blobs.c.scope_key == scope_key, blobs.c.sha256.in_(list(counts)))
    await connection.execute(locked_in_key_order(of_scope, blobs.c.sha256))
    left = blobs.c.reference_count - sa.bindparam("count", type_=sa.BigInteger)
    statement = (
        sa.update(blobs)
        .where(blobs.c.scope_key == sa.bindparam("scope"), blobs.c.sha256 == sa.bindparam("digest"))
        .values(
            reference_count=left,
            unreferenced_time=sa.case(
                (left == 0, sa.bindparam("now", type_=blobs.c.unreferenced_time.type)), else_=sa.null()
            ),
        )
    )
    for digest in sorted(counts):
        row = {"scope": scope_key, "digest": digest, "count": counts[digest], "now": now}
        await connection.execute(statement, row)


async def abandon_stages(connection: Connection, silent_since: datetime, now: datetime) -> int:
    """Gives up uploads that have not shown themselves since then; says how many."""
    statement = (
        sa.update(staged_blobs)
        .where(staged_blobs.c.state == "OPEN", staged_blobs.c.touch_time < silent_since)
        .values(state="ABANDONED", touch_time=now, scope_key=None, upload_id=None)
        .returning(staged_blobs.c.blob_id)
    )
    return len((await connection.execute(statement)).all())


async def list_unreferenced(
    connection: Connection, unreferenced_since: datetime, at_most: int
) -> Mapping[str, Sequence[str]]:
    """Blob ids of content that nothing has referred to since then, by scope key."""
    old = (
        sa.select(blobs.c.scope_key, blobs.c.blob_id)
        .where(blobs.c.unreferenced_time < unreferenced_since)
        .order_by(blobs.c.unreferenced_time)
        .limit(at_most)
    )
    found: dict[str, list[str]] = {}
    for row in await connection.execute(old):
        found.setdefault(row.scope_key, []).append(row.blob_id)
    return found


async def condemn(
    connection: Connection, blob_ids: Sequence[str], unreferenced_since: datetime, now: datetime
) -> tuple[int, int]:
    """Gives content of one scope to the sweep; says how many blobs, and how many bytes.

    The statement decides, not the look before: a reference that came in between stays.
    """
    condemned = (
        sa.delete(blobs)
        .where(
            blobs.c.blob_id.in_(blob_ids), blobs.c.reference_count == 0, blobs.c.unreferenced_time < unreferenced_since
        )
        .returning(blobs.c.blob_id, blobs.c.size)
    )
    gone = (await connection.execute(condemned)).all()
    if gone:
        rows = [{"blob_id": row.blob_id, "state": "DROPPED", "touch_time": now} for row in gone]
        await connection.execute(sa.insert(staged_blobs), rows)
    return len(gone), sum(row.size for row in gone)


async def list_removable(connection: Connection, at_most: int) -> Sequence[str]:
    """Blob ids whose chunks can go, oldest first: dropped ones before abandoned ones."""
    found: list[str] = []
    for state in ("DROPPED", "ABANDONED"):
        statement = sa.select(staged_blobs.c.blob_id).where(staged_blobs.c.state == state)
        statement = statement.order_by(staged_blobs.c.touch_time, staged_blobs.c.blob_id).limit(at_most - len(found))
        found += [row.blob_id for row in await connection.execute(statement)]
    return found


async def forget_stage(connection: Connection, blob_id: str, abandoned_before: datetime) -> None:
    """Forgets a blob id whose chunks are gone; an abandoned one only later, since its writer may wake up."""
    statement = sa.delete(staged_blobs).where(
        staged_blobs.c.blob_id == blob_id,
        sa.or_(
            staged_blobs.c.state == "DROPPED",
            sa.and_(staged_blobs.c.state == "ABANDONED", staged_blobs.c.touch_time < abandoned_before),
        ),
    )
    await connection.execute(statement)


async def postpone_stage(connection: Connection, blob_id: str, now: datetime) -> None:
    """Puts a blob id whose chunks could not be removed behind the others, so that it does not keep them waiting."""
    statement = sa.update(staged_blobs).where(staged_blobs.c.blob_id == blob_id, staged_blobs.c.state != "OPEN")
    await connection.execute(statement.values(touch_time=now))


def _held(blob_id: str, holder: str) -> tuple[sa.ColumnElement[bool], ...]:
    return staged_blobs.c.blob_id == blob_id, staged_blobs.c.state == "OPEN", staged_blobs.c.holder == holder


def _named(name: StageName) -> tuple[sa.ColumnElement[bool], ...]:
    return staged_blobs.c.scope_key == name.scope_key, staged_blobs.c.upload_id == name.upload_id


async def _add_reference(connection: Connection, scope_key: str, sha256: str) -> str | None:
    statement = (
        sa.update(blobs)
        .where(blobs.c.scope_key == scope_key, blobs.c.sha256 == sha256)
        .values(reference_count=blobs.c.reference_count + 1, unreferenced_time=None)
        .returning(blobs.c.blob_id)
    )
    kept: str | None = (await connection.execute(statement)).scalar()
    return kept
