"""Nobody is locked in: LangGraph's own PostgreSQL saver works on what we wrote, and we on what it wrote (R20)."""

from typing import Any

import pytest
from langgraph.checkpoint.base import Checkpoint
from langgraph.checkpoint.postgres.aio import AsyncPostgresSaver
from langgraph.checkpoint.serde.jsonplus import JsonPlusSerializer
from psycopg import AsyncConnection
from psycopg.rows import dict_row

from tests.store.runtime_checkpoints.conftest import KEYS, SCOPE_KEY, Tables, put
from threadkeep_runtime.checkpoints import CheckpointQuery, load_checkpoint, page_keys
from threadkeep_runtime.domain.checkpoints import ChannelValue, CheckpointWrites, PendingWrite

pytestmark = pytest.mark.suite(backends=["postgres"])

ONE = KEYS["session-1"]
SERDE = JsonPlusSerializer()


async def stock_saver(tables: Tables) -> AsyncPostgresSaver:
    """The saver as its manual says, with our schema on its search path."""
    connection: AsyncConnection[dict[str, Any]] = await AsyncConnection.connect(
        tables.url, autocommit=True, prepare_threshold=0, row_factory=dict_row, options="-c search_path=runtime"
    )
    return AsyncPostgresSaver(connection)


def config(checkpoint_id: str | None = None, ns: str = "") -> Any:
    named = {} if checkpoint_id is None else {"checkpoint_id": checkpoint_id}
    return {"configurable": {"thread_id": ONE, "checkpoint_ns": ns, **named}}


def value(channel: str, version: str, content: Any) -> ChannelValue:
    return ChannelValue(channel, version, *SERDE.dumps_typed(content))


@pytest.mark.rule("R20")
async def test_the_stock_saver_reads_what_we_wrote(tables: Tables) -> None:
    messages = value("messages", "00000000000000000000000000000002.0.1", [{"role": "user", "content": "hi\x00"}])
    error = PendingWrite("task-1", -1, "__error__", *SERDE.dumps_typed("boom"))
    await tables.change(
        "session-1",
        put("1", parent=None),
        put(
            "2", messages, parent="1", document={"channel_values": {"count": 3}}, metadata={"step": 2, "source": "loop"}
        ),
        CheckpointWrites("", "2", (error,)),
    )
    saver = await stock_saver(tables)
    try:
        # Nothing is left for its set-up to do.
        await saver.setup()
        found = await saver.aget_tuple(config())
        assert found is not None
        assert found.checkpoint["id"] == "2"
        assert found.checkpoint["channel_values"] == {"count": 3, "messages": [{"role": "user", "content": "hi\x00"}]}
        assert found.metadata == {"step": 2, "source": "loop"}
        assert found.parent_config == config("1")
        assert found.pending_writes == [("task-1", "__error__", "boom")]
        listed = [one.checkpoint["id"] async for one in saver.alist(config(), filter={"step": 2})]
        assert listed == ["2"]
    finally:
        await saver.conn.close()


@pytest.mark.rule("R20")
async def test_we_read_what_the_stock_saver_wrote(tables: Tables) -> None:
    saver = await stock_saver(tables)
    checkpoint: Checkpoint = {
        "v": 4,
        "id": "1",
        "ts": "2026-01-01T00:00:00+00:00",
        "channel_values": {"count": 3, "messages": ["hello"]},
        "channel_versions": {"messages": "1.0", "count": "1.0"},
        "versions_seen": {},
        "updated_channels": None,
    }
    try:
        stored = await saver.aput(
            config(), checkpoint, {"source": "loop", "step": 1}, {"messages": "1.0", "count": "1.0"}
        )
        await saver.aput_writes(stored, [("messages", ["more"])], "task-1", "~path")
    finally:
        await saver.conn.close()
    found = (await tables.read(lambda c: load_checkpoint(c, ONE, "", None))).checkpoint
    assert found is not None
    assert [(one.channel, SERDE.loads_typed((one.type, one.data))) for one in found.channel_values] == [
        ("messages", ["hello"])
    ]
    assert b'"count": 3' in found.checkpoint_json
    assert found.metadata_json == b'{"step": 1, "source": "loop"}'
    assert [(one.task_id, one.task_path, SERDE.loads_typed((one.type, one.data))) for one in found.pending_writes] == [
        ("task-1", "~path", ["more"])
    ]
    (key,) = await tables.read(lambda c: page_keys(c, CheckpointQuery(SCOPE_KEY, ONE), None, 10))
    assert key.size > 0


@pytest.mark.rule("R20")
async def test_the_tables_are_those_that_the_stock_saver_makes(tables: Tables) -> None:
    connection = await AsyncConnection.connect(tables.url, autocommit=True, row_factory=dict_row)
    try:
        await connection.execute("CREATE SCHEMA stock")
        await connection.execute("SET search_path TO stock")
        await AsyncPostgresSaver(connection).setup()
        queries = (
            """SELECT table_name, column_name, data_type, is_nullable, column_default
               FROM information_schema.columns WHERE table_schema = %s AND table_name LIKE 'checkpoint%%'""",
            """SELECT tablename, indexname, replace(indexdef, schemaname || '.', '') AS definition
               FROM pg_indexes WHERE schemaname = %s AND tablename LIKE 'checkpoint%%' AND indexname LIKE '%%_pkey'""",
            "SELECT v FROM checkpoint_migrations WHERE %s <> ''",
        )
        for query in queries:
            stock = await (await connection.execute(query, ["stock"])).fetchall()
            await connection.execute("SET search_path TO runtime")
            ours = await (await connection.execute(query, ["runtime"])).fetchall()
            await connection.execute("SET search_path TO stock")
            assert [row for row in stock if row not in ours] == []
    finally:
        await connection.close()
