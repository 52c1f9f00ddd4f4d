"""What a database error means: bad data, a collision worth replaying, or a connection that is gone.

SQLAlchemy wraps the driver's exceptions, and transaction statements come from the driver bare; both are understood.
"""

from __future__ import annotations

import sqlite3

import asyncpg
from sqlalchemy.exc import DBAPIError

from threadkeep_chassis.errors import DatabaseUnavailable

# Class 08: connection exceptions. 57P01 to 57P05: shutdown, crash, not yet up, dropped, idle. 25P03 and 25P04: the
# session was ended by our own time-outs. 53300: no connection slot.
_LOST = frozenset({"57P01", "57P02", "57P03", "57P04", "57P05", "25P03", "25P04", "53300"})
_STANDBY = "25006"
_PROTOCOL = "08P01"
# 55P03: our own lock_timeout; who holds the lock that long is about to be ended itself.
_COLLISION = frozenset({"40001", "40P01", "55P03"})
_SQLITE_BUSY = (sqlite3.SQLITE_BUSY, sqlite3.SQLITE_LOCKED)


class TransactionLost(DatabaseUnavailable):
    """The connection went away and the transaction is known not to have committed; it may be replayed."""

    default_message = "The database connection was lost; nothing was committed. Retry."


def sqlstate(error: BaseException) -> str:
    """The SQLSTATE of an error, or an empty string."""
    for candidate in _chain(error):
        state = getattr(candidate, "sqlstate", None)
        if isinstance(state, str):
            return state
    return ""


def is_data_error(error: BaseException) -> bool:
    """True if the values are at fault (SQLSTATE classes 22, 23, 54; SQLite constraints): other rows may still pass."""
    if sqlstate(error)[:2] in ("22", "23", "54"):
        return True
    return any(
        isinstance(candidate, (sqlite3.IntegrityError, sqlite3.DataError, asyncpg.DataError, OverflowError))
        for candidate in _chain(error)
    )


def is_unique_violation(error: BaseException) -> bool:
    """True if a unique key was taken."""
    if sqlstate(error) == "23505":
        return True
    return any(
        isinstance(candidate, sqlite3.IntegrityError)
        and getattr(candidate, "sqlite_errorcode", 0)
        in (sqlite3.SQLITE_CONSTRAINT_UNIQUE, sqlite3.SQLITE_CONSTRAINT_PRIMARYKEY)
        for candidate in _chain(error)
    )


def is_serialization(error: BaseException) -> bool:
    """True for collisions that a replay can cure: serialization failure, deadlock, lock time-out, SQLITE_BUSY."""
    if sqlstate(error) in _COLLISION:
        return True
    return any(
        isinstance(candidate, sqlite3.OperationalError)
        and getattr(candidate, "sqlite_errorcode", 0) & 0xFF in _SQLITE_BUSY
        for candidate in _chain(error)
    )


def is_connection_lost(error: BaseException) -> bool:
    """True if the connection or the server is gone, or could not be reached."""
    if isinstance(error, DBAPIError) and error.connection_invalidated:
        return True
    state = sqlstate(error)
    if (state[:2] == "08" and state != _PROTOCOL) or state in _LOST:
        return True
    for candidate in _chain(error):
        if isinstance(candidate, (ConnectionError, TimeoutError, asyncpg.CannotConnectNowError)):
            return True
        # The server's farewell arrived between two statements, and the driver is in the middle of reading it.
        if isinstance(candidate, asyncpg.InternalClientError):
            return True
        if isinstance(candidate, OSError) and not isinstance(candidate, (FileNotFoundError, PermissionError)):
            return True
        if isinstance(candidate, FileNotFoundError) and not isinstance(error, FileNotFoundError):
            return True
        if isinstance(candidate, asyncpg.InterfaceError) and "clos" in str(candidate):
            return True
    return False


def is_stale_plan(error: BaseException) -> bool:
    """True if a migration changed what a prepared statement of this connection returns; the next try prepares anew."""
    return any(isinstance(candidate, asyncpg.InvalidCachedStatementError) for candidate in _chain(error))


def is_standby(error: BaseException) -> bool:
    """True if a write was refused because the server is read-only, as after a failover to another one."""
    return sqlstate(error) == _STANDBY


def is_pooler_refusal(error: BaseException) -> bool:
    """True if a transaction pooler refused what only PostgreSQL itself takes (a start-up parameter)."""
    return sqlstate(error) == _PROTOCOL and "startup parameter" in str(error)


def _chain(error: BaseException) -> list[BaseException]:
    """The error, what SQLAlchemy wrapped in it, and what those came from; three levels are all there are."""
    found: list[BaseException] = []
    pending: list[BaseException | None] = [error]
    while pending and len(found) < 6:
        candidate = pending.pop(0)
        if candidate is None or candidate in found:
            continue
        found.append(candidate)
        if isinstance(candidate, DBAPIError):
            pending.append(candidate.orig)
        if found[0] is candidate or not isinstance(candidate, DBAPIError):
            pending.append(candidate.__cause__)
    return found
