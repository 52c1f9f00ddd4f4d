"""The right to follow the runtime's log: one replica has it, and another takes over when it is not renewed (A7)."""

from datetime import timedelta

import pytest

from tests.store.artifacts.conftest import House
from threadkeep_artifacts.commands.following import Following, FollowingLost


def follower(house: House, owner: str, seconds: float = 60.0) -> Following:
    return Following(house.database, house.artifacts, owner, timedelta(seconds=seconds))


@pytest.mark.rule("A7")
async def test_one_replica_follows_and_its_cursor_outlives_it(house: House) -> None:
    first, second = follower(house, "first"), follower(house, "second")
    assert await first.acquire() == b""
    assert await second.acquire() is None
    await first.advance(b"1")
    await first.renew()
    for late in (second.renew(), second.advance(b"9")):
        with pytest.raises(FollowingLost):
            await late
    await first.release()
    assert await second.acquire() == b"1"
    with pytest.raises(FollowingLost):
        await first.advance(b"2")


@pytest.mark.rule("A7")
async def test_a_replica_that_died_is_followed_by_another(house: House) -> None:
    dead, heir = follower(house, "dead", seconds=-1.0), follower(house, "heir")
    assert await dead.acquire() == b""
    await dead.advance(b"1")
    assert await heir.acquire() == b"1"
    with pytest.raises(FollowingLost):
        await dead.advance(b"0")
    assert await heir.acquire() == b"1"
