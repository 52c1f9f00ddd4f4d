"""Retention."""

from __future__ import annotations

import datetime
from collections.abc import Mapping
from typing import Any

from threadkeep._api.values import given, to_duration
from threadkeep._rpc.method import Call, method, new_request_id
from threadkeep.runtime.v1 import retention_service_pb2
from threadkeep.runtime.v1.retention_pb2 import PurgeCounts, RetentionPolicy, RetentionRule

_GET = method(retention_service_pb2, "RetentionService", "GetRetentionPolicy")
_SET = method(retention_service_pb2, "RetentionService", "SetRetentionPolicy")
_PURGE = method(retention_service_pb2, "RetentionService", "PurgeNow")

Rule = Mapping[str, Any] | RetentionRule
"""A rule, or a map of `max_age` (seconds or a timedelta), `max_count` and `keep_latest`."""


def get() -> Call[RetentionPolicy]:
    """Reads the scope's policy; an empty one of revision 0 if it has none."""
    return Call(_GET, retention_service_pb2.GetRetentionPolicyRequest(), lambda response: response.policy)


def set(
    *,
    tasks: Rule | None = None,
    sessions: Rule | None = None,
    checkpoints: Rule | None = None,
    events: Rule | None = None,
    audit: Rule | None = None,
    receipts_max_age: float | datetime.timedelta | None = None,
    delivered_max_age: float | datetime.timedelta | None = None,
    expected_revision: int | None = None,
    request_id: str | None = None,
) -> Call[RetentionPolicy]:
    """Replaces the scope's policy: what gets no rule stays for ever. Raises RevisionConflict, InvalidArgument."""
    rules = {"tasks": tasks, "sessions": sessions, "checkpoints": checkpoints, "events": events, "audit": audit}
    given_rules: dict[str, Any] = {name: _rule(rule) for name, rule in rules.items() if rule is not None}
    ages = {
        "receipts_max_age": to_duration(receipts_max_age),
        "delivered_max_age": to_duration(delivered_max_age),
    }
    policy = RetentionPolicy(**given_rules, **given(**ages))
    request = retention_service_pb2.SetRetentionPolicyRequest(
        request_id=request_id or new_request_id(), policy=policy, **given(expected_revision=expected_revision)
    )
    return Call(_SET, request, lambda response: response.policy)


def purge(*, session_id: str | None = None, request_id: str | None = None) -> Call[PurgeCounts]:
    """Applies the scope's policy now, everywhere or in one session; gives how much went. Raises SessionNotFound."""
    request = retention_service_pb2.PurgeNowRequest(
        request_id=request_id or new_request_id(), **given(session_id=session_id)
    )
    return Call(_PURGE, request, lambda response: response.counts)


def _rule(rule: Rule) -> RetentionRule:
    if isinstance(rule, RetentionRule):
        return rule
    return RetentionRule(**{**rule, **given(max_age=to_duration(rule.get("max_age")))})
