"""Adds up the tokens of messages, by day, agent and model (P4)."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Any

import sqlalchemy as sa

from threadkeep_chassis.database import Connection, utc_day
from threadkeep_chassis.paging import after_key
from threadkeep_projection.domain.values import Usage
from threadkeep_projection.store import rows
from threadkeep_projection.tables import messages, sessions, tasks

DAY, AGENT, MODEL = "day", "agent_name", "model"

_m = messages.c
_FROM = messages.outerjoin(tasks, sa.and_(tasks.c.scope_key == _m.scope_key, tasks.c.task_id == _m.task_id)).outerjoin(
    sessions, sa.and_(sessions.c.scope_key == _m.scope_key, sessions.c.session_id == _m.session_id)
)
_NONE = sa.literal_column("''", sa.Text())
_AGENT = sa.func.coalesce(tasks.c.agent_name, sessions.c.agent_name, _NONE)
_MODEL = sa.func.coalesce(_m.model, _NONE)
_KEYS: dict[str, sa.ColumnElement[str]] = {DAY: utc_day(_m.create_time), AGENT: _AGENT, MODEL: _MODEL}


@dataclass(frozen=True)
class UsageFilter:
    """What is told apart, and which messages count. None: all."""

    keys: frozenset[str] = frozenset()
    session_id: str | None = None
    agent_name: str | None = None
    model: str | None = None
    created_from: datetime | None = None
    created_before: datetime | None = None


@dataclass(frozen=True)
class UsageTotal:
    """A sum. What was not asked for is empty."""

    day: str
    agent_name: str
    model: str
    message_count: int
    usage: Usage

    @property
    def key(self) -> tuple[str, str, str]:
        """What the list is sorted by."""
        return self.day, self.agent_name, self.model


async def list_usage(
    connection: Connection, scope_key: str, wanted: UsageFilter, after: Sequence[Any] | None, limit: int
) -> list[UsageTotal]:
    """Sums by (day, agent, model), after that key. Reads the messages of the scope and time asked for, by index."""
    grouped = [_KEYS[name] for name in _KEYS if name in wanted.keys]
    statement = (
        sa.select(
            *((_KEYS[name] if name in wanted.keys else _NONE).label(name) for name in _KEYS),
            sa.func.count().label("message_count"),
            *(sa.cast(sa.func.sum(_m[name]), sa.BigInteger).label(name) for name in _TOKENS),
        )
        .select_from(_FROM)
        .where(_m.scope_key == scope_key, _m.total_tokens.is_not(None))
    )
    if wanted.session_id is not None:
        statement = statement.where(_m.session_id == wanted.session_id)
    if wanted.agent_name is not None:
        statement = statement.where(_KEYS[AGENT] == wanted.agent_name)
    if wanted.model is not None:
        statement = statement.where(_m.model == wanted.model)
    if wanted.created_from is not None:
        statement = statement.where(_m.create_time >= wanted.created_from)
    if wanted.created_before is not None:
        statement = statement.where(_m.create_time < wanted.created_before)
    # Without keys there is one group only if there is a message.
    statement = statement.group_by(*grouped) if grouped else statement.having(sa.func.count() > 0)
    sums = statement.subquery("sums")
    order = [sums.c[name] for name in _KEYS]
    listed = sa.select(sums).order_by(*order).limit(limit)
    if after is not None:
        listed = listed.where(after_key(order, after))
    return [
        UsageTotal(row.day, row.agent_name, row.model, row.message_count, rows.usage_of(row))
        for row in await connection.execute(listed)
    ]


_TOKENS = ("input_tokens", "output_tokens", "total_tokens")
