"""Live observations between replicas: each says what its readers look at, and gets that of the others (R15).

Nothing here is waited for. What is too much for a replica is dropped where it would be sent, and travels as a gap;
what is lost on the way is noticed there, and becomes a gap too. Without readers elsewhere nothing is sent at all.
"""

from __future__ import annotations

import hashlib
import json
from collections import Counter, OrderedDict, deque
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, field
from typing import Any

from prometheus_client import CollectorRegistry
from prometheus_client import Counter as Counted

from threadkeep_runtime.feeds.sink import Observation

Route = tuple[str, str]

DIGEST_BYTES = 16
MAX_ROUTES = 10_000
"""A replica whose readers look at more than this is sent everything."""
MAX_REPLICAS = 256
MAX_GAPS = 1000
MESSAGE_BYTES = 256 * 1024
"""About the size of one message: several observations go together when they come faster than they can be sent."""

EVERYTHING = b"*"
_FULL, _MORE, _LESS, _HELLO, _SHOWN = b"F", b"+", b"-", b"?", b"O"


@dataclass(slots=True)
class _Gap:
    """Observations that were dropped; those of one run, or of nobody knows which."""

    head: dict[str, Any] | None
    count: int = 1


@dataclass(slots=True)
class _Replica:
    """Another replica: what it wants, and what waits for it."""

    heard: float
    wants: set[bytes] = field(default_factory=set)
    wants_everything: bool = False
    waiting: deque[tuple[dict[str, Any], bytes] | _Gap] = field(default_factory=deque)
    waiting_bytes: int = 0
    gaps: int = 0


class LivePeers:
    """One replica's end of it. `pull`, `received` and `missed` are the bus's callbacks."""

    def __init__(
        self,
        now: Callable[[], float],
        show: Callable[[Observation], object],
        show_gap: Callable[[Observation | None, int], None],
        read: Callable[[bytes], Any],
        *,
        max_items: int,
        max_bytes: int,
        announce_seconds: float,
        registry: CollectorRegistry,
    ) -> None:
        """`show` hands an observation to the readers here, `show_gap` a gap (None: to all readers); `read` parses."""
        self._now = now
        self._show = show
        self._show_gap = show_gap
        self._read = read
        self._max_items = max_items
        self._max_bytes = max_bytes
        self._announce_seconds = announce_seconds
        self._here: Counter[bytes] = Counter()
        self._more: set[bytes] = set()
        self._less: set[bytes] = set()
        self._announced = float("-inf")
        self._says_hello = True
        self._replicas: OrderedDict[str, _Replica] = OrderedDict()
        self.wake: Callable[[], None] = lambda: None
        """Set by whoever owns the bus."""
        self.forget: Callable[[str], None] = lambda _: None
        self._sent = Counted("threadkeep_live_peers_sent", "Observations sent to other replicas", registry=registry)
        self._dropped = Counted(
            "threadkeep_live_peers_dropped", "Observations that were too many for another replica", registry=registry
        )
        self._lost = Counted(
            "threadkeep_live_peers_lost", "Times that messages of other replicas were lost", registry=registry
        )

    # -- readers here

    def attach(self, routes: Iterable[Route]) -> None:
        """A reader here looks at these."""
        for one in map(digest_of, routes):
            self._here[one] += 1
            if self._here[one] == 1:
                self._less.discard(one)
                self._more.add(one)
        self.wake()

    def detach(self, routes: Iterable[Route]) -> None:
        """It no longer does."""
        for one in map(digest_of, routes):
            self._here[one] -= 1
            if self._here[one] <= 0:
                del self._here[one]
                self._more.discard(one)
                self._less.add(one)
        self.wake()

    # -- observations from here

    def offer(self, observation: Observation, routes: Iterable[Route]) -> None:
        """Queues it for the replicas whose readers want it. Never blocks; drops what is too much."""
        if not self._replicas:
            return
        wanted = {digest_of(route) for route in routes}
        packed: tuple[dict[str, Any], bytes] | None = None
        for replica in self._replicas.values():
            if not (replica.wants_everything or not wanted.isdisjoint(replica.wants)):
                continue
            if packed is None:
                packed = (_head(observation), observation.content.SerializeToString())
            full = len(replica.waiting) >= self._max_items or (
                replica.waiting and replica.waiting_bytes + len(packed[1]) > self._max_bytes
            )
            if full:
                self._drop(replica, packed[0])
            else:
                replica.waiting.append(packed)
                replica.waiting_bytes += len(packed[1])
        if packed is not None:
            self.wake()

    def _drop(self, replica: _Replica, head: dict[str, Any]) -> None:
        self._dropped.inc()
        last = replica.waiting[-1]
        if isinstance(last, _Gap) and last.head in (None, head):
            last.count += 1
        elif replica.gaps < MAX_GAPS:
            replica.waiting.append(_Gap(head))
            replica.gaps += 1
        elif isinstance(last, _Gap):
            last.head, last.count = None, last.count + 1
        else:
            replica.waiting.append(_Gap(None))
            replica.gaps += 1

    # -- the bus

    def pull(self) -> list[tuple[str, bytes]]:
        """What is to be sent next; nothing if there is nothing."""
        outgoing = [("", message) for message in self._announcements()]
        for name, replica in self._replicas.items():
            if replica.waiting:
                outgoing.append((name, _SHOWN + b"".join(self._take(replica))))
        return outgoing

    def _announcements(self) -> Iterator[bytes]:
        now = self._now()
        for name in [name for name, one in self._replicas.items() if now - one.heard > 3 * self._announce_seconds]:
            self._gone(name)
        if self._says_hello:
            self._says_hello = False
            yield _HELLO
        if now - self._announced >= self._announce_seconds:
            # Whoever missed a change, or came late, learns everything now and then.
            self._announced = now
            self._more.clear()
            self._less.clear()
            yield _FULL + (EVERYTHING if len(self._here) > MAX_ROUTES else b" " + b"".join(self._here))
        elif len(self._here) > MAX_ROUTES:
            if self._more:
                self._more.clear()
                self._less.clear()
                yield _FULL + EVERYTHING
        else:
            if self._more:
                yield _MORE + b"".join(self._more)
                self._more.clear()
            if self._less:
                yield _LESS + b"".join(self._less)
                self._less.clear()

    def _take(self, replica: _Replica) -> Iterator[bytes]:
        size = 0
        while replica.waiting and size < MESSAGE_BYTES:
            item = replica.waiting.popleft()
            if isinstance(item, _Gap):
                replica.gaps -= 1
                record = _pack({**(item.head or {}), "gap": item.count}, b"")
            else:
                replica.waiting_bytes -= len(item[1])
                self._sent.inc()
                record = _pack(*item)
            size += len(record)
            yield record

    def received(self, sender: str, message: bytes) -> None:
        """Takes what another replica sent."""
        kind, rest = message[:1], message[1:]
        if sender not in self._replicas:
            while len(self._replicas) >= MAX_REPLICAS:
                self._gone(next(iter(self._replicas)))
            self._replicas[sender] = _Replica(self._now())
        replica = self._replicas[sender]
        replica.heard = self._now()
        if kind == _HELLO:
            self._announced = float("-inf")
            self.wake()
        elif kind == _FULL:
            replica.wants_everything = rest[:1] == EVERYTHING
            replica.wants = set(_digests(rest[1:]))
        elif kind == _MORE:
            replica.wants.update(_digests(rest))
        elif kind == _LESS:
            replica.wants.difference_update(_digests(rest))
        elif kind == _SHOWN:
            self._receive_shown(rest)

    def missed(self, sender: str) -> None:
        """Something that was sent here is lost: readers get a gap, and the others are asked what they want."""
        if sender or self._replicas:
            self._lost.inc()
            self._show_gap(None, 1)
        self._says_hello = True
        self._announced = float("-inf")
        self.wake()

    def _receive_shown(self, rest: bytes) -> None:
        for head, content in _unpack(rest):
            observation = Observation(
                scope_key=head.get("s", ""),
                scope=head.get("v", {}),
                thread_key=head.get("t", ""),
                run_id=head.get("r", ""),
                task_id=head.get("k", ""),
                content=self._read(content),
                size=len(content),
            )
            if "gap" in head:
                self._show_gap(observation if "t" in head else None, head["gap"])
            else:
                self._show(observation)

    def _gone(self, name: str) -> None:
        self._replicas.pop(name, None)
        self.forget(name)

    @property
    def replicas(self) -> int:
        """How many others are known."""
        return len(self._replicas)


def digest_of(route: Route) -> bytes:
    """A route as it travels."""
    return hashlib.blake2b("\x00".join(route).encode(), digest_size=DIGEST_BYTES).digest()


def _head(observation: Observation) -> dict[str, Any]:
    return {
        "s": observation.scope_key,
        "v": dict(observation.scope),
        "t": observation.thread_key,
        "r": observation.run_id,
        "k": observation.task_id,
    }


def _digests(joined: bytes) -> Iterator[bytes]:
    for start in range(0, len(joined) - DIGEST_BYTES + 1, DIGEST_BYTES):
        yield joined[start : start + DIGEST_BYTES]


def _pack(head: dict[str, Any], content: bytes) -> bytes:
    text = json.dumps(head, ensure_ascii=False, separators=(",", ":")).encode()
    return len(text).to_bytes(4) + text + len(content).to_bytes(4) + content


def _unpack(packed: bytes) -> Iterator[tuple[dict[str, Any], bytes]]:
    at = 0
    while at < len(packed):
        length = int.from_bytes(packed[at : at + 4])
        head = json.loads(packed[at + 4 : at + 4 + length])
        at += 4 + length
        length = int.from_bytes(packed[at : at + 4])
        yield head, packed[at + 4 : at + 4 + length]
        at += 4 + length
