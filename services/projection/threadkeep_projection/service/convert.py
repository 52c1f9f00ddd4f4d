"""Between the contract's messages and the domain's values."""

from __future__ import annotations

from collections.abc import Iterable
from datetime import UTC, datetime
from typing import Any

from google.protobuf.message import Message as Proto
from google.protobuf.timestamp_pb2 import Timestamp

from threadkeep.common.v1 import content_pb2
from threadkeep.projection.v1 import message_pb2, message_service_pb2, summary_pb2
from threadkeep.projection.v1 import summary_service_pb2 as pb
from threadkeep.runtime.v1 import run_pb2, session_pb2, task_pb2
from threadkeep_chassis.errors import FieldInvalid
from threadkeep_projection.domain.values import Content, Message, Usage
from threadkeep_projection.domain.words import Query, excerpt_of
from threadkeep_projection.store.agents import AgentView, Counts
from threadkeep_projection.store.reads import RunView, SessionView, SummaryFilter, TaskView
from threadkeep_projection.store.usage import AGENT, DAY, MODEL, UsageFilter, UsageTotal


def timestamp(value: datetime) -> Timestamp:
    """A point in time."""
    stamp = Timestamp()
    stamp.FromDatetime(value)
    return stamp


def wanted_freshness(request: Any) -> tuple[bytes, float | None]:
    """(at_least, max_wait in seconds or None) of a request's `freshness`."""
    freshness: message_service_pb2.Freshness = request.freshness
    if not freshness.HasField("max_wait"):
        return freshness.at_least, None
    return freshness.at_least, freshness.max_wait.seconds + freshness.max_wait.nanos / 1e9


def wanted_summaries(request: Any, states: Iterable[int], enum: Any, prefix: str) -> SummaryFilter:
    """The filter of a list request. Raises FieldInvalid for a time that is none."""
    names = [enum.Name(state).removeprefix(prefix) for state in states if state in enum.values()]
    return SummaryFilter(
        session_id=_optional(request, "session_id"),
        task_id=_optional(request, "task_id"),
        agent_name=_optional(request, "agent_name"),
        # A state that this server does not know is in no row.
        states=names if names or not list(states) else ["(unknown)"],
        metadata=dict(request.metadata) if "metadata" in request.DESCRIPTOR.fields_by_name else {},
        created_from=_time(request, "created_from"),
        created_before=_time(request, "created_before"),
    )


def wanted_counts(request: pb.GetCountsRequest) -> SummaryFilter:
    """What is counted. Raises FieldInvalid for a time that is none."""
    return SummaryFilter(
        agent_name=_optional(request, "agent_name"),
        created_from=_time(request, "created_from"),
        created_before=_time(request, "created_before"),
    )


_USAGE_KEYS = {pb.USAGE_KEY_DAY: DAY, pb.USAGE_KEY_AGENT: AGENT, pb.USAGE_KEY_MODEL: MODEL}


def wanted_usage(request: pb.ListUsageRequest) -> UsageFilter:
    """What usage is asked for. Raises FieldInvalid for a key or a time that is none."""
    unknown = [index for index, key in enumerate(request.keys) if key not in _USAGE_KEYS]
    if unknown:
        raise FieldInvalid(f"keys[{unknown[0]}]", "is none that this server knows")
    return UsageFilter(
        keys=frozenset(_USAGE_KEYS[key] for key in request.keys),
        session_id=_optional(request, "session_id"),
        agent_name=_optional(request, "agent_name"),
        model=_optional(request, "model"),
        created_from=_time(request, "created_from"),
        created_before=_time(request, "created_before"),
    )


def total_to_proto(total: UsageTotal, keys: frozenset[str]) -> pb.UsageTotal:
    """A sum, with the keys that were asked for."""
    named = {DAY: total.day, AGENT: total.agent_name, MODEL: total.model}
    return pb.UsageTotal(
        message_count=total.message_count,
        usage=usage_to_proto(total.usage),
        **{key: value for key, value in named.items() if key in keys},
    )


def message_to_proto(session_id: str, message: Message) -> message_pb2.Message:
    """A message of the conversation."""
    content = message.content or Content("UNSPECIFIED")
    rendered = message_pb2.Message(
        message_id=message.message_id,
        session_id=session_id,
        position=message.position or 0,
        role=content_pb2.MessageRole.Value(f"MESSAGE_ROLE_{content.role}"),
        parts=[
            content_pb2.ContentPart(text=part.text)
            if part.text is not None
            else content_pb2.ContentPart(block_json=part.block_json or "{}")
            for part in content.parts
        ],
        tool_calls=[
            content_pb2.ToolCall(tool_call_id=one.tool_call_id, name=one.name, args_json=one.args_json)
            for one in content.tool_calls
        ],
        name=content.name,
        tool_call_id=content.tool_call_id,
        parent_message_id=message.parent_message_id,
        model=content.model,
        task_id=message.introduction.task_id,
        run_id=message.introduction.run_id,
        create_time=timestamp(message.introduction.time),
    )
    if content.usage is not None:
        rendered.usage.CopyFrom(usage_to_proto(content.usage))
    return rendered


def match_to_proto(session_id: str, message: Message, query: Query) -> message_service_pb2.MessageMatch:
    """A message that answers a query, and where."""
    match = message_service_pb2.MessageMatch(message=message_to_proto(session_id, message))
    excerpt = excerpt_of(message.content, query) if message.content is not None else None
    if excerpt is not None:
        match.excerpt.part, match.excerpt.text = excerpt.part, excerpt.text
        for start, end in excerpt.matches:
            match.excerpt.matches.add(start=start, end=end)
    return match


def wanted_roles(roles: Iterable[content_pb2.MessageRole.ValueType]) -> list[str]:
    """Names of roles; one that this server does not know is no message's."""
    known = content_pb2.MessageRole
    return [known.Name(r).removeprefix("MESSAGE_ROLE_") if r in known.values() else "(unknown)" for r in roles]


def usage_to_proto(usage: Usage) -> content_pb2.TokenUsage:
    """Tokens."""
    return content_pb2.TokenUsage(
        input_tokens=usage.input_tokens, output_tokens=usage.output_tokens, total_tokens=usage.total_tokens
    )


def session_to_proto(view: SessionView) -> summary_pb2.SessionSummary:
    """A session."""
    session = view.session
    return summary_pb2.SessionSummary(
        session_id=session.session_id,
        title=session.title,
        agent_name=session.agent_name,
        metadata=dict(session.metadata),
        status=session_pb2.SessionStatus.Value(f"SESSION_STATUS_{session.status}"),
        message_count=session.message_count,
        task_count=session.task_count,
        run_count=session.run_count,
        last_message_text=view.last_text,
        usage=usage_to_proto(view.usage),
        create_time=timestamp(session.create_time),
        update_time=timestamp(session.update_time),
        event_sequence=session.event_sequence,
    )


def task_to_proto(view: TaskView) -> summary_pb2.TaskSummary:
    """A task."""
    task = view.task
    rendered = summary_pb2.TaskSummary(
        task_id=task.task_id,
        session_id=task.session_id,
        agent_name=task.agent_name,
        state=task_pb2.TaskState.Value(f"TASK_STATE_{task.state}"),
        run_id=task.run_id or None,
        metadata=dict(task.metadata),
        ticket_count=task.ticket_count,
        usage=usage_to_proto(view.usage),
        create_time=timestamp(task.create_time),
        update_time=timestamp(task.update_time),
    )
    if task.failure is not None:
        rendered.failure.code, rendered.failure.message = task.failure
    if task.end_time is not None:
        rendered.end_time.CopyFrom(timestamp(task.end_time))
    return rendered


def run_to_proto(view: RunView) -> summary_pb2.RunSummary:
    """A run."""
    run = view.run
    rendered = summary_pb2.RunSummary(
        run_id=run.run_id,
        task_id=run.task_id,
        session_id=run.session_id,
        agent_name=run.agent_name,
        state=run_pb2.RunState.Value(f"RUN_STATE_{run.state}"),
        cause=_cause(run.cause),
        lease_count=run.lease_count,
        step_count=run.step_count,
        usage=usage_to_proto(view.usage),
        create_time=timestamp(run.create_time),
    )
    if run.start_time is not None:
        rendered.start_time.CopyFrom(timestamp(run.start_time))
    if run.end_time is not None:
        rendered.end_time.CopyFrom(timestamp(run.end_time))
    return rendered


def agent_to_proto(view: AgentView) -> summary_pb2.AgentSummary:
    """An agent."""
    return summary_pb2.AgentSummary(
        agent_name=view.agent_name,
        task_count=view.task_count,
        failed_task_count=view.failed_task_count,
        open_task_count=view.open_task_count,
        run_count=view.run_count,
        usage=usage_to_proto(view.usage),
        last_activity_time=timestamp(view.last_activity_time),
    )


def counts_to_proto(counts: Counts) -> pb.GetCountsResponse:
    """The counts."""
    return pb.GetCountsResponse(
        sessions=[
            pb.SessionStatusCount(status=session_pb2.SessionStatus.Value(f"SESSION_STATUS_{name}"), count=number)
            for name, number in counts.sessions
        ],
        tasks=[
            pb.TaskStateCount(state=task_pb2.TaskState.Value(f"TASK_STATE_{name}"), count=number)
            for name, number in counts.tasks
        ],
        runs=[
            pb.RunStateCount(state=run_pb2.RunState.Value(f"RUN_STATE_{name}"), count=number)
            for name, number in counts.runs
        ],
    )


def _cause(name: str) -> run_pb2.RunEndCause.ValueType:
    try:
        return run_pb2.RunEndCause.Value(f"RUN_END_CAUSE_{name or 'UNSPECIFIED'}")
    except ValueError:
        # A newer runtime's.
        return run_pb2.RUN_END_CAUSE_UNSPECIFIED


def _optional(request: Proto, name: str) -> str | None:
    if name not in request.DESCRIPTOR.fields_by_name or not request.HasField(name):
        return None
    value: str = getattr(request, name)
    return value


def _time(request: Any, name: str) -> datetime | None:
    if not request.HasField(name):
        return None
    try:
        value: datetime = getattr(request, name).ToDatetime(tzinfo=UTC)
    except (ValueError, OverflowError) as error:
        raise FieldInvalid(name, "must be a time between the years 1 and 9999") from error
    return value
