"""The contract as data: every RPC, what its requests may hold, and requests built from the rules of the fields.

Tests that say "every RPC" walk this, so that a new RPC or field is held to the law on the day it is declared.
"""

import importlib
import itertools
import pkgutil
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any

import grpc
from google.protobuf import message_factory
from google.protobuf.descriptor import Descriptor, FieldDescriptor, MethodDescriptor
from google.protobuf.message import Message

from threadkeep.common.v1 import options_pb2

PROTOS = Path(__file__).resolve().parents[2] / "protos" / "threadkeep"
TOO_DEEP = 8
"""Messages nest less than this; a type that contains itself is walked no deeper."""


@dataclass(frozen=True)
class Rpc:
    """One RPC of the contract."""

    method: MethodDescriptor
    stub: type

    @property
    def service(self) -> str:
        """The threadkeep service: `runtime`, `config`, ..."""
        return self.method.full_name.split(".")[1]

    @property
    def name(self) -> str:
        """Service and method: `SessionService.CreateSession`."""
        return f"{self.method.containing_service.name}.{self.method.name}"

    @property
    def rule(self) -> options_pb2.MethodRule:
        """The method rule; empty when the method declares none."""
        return self.method.GetOptions().Extensions[options_pb2.method]

    @property
    def request(self) -> type[Message]:
        """The class of the request (of each frame, when the client streams)."""
        return message_factory.GetMessageClass(self.method.input_type)

    @property
    def response(self) -> type[Message]:
        """The class of the response (of each frame, when the server streams)."""
        return message_factory.GetMessageClass(self.method.output_type)

    def bind(self, channel: grpc.aio.Channel) -> Any:
        """The generated stub's callable on this channel."""
        return getattr(self.stub(channel), self.method.name)


@dataclass(frozen=True)
class FieldPlace:
    """A field somewhere inside a request, by the path from its root."""

    path: tuple[FieldDescriptor, ...]

    @property
    def field(self) -> FieldDescriptor:
        """The field itself."""
        return self.path[-1]

    @property
    def rule(self) -> options_pb2.FieldRule:
        """The field rule; empty when the field declares none."""
        return self.field.GetOptions().Extensions[options_pb2.field]

    @property
    def name(self) -> str:
        """The path as errors name it, with the first element of what repeats: `commit.events[0].event_id`."""
        return ".".join(f"{field.name}[0]" if field.is_repeated else field.name for field in self.path)

    def set(self, request: Message, value: Any) -> None:
        """Puts a value there, making what lies on the way; in a repeated field it becomes the first element."""
        for field in self.path[:-1]:
            if field.is_repeated:
                rows = getattr(request, field.name)
                request = rows[0] if len(rows) else rows.add()
            else:
                request = getattr(request, field.name)
                request.SetInParent()
        if self.field.is_repeated:
            rows = getattr(request, self.field.name)
            if len(rows):
                rows[0] = value
            else:
                rows.append(value)
        else:
            setattr(request, self.field.name, value)

    def get(self, request: Message) -> Any:
        """The value there, of the first elements; None when it or anything on the way is absent."""
        for field in self.path:
            if field.is_repeated:
                rows = getattr(request, field.name)
                if not len(rows):
                    return None
                request = rows[0]
            elif field.has_presence and not request.HasField(field.name):
                return None
            else:
                request = getattr(request, field.name)
        return request


@cache
def rpcs() -> tuple[Rpc, ...]:
    """Every RPC of every threadkeep service, in a stable order."""
    found = []
    for folder in sorted(path.parent.name for path in PROTOS.glob("*/v1") if any(path.glob("*.proto"))):
        package = importlib.import_module(f"threadkeep.{folder}.v1")
        for module in sorted(info.name for info in pkgutil.iter_modules(package.__path__)):
            if not module.endswith("_service_pb2"):
                continue
            messages = importlib.import_module(f"{package.__name__}.{module}")
            stubs = importlib.import_module(f"{package.__name__}.{module}_grpc")
            for name, descriptor in messages.DESCRIPTOR.services_by_name.items():
                found += [Rpc(method, getattr(stubs, f"{name}Stub")) for method in descriptor.methods]
    return tuple(found)


def rpc(name: str) -> Rpc:
    """The RPC of that name, such as `SessionService.CreateSession`."""
    return next(one for one in rpcs() if one.name == name)


def messages() -> Iterator[Descriptor]:
    """Every message type that a request or response of an RPC can hold, each once."""
    seen: set[str] = set()
    waiting = [end for one in rpcs() for end in (one.method.input_type, one.method.output_type)]
    while waiting:
        descriptor = waiting.pop()
        if descriptor.full_name in seen or not descriptor.full_name.startswith("threadkeep."):
            continue
        seen.add(descriptor.full_name)
        yield descriptor
        waiting += [field.message_type for field in descriptor.fields if field.message_type]


def is_map(field: FieldDescriptor) -> bool:
    """True for `map<...>` fields."""
    return bool(field.message_type and field.message_type.GetOptions().map_entry)


def fields(descriptor: Descriptor, wanted: Callable[[FieldPlace], bool] = lambda place: True) -> Iterator[FieldPlace]:
    """Every field inside a message, at any depth, outermost first; maps count as one field."""
    yield from (place for place in _walk(descriptor, ()) if wanted(place))


def _walk(descriptor: Descriptor, path: tuple[FieldDescriptor, ...]) -> Iterator[FieldPlace]:
    for field in descriptor.fields:
        place = FieldPlace((*path, field))
        yield place
        inner = field.message_type
        if inner is None or is_map(field) or not inner.full_name.startswith("threadkeep."):
            continue
        if len(path) < TOO_DEEP and inner not in [step.message_type for step in path]:
            yield from _walk(inner, place.path)


def id_fields(descriptor: Descriptor) -> Iterator[FieldPlace]:
    """Every identifier inside a request."""
    return fields(descriptor, lambda place: place.rule.kind == options_pb2.FIELD_KIND_ID)


_numbers = itertools.count(1)


def fresh_id(prefix: str = "id") -> str:
    """An id that no other call in this process got."""
    return f"{prefix}-{next(_numbers):06d}"


def minimal(message: type[Message] | Message) -> Message:
    """A request that satisfies every field rule and holds nothing else: ids are fresh, texts short, JSON is `{}`."""
    request = message() if isinstance(message, type) else message
    for field in request.DESCRIPTOR.fields:
        place = FieldPlace((field,))
        if not place.rule.required:
            continue
        if field.message_type and not is_map(field):
            minimal(getattr(request, field.name).add() if field.is_repeated else getattr(request, field.name))
            if not field.is_repeated:
                getattr(request, field.name).SetInParent()
        else:
            place.set(request, _sample(place))
    return request


def complete(place: FieldPlace, request: Message) -> None:
    """Fills what the rules require in the messages on the way to `place`, which the minimal request may not hold."""
    for field in place.path[:-1]:
        if field.is_repeated:
            rows = getattr(request, field.name)
            request = rows[0] if len(rows) else rows.add()
        else:
            request = getattr(request, field.name)
            request.SetInParent()
        for inner in request.DESCRIPTOR.fields:
            step = FieldPlace((inner,))
            if step.rule.required and step.get(request) in (None, "", b""):
                if inner.message_type and inner.is_repeated:
                    minimal(getattr(request, inner.name).add())
                elif inner.message_type:
                    # Present even if nothing in it is required.
                    minimal(getattr(request, inner.name)).SetInParent()
                else:
                    step.set(request, _sample(step))


def _sample(place: FieldPlace) -> Any:
    field, kind = place.field, place.rule.kind
    if field.type == FieldDescriptor.TYPE_ENUM:
        return field.enum_type.values[1].number
    if field.cpp_type in (FieldDescriptor.CPPTYPE_INT32, FieldDescriptor.CPPTYPE_INT64):
        return 1
    text = {
        options_pb2.FIELD_KIND_ID: fresh_id(field.name.replace("_", "-")),
        options_pb2.FIELD_KIND_JSON: "{}",
        options_pb2.FIELD_KIND_SHA256: "0" * 64,
    }.get(kind, "text")
    return text.encode() if field.type == FieldDescriptor.TYPE_BYTES else text
