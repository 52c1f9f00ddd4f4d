"""Who reads, and what such a reader sees (A6). `store.versions` says the same in SQL."""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum


class Visibility(StrEnum):
    """Who may read a version inside its scope."""

    PRIVATE = "PRIVATE"
    """The holder of the run's lease, and operators."""
    RUN = "RUN"
    """Readers of the session, and operators."""
    PUBLIC = "PUBLIC"
    """Every reader of the scope."""


@dataclass(frozen=True)
class Reader:
    """Who reads inside one scope. Without anything: somebody who sees what is public."""

    is_operator: bool = False
    """True for the grant over all scopes: sees everything."""
    session_ids: frozenset[str] = frozenset()
    """The sessions that it reads."""
    run_id: str | None = None
    """The run whose lease it holds."""

    def sees(self, visibility: Visibility, session_id: str | None, run_id: str | None) -> bool:
        """True if it may read a version of that visibility, session and run."""
        if self.is_operator or visibility is Visibility.PUBLIC:
            return True
        if visibility is Visibility.RUN:
            return session_id in self.session_ids
        return self.run_id is not None and run_id == self.run_id


OPERATOR = Reader(is_operator=True)
"""Sees everything: the service itself, at work for nobody in particular."""
