"""Messages to domain values, with the checks that the descriptors can't say. Errors name the field's path."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from datetime import UTC, datetime
from typing import Any

from google.protobuf import json_format
from google.protobuf.duration_pb2 import Duration
from google.protobuf.timestamp_pb2 import Timestamp

from threadkeep.common.v1 import content_pb2, payload_pb2
from threadkeep.runtime.v1 import (
    commit_pb2,
    event_pb2,
    message_pb2,
    run_pb2,
    session_pb2,
    session_service_pb2,
    task_pb2,
    ticket_pb2,
)
from threadkeep_chassis.errors import FieldInvalid
from threadkeep_chassis.limits import Limits
from threadkeep_runtime.domain.commands import Awaiting, Disposition, Ended, Running, SessionDraft, TicketDraft
from threadkeep_runtime.domain.values import (
    BUILDER,
    Actor,
    Answer,
    Event,
    Failure,
    LeaseRef,
    Payload,
    RetryPolicy,
    Timeouts,
    thread_key_of,
)
from threadkeep_runtime.service.answers import answer_problem, schema_problem

MAX_TEXT = 256
"""Characters of a metadata entry's key and value."""

MAX_ATTEMPTS = 1000
DEFAULT_BACKOFF_SECONDS, DEFAULT_MAX_BACKOFF_SECONDS, MAX_BACKOFF_SECONDS = 1.0, 60.0, 24 * 3600.0
DEFAULT_MULTIPLIER, MAX_MULTIPLIER = 2.0, 100.0

LEAST_TIMEOUT_SECONDS, MOST_TIMEOUT_SECONDS = 0.001, 10 * 366 * 24 * 3600.0

OWN_TYPES = "threadkeep."

NewId = Callable[[], str]


def enum_name(enum: Any, value: int, prefix: str, path: str) -> str:
    """The name of an enum's value without its prefix. Raises FieldInvalid for one that this server does not know."""
    if value not in enum.values():
        raise FieldInvalid(path, "is not a value that this server knows")
    return str(enum.Name(value)).removeprefix(prefix)


def actor_of(actor: payload_pb2.Actor, path: str = "actor") -> Actor:
    """Who acts."""
    kind = enum_name(payload_pb2.ActorKind, actor.kind, "ACTOR_KIND_", f"{path}.kind")
    return Actor(kind, actor.id if actor.HasField("id") else None)


def payload_of(message: payload_pb2.Payload) -> Payload:
    """An opaque value."""
    return Payload(message.content_type, message.data, dict(message.attributes) or None)


def metadata_of(metadata: Mapping[str, str], path: str) -> dict[str, str]:
    """Facts of the owner's. Raises FieldInvalid for entries that are too long, or that have no name."""
    for key, value in metadata.items():
        if not 1 <= len(key) <= MAX_TEXT:
            raise FieldInvalid(path, f"keys have 1 to {MAX_TEXT} characters")
        if len(value) > MAX_TEXT:
            raise FieldInvalid(path, f"values have at most {MAX_TEXT} characters")
    return dict(metadata)


def settings_of(settings: session_pb2.SessionSettings, path: str) -> dict[str, Any]:
    """Settings that override the agent's."""
    found: dict[str, Any] = {}
    if settings.HasField("model"):
        found["model"] = settings.model
    if settings.HasField("max_steps"):
        if settings.max_steps < 1:
            raise FieldInvalid(f"{path}.max_steps", "is at least 1")
        found["max_steps"] = settings.max_steps
    if artifact_policy_of(settings.artifact_policy, f"{path}.artifact_policy") is not None:
        found["artifact_policy"] = session_pb2.ArtifactPolicy.Name(settings.artifact_policy)
    return found


def artifact_policy_of(policy: int, path: str) -> str | None:
    """DELETE or KEEP; None if nothing is stated. Raises FieldInvalid."""
    name = enum_name(session_pb2.ArtifactPolicy, policy, "ARTIFACT_POLICY_", path)
    return None if name == "UNSPECIFIED" else name


def session_draft_of(draft: session_service_pb2.SessionDraft, path: str) -> SessionDraft:
    """What a caller decides about a session."""
    return SessionDraft(
        title=draft.title,
        agent_name=draft.agent_name if draft.HasField("agent_name") else "",
        metadata=metadata_of(draft.metadata, f"{path}.metadata"),
        settings=settings_of(draft.settings, f"{path}.settings"),
        message_source=enum_name(
            message_pb2.MessageSource, draft.message_source, "MESSAGE_SOURCE_", f"{path}.message_source"
        ).replace("UNSPECIFIED", ""),
    )


def lease_of(lease: commit_pb2.Lease) -> LeaseRef:
    """What a worker shows."""
    return LeaseRef(lease.run_id, lease.epoch)


def optional_lease(message: Any) -> LeaseRef | None:
    """The `lease` of a message, if it has one."""
    return lease_of(message.lease) if message.HasField("lease") else None


def seconds_of(
    message: Any, name: str, default: float, *, least: float = 0.0, most: float | None = None, path: str = ""
) -> float:
    """A duration field in seconds, the default if it is absent. Raises FieldInvalid outside of least and most."""
    if not message.HasField(name):
        return default
    duration: Duration = getattr(message, name)
    seconds = duration.seconds + duration.nanos / 1e9
    name = f"{path}.{name}" if path else name
    if seconds < least:
        raise FieldInvalid(name, f"is at least {least:g} s" if least else "must not be negative")
    if most is not None and seconds > most:
        raise FieldInvalid(name, f"is at most {most:g} s")
    return seconds


def time_of(timestamp: Timestamp, path: str) -> datetime:
    """A time, with microseconds. Raises FieldInvalid outside of the years 1 to 9999."""
    try:
        return timestamp.ToDatetime(tzinfo=UTC)
    except (ValueError, OverflowError) as error:
        raise FieldInvalid(path, "must be a time from year 1 to 9999") from error


def optional_time(message: Any, name: str) -> datetime | None:
    """A time field, None if it is absent. Raises FieldInvalid."""
    return time_of(getattr(message, name), name) if message.HasField(name) else None


def retry_policy_of(policy: task_pb2.RetryPolicy, default_attempts: int) -> RetryPolicy:
    """A retry policy with its defaults filled in. Raises FieldInvalid."""
    path = "retry_policy"
    if not 0 <= policy.max_attempts <= MAX_ATTEMPTS:
        raise FieldInvalid(f"{path}.max_attempts", f"is 0 to {MAX_ATTEMPTS}")
    # NaN fails as well.
    if policy.multiplier and not 1 <= policy.multiplier <= MAX_MULTIPLIER:
        raise FieldInvalid(f"{path}.multiplier", f"is 1 to {MAX_MULTIPLIER}")
    initial = seconds_of(policy, "initial_backoff", DEFAULT_BACKOFF_SECONDS, most=MAX_BACKOFF_SECONDS, path=path)
    longest = max(initial, DEFAULT_MAX_BACKOFF_SECONDS)
    most = seconds_of(policy, "max_backoff", longest, most=MAX_BACKOFF_SECONDS, path=path)
    if most < initial:
        raise FieldInvalid(f"{path}.max_backoff", "is at least initial_backoff")
    return RetryPolicy(
        max_attempts=policy.max_attempts or default_attempts,
        initial_backoff_seconds=initial,
        max_backoff_seconds=most,
        multiplier=policy.multiplier or DEFAULT_MULTIPLIER,
        retryable_codes=tuple(dict.fromkeys(policy.retryable_codes)),
        retry_causes=tuple(dict.fromkeys(_retry_cause(cause, path) for cause in policy.causes)),
    )


def _retry_cause(cause: int, path: str) -> str:
    name = enum_name(task_pb2.RetryCause, cause, "RETRY_CAUSE_", f"{path}.causes")
    if name == "UNSPECIFIED":
        raise FieldInvalid(f"{path}.causes", "are CRASH, FAILURE or TIMEOUT")
    return name


def timeouts_of(timeouts: task_pb2.TaskTimeouts) -> Timeouts:
    """How long a task may take. Raises FieldInvalid."""

    def bound(name: str) -> float | None:
        if not timeouts.HasField(name):  # type: ignore[arg-type]
            return None
        return seconds_of(timeouts, name, 0.0, least=LEAST_TIMEOUT_SECONDS, most=MOST_TIMEOUT_SECONDS, path="timeouts")

    return Timeouts(bound("total"), bound("attempt"), bound("waiting"))


def task_input_of(message: task_pb2.TaskInput, new_id: NewId, limits: Limits) -> tuple[bytes, dict[str, Any]]:
    """The input with an id for every message, serialized; and as it goes into the submission event: proto3 JSON.

    The event carries no payload's data: that is for the worker, which gets it with the run.
    """
    limits.check("max_task_input_bytes", message.ByteSize())
    which = message.WhichOneof("input")
    if which is None:
        raise FieldInvalid("input", "needs messages or a payload")
    given = task_pb2.TaskInput()
    given.CopyFrom(message)
    if which == "messages":
        _complete_messages(given.messages.messages, new_id)
    return given.SerializeToString(deterministic=True), task_input_json(given)


def task_input_json(given: task_pb2.TaskInput) -> dict[str, Any]:
    """A complete input as its task's submission event shows it."""
    shown = task_pb2.TaskInput()
    shown.CopyFrom(given)
    if shown.HasField("payload"):
        shown.payload.ClearField("data")
    found: dict[str, Any] = json_format.MessageToDict(shown, preserving_proto_field_name=True)
    return found


def _complete_messages(messages: Sequence[content_pb2.InputMessage], new_id: NewId) -> None:
    seen: set[str] = set()
    for index, message in enumerate(messages):
        path = f"input.messages.messages[{index}]"
        if not message.HasField("message_id"):
            message.message_id = new_id()
        if message.message_id in seen:
            raise FieldInvalid(f"{path}.message_id", "must be unique")
        seen.add(message.message_id)
        enum_name(content_pb2.MessageRole, message.role, "MESSAGE_ROLE_", f"{path}.role")
        if message.role == content_pb2.MESSAGE_ROLE_UNSPECIFIED:
            message.role = content_pb2.MESSAGE_ROLE_USER
        check_parts(message.parts, path)


def check_parts(parts: Sequence[content_pb2.ContentPart], path: str) -> None:
    """Raises FieldInvalid for a part of a message that is empty, or whose block is no JSON object."""
    for number, part in enumerate(parts):
        if part.WhichOneof("part") is None:
            raise FieldInvalid(f"{path}.parts[{number}]", "needs text or block_json")
        # It is a JSON document by now; its first character says which kind.
        if part.HasField("block_json") and not part.block_json.lstrip().startswith("{"):
            raise FieldInvalid(f"{path}.parts[{number}].block_json", "must be a JSON object")


def events_of(drafts: Sequence[event_pb2.EventDraft], new_id: NewId, limits: Limits, path: str) -> tuple[Event, ...]:
    """Events to append."""
    return tuple(_event(draft, new_id, limits, f"{path}[{index}]") for index, draft in enumerate(drafts))


def _event(draft: event_pb2.EventDraft, new_id: NewId, limits: Limits, path: str) -> Event:
    limits.check("max_event_bytes", draft.ByteSize())
    if draft.type.startswith(OWN_TYPES):
        raise FieldInvalid(f"{path}.type", "must not begin with `threadkeep.`: those are the server's own")
    if draft.schema_version < 0:
        raise FieldInvalid(f"{path}.schema_version", "must not be negative")
    visibility = enum_name(event_pb2.Visibility, draft.visibility, "VISIBILITY_", f"{path}.visibility")
    is_named = draft.HasField("event_id")
    return Event(
        draft.event_id if is_named else new_id(),
        is_named,
        draft.type,
        BUILDER if visibility == "UNSPECIFIED" else draft.visibility,
        None,
        None,
        payload_of(draft.payload) if draft.HasField("payload") else None,
        draft.schema_version or 1,
        draft.causation_id if draft.HasField("causation_id") else None,
        draft.correlation_id if draft.HasField("correlation_id") else None,
    )


def disposition_of(commit: commit_pb2.ThreadCommit, new_id: NewId, limits: Limits) -> Disposition | None:
    """What becomes of the run."""
    which = commit.WhichOneof("disposition")
    if which is None:
        return None
    if not commit.HasField("lease"):
        raise FieldInvalid("commit.lease", "is required with a disposition")
    if which == "running":
        return Running()
    if which == "awaiting":
        return Awaiting(
            tuple(
                _ticket_draft(draft, new_id, limits, f"commit.awaiting.tickets[{index}]")
                for index, draft in enumerate(commit.awaiting.tickets)
            )
        )
    return _ended(commit.ended, limits)


def _ended(ended: commit_pb2.RunEnded, limits: Limits) -> Ended:
    path = "commit.ended"
    cause = enum_name(run_pb2.RunEndCause, ended.cause, "RUN_END_CAUSE_", f"{path}.cause")
    if cause not in ("SUCCEEDED", "FAILED", "CANCELED"):
        raise FieldInvalid(f"{path}.cause", "is SUCCEEDED, FAILED or CANCELED")
    if ended.HasField("failure") != (cause == "FAILED"):
        raise FieldInvalid(f"{path}.failure", "is required with FAILED, and goes with nothing else")
    if ended.HasField("result") and cause != "SUCCEEDED":
        raise FieldInvalid(f"{path}.result", "goes with SUCCEEDED only")
    limits.check("max_task_result_bytes", ended.result.ByteSize())
    return Ended(
        cause,
        payload_of(ended.result) if ended.HasField("result") else None,
        Failure(ended.failure.code, ended.failure.message, ended.failure.retryable) if cause == "FAILED" else None,
    )


def _ticket_draft(draft: ticket_pb2.TicketDraft, new_id: NewId, limits: Limits, path: str) -> TicketDraft:
    limits.check("max_ticket_bytes", draft.ByteSize())
    kind = enum_name(ticket_pb2.TicketKind, draft.kind, "TICKET_KIND_", f"{path}.kind")
    schema = draft.answer_schema_json if draft.HasField("answer_schema_json") else None
    if schema is not None and (problem := schema_problem(schema)) is not None:
        raise FieldInvalid(f"{path}.answer_schema_json", problem)
    decisions = tuple(draft.allowed_decisions)
    if len(set(decisions)) < len(decisions):
        raise FieldInvalid(f"{path}.allowed_decisions", "must be different")
    default = answer_of(draft.default_answer) if draft.HasField("default_answer") else None
    if default is not None:
        broken = answer_problem(default, decisions, schema, f"{path}.default_answer")
        if broken is not None:
            raise FieldInvalid(*broken)
    is_named = draft.HasField("ticket_id")
    return TicketDraft(
        ticket_id=draft.ticket_id if is_named else new_id(),
        is_named=is_named,
        kind="INPUT" if kind == "UNSPECIFIED" else kind,
        prompt=payload_of(draft.prompt) if draft.HasField("prompt") else None,
        answer_schema_json=schema,
        allowed_decisions=decisions,
        deadline=time_of(draft.deadline, f"{path}.deadline") if draft.HasField("deadline") else None,
        default_answer=default,
        assignee=draft.assignee if draft.HasField("assignee") else None,
        interrupt_id=draft.interrupt_id if draft.HasField("interrupt_id") else None,
    )


def answer_of(answer: ticket_pb2.TicketAnswer) -> Answer:
    """An answer to a ticket."""
    return Answer(
        answer.decision if answer.HasField("decision") else None,
        answer.value_json if answer.HasField("value_json") else None,
    )


def states_of(request: Any, enum: Any, prefix: str) -> list[str]:
    """The names of the states that a list is filtered by."""
    return [enum_name(enum, state, prefix, f"states[{index}]") for index, state in enumerate(request.states)]


def session_filter(scope_key: str, request: Any) -> str | None:
    """The thread that a list is filtered by; None for all of the scope."""
    return thread_key_of(scope_key, request.session_id) if request.HasField("session_id") else None
