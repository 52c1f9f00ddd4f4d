"""Every list of summaries goes by an index: none reads a table from end to end, none sorts all there is (P4)."""

import re
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from itertools import chain, combinations
from typing import Any

import pytest
import sqlalchemy as sa
from sqlalchemy.dialects import postgresql

from tests.store.projection.conftest import SCOPE, House
from threadkeep_projection.store import rows
from threadkeep_projection.store.reads import SummaryFilter, listing_runs, listing_sessions, listing_tasks

ROWS = 60_000
MOST_SORTED = ROWS // 10
START = datetime(2026, 1, 1, tzinfo=UTC)
TABLES = ("sessions", "tasks", "runs", "session_entries", "task_entries")

# Two agents, states of which one is common, sessions of ten tasks, one entry in two hundred rows and one in two.
FILL = """
INSERT INTO sessions (scope_key, session_id, subject, title, agent_name, metadata, status, message_count, task_count,
    run_count, input_count, create_time, update_time, event_sequence)
  SELECT SCOPE, 's' || n, 's' || n, '""', 'agent' || n % 2, '{}',
    CASE n % 9 WHEN 0 THEN 'RUNNING' ELSE 'IDLE' END, 0, 10, 10, 0, AT, AT, 1
  FROM NUMBERS;
INSERT INTO tasks (scope_key, task_id, session_id, agent_name, state, run_id, metadata, ticket_count, create_time,
    update_time)
  SELECT SCOPE, 't' || n, 's' || n / 10, 'agent' || n % 2, CASE n % 9 WHEN 0 THEN 'FAILED' WHEN 1 THEN 'WORKING'
    ELSE 'COMPLETED' END, 'r' || n, '{}', 0, AT, AT
  FROM NUMBERS;
INSERT INTO runs (scope_key, run_id, task_id, session_id, agent_name, state, cause, lease_count, step_count,
    create_time)
  SELECT SCOPE, 'r' || n, 't' || n, 's' || n / 10, 'agent' || n % 2,
    CASE n % 9 WHEN 0 THEN 'RUNNING' ELSE 'ENDED' END, '', 1, 1, AT
  FROM NUMBERS;
INSERT INTO session_entries (scope_key, session_id, entry, create_time)
  SELECT SCOPE, 's' || n, e.entry, AT FROM NUMBERS,
    ENTRIES WHERE n % e.nth = 0;
INSERT INTO task_entries (scope_key, task_id, entry, session_id, create_time)
  SELECT SCOPE, 't' || n, e.entry, 's' || n / 10, AT FROM NUMBERS,
    ENTRIES WHERE n % e.nth = 0;
ANALYZE;
"""
MEANT = {
    "AT": "CAST(:start AS timestamptz) + n * interval '1 second'",
    "SCOPE": "CAST(:scope AS text)",
    "NUMBERS": "generate_series(1, :rows) n",
    "ENTRIES": "(VALUES (CAST(:rare AS text), 200), (CAST(:common AS text), 2)) e (entry, nth)",
}

FILTERS: dict[str, tuple[dict[str, Any], ...]] = {
    "agent": ({"agent_name": "agent1"},),
    "state": ({"states": ("FAILED",)}, {"states": ("RUNNING",)}, {"states": ("WORKING", "IDLE", "ENDED", "COMPLETED")}),
    "metadata": ({"metadata": {"kind": "rare"}}, {"metadata": {"kind": "common"}}),
    "time": (
        {"created_from": START + timedelta(seconds=ROWS // 2)},
        {"created_from": START + timedelta(seconds=10), "created_before": START + timedelta(seconds=ROWS - 10)},
    ),
    "session": ({"session_id": "s77"},),
    "task": ({"task_id": "t777"},),
}
LISTS = {
    "sessions": (listing_sessions, ("agent", "state", "metadata", "time")),
    "tasks": (listing_tasks, ("agent", "state", "metadata", "time", "session")),
    "runs": (listing_runs, ("agent", "state", "time", "session", "task")),
}


def choices(names: tuple[str, ...]) -> Iterator[dict[str, Any]]:
    """Every set of filters, with each of their values."""
    for some in chain.from_iterable(combinations(names, n) for n in range(len(names) + 1)):
        found: list[dict[str, Any]] = [{}]
        for name in some:
            found = [{**before, **value} for before in found for value in FILTERS[name]]
        yield from found


def nodes(plan: dict[str, Any]) -> Iterator[dict[str, Any]]:
    yield plan
    for below in plan.get("Plans", ()):
        yield from nodes(below)


def faults(plan: dict[str, Any]) -> list[str]:
    """What of a plan costs more with every row that the table has."""
    found = []
    for node in nodes(plan):
        if node["Node Type"] == "Seq Scan" and node.get("Relation Name") in TABLES:
            found.append(f"reads all {node['Relation Name']}")
        if node["Node Type"] == "Sort" and node["Plans"][0]["Plan Rows"] > MOST_SORTED:
            found.append(f"sorts {node['Plans'][0]['Plan Rows']} rows")
    return found


@pytest.mark.suite(backends=["postgres"])
@pytest.mark.rule("P4")
async def test_every_filter_of_a_list_is_served_by_an_index(house: House) -> None:
    entries = {name: rows.entry_digest("kind", name) for name in ("rare", "common")}
    wrong: dict[str, list[str]] = {}
    async with house.databases[0].write() as connection:
        for statement in FILL.split(";")[:-1]:
            for short, meant in MEANT.items():
                statement = re.sub(rf"\b{short}\b", meant, statement)
            values = {"scope": SCOPE.key, "start": START, "rows": ROWS, **entries}
            used = {name: value for name, value in values.items() if f":{name}" in statement}
            await connection.execute(sa.text(statement), used)
        for table, (listing, names) in LISTS.items():
            for chosen in choices(names):
                for after in (None, (START + timedelta(seconds=ROWS // 3), "s1")):
                    statement = listing(SCOPE.key, SummaryFilter(**chosen), after).limit(51)
                    text = str(statement.compile(dialect=postgresql.dialect(), compile_kwargs={"literal_binds": True}))
                    (plan,) = await connection.scalar(sa.text("EXPLAIN (FORMAT JSON) " + text.replace(":", "\\:")))
                    found = faults(plan["Plan"])
                    if found:
                        wrong[f"{table} {chosen} {after}"] = found
    assert wrong == {}
