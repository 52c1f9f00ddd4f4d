"""How long a scope keeps its past (R19): rules, and what a purge takes from one thread. Pure."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Any

SESSION_PURGED = "threadkeep.session.purged"


@dataclass(frozen=True, slots=True)
class Rule:
    """What goes: what is older than an age, and what is beyond the newest so many; the newest `keep_latest` stay."""

    max_age_seconds: float | None = None
    max_count: int | None = None
    keep_latest: int = 0

    def cutoff(self, now: datetime) -> datetime | None:
        """What is older than this goes; None without an age. An age beyond the calendar spares everything."""
        if self.max_age_seconds is None:
            return None
        try:
            return now - timedelta(seconds=self.max_age_seconds)
        except OverflowError:
            return None


@dataclass(frozen=True, slots=True)
class Policy:
    """A scope's rules. What has none stays for ever."""

    tasks: Rule | None = None
    sessions: Rule | None = None
    checkpoints: Rule | None = None
    events: Rule | None = None
    audit: Rule | None = None
    receipts_seconds: float | None = None
    delivered_seconds: float | None = None
    """How long delivered messages live; None: as the server's setting says."""

    def to_json(self) -> dict[str, Any]:
        """As it is stored."""
        rules: dict[str, Any] = {
            name: [rule.max_age_seconds, rule.max_count, rule.keep_latest]
            for name in RULES
            if (rule := getattr(self, name)) is not None
        }
        ages = {"receipts_seconds": self.receipts_seconds, "delivered_seconds": self.delivered_seconds}
        return {**rules, **{name: seconds for name, seconds in ages.items() if seconds is not None}}

    @classmethod
    def of_json(cls, stored: Mapping[str, Any]) -> Policy:
        """Reads what `to_json` made; a kind that this server does not know is passed over."""
        return cls(
            **{name: Rule(*stored[name]) for name in RULES if name in stored},
            receipts_seconds=stored.get("receipts_seconds"),
            delivered_seconds=stored.get("delivered_seconds"),
        )


RULES = ("tasks", "sessions", "checkpoints", "events", "audit")
"""The kinds that have a rule each."""


@dataclass(frozen=True, slots=True)
class PurgePlan:
    """What goes from one thread, found under its lock."""

    event_floor: int
    """Events up to this sequence go; the thread's own floor if none do."""
    commit_floor: int
    """So do commits."""
    event_count: int = 0
    """How many events go."""
    position: int = 0
    """Of the last event that goes, in the thread's partition; 0 if none do."""
    task_ids: tuple[str, ...] = ()
    """Terminal tasks; their runs and tickets go too."""
    run_ids: tuple[str, ...] = ()
    """The runs of these tasks."""
    anchor: bytes | None = None
    """The digest of the last commit that goes: the chain that is kept starts behind it (R17)."""
