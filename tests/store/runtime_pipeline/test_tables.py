"""The runtime's schema: the migrations' head is what the code declares, and what only the database can hold."""

import pytest
import sqlalchemy as sa
from sqlalchemy.ext.asyncio import create_async_engine

from tests.store.runtime_pipeline.gate import connection
from tests.support.runtime import Runtime
from tests.support.schema import schema_differences
from tests.support.suite import Suite
from threadkeep_chassis.migrations import migrate
from threadkeep_runtime.server import MIGRATIONS
from threadkeep_runtime.tables import metadata


@pytest.mark.rule("X14", "X12")
@pytest.mark.case("B42")
@pytest.mark.suite(backends=["sqlite", "postgres"])
async def test_the_head_of_the_migrations_is_what_the_code_declares(database_url: str, backend: str) -> None:
    await migrate(database_url, MIGRATIONS)
    if backend == "postgres":
        engine = create_async_engine(
            database_url.replace("postgresql://", "postgresql+asyncpg://"),
            connect_args={"server_settings": {"search_path": "runtime"}},
        )
    else:
        engine = create_async_engine(database_url.replace("sqlite:", "sqlite+aiosqlite:"))
    async with engine.connect() as opened:
        found = await opened.run_sync(lambda sync: schema_differences(sync, metadata))
        rows = (await opened.execute(sa.text("SELECT count(*), count(DISTINCT incarnation) FROM log_partitions"))).one()
    await engine.dispose()
    assert found == []
    assert tuple(rows) == (8 if backend == "postgres" else 1, 1)


@pytest.mark.rule("R5")
@pytest.mark.suite(backends=["sqlite", "postgres"], services=["config", "runtime"], topologies=["embedded"])
async def test_the_database_itself_holds_one_open_run_per_session(suite: Suite) -> None:
    await Runtime(suite).submit()
    insert = (
        "INSERT INTO runs (thread_key, run_id, scope_key, session_id, task_id, agent_name, state, epoch, crash_count, "
        "worker_id, queue, priority, create_time, first_event_sequence) SELECT thread_key, 'second', scope_key, "
        "session_id, task_id, agent_name, 'AWAITING', 0, 0, '', queue, 0, create_time, 1 FROM runs"
    )
    async with connection(suite) as owner:
        with pytest.raises(Exception, match=r"runs_one_open|UNIQUE constraint failed: runs\.thread_key"):
            await owner.execute(insert)
