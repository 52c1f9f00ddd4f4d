"""LangGraph's tables without a server: a migrated database of each backend with two threads in it."""

import json
from collections.abc import AsyncIterator, Callable, Sequence
from datetime import UTC, datetime
from typing import Any, TypeVar

import pytest
import sqlalchemy as sa
from sqlalchemy.engine import Connection

from tests.support.databases import Databases
from tests.support.suite import migrate_one
from threadkeep_chassis.database import Database
from threadkeep_chassis.migrations import MigrationSet, prepare
from threadkeep_runtime.checkpoints import apply_changes
from threadkeep_runtime.domain.checkpoints import ChannelValue, CheckpointChange, CheckpointOp, CheckpointPut
from threadkeep_runtime.tables import threads

T = TypeVar("T")

SCOPE_KEY = "scope-1"
KEYS = {"session-1": "1" * 40, "session-2": "2" * 40, "foreign": "f" * 40}
NOW = datetime(2026, 1, 1, tzinfo=UTC)


class Tables:
    """The tables, and plain ways to use them."""

    def __init__(self, database: Database, url: str) -> None:
        self.database = database
        self.url = url

    async def read(self, work: Callable[[Connection], T]) -> T:
        """Reads."""
        async with self.database.read() as connection:
            return await connection.run(work)

    async def change(self, session: str, *ops: CheckpointOp, commit: int = 1, delete_all: bool = False) -> None:
        """What one commit does."""
        await self.change_many([CheckpointChange(KEYS[session], commit, ops, delete_all)])

    async def change_many(self, changes: Sequence[CheckpointChange]) -> None:
        """What one batch does."""
        async with self.database.write() as connection:
            await connection.run(lambda c: apply_changes(c, changes))


def put(
    checkpoint_id: str, *values: ChannelValue, ns: str = "", parent: str | None = None, **more: Any
) -> CheckpointPut:
    """A checkpoint with these values; `metadata` and `document` overwrite what it says."""
    document = {
        "v": 4,
        "id": checkpoint_id,
        "ts": "",
        "channel_values": {},
        "channel_versions": {value.channel: value.version for value in values if value.version},
        "versions_seen": {},
        "updated_channels": None,
        **more.get("document", {}),
    }
    metadata = more.get("metadata", {"source": "loop", "step": 1, "parents": {}})
    return CheckpointPut(
        ns,
        checkpoint_id,
        parent,
        more.get("raw") or json.dumps(document).encode(),
        more.get("raw_metadata") or json.dumps(metadata).encode(),
        values,
        more.get("value_versions"),
    )


@pytest.fixture
async def tables(databases: Databases, backend: str) -> AsyncIterator[Tables]:
    """The tables of one backend."""
    if backend == "postgres":
        url = await databases.migrated("runtime", lambda url: migrate_one(url, "runtime"))
    else:
        url = await databases.empty(backend)
        if backend == "sqlite":
            await migrate_one(url, "runtime")
    database = await Database.open(url, "runtime")
    await prepare(database, MigrationSet("runtime", "threadkeep_runtime"))
    async with database.write() as connection:
        await connection.execute(sa.insert(threads), [_thread(session, key) for session, key in KEYS.items()])
    yield Tables(database, url)
    await database.close()
    await databases.drop(url)


def _thread(session_id: str, thread_key: str) -> dict[str, Any]:
    return {
        "thread_key": thread_key,
        "scope_key": "scope-2" if session_id == "foreign" else SCOPE_KEY,
        "session_id": session_id,
        "partition": 0,
        "commit_sequence": 0,
        "event_sequence": 0,
        "title": "",
        "agent_name": "",
        "metadata": {},
        "settings": {},
        "task_count": 0,
        "run_count": 0,
        "checkpoint_top": "9",
        "checkpoint_floor": "",
        "revision": 1,
        "create_time": NOW,
        "update_time": NOW,
        "last_activity_time": NOW,
    }
