"""Audit records between messages and domain values (R17)."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from threadkeep.runtime.v1 import audit_pb2
from threadkeep_chassis.limits import Limits
from threadkeep_runtime.domain.audit import AuditDraft, AuditRecord
from threadkeep_runtime.service.parse import actor_of, payload_of
from threadkeep_runtime.service.render import actor_to_proto, payload_to_proto


def records_of(
    drafts: Sequence[audit_pb2.AuditDraft], new_id: Callable[[], str], limits: Limits, path: str
) -> tuple[AuditDraft, ...]:
    """Records to write. Raises FieldInvalid, LimitExceeded."""
    found = []
    for index, draft in enumerate(drafts):
        limits.check("max_audit_bytes", draft.ByteSize())
        actor = actor_of(draft.actor, f"{path}[{index}].actor") if draft.HasField("actor") else None
        details = payload_of(draft.details) if draft.HasField("details") else None
        found.append(AuditDraft(new_id(), draft.action, draft.target, actor, details))
    return tuple(found)


def record_to_proto(record: AuditRecord) -> audit_pb2.AuditRecord:
    """A record."""
    return audit_pb2.AuditRecord(
        audit_id=record.audit_id,
        session_id=record.session_id,
        commit_sequence=record.commit_sequence,
        ordinal=record.ordinal,
        action=record.action,
        target=record.target,
        actor=actor_to_proto(record.actor),
        details=payload_to_proto(record.details),
        run_id=record.run_id,
        task_id=record.task_id,
        create_time=record.create_time,  # type: ignore[arg-type]
    )
