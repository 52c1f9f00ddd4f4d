"""What can't be projected is set aside with the reason, and the rest goes on (P1)."""

from typing import Any

import pytest

from tests.store.projection.conftest import TTL, House, Log, cursor
from threadkeep_projection import tables
from threadkeep_projection.domain.batches import apply_all
from threadkeep_projection.domain.projector import Draft
from threadkeep_projection.peers import LogFrame


def submission(log: Log, session_id: str, **task: Any) -> LogFrame:
    """A frame with a submission that holds these fields."""
    event = log.event(session_id, "task.submitted", log.position, {"task": {"agent_name": "clerk", **task}})
    return LogFrame((event,), cursor(log.position))


@pytest.mark.rule("P1", "X11")
async def test_an_event_that_no_row_can_stand_for_is_set_aside_and_all_others_count(house: House) -> None:
    log = Log()
    frames = [log.task("s", 1), submission(log, "s", task_id="secret\nid"), log.task("s", 2), log.task("t", 1)]
    taken = await house.replicas[0].acquire("a", TTL)
    assert taken is not None
    await house.replicas[0].apply_frames(*taken, frames)

    (poison,) = await house.rows(tables.poison_events)
    assert poison[1:5] == ("s", 5, "threadkeep.task.submitted", "task_id is no identifier")
    assert await house.replicas[0].poison_count() == 1
    share = await house.share()
    assert (share.cursor, share.applied_count) == (frames[-1].cursor, 13)
    assert [(row[1], row[-1]) for row in await house.rows(tables.sessions)] == [("s", 9), ("t", 4)]
    assert [row[1] for row in await house.rows(tables.tasks)] == ["s-task-1", "s-task-2", "t-task-1"]

    # Whatever is applied together, the same is left out.
    pairs = [(fed.event, None) for frame in frames[:3] for fed in frame.events]
    whole, count = apply_all(Draft("s"), pairs)
    single = Draft("s")
    for pair in pairs:
        single, _ = apply_all(single, [pair])
    assert whole == single
    assert (count, list(whole.poison)) == (9, [5])


@pytest.mark.rule("P1")
@pytest.mark.suite(backends=["postgres"])
async def test_an_event_that_the_database_refuses_is_found_among_the_others(house: House) -> None:
    log = Log()
    frames = [log.task("s", 1), submission(log, "s", task_id="x", agent_name="a\x00b"), log.task("s", 2)]
    taken = await house.replicas[0].acquire("a", TTL)
    assert taken is not None
    lease, start = taken
    await house.replicas[0].apply_frames(lease, start, frames)
    ((_, session_id, sequence, *_),) = await house.rows(tables.poison_events)
    assert (session_id, sequence) == ("s", 5)
    share = await house.share()
    assert (share.cursor, share.applied_count) == (frames[-1].cursor, 9)
    assert [row[1] for row in await house.rows(tables.tasks)] == ["s-task-1", "s-task-2"]
    await house.replicas[0].apply_frames(lease, share.cursor, [log.task("s", 3)])
    assert len(await house.rows(tables.poison_events)) == 1
