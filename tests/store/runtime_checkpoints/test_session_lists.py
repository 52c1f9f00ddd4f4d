"""A list of sessions reads no checkpoint, however many and large they are (B22)."""

import json
from typing import Any

import pytest
import sqlalchemy as sa
from sqlalchemy.engine import Connection

from tests.store.runtime_checkpoints.conftest import SCOPE_KEY, Tables, put
from threadkeep_runtime.domain.checkpoints import ChannelValue
from threadkeep_runtime.store.reads import ListQuery, list_sessions


def _statements(connection: Connection) -> list[tuple[str, Any]]:
    """What a page of sessions asks the database."""
    asked: list[tuple[str, Any]] = []

    def note(_: Any, __: Any, statement: str, parameters: Any, *___: Any) -> None:
        asked.append((statement, parameters))

    sa.event.listen(connection, "before_cursor_execute", note)
    assert len(list_sessions(connection, ListQuery(SCOPE_KEY, 50, None))) == 2
    sa.event.remove(connection, "before_cursor_execute", note)
    return asked


async def _fill(tables: Tables) -> None:
    for start in range(0, 400, 50):
        values = [
            (str(number), ChannelValue("a", str(number), "bytes", bytes([number % 251]) * 50_000))
            for number in range(start, start + 50)
        ]
        await tables.change("session-1", *(put(name, value) for name, value in values))


@pytest.mark.rule("R23", "R20")
@pytest.mark.case("B22")
async def test_a_page_of_sessions_names_no_table_of_checkpoints(tables: Tables) -> None:
    async with tables.database.read() as connection:
        asked = await connection.run_on_schema(_statements)
    assert asked
    assert not [
        statement for statement, _ in asked if "checkpoint_blobs" in statement or "FROM checkpoints" in statement
    ]


@pytest.mark.rule("R23", "R20")
@pytest.mark.case("B22")
@pytest.mark.suite(backends=["postgres"])
async def test_a_page_of_sessions_reads_as_many_pages_beside_large_checkpoints_as_without(tables: Tables) -> None:
    def pages(connection: Connection) -> int:
        read = 0
        for statement, parameters in _statements(connection):
            explained = connection.exec_driver_sql(f"EXPLAIN (ANALYZE, BUFFERS, FORMAT JSON) {statement}", parameters)
            plan = explained.scalar_one()
            plan = json.loads(plan) if isinstance(plan, str) else plan
            read += plan[0]["Plan"]["Shared Hit Blocks"] + plan[0]["Plan"]["Shared Read Blocks"]
        return read

    async def read() -> int:
        async with tables.database.read() as connection:
            return await connection.run_on_schema(pages)

    before = await read()
    await _fill(tables)
    assert before > 0
    assert await read() <= before + 1
