"""The registry of example requests: RPC name to how a valid request is made, and which of its fields name records."""

from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from typing import TypeVar

from google.protobuf.message import Message

from tests.support.descriptors import FieldPlace, Rpc, fields, rpc
from tests.support.examples.world import World

Frames = list[Message]
Maker = Callable[[World], Awaitable[Message | Frames]]
M = TypeVar("M", bound=Maker)


@dataclass(frozen=True)
class Example:
    """How to make a request of one RPC that succeeds when it is sent once."""

    rpc: Rpc
    maker: Maker
    refers: tuple[str, ...]
    """Paths of the fields that name records which must exist (or, in lists, by which rows are chosen)."""
    frames: int
    """How many frames of an endless answer are worth reading."""
    is_operators: bool = False
    """True if the call needs the grant over all scopes."""

    async def make(self, world: World) -> Frames:
        """The request's frames (one, unless the client streams), after making in `world` what they need."""
        made = await self.maker(world)
        return made if isinstance(made, list) else [made]

    def references(self) -> list[FieldPlace]:
        """The places of `refers`."""
        places = {place.name: place for place in fields(self.rpc.method.input_type)}
        return [places[name] for name in self.refers]


_examples: dict[str, Example] = {}


def register(name: str, *refers: str, frames: int = 0, is_operators: bool = False) -> Callable[[M], M]:
    """Registers the decorated maker as the example of RPC `name`."""

    def decorate(maker: M) -> M:
        assert name not in _examples, f"{name} has two examples"
        _examples[name] = Example(rpc(name), maker, refers, frames, is_operators)
        return maker

    return decorate


def example(name: str) -> Example:
    """The example of that RPC; a KeyError says that a new RPC has none yet."""
    return _examples[name]


def examples() -> dict[str, Example]:
    """All of them, by RPC name."""
    return dict(_examples)
