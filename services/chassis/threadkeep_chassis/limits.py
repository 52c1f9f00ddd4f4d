"""Named limits with documented defaults (X9): each is a setting, shows in GetServerInfo, and has one error."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass

from threadkeep_chassis.errors import LimitExceeded


@dataclass(frozen=True)
class Limit:
    """One limit: what it bounds, its default, and what a caller who needs more can do."""

    name: str
    default: int
    advice: str


TOO_LARGE = "Stream it, page it, or store an artifact."
CROWDED = "Close streams that you do not read, or add replicas."

SHARED_LIMITS: tuple[Limit, ...] = (
    Limit("max_message_bytes", 16 * 1024 * 1024, TOO_LARGE),
    Limit("max_page_size", 1000, "Ask for further pages."),
    Limit("max_page_bytes", 3 * 1024 * 1024, "Ask for further pages."),
    Limit("max_concurrent_rpcs", 2000, CROWDED),
    Limit("max_subscriptions", 1000, CROWDED),
)
"""What every server bounds. Values in bytes or counts, as the name says."""


class Limits:
    """The limits in force. `limits["max_page_size"]` reads one, `limits.check(...)` enforces one."""

    def __init__(self, *more: Limit, values: Mapping[str, int] | None = None) -> None:
        """Takes the service's own limits beside the shared ones, and the values that settings changed.

        Raises ValueError for a value whose name no limit has, or that is negative, and for two limits of one name.
        """
        self._limits = {limit.name: limit for limit in (*SHARED_LIMITS, *more)}
        if len(self._limits) < len(SHARED_LIMITS) + len(more):
            raise ValueError("two limits have one name")
        self._values = {name: limit.default for name, limit in self._limits.items()}
        for name, value in (values or {}).items():
            if name not in self._limits:
                raise ValueError(f"no limit is named {name}; the limits are {', '.join(sorted(self._limits))}")
            if value < 0:
                raise ValueError(f"limit {name} must not be negative")
            self._values[name] = value

    def __getitem__(self, name: str) -> int:
        return self._values[name]

    def check(self, name: str, actual: int) -> None:
        """Raises LimitExceeded if `actual` is above the limit."""
        if actual > self._values[name]:
            raise LimitExceeded(name, self._values[name], actual, self._limits[name].advice)

    def items(self) -> Iterable[tuple[str, int]]:
        """Every (name, value in force), sorted by name."""
        return sorted(self._values.items())
