"""Live observations between replicas: only to who looks, bounded, with a gap for what is dropped or lost (R15)."""

from typing import Any

import pytest
from prometheus_client import CollectorRegistry

from threadkeep.runtime.v1 import event_pb2
from threadkeep_chassis.postgres_bus import _Incoming
from threadkeep_runtime.feeds.peers import MAX_GAPS, LivePeers
from threadkeep_runtime.feeds.sink import Observation


class Shown:
    """What the readers of a replica were shown."""

    def __init__(self) -> None:
        self.indexes: list[int] = []
        self.gaps: list[tuple[str | None, int]] = []

    def show(self, observation: Observation) -> None:
        self.indexes.append(observation.content.index)

    def show_gap(self, of: Observation | None, count: int) -> None:
        self.gaps.append((None if of is None else of.run_id, count))


class Pair:
    """Two replicas whose messages travel when the test says so."""

    def __init__(self, **bounds: Any) -> None:
        self.time = 0.0
        self.shown = {"a": Shown(), "b": Shown()}
        self.ends = {
            name: LivePeers(
                lambda: self.time,
                shown.show,
                shown.show_gap,
                event_pb2.LiveObservation.FromString,
                **{"max_items": 3, "max_bytes": 10_000, "announce_seconds": 5.0, **bounds},
                registry=CollectorRegistry(),
            )
            for name, shown in self.shown.items()
        }

    def carry(self) -> int:
        """Delivers everything that waits; returns how many messages there were."""
        count = 0
        for _ in range(10):
            for name, other in (("a", "b"), ("b", "a")):
                for to, message in self.ends[name].pull():
                    assert to in ("", other)
                    self.ends[other].received(name, message)
                    count += 1
        return count


def observation(index: int, thread: str = "t", run: str = "r", size: int = 10) -> Observation:
    content = event_pb2.LiveObservation(index=index, run_id=run)
    content.payload.data = b"x" * size
    return Observation("s", {"tenant": "acme"}, thread, run, "k", content, content.ByteSize())


def routes(thread: str = "t") -> list[tuple[str, str]]:
    return [("thread", thread), ("scope", "s"), ("all", "")]


@pytest.mark.rule("R15")
def test_an_observation_goes_only_where_somebody_looks() -> None:
    pair = Pair()
    pair.carry()
    pair.ends["a"].offer(observation(1), routes())
    assert pair.carry() == 0
    for route in (("thread", "t"), ("scope", "s"), ("all", "")):
        pair.ends["b"].attach([route])
        pair.carry()
        pair.ends["a"].offer(observation(2), routes())
        pair.ends["a"].offer(observation(3, "another"), routes("another"))
        pair.carry()
        pair.ends["b"].detach([route])
        pair.carry()
        pair.ends["a"].offer(observation(4), routes())
        pair.carry()
    assert pair.shown["b"].indexes == [2, 2, 3, 2, 3]
    assert pair.shown["a"].indexes == []


@pytest.mark.rule("R15", "X9")
def test_what_waits_for_a_replica_is_bounded_and_what_is_dropped_is_a_gap_in_its_place() -> None:
    pair = Pair()
    pair.ends["b"].attach([("all", "")])
    pair.carry()
    for index in range(1, 8):
        pair.ends["a"].offer(observation(index, run="r" if index < 6 else "other"), routes())
    pair.carry()
    assert pair.shown["b"].indexes == [1, 2, 3]
    assert pair.shown["b"].gaps == [("r", 2), ("other", 2)]
    for index in range(5 * MAX_GAPS):
        pair.ends["a"].offer(observation(index, run=f"run {index}"), routes())
    assert len(pair.ends["a"]._replicas["b"].waiting) <= 3 + MAX_GAPS + 1
    before = len(pair.shown["b"].gaps)
    pair.carry()
    assert sum(count for _, count in pair.shown["b"].gaps[before:]) == 5 * MAX_GAPS - 3
    large = Pair(max_items=100)
    large.ends["b"].attach([("all", "")])
    large.carry()
    for index in range(5):
        large.ends["a"].offer(observation(index, size=4000), routes())
    large.carry()
    assert (large.shown["b"].indexes, large.shown["b"].gaps) == ([0, 1], [("r", 3)])


@pytest.mark.rule("R15")
def test_who_missed_an_announcement_learns_it_soon_and_who_is_gone_is_forgotten() -> None:
    pair = Pair()
    pair.ends["b"].attach([("thread", "t")])
    pair.ends["b"].pull()
    pair.ends["a"].offer(observation(1), routes())
    pair.time = 6.0
    pair.carry()
    pair.ends["a"].offer(observation(2), routes())
    pair.carry()
    assert pair.shown["b"].indexes == [2]
    pair.time = 100.0
    pair.ends["a"].pull()
    assert pair.ends["a"].replicas == 0


@pytest.mark.rule("R15")
def test_a_lost_message_is_a_gap_for_every_reader() -> None:
    pair = Pair()
    pair.carry()
    pair.ends["b"].missed("a")
    assert pair.shown["b"].gaps == [(None, 1)]


@pytest.mark.rule("R15")
def test_parts_make_a_message_and_a_missing_one_is_noticed_once() -> None:
    text = "eHg="  # "xx"
    whole = _Incoming(0)
    assert [whole.add(1, part, 3, text) for part in range(3)] == [(None, True), (None, True), (b"xxxxxx", True)]
    assert whole.add(2, 0, 1, text) == (b"xx", True)
    assert whole.add(4, 0, 1, text) == (b"xx", False)
    assert whole.add(5, 0, 2, text) == (None, True)
    assert whole.add(6, 0, 1, text) == (b"xx", False)
    assert whole.add(7, 1, 3, text) == (None, False)
    assert whole.add(7, 2, 3, text) == (None, True)
    assert whole.add(8, 0, 1, text) == (b"xx", True)
    with pytest.raises(ValueError, match="long"):
        whole.add(9, 0, 10**6, text)
