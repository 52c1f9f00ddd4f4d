"""Strict decoding: a stored value may only build types that are on an allow-list, and a refusal names the type.

LangGraph's own serialiser returns the raw payload of a type that it does not know, which then looks like state.
"""

from __future__ import annotations

from collections.abc import Iterable
from contextvars import ContextVar
from typing import Any

from langgraph.checkpoint.serde.event_hooks import SerdeEvent, register_serde_event_listener
from langgraph.checkpoint.serde.jsonplus import JsonPlusSerializer

AllowedType = type | tuple[str, ...]
"""A class, or its (module, name)."""


class DecodingRefused(ValueError):
    """A stored value holds a type that may not be built here. `type_name` is `module.name`."""

    def __init__(self, type_name: str, where: str = "") -> None:
        place = f" in {where}" if where else ""
        super().__init__(
            f"refused to build {type_name}{place}, which is not on the allow-list; `allowed_types` takes your own"
        )
        self.type_name = type_name
        self.where = where


class EncodingRefused(ValueError):
    """A value, or a checkpoint's metadata, can't be stored. The message says which and why."""


_blocked: ContextVar[list[str] | None] = ContextVar("threadkeep_blocked_types", default=None)


def _note_blocked(event: SerdeEvent) -> None:
    blocked = _blocked.get()
    if blocked is not None and event["kind"] in ("msgpack_blocked", "msgpack_method_blocked"):
        method = event.get("method")
        blocked.append(f"{event['module']}.{event['name']}" + (f".{method}" if method else ""))


# The serialiser tells its listeners what it blocks, and nobody else.
register_serde_event_listener(_note_blocked)


class StrictSerializer(JsonPlusSerializer):
    """LangGraph's serialiser with an allow-list: its own safe types and `allowed_types`. No pickle."""

    def __init__(self, allowed_types: Iterable[AllowedType] = ()) -> None:
        super().__init__(allowed_msgpack_modules=tuple(allowed_types) or None)

    def loads_typed(self, data: tuple[str, bytes]) -> Any:
        """The value of a typed dump. Raises DecodingRefused."""
        blocked: list[str] = []
        token = _blocked.set(blocked)
        try:
            value = super().loads_typed(data)
        except NotImplementedError:
            raise DecodingRefused(f"serialisation type {data[0]!r}") from None
        finally:
            _blocked.reset(token)
        if blocked:
            raise DecodingRefused(blocked[0])
        return value
