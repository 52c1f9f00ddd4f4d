"""Counts by state, and what agents have done: added up by index when asked for, so they are exact (P4)."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Any

import sqlalchemy as sa

from threadkeep_chassis.database import Connection
from threadkeep_projection.domain.projector import TERMINAL_TASK_STATES
from threadkeep_projection.domain.values import Usage
from threadkeep_projection.store import rows
from threadkeep_projection.store.reads import SummaryFilter
from threadkeep_projection.tables import runs, sessions, tasks

_t = tasks.c


@dataclass(frozen=True)
class AgentView:
    """What an agent has done."""

    agent_name: str
    task_count: int
    failed_task_count: int
    open_task_count: int
    run_count: int
    usage: Usage
    last_activity_time: datetime


@dataclass(frozen=True)
class Counts:
    """(state, how many), by state."""

    sessions: Sequence[tuple[str, int]]
    tasks: Sequence[tuple[str, int]]
    runs: Sequence[tuple[str, int]]


def _number_of(condition: sa.ColumnElement[bool]) -> sa.ColumnElement[int]:
    return sa.func.count(sa.case((condition, 1)))


def _sum(column: sa.Column[int]) -> sa.ColumnElement[int]:
    return sa.cast(sa.func.sum(column), sa.BigInteger)


_RUNS = (
    sa.select(sa.func.count())
    .select_from(runs)
    .where(runs.c.scope_key == _t.scope_key, runs.c.agent_name == _t.agent_name)
    .scalar_subquery()
)


async def list_agents(
    connection: Connection, scope_key: str, agent_name: str | None, after: Sequence[Any] | None, limit: int
) -> list[AgentView]:
    """Agents that tasks were submitted for, by name, after the key (agent_name,)."""
    statement = sa.select(
        _t.agent_name,
        sa.func.count().label("task_count"),
        _number_of(_t.state == "FAILED").label("failed_task_count"),
        _number_of(_t.state.not_in(sorted(TERMINAL_TASK_STATES))).label("open_task_count"),
        _RUNS.label("run_count"),
        *(_sum(_t[name]).label(name) for name in ("input_tokens", "output_tokens", "total_tokens")),
        sa.func.max(_t.update_time, type_=_t.update_time.type).label("last_activity_time"),
    ).where(_t.scope_key == scope_key)
    if agent_name is not None:
        statement = statement.where(_t.agent_name == agent_name)
    if after is not None:
        statement = statement.where(_t.agent_name > after[0])
    statement = statement.group_by(_t.scope_key, _t.agent_name).order_by(_t.agent_name).limit(limit)
    return [
        AgentView(
            row.agent_name,
            row.task_count,
            row.failed_task_count,
            row.open_task_count,
            row.run_count,
            rows.usage_of(row),
            row.last_activity_time,
        )
        for row in await connection.execute(statement)
    ]


async def count_all(connection: Connection, scope_key: str, wanted: SummaryFilter) -> Counts:
    """How many sessions, tasks and runs there are in each state."""
    return Counts(
        await _count(connection, sessions, sessions.c.status, scope_key, wanted),
        await _count(connection, tasks, _t.state, scope_key, wanted),
        await _count(connection, runs, runs.c.state, scope_key, wanted),
    )


async def _count(
    connection: Connection, table: sa.Table, state: sa.ColumnElement[str], scope_key: str, wanted: SummaryFilter
) -> list[tuple[str, int]]:
    return [(row.state, row.number) for row in await connection.execute(counting(table, state, scope_key, wanted))]


def counting(
    table: sa.Table, state: sa.ColumnElement[str], scope_key: str, wanted: SummaryFilter
) -> sa.Select[str, int]:
    """The statement that counts a table's rows by state."""
    statement = sa.select(state.label("state"), sa.func.count().label("number")).where(table.c.scope_key == scope_key)
    if wanted.agent_name is not None:
        statement = statement.where(table.c.agent_name == wanted.agent_name)
    if wanted.created_from is not None:
        statement = statement.where(table.c.create_time >= wanted.created_from)
    if wanted.created_before is not None:
        statement = statement.where(table.c.create_time < wanted.created_before)
    return statement.group_by(state).order_by(state)
