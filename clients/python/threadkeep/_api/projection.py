"""Messages, summaries, and the projection itself.

`at_least` is a cursor of the runtime (a commit receipt's or an event's): the answer then reflects everything up to it,
or raises FreshnessTimeout after `max_wait` seconds.
"""

from __future__ import annotations

import datetime
from collections.abc import Mapping, Sequence
from typing import Any

from threadkeep._api.values import given, to_duration, to_timestamp
from threadkeep._rpc.method import Call, Feed, PagedCall, method, new_request_id, whole
from threadkeep.common.v1 import content_pb2
from threadkeep.projection.v1 import (
    admin_service_pb2,
    message_pb2,
    message_service_pb2,
    summary_pb2,
    summary_service_pb2,
)
from threadkeep.runtime.v1 import run_pb2, session_pb2, task_pb2

_MESSAGES = method(message_service_pb2, "MessageService", "ListMessages")
_SEARCH = method(message_service_pb2, "MessageService", "SearchMessages")
_MESSAGE = method(message_service_pb2, "MessageService", "GetMessage")
_SUMMARY = {
    kind: (
        method(summary_service_pb2, "SummaryService", f"Get{kind}Summary"),
        method(summary_service_pb2, "SummaryService", f"List{kind}Summaries"),
    )
    for kind in ("Session", "Task", "Run")
}
_AGENTS = method(summary_service_pb2, "SummaryService", "ListAgentSummaries")
_COUNTS = method(summary_service_pb2, "SummaryService", "GetCounts")
_USAGE = method(summary_service_pb2, "SummaryService", "ListUsage")
_STATUS = method(admin_service_pb2, "ProjectionAdminService", "GetStatus")
_REBUILD_SESSION = method(admin_service_pb2, "ProjectionAdminService", "RebuildSession")
_REBUILD = method(admin_service_pb2, "ProjectionAdminService", "Rebuild")
_POISON = method(admin_service_pb2, "ProjectionAdminService", "ListPoisonEvents")
_RETRY_POISON = method(admin_service_pb2, "ProjectionAdminService", "RetryPoisonEvents")
_PAUSE = method(admin_service_pb2, "ProjectionAdminService", "Pause")
_RESUME = method(admin_service_pb2, "ProjectionAdminService", "Resume")

DEFAULT_FRESHNESS_WAIT = 5.0


def _fresh(at_least: bytes | None, max_wait: float) -> dict[str, Any]:
    if at_least is None:
        return {}
    return {"freshness": message_service_pb2.Freshness(at_least=at_least, max_wait=to_duration(max_wait))}


def _wait(at_least: bytes | None, max_wait: float) -> float:
    return 0.0 if at_least is None else max_wait


def _page(
    agent_name: str | None,
    metadata: Mapping[str, str] | None,
    created_from: datetime.datetime | None,
    created_before: datetime.datetime | None,
    page_size: int,
) -> dict[str, Any]:
    times = given(created_from=to_timestamp(created_from), created_before=to_timestamp(created_before))
    return {"page_size": page_size, "metadata": dict(metadata or {}), **given(agent_name=agent_name), **times}


def list_messages(
    session_id: str,
    *,
    newest_first: bool = False,
    at_least: bytes | None = None,
    max_wait: float = DEFAULT_FRESHNESS_WAIT,
    page_size: int = 0,
) -> PagedCall[message_pb2.Message]:
    """A session's messages in the order of the conversation. Raises SessionNotFound, FreshnessTimeout."""
    request = message_service_pb2.ListMessagesRequest(
        session_id=session_id, page_size=page_size, newest_first=newest_first, **_fresh(at_least, max_wait)
    )
    return PagedCall(Call(_MESSAGES, request, whole, wait=_wait(at_least, max_wait)), lambda page: page.messages)


def search_messages(
    session_id: str,
    query: str,
    *,
    roles: Sequence[content_pb2.MessageRole.ValueType] = (),
    newest_first: bool = False,
    at_least: bytes | None = None,
    max_wait: float = DEFAULT_FRESHNESS_WAIT,
    page_size: int = 0,
) -> PagedCall[message_service_pb2.MessageMatch]:
    """Messages that answer the query, in the order of the conversation: `both words "these together" beg* -without`.

    Raises SessionNotFound, FreshnessTimeout.
    """
    request = message_service_pb2.SearchMessagesRequest(
        session_id=session_id,
        query=query,
        roles=roles,
        page_size=page_size,
        newest_first=newest_first,
        **_fresh(at_least, max_wait),
    )
    return PagedCall(Call(_SEARCH, request, whole, wait=_wait(at_least, max_wait)), lambda page: page.matches)


def get_message(
    session_id: str, message_id: str, *, at_least: bytes | None = None, max_wait: float = DEFAULT_FRESHNESS_WAIT
) -> Call[message_pb2.Message]:
    """Reads a message. Raises MessageNotFound, FreshnessTimeout."""
    request = message_service_pb2.GetMessageRequest(
        session_id=session_id, message_id=message_id, **_fresh(at_least, max_wait)
    )
    return Call(_MESSAGE, request, lambda response: response.message, wait=_wait(at_least, max_wait))


def get_session(
    session_id: str, *, at_least: bytes | None = None, max_wait: float = DEFAULT_FRESHNESS_WAIT
) -> Call[summary_pb2.SessionSummary]:
    """Reads a session's summary. Raises SessionNotFound, FreshnessTimeout."""
    request = summary_service_pb2.GetSessionSummaryRequest(session_id=session_id, **_fresh(at_least, max_wait))
    return Call(_SUMMARY["Session"][0], request, lambda r: r.session, wait=_wait(at_least, max_wait))


def get_task(
    task_id: str, *, at_least: bytes | None = None, max_wait: float = DEFAULT_FRESHNESS_WAIT
) -> Call[summary_pb2.TaskSummary]:
    """Reads a task's summary. Raises TaskNotFound, FreshnessTimeout."""
    request = summary_service_pb2.GetTaskSummaryRequest(task_id=task_id, **_fresh(at_least, max_wait))
    return Call(_SUMMARY["Task"][0], request, lambda r: r.task, wait=_wait(at_least, max_wait))


def get_run(
    run_id: str, *, at_least: bytes | None = None, max_wait: float = DEFAULT_FRESHNESS_WAIT
) -> Call[summary_pb2.RunSummary]:
    """Reads a run's summary. Raises RunNotFound, FreshnessTimeout."""
    request = summary_service_pb2.GetRunSummaryRequest(run_id=run_id, **_fresh(at_least, max_wait))
    return Call(_SUMMARY["Run"][0], request, lambda r: r.run, wait=_wait(at_least, max_wait))


def list_sessions(
    *,
    agent_name: str | None = None,
    statuses: Sequence[session_pb2.SessionStatus.ValueType] = (),
    metadata: Mapping[str, str] | None = None,
    created_from: datetime.datetime | None = None,
    created_before: datetime.datetime | None = None,
    at_least: bytes | None = None,
    max_wait: float = DEFAULT_FRESHNESS_WAIT,
    page_size: int = 0,
) -> PagedCall[summary_pb2.SessionSummary]:
    """Summaries of the scope's sessions, newest first. Raises FreshnessTimeout."""
    request = summary_service_pb2.ListSessionSummariesRequest(
        statuses=statuses,
        **_page(agent_name, metadata, created_from, created_before, page_size),
        **_fresh(at_least, max_wait),
    )
    call: Call[Any] = Call(_SUMMARY["Session"][1], request, whole, wait=_wait(at_least, max_wait))
    return PagedCall(call, lambda page: page.sessions)


def list_tasks(
    *,
    session_id: str | None = None,
    agent_name: str | None = None,
    states: Sequence[task_pb2.TaskState.ValueType] = (),
    metadata: Mapping[str, str] | None = None,
    created_from: datetime.datetime | None = None,
    created_before: datetime.datetime | None = None,
    at_least: bytes | None = None,
    max_wait: float = DEFAULT_FRESHNESS_WAIT,
    page_size: int = 0,
) -> PagedCall[summary_pb2.TaskSummary]:
    """Summaries of the scope's tasks, newest first. Raises FreshnessTimeout."""
    request = summary_service_pb2.ListTaskSummariesRequest(
        states=states,
        **given(session_id=session_id),
        **_page(agent_name, metadata, created_from, created_before, page_size),
        **_fresh(at_least, max_wait),
    )
    call: Call[Any] = Call(_SUMMARY["Task"][1], request, whole, wait=_wait(at_least, max_wait))
    return PagedCall(call, lambda page: page.tasks)


def list_runs(
    *,
    session_id: str | None = None,
    task_id: str | None = None,
    agent_name: str | None = None,
    states: Sequence[run_pb2.RunState.ValueType] = (),
    created_from: datetime.datetime | None = None,
    created_before: datetime.datetime | None = None,
    at_least: bytes | None = None,
    max_wait: float = DEFAULT_FRESHNESS_WAIT,
    page_size: int = 0,
) -> PagedCall[summary_pb2.RunSummary]:
    """Summaries of the scope's runs, newest first. Raises FreshnessTimeout."""
    fields = _page(agent_name, None, created_from, created_before, page_size)
    del fields["metadata"]
    request = summary_service_pb2.ListRunSummariesRequest(
        states=states, **given(session_id=session_id, task_id=task_id), **fields, **_fresh(at_least, max_wait)
    )
    call: Call[Any] = Call(_SUMMARY["Run"][1], request, whole, wait=_wait(at_least, max_wait))
    return PagedCall(call, lambda page: page.runs)


def list_agents(
    *,
    agent_name: str | None = None,
    at_least: bytes | None = None,
    max_wait: float = DEFAULT_FRESHNESS_WAIT,
    page_size: int = 0,
) -> PagedCall[summary_pb2.AgentSummary]:
    """What the scope's agents have done, by name. Raises FreshnessTimeout."""
    request = summary_service_pb2.ListAgentSummariesRequest(
        page_size=page_size, **given(agent_name=agent_name), **_fresh(at_least, max_wait)
    )
    return PagedCall(Call(_AGENTS, request, whole, wait=_wait(at_least, max_wait)), lambda page: page.agents)


def get_counts(
    *,
    agent_name: str | None = None,
    created_from: datetime.datetime | None = None,
    created_before: datetime.datetime | None = None,
    at_least: bytes | None = None,
    max_wait: float = DEFAULT_FRESHNESS_WAIT,
) -> Call[summary_service_pb2.GetCountsResponse]:
    """How many sessions, tasks and runs the scope has in each state. Raises FreshnessTimeout."""
    fields = _page(agent_name, None, created_from, created_before, 0)
    del fields["metadata"], fields["page_size"]
    request = summary_service_pb2.GetCountsRequest(**fields, **_fresh(at_least, max_wait))
    return Call(_COUNTS, request, whole, wait=_wait(at_least, max_wait))


def list_usage(
    *keys: summary_service_pb2.UsageKey.ValueType,
    session_id: str | None = None,
    agent_name: str | None = None,
    model: str | None = None,
    created_from: datetime.datetime | None = None,
    created_before: datetime.datetime | None = None,
    at_least: bytes | None = None,
    max_wait: float = DEFAULT_FRESHNESS_WAIT,
    page_size: int = 0,
) -> PagedCall[summary_service_pb2.UsageTotal]:
    """Tokens that the scope's messages took, by `keys` (day, agent, model; none: in total). Raises FreshnessTimeout."""
    times = given(created_from=to_timestamp(created_from), created_before=to_timestamp(created_before))
    request = summary_service_pb2.ListUsageRequest(
        keys=keys,
        page_size=page_size,
        **given(session_id=session_id, agent_name=agent_name, model=model),
        **times,
        **_fresh(at_least, max_wait),
    )
    call: Call[Any] = Call(_USAGE, request, whole, wait=_wait(at_least, max_wait))
    return PagedCall(call, lambda page: page.totals)


def get_status() -> Call[Sequence[admin_service_pb2.FollowerShare]]:
    """How far the follower is, by share of the event space."""
    return Call(_STATUS, admin_service_pb2.GetStatusRequest(), lambda response: response.shares)


def rebuild_session(
    session_id: str, *, request_id: str | None = None
) -> Call[admin_service_pb2.RebuildSessionResponse]:
    """Builds one session's projection anew from the runtime. Raises SessionNotFound."""
    request = admin_service_pb2.RebuildSessionRequest(request_id=request_id or new_request_id(), session_id=session_id)
    return Call(_REBUILD_SESSION, request, whole)


def rebuild(
    *, everything: bool = False, request_id: str | None = None
) -> Feed[admin_service_pb2.RebuildResponse, bool]:
    """Builds the scope's projection anew, or with `everything` all scopes' (needs `grant="all"`), while reads go on.

    Gives how far it is; in the last item `is_done` is true. After a broken connection it goes on where it stopped.
    Raises ScopeForbidden.
    """
    request = admin_service_pb2.RebuildRequest(request_id=request_id or new_request_id(), everything=everything)
    # The same request goes on by itself: there is no position to send.
    return Feed(
        Call(_REBUILD, request, whole), lambda one: [(one, True)], lambda request, position: None, lambda _: None
    )


def pause(duration: float | None = None, *, request_id: str | None = None) -> Call[admin_service_pb2.PauseResponse]:
    """Stops the follower until `resume`, or for so many seconds; needs `grant="all"`. Raises ScopeForbidden."""
    request = admin_service_pb2.PauseRequest(
        request_id=request_id or new_request_id(), **given(duration=None if duration is None else to_duration(duration))
    )
    return Call(_PAUSE, request, whole)


def resume(*, request_id: str | None = None) -> Call[bool]:
    """Lets the follower go on; true if it was paused. Needs `grant="all"`. Raises ScopeForbidden."""
    request = admin_service_pb2.ResumeRequest(request_id=request_id or new_request_id())
    return Call(_RESUME, request, lambda response: response.was_paused)


def list_poison_events(
    *, session_id: str | None = None, page_size: int = 0
) -> PagedCall[admin_service_pb2.PoisonEvent]:
    """Events of the scope that could not be projected, by session and sequence."""
    request = admin_service_pb2.ListPoisonEventsRequest(page_size=page_size, **given(session_id=session_id))
    return PagedCall(Call(_POISON, request, whole), lambda page: page.events)


def retry_poison_events(
    session_id: str | None = None, *, request_id: str | None = None
) -> Call[admin_service_pb2.RetryPoisonEventsResponse]:
    """Builds the sessions of poison events anew: one, or up to 100 of the scope."""
    request = admin_service_pb2.RetryPoisonEventsRequest(
        request_id=request_id or new_request_id(), **given(session_id=session_id)
    )
    return Call(_RETRY_POISON, request, whole)
