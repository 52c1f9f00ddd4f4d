"""What was resolved lately, by scope, for as long as nothing that it came from has changed.

The cache holds what is true at the tail's position: the tail takes out what a change touches before it moves on.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Hashable, Iterable
from dataclasses import dataclass, field
from typing import Any

from threadkeep_config.domain.manifest import Reference

ANY_NAME = ""
"""As a source's name: whatever is there of the type."""

ENTRY_BYTES = 600
"""What an entry takes beside its value, roughly."""


@dataclass
class Entry:
    """One cached answer."""

    value: Any
    sources: tuple[Reference, ...]
    size: int
    memo: dict[str, Any] = field(default_factory=dict)
    """What callers made of the value, such as its message; it lives as long as the entry."""


class Cache:
    """Answers that were used last, up to a size in bytes."""

    def __init__(self, max_bytes: int) -> None:
        self._max_bytes = max_bytes
        self._entries: OrderedDict[Hashable, Entry] = OrderedDict()
        self._by_source: dict[Reference, set[Hashable]] = {}
        self.size = 0
        """Bytes held, roughly."""

    def get(self, key: Hashable) -> Entry | None:
        """The answer, or None if it is not known."""
        entry = self._entries.get(key)
        if entry is not None:
            self._entries.move_to_end(key)
        return entry

    def put(self, key: Hashable, entry: Entry) -> None:
        """Keeps an answer that is true at the tail's position."""
        self._drop(key)
        entry.size += ENTRY_BYTES
        entry.sources = tuple(dict.fromkeys(entry.sources))
        self._entries[key] = entry
        self.size += entry.size
        for source in entry.sources:
            self._by_source.setdefault(source, set()).add(key)
        while self.size > self._max_bytes and self._entries:
            self._drop(next(iter(self._entries)))

    def forget(self, sources: Iterable[Reference]) -> None:
        """Drops what came from these types and names."""
        for type, name in sources:
            for source in ((type, name), (type, ANY_NAME)):
                for key in list(self._by_source.get(source, ())):
                    self._drop(key)

    def clear(self) -> None:
        """Drops everything."""
        self._entries.clear()
        self._by_source.clear()
        self.size = 0

    def _drop(self, key: Hashable) -> None:
        entry = self._entries.pop(key, None)
        if entry is None:
            return
        self.size -= entry.size
        for source in entry.sources:
            keys = self._by_source[source]
            keys.discard(key)
            if not keys:
                del self._by_source[source]
