"""How a part of the asyncio client runs calls: once, page by page, or as a feed."""

from __future__ import annotations

from collections.abc import AsyncIterator, Awaitable, Callable
from functools import wraps
from typing import Any, Concatenate, ParamSpec, TypeVar

from threadkeep._rpc.aio_transport import AioTransport
from threadkeep._rpc.context import CallContext, CallOptions
from threadkeep._rpc.method import Call, Feed, PagedCall
from threadkeep._rpc.subscriptions import AsyncSubscription

A = ParamSpec("A")
T = TypeVar("T")
P = TypeVar("P")


class Part:
    """A part of a client: it runs calls."""

    def __init__(self, transport: AioTransport, context: CallContext, options: CallOptions) -> None:
        self._transport, self._context, self._options = transport, context, options

    async def _run(self, call: Call[T]) -> T:
        return await self._transport.unary(call, self._context, self._options)


def unary(convert: Callable[A, Call[T]]) -> Callable[Concatenate[Part, A], Awaitable[T]]:
    @wraps(convert)
    async def run(self: Part, *args: A.args, **kwargs: A.kwargs) -> T:
        return await self._run(convert(*args, **kwargs))

    return run


def pages(convert: Callable[A, PagedCall[T]]) -> Callable[Concatenate[Part, A], AsyncIterator[T]]:
    @wraps(convert)
    def run(self: Part, *args: A.args, **kwargs: A.kwargs) -> AsyncIterator[T]:
        return _iterate(self, convert(*args, **kwargs))

    return run


async def _iterate(part: Part, paged: PagedCall[T]) -> AsyncIterator[T]:
    call: Call[Any] | None = paged.first
    while call is not None:
        page = await part._run(call)
        for item in paged.items(page):
            yield item
        call = paged.after(page)


def feed(convert: Callable[A, Feed[T, P]]) -> Callable[Concatenate[Part, A], AsyncSubscription[T, P]]:
    @wraps(convert)
    def run(self: Part, *args: A.args, **kwargs: A.kwargs) -> AsyncSubscription[T, P]:
        return AsyncSubscription(convert(*args, **kwargs), self._transport, self._context, self._options)

    return run
