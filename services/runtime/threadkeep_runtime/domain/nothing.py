"""The decision that changes nothing: what was asked for is so already."""

from __future__ import annotations

from threadkeep_runtime.domain.commands import Command
from threadkeep_runtime.domain.commit import Decision, View


def nothing(view: View, command: Command) -> Decision:
    """A decision that touches no thread: only its receipt is written."""
    return Decision(
        kind=command.kind,
        now=view.now,
        scope_key=command.scope_key,
        scope=command.scope,
        request_id=command.request_id,
        receipt_key=command.receipt_key,
        actor=command.actor,
        trace=command.trace,
    )
