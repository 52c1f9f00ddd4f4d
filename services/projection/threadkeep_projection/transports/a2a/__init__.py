"""A2A 1.0 over gRPC (https://a2a-protocol.org): the stubs are those that a2a-sdk publishes (P6)."""

from __future__ import annotations

from threadkeep_chassis.rules import AdoptedService, ScopeRule

SERVICE = "lf.a2a.v1.A2AService"

RULES = AdoptedService(
    scope=ScopeRule.ONE,
    domain="a2a-protocol.org",
    reasons={
        "TASK_NOT_FOUND": "TASK_NOT_FOUND",
        "TASK_TERMINAL": "TASK_NOT_CANCELABLE",
        "UNSUPPORTED_OPERATION": "UNSUPPORTED_OPERATION",
        "VERSION_NOT_SUPPORTED": "VERSION_NOT_SUPPORTED",
        "TICKET_AMBIGUOUS": "UNSUPPORTED_OPERATION",
        "TICKET_NOT_OPEN": "UNSUPPORTED_OPERATION",
        "AGENT_UNRESOLVED": "UNSUPPORTED_OPERATION",
    },
    codes={"INVALID_ARGUMENT": "INVALID_PARAMS", "INTERNAL": "INTERNAL_ERROR"},
)
"""The protocol's names for our reasons. Its clients tell errors apart by them; ours by our own."""
