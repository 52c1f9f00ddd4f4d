"""What a subscription gives its reader, one after the other."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from threadkeep_runtime.store.events_read import EventRow

Item = tuple[EventRow, bytes]
"""An event, and the cursor just after it."""


@dataclass(frozen=True, slots=True)
class EventsFrame:
    """Events, in order, at least one."""

    items: tuple[Item, ...]
    cursor: bytes
    scopes: dict[str, dict[str, str]] | None = None
    """The scopes of the events by key, in feeds over a grant."""


@dataclass(frozen=True, slots=True)
class BookmarkFrame:
    """Nothing matched up to the cursor."""

    cursor: bytes


@dataclass(frozen=True, slots=True)
class LiveFrame:
    """A live observation, as its publisher gave it."""

    observation: Any
    scope: Mapping[str, str] | None = None
    """The thread's scope, in feeds over a grant."""


@dataclass(frozen=True, slots=True)
class GapFrame:
    """Live observations were dropped."""

    dropped_count: int


Frame = EventsFrame | BookmarkFrame | LiveFrame | GapFrame
