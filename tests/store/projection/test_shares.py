"""Replicas have the shares among them: who is dead loses them, who is late writes nothing, who comes gets some (P1)."""

import pytest

from tests.store.projection.conftest import TTL, House, Log, cursor
from threadkeep_projection.commands.following import Following, Meeting, ShareLost
from threadkeep_projection.peers import LogFrame
from threadkeep_projection.store.shares import Share, ShareLease

EIGHT = 8


class Replica:
    """A replica without a feed: what it holds, and how it meets the others."""

    def __init__(self, following: Following, owner: str) -> None:
        self.following, self.owner = following, owner
        self.held: dict[int, tuple[ShareLease, bytes]] = {}

    async def meet(self, *, aside: bool = False) -> Meeting:
        """Takes its portion, and lets go of what is beyond it."""
        meeting = await self.following.meet(self.owner, TTL, held=self.held, resting=(), aside=aside)
        self.held |= {lease.share: (lease, cursor) for lease, cursor in meeting.taken}
        for share in sorted(self.held)[meeting.portion :]:
            await self.following.release(self.held.pop(share)[0])
        return meeting

    async def renew(self) -> None:
        """Prolongs what it holds."""
        for lease, _ in self.held.values():
            await self.following.renew(lease)


async def shares(house: House) -> list[Share]:
    return (await house.replicas[0].shares())[0]


@pytest.mark.rule("P1")
async def test_replicas_come_and_go_and_every_share_is_somebodys(house: House) -> None:
    await house.replicas[0].divide(EIGHT)
    a, b, c = (Replica(house.replicas[n % 2], name) for n, name in enumerate("abc"))
    await a.meet()
    assert len(a.held) == 8, "alone it has them all"
    await b.meet()
    assert not b.held, "nothing is free yet"
    for one in (a, b):
        await one.meet()
    assert (len(a.held), len(b.held)) == (4, 4)
    for one in (c, a, b, c):
        await one.meet()
    assert sorted(len(one.held) for one in (a, b, c)) == [2, 3, 3]
    assert sorted([*a.held, *b.held, *c.held]) == list(range(8))

    # One leaves in order: what it had is free at once. One dies: what it had is free when its leases are over.
    for lease, _ in b.held.values():
        await b.following.release(lease)
    await b.following.leave("b")
    for one in (a, c):
        await one.meet()
    assert (len(a.held), len(c.held)) == (4, 4)
    house.clock.advance(6)
    await a.renew()
    await a.meet()
    assert len(a.held) == 4, "c is late, and may live"
    house.clock.advance(6)
    await a.meet()
    assert len(a.held) == 8
    with pytest.raises(ShareLost):
        await c.renew()


@pytest.mark.rule("P1")
async def test_a_replica_that_can_not_follow_stands_aside_unless_it_is_alone(house: House) -> None:
    await house.replicas[0].divide(EIGHT)
    a, b = (Replica(house.replicas[n], name) for n, name in enumerate("ab"))
    await a.meet(aside=True)
    assert len(a.held) == 8
    await b.meet()
    assert (await a.meet(aside=True)).portion == 0
    await b.meet(aside=True)
    assert (len(a.held), len(b.held)) == (0, 8), "they can't both stand aside"


@pytest.mark.rule("P1")
async def test_a_zombie_of_one_share_leaves_nothing_and_the_others_go_on(house: House) -> None:
    await house.replicas[0].divide(EIGHT)
    zombie, heir = (Replica(house.replicas[n], name) for n, name in enumerate("zh"))
    await zombie.meet()
    house.clock.advance(11)
    await heir.meet()
    assert len(heir.held) == 8
    log = Log()
    frame = log.task("s", 1)
    with pytest.raises(ShareLost):
        await zombie.following.apply_frames(zombie.held[3][0], b"", [frame])
    assert not any((await house.everything()).values())
    await heir.following.apply_frames(heir.held[3][0], b"", [frame])
    before = await house.everything()
    with pytest.raises(ShareLost):
        await zombie.following.apply_frames(zombie.held[3][0], frame.cursor, [log.task("s", 2)])
    assert await house.everything() == before
    found = await shares(house)
    assert [one.applied_count for one in found] == [0, 0, 0, 4, 0, 0, 0, 0]
    assert [one.cursor for one in found] == [b""] * 3 + [frame.cursor] + [b""] * 4
    # Another share's lease is no right to this one.
    stolen = ShareLease(4, EIGHT, "h", heir.held[3][0].epoch + 1, TTL)
    with pytest.raises(ShareLost):
        await heir.following.apply_frames(stolen, b"", [frame])


@pytest.mark.rule("P1", "X14")
async def test_one_share_is_divided_where_it_stands_and_its_holder_has_lost_it(house: House) -> None:
    first, second = house.replicas
    taken = await first.acquire("old", TTL)
    assert taken is not None
    log = Log()
    at = await first.apply_frames(*taken, [log.task("s", 1)])
    rows = await house.everything()
    await second.divide(EIGHT)
    await first.divide(EIGHT)
    found = await shares(house)
    assert [(one.share, one.share_count, one.cursor, one.owner) for one in found] == [
        (number, EIGHT, at, "") for number in range(8)
    ]
    assert sum(one.applied_count for one in found) == 4
    with pytest.raises(ShareLost):
        await first.apply_frames(taken[0], at, [log.task("s", 2)])
    assert await house.everything() == rows


@pytest.mark.rule("P1", "P3")
async def test_shares_of_another_log_begin_anew_with_all_rows(house: House) -> None:
    first = house.replicas[0]
    await first.divide(EIGHT)
    old = Replica(first, "a")
    await old.meet()
    await first.apply_frames(old.held[0][0], b"", [Log().task("s", 1)])
    await first.divide(2)
    assert [(one.share, one.share_count, one.cursor, one.owner) for one in await shares(house)] == [
        (0, 2, b"", ""),
        (1, 2, b"", ""),
    ]
    assert not any((await house.everything()).values())
    with pytest.raises(ShareLost):
        await first.apply_frames(old.held[0][0], cursor(4), [LogFrame((), cursor(5))])
    await first.divide(1)
    assert len(await shares(house)) == 1
    await first.divide(EIGHT)
    assert len(await shares(house)) == 8
