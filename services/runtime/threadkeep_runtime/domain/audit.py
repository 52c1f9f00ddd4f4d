"""Audit records: who did what to what, in whose words, as part of a commit (R17)."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime
from typing import NamedTuple

from threadkeep_runtime.domain.values import Actor, Payload


class AuditDraft(NamedTuple):
    """A record to write."""

    audit_id: str
    action: str
    target: str
    actor: Actor | None
    """None: the commit's."""
    details: Payload | None


@dataclass(frozen=True, slots=True, kw_only=True)
class AuditRecord:
    """A record. It outlives its thread."""

    thread_key: str
    audit_id: str
    scope_key: str
    session_id: str
    commit_sequence: int
    ordinal: int
    """Place in its commit, from 1."""
    action: str
    target: str
    actor: Actor
    details: Payload | None
    run_id: str | None
    task_id: str | None
    create_time: datetime
