"""A call as a value: which method, which request, and what to take from its answer.

Converters build calls; the synchronous and the asyncio transport run them. Methods are read from the descriptors of
the generated stubs, which say too whether a method changes anything.
"""

from __future__ import annotations

import uuid
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, replace
from typing import Any, Generic, TypeVar, cast

from google.protobuf import message_factory
from google.protobuf.message import Message

from threadkeep._errors import ThreadkeepError

T = TypeVar("T")
P = TypeVar("P")
R = TypeVar("R", bound=Message)


@dataclass(frozen=True, slots=True)
class Method:
    """One RPC of the contract."""

    service: str
    """The threadkeep service that has it: `runtime`, `config`, `artifacts` or `projection`."""
    path: str
    """`/package.Service/Method`."""
    request: type[Message]
    response: type[Message]
    mutation: bool


def method(module: Any, service: str, name: str) -> Method:
    """The method `name` of the service `service` that the generated module `module` declares."""
    from threadkeep.common.v1 import options_pb2

    descriptor = module.DESCRIPTOR.services_by_name[service].methods_by_name[name]
    rule = descriptor.GetOptions().Extensions[options_pb2.method]
    return Method(
        service=descriptor.full_name.split(".")[1],
        path=f"/{descriptor.containing_service.full_name}/{name}",
        request=message_factory.GetMessageClass(descriptor.input_type),
        response=message_factory.GetMessageClass(descriptor.output_type),
        mutation=rule.mutation,
    )


@dataclass(frozen=True, slots=True)
class Call(Generic[T]):
    """One logical call. Retries send the same request, and so the same request_id."""

    method: Method
    request: Message
    take: Callable[[Any], T]
    """What the caller gets from the response."""
    wait: float = 0.0
    """Seconds that the server may hold the call by design (a long poll), on top of the usual timeout."""
    scoped: bool = True
    """False: the call names a grant, and no scope (AcquireRun, feeds over a grant)."""


@dataclass(frozen=True, slots=True)
class PagedCall(Generic[T]):
    """A list: the call of its first page, and which items a page holds."""

    first: Call[Any]
    items: Callable[[Any], Sequence[T]]

    def after(self, page: Any) -> Call[Any] | None:
        """The call of the page after `page`; None after the last."""
        token: str = page.next_page_token
        if not token:
            return None
        request = type(self.first.request)()
        request.CopyFrom(self.first.request)
        cast(Any, request).page_token = token
        return replace(self.first, request=request)


@dataclass(frozen=True, slots=True)
class Feed(Generic[T, P]):
    """A stream that goes on from a position after a break: a cursor of bytes, or a revision."""

    call: Call[Any]
    items: Callable[[Any], Iterable[tuple[T | None, P | None]]]
    """What a frame holds: items, each with the position after it. None as an item: the position moved, nothing else."""
    resume: Callable[[Any, P], None]
    """Changes a request so that it starts after a position."""
    resume_point: Callable[[ThreadkeepError], P | None]
    """Where an error says to go on."""

    def after(self, position: P) -> Feed[T, P]:
        """The same feed from a position on."""
        request = type(self.call.request)()
        request.CopyFrom(self.call.request)
        self.resume(request, position)
        return replace(self, call=replace(self.call, request=request))


def whole(response: R) -> R:
    """Takes the response as it is."""
    return response


def new_request_id() -> str:
    """A fresh idempotency key."""
    return str(uuid.uuid4())
