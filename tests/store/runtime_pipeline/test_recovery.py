"""Recovery goes on past what it can't deal with (R8, R10)."""

import pytest
from google.protobuf.timestamp_pb2 import Timestamp

from tests.store.runtime_pipeline.gate import connection
from tests.support.runtime import Runtime, awaiting
from tests.support.suite import Suite
from tests.support.waiting import eventually
from threadkeep.runtime.v1 import ticket_pb2
from threadkeep_runtime.loops.recovery import BATCH

SHORT = {"runtime": {"recovery_interval_seconds": 0.05}}


@pytest.mark.rule("R8", "R10")
@pytest.mark.suite(backends=["sqlite"], topologies=["embedded"], services=["config", "runtime"], settings=SHORT)
async def test_more_damaged_tickets_than_one_look_takes_do_not_hold_up_the_others(suite: Suite) -> None:
    runtime = Runtime(suite)
    held = await runtime.lease()
    waiting = ticket_pb2.TicketDraft(kind=ticket_pb2.TICKET_KIND_INPUT, deadline=Timestamp(seconds=4_000_000_000))
    (name,) = (await runtime.work(held, awaiting=awaiting(waiting))).ticket_ids
    async with connection(suite) as probe:
        columns = [row[1] for row in await (await probe.execute("PRAGMA table_info(tickets)")).fetchall()]
        changed = {
            "thread_key": "'damaged-' || n",
            "ticket_id": "'damaged-' || n",
            "session_id": "'damaged-' || n",
            "deadline": "n",
        }
        picked = ", ".join(changed.get(column, f'"{column}"') for column in columns)
        # Tickets of threads that are not there, all due before the good one.
        await probe.execute(
            "WITH RECURSIVE counted(n) AS (SELECT 1 UNION ALL SELECT n + 1 FROM counted WHERE n < ?) "
            f"INSERT INTO tickets SELECT {picked} FROM tickets, counted WHERE ticket_id = ?",
            (2 * BATCH, name),
        )
        await probe.execute("UPDATE tickets SET deadline = ? WHERE ticket_id = ?", (2 * BATCH + 1, name))

    async def is_closed() -> bool:
        return (await runtime.ticket(name)).state != ticket_pb2.TICKET_STATE_OPEN

    await eventually(is_closed)
