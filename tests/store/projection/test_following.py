"""Each event counts once: under redelivery, a lease that moves on, two replicas at once, and kills (P1)."""

import asyncio
import random

import pytest
import sqlalchemy as sa

from tests.store.projection.conftest import SCOPE, TTL, House, Log, cursor
from threadkeep_projection import tables
from threadkeep_projection.commands.following import ShareLost
from threadkeep_projection.domain.values import Event
from threadkeep_projection.peers import FedEvent, LogFrame


@pytest.mark.rule("P1")
@pytest.mark.case("B87")
async def test_rows_and_cursor_move_together_and_a_redelivery_changes_nothing(house: House) -> None:
    log = Log()
    frames = [log.task("s", 1), log.task("s", 2)]
    taken = await house.replicas[0].acquire("a", TTL)
    assert taken is not None
    lease, start = taken
    assert start == b""

    end = await house.replicas[0].apply_frames(lease, start, frames)
    share, before = await house.share(), await house.everything()
    assert (share.cursor, share.applied_count) == (end, 8)
    assert len(before["messages"]) == 2

    with pytest.raises(ShareLost):
        await house.replicas[0].apply_frames(lease, start, frames)
    assert await house.everything() == before

    # Even if the cursor were right, a session's own sequence knows what it has.
    await house.replicas[0].apply_frames(lease, end, [LogFrame(frames[1].events, cursor(9))])
    assert await house.everything() == before


@pytest.mark.rule("P1")
async def test_a_share_that_is_held_is_not_given_and_an_expired_one_is_given_once(house: House) -> None:
    first, second = house.replicas
    taken = await first.acquire("a", TTL)
    assert taken is not None
    assert await second.acquire("b", TTL) is None
    house.clock.advance(6)
    await first.renew(taken[0])
    house.clock.advance(6)
    assert await second.acquire("b", TTL) is None, "renewed"
    house.clock.advance(6)
    takers = await asyncio.gather(second.acquire("b", TTL), first.acquire("c", TTL))
    assert sum(one is not None for one in takers) == 1
    (lease, _) = next(one for one in takers if one is not None)
    assert lease.epoch == taken[0].epoch + 1


@pytest.mark.rule("P1")
async def test_a_replica_that_lost_its_lease_leaves_nothing_behind(house: House) -> None:
    first, second = house.replicas
    log = Log()
    frame = log.task("s", 1)
    stale = await first.acquire("a", TTL)
    assert stale is not None
    house.clock.advance(11)
    assert await second.acquire("b", TTL) is not None

    with pytest.raises(ShareLost):
        await first.apply_frames(stale[0], b"", [frame])
    with pytest.raises(ShareLost):
        await first.renew(stale[0])
    await first.release(stale[0])
    share = await house.share()
    assert (share.cursor, share.applied_count, share.owner) == (b"", 0, "b")
    assert not any((await house.everything()).values())


@pytest.mark.rule("P1")
async def test_a_share_that_was_released_is_free_at_once(house: House) -> None:
    first, second = house.replicas
    taken = await first.acquire("a", TTL)
    assert taken is not None
    await first.release(taken[0])
    assert await second.acquire("b", TTL) is not None


@pytest.mark.rule("P1")
async def test_replicas_that_keep_taking_the_share_from_each_other_apply_each_event_once(house: House) -> None:
    seed = random.randrange(1 << 32)
    print(f"seed {seed}")
    chance = random.Random(seed)
    log = Log()
    frames = [log.task(f"s{chance.randrange(4)}", number) for number in range(30)]
    at = {cursor(0): 0, b"": 0, **{frame.cursor: index + 1 for index, frame in enumerate(frames)}}

    async def follow(replica_index: int) -> None:
        replica, owner = house.replicas[replica_index], f"replica-{replica_index}"
        while True:
            taken = await replica.acquire(owner, TTL)
            if taken is None:
                # What makes a lease expire here is this clock alone.
                house.clock.advance(11)
                continue
            lease, position = taken
            try:
                for _ in range(chance.randrange(1, 5)):
                    index = at[position]
                    if index == len(frames):
                        return
                    batch = frames[index : index + chance.randrange(1, 4)]
                    position = await replica.apply_frames(lease, position, batch)
            except ShareLost:
                continue

    await asyncio.gather(follow(0), follow(1))
    share = await house.share()
    assert (share.cursor, share.applied_count) == (frames[-1].cursor, 4 * len(frames))
    assert sorted(row.task_count for row in await _sessions(house)) == sorted(
        sum(one.events[0].session_id == session for one in frames)
        for session in {one.events[0].session_id for one in frames}
    )


@pytest.mark.rule("P1")
async def test_a_follower_that_is_killed_anywhere_goes_on_where_its_cursor_stands(house: House) -> None:
    seed = random.randrange(1 << 32)
    print(f"seed {seed}")
    chance = random.Random(seed)
    log = Log()
    frames = [log.task(f"s{chance.randrange(3)}", number) for number in range(12)]
    at = {b"": 0, **{frame.cursor: index + 1 for index, frame in enumerate(frames)}}
    replica = house.replicas[0]
    for _ in range(60):
        taken = await replica.acquire("a", TTL)
        assert taken is not None
        lease, position = taken
        if at[position] == len(frames):
            break
        applying = asyncio.ensure_future(replica.apply_frames(lease, position, frames[at[position] : at[position] + 2]))
        for _ in range(chance.randrange(40)):
            await asyncio.sleep(0)
        applying.cancel()
        await asyncio.gather(applying, return_exceptions=True)
    else:
        taken = await replica.acquire("a", TTL)
        assert taken is not None
        for index in range(at[taken[1]], len(frames)):
            await replica.apply_frames(taken[0], (await house.share()).cursor, [frames[index]])
    share = await house.share()
    assert (share.cursor, share.applied_count) == (frames[-1].cursor, 4 * len(frames))
    assert sum(row.task_count for row in await _sessions(house)) == len(frames)


@pytest.mark.rule("P1")
@pytest.mark.rule("X8")
async def test_no_text_that_an_event_can_carry_stops_the_follower(house: House) -> None:
    """NUL, quotes, astral characters and long values go in as they are."""
    wild = "a\x00b'\"\\ \U0001f600 " + "x" * 5000
    log = Log()
    session = {"title": wild[:1000], "agent_name": "clerk", "metadata": {"k\x00": wild, "empty": ""}}
    created = log.event("s\U0001f600", "session.created", 1, {"session": session})
    failed = log.event("s\U0001f600", "task.failed", 1, {"failure": {"code": "c", "message": wild}})
    submission = Event(1, "threadkeep.task.submitted", created.event.time, None, None, {"task": 7})
    odd = FedEvent(SCOPE, "t", submission, cursor(3))
    taken = await house.replicas[0].acquire("a", TTL)
    assert taken is not None
    await house.replicas[0].apply_frames(taken[0], b"", [LogFrame((created, failed, odd), cursor(3))])
    first = next(row for row in await _sessions(house) if row.session_id == "s\U0001f600")
    assert (first.title, first.metadata) == (wild[:1000], {"k\x00": wild, "empty": ""})


async def _sessions(house: House) -> list[sa.Row]:  # type: ignore[type-arg]
    async with house.databases[0].read() as connection:
        return list(await connection.execute(sa.select(tables.sessions)))
