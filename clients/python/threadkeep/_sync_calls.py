"""How a part of the synchronous client runs calls: once, page by page, or as a feed."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from functools import wraps
from typing import Any, Concatenate, ParamSpec, TypeVar

from threadkeep._rpc.context import CallContext, CallOptions
from threadkeep._rpc.method import Call, Feed, PagedCall
from threadkeep._rpc.subscriptions import Subscription
from threadkeep._rpc.transport import Transport

A = ParamSpec("A")
T = TypeVar("T")
P = TypeVar("P")


class Part:
    """A part of a client: it runs calls."""

    def __init__(self, transport: Transport, context: CallContext, options: CallOptions) -> None:
        self._transport, self._context, self._options = transport, context, options

    def _run(self, call: Call[T]) -> T:
        return self._transport.unary(call, self._context, self._options)


def unary(convert: Callable[A, Call[T]]) -> Callable[Concatenate[Part, A], T]:
    @wraps(convert)
    def run(self: Part, *args: A.args, **kwargs: A.kwargs) -> T:
        return self._run(convert(*args, **kwargs))

    return run


def pages(convert: Callable[A, PagedCall[T]]) -> Callable[Concatenate[Part, A], Iterator[T]]:
    @wraps(convert)
    def run(self: Part, *args: A.args, **kwargs: A.kwargs) -> Iterator[T]:
        return _iterate(self, convert(*args, **kwargs))

    return run


def _iterate(part: Part, paged: PagedCall[T]) -> Iterator[T]:
    call: Call[Any] | None = paged.first
    while call is not None:
        yield from paged.items(page := part._run(call))
        call = paged.after(page)


def feed(convert: Callable[A, Feed[T, P]]) -> Callable[Concatenate[Part, A], Subscription[T, P]]:
    @wraps(convert)
    def run(self: Part, *args: A.args, **kwargs: A.kwargs) -> Subscription[T, P]:
        return Subscription(convert(*args, **kwargs), self._transport, self._context, self._options)

    return run
