"""The projection without its server: replicas of the follower's transactions on one database, and frames to apply."""

from collections.abc import AsyncIterator
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest
import sqlalchemy as sa
from prometheus_client import CollectorRegistry

from threadkeep_chassis.clock import ManualClock
from threadkeep_chassis.cursors import LOG_KIND, CursorCodec
from threadkeep_chassis.database import Database
from threadkeep_chassis.migrations import migrate, prepare
from threadkeep_chassis.peers import Peers
from threadkeep_chassis.scope import Scope
from threadkeep_chassis.signals import LocalSignals
from threadkeep_projection import tables
from threadkeep_projection.commands.channels import Channels
from threadkeep_projection.commands.following import Following
from threadkeep_projection.domain.values import Event
from threadkeep_projection.metrics import ProjectionMetrics
from threadkeep_projection.peers import FedEvent, LogFrame, Runtime
from threadkeep_projection.server import MIGRATIONS
from threadkeep_projection.store.shares import Share, list_shares

TTL = timedelta(seconds=10)
SCOPE = Scope({"tenant": "acme"})
START = datetime(2026, 1, 1, tzinfo=UTC)

_CODEC = CursorCodec(b"k" * 32, LOG_KIND)


def cursor(position: int) -> bytes:
    """A cursor of the runtime's log."""
    return _CODEC.encode([position], "life", "grant")


class Log:
    """A log of submissions and endings over a few sessions, in order; frame n ends at position n."""

    def __init__(self) -> None:
        self._sequences: dict[str, int] = {}
        self.position = 0

    def event(self, session_id: str, kind: str, number: int, payload: dict[str, Any] | None = None) -> FedEvent:
        """The session's next event, about one of its tasks."""
        self.position += 1
        sequence = self._sequences[session_id] = self._sequences.get(session_id, 0) + 1
        time = START + timedelta(seconds=self.position)
        task_id, run_id = f"{session_id}-task-{number}", f"{session_id}-run-{number}"
        event = Event(sequence, f"threadkeep.{kind}", time, task_id, run_id, payload or {})
        return FedEvent(SCOPE, session_id, event, cursor(self.position))

    def task(self, session_id: str, number: int) -> LogFrame:
        """A frame in which a task is submitted with one message, and canceled."""
        message = {"message_id": f"m-{number}", "parts": [{"text": f"text {number}"}]}
        task = {
            "task_id": f"{session_id}-task-{number}",
            "run_id": f"{session_id}-run-{number}",
            "agent_name": "clerk",
            "input": {"messages": {"messages": [message]}},
        }
        events = (
            self.event(session_id, "task.submitted", number, {"task": task}),
            self.event(session_id, "run.queued", number),
            self.event(session_id, "run.ended", number, {"cause": "RUN_END_CAUSE_CANCELED"}),
            self.event(session_id, "task.canceled", number),
        )
        return LogFrame(events, cursor(self.position))


@dataclass
class House:
    """What the tests of this folder work with."""

    databases: list[Database]
    """Those of two replicas; the same one twice where only one process can have the data."""
    replicas: list[Following]
    clock: ManualClock

    async def share(self) -> Share:
        """The share as it stands."""
        async with self.databases[0].read() as connection:
            return (await list_shares(connection))[0]

    async def rows(self, table: sa.Table = tables.messages) -> list[tuple[Any, ...]]:
        """A table's rows, in the order of their keys."""
        async with self.databases[0].read() as connection:
            found = await connection.execute(sa.select(table).order_by(*table.primary_key))
            return [tuple(row) for row in found]

    async def everything(self) -> dict[str, list[tuple[Any, ...]]]:
        """All rows that events made, by table."""
        names = ("sessions", "session_entries", "tasks", "task_entries", "runs", "messages", "inputs")
        return {name: await self.rows(tables.metadata.tables[name]) for name in names}


def replica(database: Database, registry: CollectorRegistry | None = None) -> Following:
    """The follower's transactions. Nothing here reads a checkpoint, so there is no runtime to ask."""
    metrics = ProjectionMetrics(registry or CollectorRegistry())
    runtime = Runtime(Peers({}))
    return Following(database, LocalSignals(), Channels(runtime, metrics, at_once=1), metrics)


@pytest.fixture
async def house(database_url: str, backend: str) -> AsyncIterator[House]:
    """Two replicas on one migrated database."""
    clock = ManualClock()
    if backend != "memory":
        await migrate(database_url, MIGRATIONS)
    databases = [await Database.open(database_url, "projection", clock=clock)]
    await prepare(databases[0], MIGRATIONS)
    databases.append(
        await Database.open(database_url, "projection", clock=clock) if backend == "postgres" else databases[0]
    )
    replicas = [replica(database) for database in databases]
    await replicas[0].prepare()
    yield House(databases, replicas, clock)
    for database in dict.fromkeys(databases):
        await database.close()
