"""RetentionService: a scope's policy, and purging at once (R19)."""

from __future__ import annotations

import grpc
from google.protobuf.duration_pb2 import Duration

from threadkeep.runtime.v1 import retention_pb2, retention_service_pb2, retention_service_pb2_grpc
from threadkeep_chassis.database import Connection
from threadkeep_chassis.errors import FieldInvalid
from threadkeep_chassis.receipts import check_receipt, find_receipt, fingerprint, idempotent
from threadkeep_chassis.scope import current_call
from threadkeep_runtime.commands.retention import Purger
from threadkeep_runtime.domain.retention import RULES, Policy, Rule
from threadkeep_runtime.service.rooms import Rooms
from threadkeep_runtime.store import retention
from threadkeep_runtime.store.retention import StoredPolicy

pb = retention_service_pb2


class RetentionServicer(retention_service_pb2_grpc.RetentionServiceServicer):
    """Translates; `rooms` and `purger` are set once the database is open."""

    rooms: Rooms
    purger: Purger

    async def GetRetentionPolicy(
        self, request: pb.GetRetentionPolicyRequest, context: grpc.aio.ServicerContext
    ) -> pb.GetRetentionPolicyResponse:
        """Reads the scope's policy."""
        return pb.GetRetentionPolicyResponse(policy=_to_proto(await self.purger.policy(current_call().scope_key)))

    async def SetRetentionPolicy(
        self, request: pb.SetRetentionPolicyRequest, context: grpc.aio.ServicerContext
    ) -> pb.SetRetentionPolicyResponse:
        """Replaces the scope's policy."""
        call = current_call()
        policy = _policy_of(request.policy, self.rooms.settings.receipt_ttl_seconds)
        expected = request.expected_revision if request.HasField("expected_revision") else None

        async def work(connection: Connection) -> pb.SetRetentionPolicyResponse:
            now = await connection.now()
            stored = await connection.run(
                lambda sync: retention.set_policy(sync, call.scope_key, policy, expected, now)
            )
            return pb.SetRetentionPolicyResponse(policy=_to_proto(stored))

        return await idempotent(self.rooms.database, call, request, pb.SetRetentionPolicyResponse, work)

    async def PurgeNow(self, request: pb.PurgeNowRequest, context: grpc.aio.ServicerContext) -> pb.PurgeNowResponse:
        """Purges, and keeps the answer. What was purged before a first call was cut off is not counted again."""
        call = current_call()
        async with self.rooms.database.read() as connection:
            answered = check_receipt(
                await find_receipt(connection, call.receipt_key, request.request_id), fingerprint(call.method, request)
            )
        if answered is not None:
            call.mark_replay()
            return pb.PurgeNowResponse.FromString(answered)
        stored = await self.purger.policy(call.scope_key)
        session_id = request.session_id if request.HasField("session_id") else None
        counts = await self.purger.apply(call.scope_key, stored.policy, session_id=session_id)
        response = pb.PurgeNowResponse(
            counts=retention_pb2.PurgeCounts(
                tasks=counts.tasks,
                sessions=counts.sessions,
                checkpoints=counts.checkpoints,
                events=counts.events,
                receipts=counts.receipts,
                audit=counts.audit,
                delivered=counts.delivered,
            )
        )

        async def work(connection: Connection) -> pb.PurgeNowResponse:
            return response

        return await idempotent(self.rooms.database, call, request, pb.PurgeNowResponse, work)


def _policy_of(message: retention_pb2.RetentionPolicy, receipts_seconds: float) -> Policy:
    """Raises FieldInvalid."""
    given = {field.name for field, _ in message.ListFields()}
    rules = {name: _rule_of(getattr(message, name), f"policy.{name}") for name in RULES if name in given}
    seconds = None
    if message.HasField("receipts_max_age"):
        seconds = _seconds_of(message.receipts_max_age)
        if seconds < receipts_seconds:
            raise FieldInvalid("policy.receipts_max_age", f"is at least {receipts_seconds:g} seconds on this server")
    delivered = None
    if message.HasField("delivered_max_age"):
        delivered = _seconds_of(message.delivered_max_age)
        if delivered <= 0:
            raise FieldInvalid("policy.delivered_max_age", "is above 0")
    return Policy(**rules, receipts_seconds=seconds, delivered_seconds=delivered)


def _rule_of(message: retention_pb2.RetentionRule, path: str) -> Rule:
    if not message.HasField("max_age") and not message.HasField("max_count"):
        raise FieldInvalid(path, "needs max_age or max_count")
    age = _seconds_of(message.max_age) if message.HasField("max_age") else None
    if age is not None and age <= 0:
        raise FieldInvalid(f"{path}.max_age", "is above 0")
    count = message.max_count if message.HasField("max_count") else None
    if count is not None and count < 1:
        raise FieldInvalid(f"{path}.max_count", "is at least 1")
    return Rule(age, count, message.keep_latest)


def _seconds_of(duration: Duration) -> float:
    return float(duration.seconds) + duration.nanos / 1e9


def _to_proto(stored: StoredPolicy) -> retention_pb2.RetentionPolicy:
    message = retention_pb2.RetentionPolicy(
        revision=stored.revision,
        update_time=stored.update_time,  # type: ignore[arg-type]
    )
    for name in RULES:
        rule: Rule | None = getattr(stored.policy, name)
        if rule is not None:
            shown: retention_pb2.RetentionRule = getattr(message, name)
            shown.keep_latest = rule.keep_latest
            if rule.max_age_seconds is not None:
                shown.max_age.CopyFrom(_duration(rule.max_age_seconds))
            if rule.max_count is not None:
                shown.max_count = rule.max_count
    if stored.policy.receipts_seconds is not None:
        message.receipts_max_age.CopyFrom(_duration(stored.policy.receipts_seconds))
    if stored.policy.delivered_seconds is not None:
        message.delivered_max_age.CopyFrom(_duration(stored.policy.delivered_seconds))
    return message


def _duration(seconds: float) -> Duration:
    duration = Duration()
    duration.FromNanoseconds(round(seconds * 1e9))
    return duration
