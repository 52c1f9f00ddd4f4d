"""What the projection costs: keeping up, building anew, a page of messages, and many readers of one session."""

from __future__ import annotations

import asyncio
import time
from typing import Any

from tests.benchmarks.cases.commits import EVENTS
from tests.benchmarks.cases.watching import MANY_STREAMS
from tests.benchmarks.crowd import Crowd
from tests.benchmarks.harness import Case, median_latency
from tests.support.calls import grant_all
from tests.support.descriptors import fresh_id
from tests.support.messages import append
from tests.support.projection import fresh
from tests.support.runtime import Runtime, event, text
from threadkeep.projection.v1 import admin_service_pb2, message_service_pb2, stream_service_pb2

SUBSCRIBE = "/threadkeep.projection.v1.StreamService/SubscribeSession"
PAGE_EVENTS = 512
"""Events that the follower, and its baselines, take at once."""


class _Projected(Case):
    services = ("config", "runtime", "projection")

    async def prepare(self) -> None:
        """A scope."""
        self.runtime = Runtime(self.stage)

    async def operate(self, name: str, request: Any) -> Any:
        """An operator's call."""
        metadata = (*self.runtime.metadata, *grant_all())
        return await self.runtime.call(f"ProjectionAdminService.{name}", request, metadata)

    async def applied(self) -> int:
        """How many events the follower has applied."""
        status = await self.operate("GetStatus", admin_service_pb2.GetStatusRequest())
        return sum(share.applied_count for share in status.shares)

    async def wait_applied(self, count: int) -> None:
        """Returns once the follower has applied as many."""
        async with asyncio.timeout(3600):
            while await self.applied() < count:
                await asyncio.sleep(0.01)


class ProjectionFollow(_Projected):
    """Keeping up."""

    name = "projection.follow"
    what = "events per second of the follower behind a backlog, against those of 64 callers who commit"
    unit = "events/s"
    target = 1.5
    at_least = True

    async def prepare(self) -> None:
        """A session for each caller; the follower rests."""
        await super().prepare()
        self.ends = {(await self.runtime.create()).session_id: 1 for _ in range(64)}
        self.total = len(self.ends)
        await self.wait_applied(self.total)
        await self._pause()

    async def product(self) -> float:
        """Goes on behind a backlog, until it is at the end, while nobody commits."""
        await self._commit()
        start = await self.applied()
        await self.operate("Resume", admin_service_pb2.ResumeRequest(request_id=fresh_id()))
        while (first := await self.applied()) == start:
            await asyncio.sleep(0.001)
        started = time.perf_counter()
        await self.wait_applied(self.total)
        seconds = time.perf_counter() - started
        await self._pause()
        return (self.total - first) / seconds

    async def baseline(self) -> float:
        """Commits, while the follower rests."""
        before, started = self.total, time.perf_counter()
        await self._commit()
        return (self.total - before) / (time.perf_counter() - started)

    async def _commit(self) -> None:
        end = time.perf_counter() + self.scale.seconds

        async def caller(session_id: str) -> None:
            while time.perf_counter() < end:
                receipt = (await self.runtime.commit(session_id, events=EVENTS)).receipt
                self.total += receipt.last_event_sequence - self.ends[session_id]
                self.ends[session_id] = receipt.last_event_sequence

        await asyncio.gather(*(caller(session_id) for session_id in self.ends))

    async def _pause(self) -> None:
        await self.operate("Pause", admin_service_pb2.PauseRequest(request_id=fresh_id()))


class ProjectionRebuild(_Projected):
    """Building anew."""

    name = "projection.rebuild"
    what = "a rebuild of many events, against reading them and writing them as they are on the bare driver"
    unit = "s"
    target = 1.5
    at_least = False
    sessions = 20

    async def prepare(self) -> None:
        """Sessions of many events, a tenth of which are commits that append a message."""
        await super().prepare()
        self.count = 0
        batch = [event(payload=text(bytes(200))) for _ in range(90)]
        for _ in range(self.sessions):
            session_id = (await self.runtime.create()).session_id
            last = 1
            while last < self.scale.rows // self.sessions:
                for _ in range(9):
                    await self.runtime.commit(session_id, messages=append(fresh_id()))
                last = (await self.runtime.commit(session_id, events=batch)).receipt.last_event_sequence
            self.count += last
        await self.wait_applied(self.count)
        self.database = await self.stage.database("runtime")
        await self.database.execute("CREATE TABLE bare (LIKE events)")

    async def product(self) -> float:
        """A rebuild of the scope."""
        started, seen = time.perf_counter(), 0
        rebuild = self.runtime.world.bind("ProjectionAdminService.Rebuild")
        request = admin_service_pb2.RebuildRequest(request_id=fresh_id())
        async for frame in rebuild(request, metadata=self.runtime.metadata):
            seen = max(seen, frame.event_count)
        assert seen == self.count, (seen, self.count)
        return time.perf_counter() - started

    async def baseline(self) -> float:
        """Pages of events, each read, and written by one statement in a transaction."""
        database = self.database
        await database.execute("TRUNCATE bare")
        page = (
            "SELECT e AS row, thread_key, sequence FROM events e WHERE (thread_key, sequence) > ($1, $2) "
            f"ORDER BY thread_key, sequence LIMIT {PAGE_EVENTS}"
        )
        insert = "INSERT INTO bare SELECT (one).* FROM unnest($1::events[]) AS one"
        started, after, written = time.perf_counter(), ("", 0), 0
        while rows := await database.fetch(page, *after):
            await database.execute(insert, [tuple(row["row"]) for row in rows])
            after = (rows[-1]["thread_key"], rows[-1]["sequence"])
            written += len(rows)
        assert written >= self.count
        return time.perf_counter() - started

    async def clean_up(self) -> None:
        """Closes the driver's connection."""
        await self.database.close()


class MessagesPage(_Projected):
    """Length of the conversation."""

    name = "messages.page"
    what = "median page of 50 messages in a long conversation, against one in a conversation of 100"
    unit = "s"
    target = 1.2
    at_least = False

    async def prepare(self) -> None:
        """A long conversation and a short one."""
        await super().prepare()
        self.long = await self._conversation(max(2000, self.scale.rows // 10))
        self.short = await self._conversation(100)

    async def product(self) -> float:
        """In the long one, somewhere in its middle."""
        return await self._page(*self.long)

    async def baseline(self) -> float:
        """In the short one."""
        return await self._page(*self.short)

    async def _conversation(self, count: int) -> tuple[str, str]:
        """Its session, and the token of a page in it that is followed by others."""
        session_id = (await self.runtime.create()).session_id
        for start in range(0, count, 100):
            texts = [f"message {number:06}" for number in range(start, start + 100)]
            done = await self.runtime.commit(session_id, messages=append(*texts))
        request = message_service_pb2.ListMessagesRequest(
            session_id=session_id, page_size=min(1000, count // 4), freshness=fresh(done.receipt.cursor)
        )
        for _ in range(max(1, count // 2000)):
            request.page_token = (await self.runtime.call("MessageService.ListMessages", request)).next_page_token
        return session_id, request.page_token

    async def _page(self, session_id: str, token: str) -> float:
        request = message_service_pb2.ListMessagesRequest(session_id=session_id, page_size=50, page_token=token)
        page = await self.runtime.call("MessageService.ListMessages", request)
        assert len(page.messages) == 50
        return await median_latency(200, lambda: self.runtime.call("MessageService.ListMessages", request))


class SessionFanOut(_Projected):
    """One event, many readers."""

    name = "session.fanout"
    what = "messages per second of one event at a time to 1,000 readers, against a prebuilt one on as many streams"
    unit = "messages/s"
    target = 0.7
    at_least = True
    environment = MANY_STREAMS
    count = 1000

    async def prepare(self) -> None:
        """Readers of one session, and as many streams that hear the bell."""
        await super().prepare()
        self.session_id = (await self.runtime.create()).session_id
        self.rounds = 4 * self.scale.pairs
        self.readers, self.hearers = Crowd(), Crowd()
        # Both are read as bytes: what a client makes of them is its own affair.
        subscribe = self.stage.channel().unary_stream(SUBSCRIBE)
        request = stream_service_pb2.SubscribeSessionRequest(session_id=self.session_id).SerializeToString()
        for _ in range(self.count):
            await self.readers.join(subscribe(request, metadata=self.runtime.metadata))
            await self.hearers.join(self.stage.hear(b""))

    async def product(self) -> float:
        """Commits, until all have the event."""

        async def commit(mark: bytes) -> None:
            await self.runtime.commit(self.session_id, events=[event(payload=text(mark))])

        return await self.readers.rate(self.rounds, commit)

    async def baseline(self) -> float:
        """S, on as many streams."""
        return await self.hearers.rate(self.rounds, lambda mark: self.stage.bell(mark + bytes(250)))

    async def clean_up(self) -> None:
        """Ends the streams."""
        await self.readers.leave()
        await self.hearers.leave()
