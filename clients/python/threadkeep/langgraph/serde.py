"""Strict decoding: a stored value may only build types that are on an allow-list, and a refusal names the type.

LangGraph's own serialiser returns the raw payload of a type that it does not know, which then looks like state.
"""

from __future__ import annotations

import json
import math
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

    def dumps_typed(self, obj: Any) -> tuple[str, bytes]:
        """The typed dump. A value with integers over 64 bits, which msgpack lacks, is JSON where that is exact."""
        try:
            return super().dumps_typed(obj)
        except Exception:
            if not _is_exact_json(obj):
                raise
            return "json", json.dumps(obj, ensure_ascii=False, allow_nan=False).encode("utf-8")

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


def _is_exact_json(value: Any) -> bool:
    """True for plain values that LangGraph's JSON loader gives back as they are."""
    if value is None or type(value) in (bool, int):
        return True
    if type(value) is float:
        return math.isfinite(value)
    if type(value) is str:
        return not any("\ud800" <= character <= "\udfff" for character in value)
    if type(value) is list:
        return all(map(_is_exact_json, value))
    # A map with this key may be an object to the loader.
    return (
        type(value) is dict
        and "lc" not in value
        and all(type(key) is str and _is_exact_json(key) and _is_exact_json(one) for key, one in value.items())
    )
