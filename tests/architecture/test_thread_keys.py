"""What lets the runtime's tables be dealt out over machines by thread: keys that begin with the thread's.

RESULTS.md in tests/benchmarks says how far that goes, and where it does not.
"""

from collections.abc import Iterator

import pytest
import sqlalchemy as sa

from threadkeep_runtime.tables import metadata

THREAD_KEYS = ("thread_key", "thread_id")
"""LangGraph's tables call it thread_id."""

NO_THREAD = {
    "checkpoint_migrations", "log_floors", "log_partitions", "loop_owners", "manifests", "meta", "outbox_lines",
    "receipts", "retention_policies", "schedules", "scopes", "staged_chunks", "state_key_counters", "state_keys",
    "store_counters", "store_items",
}  # fmt: skip
"""Tables that belong to a scope, a target or the server. A new one has a reason to be here."""

ACROSS_THREADS = {
    "threads": [("scope_key", "session_id")],
    "events": [("partition", "position")],
    "tasks": [("scope_key", "task_id")],
    "runs": [("scope_key", "run_id")],
    "leases": [("scope_key", "run_id")],
    "tickets": [("scope_key", "ticket_id")],
    "outbox": [("scope_key", "message_id"), ("target_key", "dedupe_key"), ("target_key", "sequence")],
}
"""What is unique beyond one thread. A database that deals rows out by thread could not hold it, so the list stays
short; the page about scaling names it."""


def owned() -> Iterator[sa.Table]:
    for table in metadata.sorted_tables:
        if any(name in table.c for name in THREAD_KEYS) and table.name not in NO_THREAD:
            yield table


def unique_columns(table: sa.Table) -> Iterator[tuple[str, ...]]:
    for constraint in table.constraints:
        if isinstance(constraint, sa.UniqueConstraint):
            yield tuple(column.name for column in constraint.columns)
    for index in table.indexes:
        if index.unique:
            yield tuple(column.name for column in index.columns)


@pytest.mark.rule("R1", "R2")
def test_every_table_that_a_thread_owns_is_keyed_by_the_thread_first() -> None:
    assert {table.name for table in metadata.sorted_tables} == {table.name for table in owned()} | NO_THREAD
    for table in owned():
        assert next(iter(table.primary_key.columns)).name in THREAD_KEYS, table.name


@pytest.mark.rule("R1")
def test_references_between_tables_stay_within_a_thread() -> None:
    count = 0
    for table in metadata.sorted_tables:
        for reference in table.foreign_key_constraints:
            pairs = {(element.parent.name, element.column.name) for element in reference.elements}
            assert ("thread_key", "thread_key") in pairs, f"{table.name} refers to another thread's row"
            count += 1
    assert count >= 6


def test_what_is_unique_beyond_one_thread_is_listed() -> None:
    found = {
        table.name: sorted(columns for columns in unique_columns(table) if columns[0] not in THREAD_KEYS)
        for table in owned()
    }
    assert {name: columns for name, columns in found.items() if columns} == ACROSS_THREADS
