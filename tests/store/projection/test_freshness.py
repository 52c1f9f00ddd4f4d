"""A wait for a cursor ends when it is reached, in time or with FRESHNESS_TIMEOUT, whoever moves the share (P5)."""

import asyncio
import time

import pytest
from prometheus_client import CollectorRegistry

from tests.store.projection.conftest import SCOPE, TTL, House, Log, cursor
from threadkeep_chassis.cursors import THREAD_KIND, CursorCodec, thread_subject
from threadkeep_chassis.errors import CursorInvalid, FieldInvalid, ShuttingDown
from threadkeep_chassis.peers import Peers
from threadkeep_chassis.scope import Call
from threadkeep_chassis.signals import LocalSignals
from threadkeep_projection.commands.freshness import Freshness
from threadkeep_projection.domain.errors import FreshnessTimeout
from threadkeep_projection.metrics import ProjectionMetrics
from threadkeep_projection.peers import LogFrame, Runtime


def read_call(deadline: float | None = None) -> Call:
    """A call of a reader."""
    return Call(method="/test/Read", named_scope=SCOPE, deadline=deadline)


@pytest.fixture
def freshness(house: House) -> Freshness:
    """Waits on the second replica's database, with signals of its own: nothing tells it what the first one does.

    The runtime is out of reach, so nobody can say whether a cursor is genuine.
    """
    runtime = Runtime(Peers({"runtime": "127.0.0.1:1"}))
    return Freshness(house.databases[1], LocalSignals(), runtime, ProjectionMetrics(CollectorRegistry()))


@pytest.mark.rule("P5")
async def test_a_cursor_that_is_not_reached_in_time_says_so(house: House, freshness: Freshness) -> None:
    for at_least in (cursor(1), CursorCodec(b"k", THREAD_KIND).encode([1], "life", thread_subject(SCOPE.key, "s"))):
        with pytest.raises(FreshnessTimeout):
            await freshness.wait(read_call(), at_least, 0.0)
        with pytest.raises(FreshnessTimeout):
            await freshness.wait(read_call(), at_least, 0.3)


@pytest.mark.rule("P5")
async def test_the_calls_own_deadline_bounds_the_wait(house: House, freshness: Freshness) -> None:
    hurried = read_call(time.monotonic() + 0.2)
    with pytest.raises(FreshnessTimeout):
        await asyncio.wait_for(freshness.wait(hurried, cursor(1), 60.0), 20)


@pytest.mark.rule("P5")
async def test_a_wait_ends_when_another_replica_gets_there_without_any_signal(
    house: House, freshness: Freshness
) -> None:
    frame = Log().task("s", 1)
    subject = thread_subject(SCOPE.key, "s")
    of_thread = CursorCodec(b"k", THREAD_KIND).encode([4], "life", subject)
    waiting = asyncio.gather(
        freshness.wait(read_call(), frame.cursor, 20.0),
        freshness.wait(read_call(), of_thread, 20.0),
        freshness.wait(read_call(), cursor(3), 20.0),
    )
    taken = await house.replicas[0].acquire("a", TTL)
    assert taken is not None
    await house.replicas[0].apply_frames(taken[0], b"", [frame])
    await waiting
    with pytest.raises(FreshnessTimeout):
        await freshness.wait(read_call(), cursor(5), 0.0)
    await freshness.wait(read_call(), b"", 0.0)


@pytest.mark.rule("P5")
async def test_a_bookmark_alone_makes_reads_fresh(house: House, freshness: Freshness) -> None:
    taken = await house.replicas[0].acquire("a", TTL)
    assert taken is not None
    await house.replicas[0].apply_frames(taken[0], b"", [LogFrame((), cursor(7))])
    await freshness.wait(read_call(), cursor(7), 0.0)


@pytest.mark.rule("X2")
async def test_a_cursor_of_another_scopes_session_is_never_reached(house: House, freshness: Freshness) -> None:
    taken = await house.replicas[0].acquire("a", TTL)
    assert taken is not None
    await house.replicas[0].apply_frames(taken[0], b"", [Log().task("s", 1)])
    foreign = CursorCodec(b"k", THREAD_KIND).encode([1], "life", thread_subject("other-scope", "s"))
    with pytest.raises(FreshnessTimeout):
        await freshness.wait(read_call(), foreign, 0.0)


@pytest.mark.rule("P5")
async def test_a_stopping_server_ends_its_waits(house: House, freshness: Freshness) -> None:
    call = read_call()
    waiting = asyncio.ensure_future(freshness.wait(call, cursor(1), 60.0))
    await asyncio.sleep(0)
    call.draining.begin()
    with pytest.raises(ShuttingDown):
        await asyncio.wait_for(waiting, 20)


async def test_what_is_asked_for_must_make_sense(freshness: Freshness) -> None:
    with pytest.raises(CursorInvalid):
        await freshness.wait(read_call(), CursorCodec(b"k", "watch").encode([1], "life"), 1.0)
    for wait in (-1.0, 60.5):
        with pytest.raises(FieldInvalid):
            await freshness.wait(read_call(), cursor(1), wait)
