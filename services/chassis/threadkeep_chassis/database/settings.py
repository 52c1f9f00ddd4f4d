"""How a service reaches its database, with the defaults and why."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class DatabaseSettings:
    """All durations in seconds."""

    pool_size: int = 10
    """Sessions that one process keeps at most, beside dedicated ones."""
    pool_timeout_seconds: float = 10.0
    """How long a call waits for a free session before DATABASE_UNAVAILABLE."""
    connect_timeout_seconds: float = 10.0
    idle_in_transaction_timeout_seconds: float = 10.0
    """PostgreSQL ends a session that stays silent inside a transaction: a stopped replica must not block others."""
    transaction_timeout_seconds: float = 60.0
    """PostgreSQL 17 and newer end a write transaction that takes longer."""
    lock_timeout_seconds: float = 10.0
    """How long a statement waits for a row lock."""
    ping_after_idle_seconds: float = 1.0
    """A session unused for longer is tried before use: firewalls and poolers drop idle connections silently (B45)."""
    commit_outcome_timeout_seconds: float = 5.0
    """How long a lost COMMIT is asked about before COMMIT_UNKNOWN (X7)."""
    retries: int = 10
    """How often `retrying` replays a collision before CONTENTION."""
    busy_timeout_seconds: float = 10.0
    """How long SQLite waits for a lock held by another process (a backup, say)."""
    sqlite_readers: int = 4
    """Reading connections of a SQLite file (WAL: they don't wait for the writer)."""
