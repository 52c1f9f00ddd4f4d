"""The parts of a feed, one by one: filters, places, sinks, live queues (R13, R14, R15)."""

from datetime import UTC, datetime

import pytest
from hypothesis import given
from hypothesis import strategies as st

from threadkeep_chassis.cursors import LOG_KIND, THREAD_KIND, read_cursor
from threadkeep_chassis.errors import CursorInvalid, CursorUnknown
from threadkeep_runtime.domain.feeds import GRANT, RUN, SCOPE, SESSION, TASK, EventFilter, ThreadExtent, WideExtent
from threadkeep_runtime.feeds.cursors import FeedCursors
from threadkeep_runtime.feeds.sink import Gap, LiveQueue, Observation, Sink
from threadkeep_runtime.store.events_read import EventRow

CURSORS = FeedCursors(b"s" * 32)
EXTENTS = (
    ThreadExtent(SESSION, "scope", "session", "key", 0),
    ThreadExtent(SESSION, "scope", "another", "yek", 0),
    ThreadExtent(SESSION, "epocs", "session", "eky", 0),
    ThreadExtent(RUN, "scope", "session", "key", 0, "id"),
    ThreadExtent(RUN, "scope", "session", "key", 0, "di"),
    ThreadExtent(TASK, "scope", "session", "key", 0, "id"),
    WideExtent(SCOPE, frozenset({"scope"}), "scope"),
    WideExtent(SCOPE, frozenset({"epocs"}), "epocs"),
    WideExtent(GRANT, None),
)


def row(sequence: int, type_: str = "t", size: int = 0) -> EventRow:
    return EventRow(
        0, sequence, "key", sequence, sequence, "scope", "session", f"e{sequence}", type_, 2, None, None,
        "application/json", bytes(size), None, 1, None, None, "", "", datetime(2026, 1, 1, tzinfo=UTC),
    )  # fmt: skip


@pytest.mark.rule("R13")
@pytest.mark.parametrize(
    ("types", "level", "event", "visibility", "expected"),
    [
        ((), 3, "any", 3, True),
        ((), 2, "any", 3, False),
        (("a.b",), 3, "a.b", 1, True),
        (("a.b",), 3, "a.bc", 1, False),
        (("a.*",), 3, "a.b", 1, True),
        (("a.*",), 3, "a.", 1, True),
        (("a.*",), 3, "a", 1, False),
        (("a.*",), 3, "ab", 1, False),
        (("a.*", "c"), 3, "c", 1, True),
        (("*",), 3, "a", 1, False),
    ],
)
def test_a_filter_matches(types: tuple[str, ...], level: int, event: str, visibility: int, expected: bool) -> None:
    assert EventFilter.of(types, level).matches(event, visibility) is expected


@pytest.mark.rule("R14")
@given(st.sampled_from(EXTENTS), st.lists(st.integers(0, 2**62), min_size=8, max_size=8))
def test_a_place_comes_back_from_its_cursor(extent: ThreadExtent | WideExtent, numbers: list[int]) -> None:
    place = CURSORS.place(extent, "life", numbers[:1] if isinstance(extent, ThreadExtent) else numbers)
    assert list(CURSORS.read(place.cursor(), extent, "life", 8)) == place.numbers
    with pytest.raises(CursorUnknown):
        CURSORS.read(place.cursor(), extent, "another life", 8)


@pytest.mark.rule("R14", "X2")
def test_a_cursor_passes_in_its_own_feed_only() -> None:
    for here in EXTENTS:
        numbers = [3] if isinstance(here, ThreadExtent) else [3] * 8
        cursor = CURSORS.place(here, "life", numbers).cursor()
        for there in EXTENTS:
            if here is not there:
                with pytest.raises(CursorInvalid):
                    CURSORS.read(cursor, there, "life", 8)
    with pytest.raises(CursorInvalid):
        CURSORS.read(CURSORS.place(EXTENTS[-1], "life", [1]).cursor(), EXTENTS[-1], "life", 8)


@pytest.mark.rule("R14", "P5")
def test_a_follower_can_read_how_far_a_cursor_goes() -> None:
    for extent in EXTENTS:
        numbers = [7] if isinstance(extent, ThreadExtent) else list(range(8))
        seen = read_cursor(CURSORS.place(extent, "life", numbers).cursor())
        assert seen.incarnation == "life"
        if isinstance(extent, ThreadExtent):
            assert (seen.kind, seen.positions[0]) == (THREAD_KIND, 7)
        else:
            assert (seen.kind, list(seen.positions)) == (LOG_KIND, numbers)


@pytest.mark.rule("R14")
def test_a_place_never_goes_back() -> None:
    place = CURSORS.place(EXTENTS[-1], "life", [5, 5])
    place.move(0, 3)
    place.move(1, 9)
    assert place.numbers == [5, 9]


@pytest.mark.rule("R14", "X9")
def test_a_sink_is_bounded_by_number_and_size_and_says_when_it_let_go() -> None:
    woken: list[None] = []
    sink = Sink(lambda: woken.append(None), lambda one: one.type == "t", 3, 10_000)
    for number in range(1, 4):
        sink.offer(row(number))
    sink.offer(row(4, "not wanted"))
    assert (len(sink), sink.overflowed, sink.passed_sequence, len(woken)) == (3, False, 4, 3)
    assert [one.sequence for one in sink.take(2, 10_000)] == [1, 2]
    sink.offer(row(5, size=20_000))
    assert (len(sink), sink.overflowed) == (0, True)
    sink.offer(row(6))
    assert len(sink) == 0
    sink.restart()
    sink.offer(row(7, size=20_000))
    assert ([one.sequence for one in sink.take(9, 1)], sink.overflowed) == ([7], False)


@pytest.mark.rule("R15", "X9")
def test_a_live_queue_drops_and_shows_the_gap_where_it_was() -> None:
    queue = LiveQueue(lambda: None, lambda run, task: True, 2, 100)

    def observation(content: int, size: int = 10) -> Observation:
        return Observation("scope", {}, "key", "run", "task", content, size)

    taken = [queue.offer(observation(number)) for number in range(5)]
    assert taken == [True, True, False, False, False]
    first, second, gap = queue.take(), queue.take(), queue.take()
    assert isinstance(first, Observation)
    assert isinstance(second, Observation)
    assert isinstance(gap, Gap)
    assert (first.content, second.content, gap.dropped_count) == (0, 1, 3)
    assert queue.take() is None
    assert queue.offer(observation(9, size=5_000))
    assert not queue.offer(observation(10))
