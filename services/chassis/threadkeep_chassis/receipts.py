"""Idempotency receipts (X3): one effect per request_id, and the first response again for a replay.

Simple services wrap a mutation in `idempotent`. The runtime's pipeline uses `find_receipts`, `check_receipt` and
`insert_receipts` inside its own transactions.
"""

from __future__ import annotations

import hashlib
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Any, TypeVar

import sqlalchemy as sa
from google.protobuf.message import Message

from threadkeep_chassis.database import Bytes, Connection, Database, Key, UtcTimestamp, is_unique_violation
from threadkeep_chassis.errors import RequestIdReused, ThreadkeepError, Unavailable
from threadkeep_chassis.scope import Call

ResponseT = TypeVar("ResponseT", bound=Message)

RECEIPT_TTL = timedelta(hours=24)
"""How long a receipt is kept at least."""


def receipts_table(metadata: sa.MetaData, *more: sa.Column[Any]) -> sa.Table:
    """Declares `receipts`. The service's migrations create it with the index on create_time.

    `more`: columns of the service's own; they have defaults.
    """
    return sa.Table(
        "receipts",
        metadata,
        sa.Column("scope_key", Key(), primary_key=True),
        sa.Column("request_id", Key(), primary_key=True),
        sa.Column("method", sa.Text(), nullable=False),
        sa.Column("fingerprint", Bytes(), nullable=False),
        sa.Column("response", Bytes(), nullable=False),
        sa.Column("create_time", UtcTimestamp(), nullable=False),
        *more,
        sa.Index("receipts_by_create_time", "create_time"),
    )


_TABLE = receipts_table(sa.MetaData())
_ONE = sa.select(_TABLE.c.fingerprint, _TABLE.c.response).where(
    _TABLE.c.scope_key == sa.bindparam("scope_key"), _TABLE.c.request_id == sa.bindparam("request_id")
)
_MANY = sa.select(_TABLE.c.scope_key, _TABLE.c.request_id, _TABLE.c.fingerprint, _TABLE.c.response).where(
    sa.tuple_(_TABLE.c.scope_key, _TABLE.c.request_id).in_(sa.bindparam("keys", expanding=True))
)
_INSERT = sa.insert(_TABLE)


@dataclass(frozen=True)
class Receipt:
    """A stored receipt."""

    fingerprint: bytes
    response: bytes


def fingerprint(method: str, request: Message) -> bytes:
    """SHA-256 over the method's full name and the request, serialised deterministically: equal for equal requests."""
    return hashlib.sha256(method.encode() + b"\x00" + request.SerializeToString(deterministic=True)).digest()


def check_receipt(receipt: Receipt | None, expected: bytes) -> bytes | None:
    """The stored response if the receipt is of the same request; None without a receipt. Raises RequestIdReused."""
    if receipt is None:
        return None
    if receipt.fingerprint != expected:
        raise RequestIdReused()
    return receipt.response


async def find_receipt(connection: Connection, scope_key: str, request_id: str) -> Receipt | None:
    """Reads one receipt."""
    row = (await connection.execute(_ONE, {"scope_key": scope_key, "request_id": request_id})).first()
    return None if row is None else Receipt(bytes(row.fingerprint), bytes(row.response))


async def find_receipts(connection: Connection, keys: Sequence[tuple[str, str]]) -> dict[tuple[str, str], Receipt]:
    """Reads the receipts of many (scope_key, request_id) in one statement."""
    if not keys:
        return {}
    rows = await connection.execute(_MANY, {"keys": list(keys)})
    return {(row.scope_key, row.request_id): Receipt(bytes(row.fingerprint), bytes(row.response)) for row in rows}


def receipt_row(
    scope_key: str, request_id: str, method: str, print_: bytes, response: bytes, create_time: datetime
) -> dict[str, object]:
    """One row for `insert_receipts`."""
    return {
        "scope_key": scope_key,
        "request_id": request_id,
        "method": method,
        "fingerprint": print_,
        "response": response,
        "create_time": create_time,
    }


async def insert_receipts(connection: Connection, rows: Sequence[dict[str, object]]) -> None:
    """Writes receipts, in key order so that two batches can't deadlock. A taken key is a unique violation."""
    if rows:
        await connection.execute(_INSERT, sorted(rows, key=lambda row: (row["scope_key"], row["request_id"])))


async def idempotent(
    database: Database,
    call: Call,
    request: Message,
    response_type: type[ResponseT],
    work: Callable[[Connection], Awaitable[ResponseT]],
) -> ResponseT:
    """Runs a mutation once per request_id, in one transaction with its receipt.

    `request` has a `request_id`. `work` does its statements on the given connection and returns the response; it may
    run more than once (collisions), so it has no other effect. A replay returns the first response and is marked in the
    trailing metadata. Raises RequestIdReused, what `work` raises, and what `Database.retrying` raises.
    """
    request_id: str = request.request_id  # type: ignore[attr-defined]
    return await once(database, call, request_id, fingerprint(call.method, request), response_type, work)


async def once(
    database: Database,
    call: Call,
    request_id: str,
    print_: bytes,
    response_type: type[ResponseT],
    work: Callable[[Connection], Awaitable[ResponseT]],
) -> ResponseT:
    """`idempotent` for a request that is no single message, such as a stream: `print_` is its fingerprint."""
    key = call.receipt_key

    async def attempt(connection: Connection) -> tuple[bool, bytes]:
        stored = check_receipt(await find_receipt(connection, key, request_id), print_)
        if stored is not None:
            return True, stored
        response = (await work(connection)).SerializeToString(deterministic=True)
        now = await connection.now() if database.backend == "postgresql" else database.clock.now()
        await insert_receipts(connection, [receipt_row(key, request_id, call.method, print_, response, now)])
        return False, response

    try:
        replayed, response = await database.retrying(attempt)
    except Exception as error:
        # Two at once: the loser sees the winner's rows before its receipt (the id is taken, the revision moved), or
        # the taken receipt key. Either way the winner's receipt says what happened.
        if isinstance(error, Unavailable) or not (isinstance(error, ThreadkeepError) or is_unique_violation(error)):
            raise
        async with database.read() as connection:
            stored = check_receipt(await find_receipt(connection, key, request_id), print_)
        if stored is None:
            raise
        replayed, response = True, stored
    if replayed:
        call.mark_replay()
    return response_type.FromString(response)


async def purge_receipts(database: Database, *, older_than: timedelta = RECEIPT_TTL, batch: int = 1000) -> int:
    """Deletes receipts past their time, one batch per transaction; returns how many went."""
    purged = 0
    while True:

        async def work(connection: Connection) -> int:
            limit = await connection.now() - older_than
            old = sa.select(_TABLE.c.scope_key, _TABLE.c.request_id).where(_TABLE.c.create_time < limit).limit(batch)
            keys = [tuple(row) for row in await connection.execute(old)]
            if keys:
                await connection.execute(
                    sa.delete(_TABLE).where(sa.tuple_(_TABLE.c.scope_key, _TABLE.c.request_id).in_(keys))
                )
            return len(keys)

        count = await database.retrying(work)
        purged += count
        if count < batch:
            return purged
