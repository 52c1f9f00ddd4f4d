"""Iterators over feeds that survive broken connections: they go on after the last item, each item once."""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncIterator, Iterator
from typing import Generic, TypeVar

from threadkeep._errors import ThreadkeepError
from threadkeep._rpc.aio_transport import AioTransport
from threadkeep._rpc.context import CallContext, CallOptions, RetryPolicy
from threadkeep._rpc.method import Feed
from threadkeep._rpc.transport import Transport
from threadkeep.errors import SlowConsumer

T = TypeVar("T")
P = TypeVar("P")


class _Position(Generic[T, P]):
    """Where a subscription is, and whether a break may be mended."""

    def __init__(self, feed: Feed[T, P], options: CallOptions) -> None:
        self.feed = feed
        self.retry = options.retry or RetryPolicy()
        self.reconnects = options.retry is not None
        self.patience = options.timeout
        self.position: P | None = None
        self.attempt = 0
        self.broken_since: float | None = None

    def progressed(self, position: P | None) -> None:
        if position is not None:
            self.position = position
            self.feed = self.feed.after(position)
        self.attempt = 0
        self.broken_since = None

    def delay_after(self, error: ThreadkeepError) -> float:
        """Seconds until the next try; raises the error when there is none."""
        now = time.monotonic()
        self.broken_since = self.broken_since or now
        if not self.reconnects or not (self.retry.retries(error) or isinstance(error, SlowConsumer)):
            raise error
        if now - self.broken_since > self.patience:
            raise error
        # What this side got decides; the server's word counts only where nothing came yet.
        point = self.feed.resume_point(error) if self.position is None else None
        if point is not None:
            self.position = point
            self.feed = self.feed.after(point)
        self.attempt += 1
        return self.retry.delay(self.attempt, error)


class Subscription(Generic[T, P]):
    """An iterator over a feed. `position` is a cursor (or revision) after the last item: keep it to go on later.

    It reconnects by itself and gives up only when it got nothing for the client's timeout. Close it, or use it as a
    context manager, to end it early.
    """

    def __init__(self, feed: Feed[T, P], transport: Transport, context: CallContext, options: CallOptions) -> None:
        self._state = _Position(feed, options)
        self._items = self._run(transport, context)

    @property
    def position(self) -> P | None:
        """After the last item that the iterator gave; None before the first."""
        return self._state.position

    def _run(self, transport: Transport, context: CallContext) -> Iterator[T]:
        state = self._state
        while True:
            frames = transport.frames(state.feed.call, context)
            try:
                for frame in frames:
                    for item, position in state.feed.items(frame):
                        state.progressed(position)
                        if item is not None:
                            yield item
            except ThreadkeepError as error:
                time.sleep(state.delay_after(error))
            else:
                return
            finally:
                frames.close()  # type: ignore[attr-defined]

    def __iter__(self) -> Iterator[T]:
        return self

    def __next__(self) -> T:
        return next(self._items)

    def close(self) -> None:
        """Ends the subscription."""
        self._items.close()  # type: ignore[attr-defined]

    def __enter__(self) -> Subscription[T, P]:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()


class AsyncSubscription(Generic[T, P]):
    """The same for asyncio."""

    def __init__(self, feed: Feed[T, P], transport: AioTransport, context: CallContext, options: CallOptions) -> None:
        self._state = _Position(feed, options)
        self._items = self._run(transport, context)

    @property
    def position(self) -> P | None:
        """After the last item that the iterator gave; None before the first."""
        return self._state.position

    async def _run(self, transport: AioTransport, context: CallContext) -> AsyncIterator[T]:
        state = self._state
        while True:
            frames = transport.frames(state.feed.call, context)
            try:
                async for frame in frames:
                    for item, position in state.feed.items(frame):
                        state.progressed(position)
                        if item is not None:
                            yield item
            except ThreadkeepError as error:
                await asyncio.sleep(state.delay_after(error))
            else:
                return
            finally:
                await frames.aclose()  # type: ignore[attr-defined]

    def __aiter__(self) -> AsyncIterator[T]:
        return self

    async def __anext__(self) -> T:
        return await anext(self._items)

    async def close(self) -> None:
        """Ends the subscription."""
        await self._items.aclose()  # type: ignore[attr-defined]

    async def __aenter__(self) -> AsyncSubscription[T, P]:
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.close()
