"""Events: list and subscribe; and sessions as one stream, which the projection serves."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from threadkeep._errors import ThreadkeepError
from threadkeep._rpc.method import Call, Feed, PagedCall, method, whole
from threadkeep.projection.v1 import stream_service_pb2
from threadkeep.projection.v1.stream_service_pb2 import StreamKind
from threadkeep.runtime.v1 import event_pb2, event_service_pb2
from threadkeep.runtime.v1.event_pb2 import Event, LiveGap, LiveObservation, Visibility

_LIST = method(event_service_pb2, "EventService", "ListEvents")
_SUBSCRIBE = method(event_service_pb2, "EventService", "SubscribeEvents")
_SUBSCRIBE_SESSION = method(stream_service_pb2, "StreamService", "SubscribeSession")

Item = Event | LiveObservation | LiveGap
"""What a subscription gives. Live observations and gaps come only where they were asked for."""


def _filter(
    session_id: str | None,
    run_id: str | None,
    task_id: str | None,
    types: Sequence[str],
    visibility: Visibility.ValueType,
) -> event_service_pb2.EventFilter:
    extents = {"session_id": session_id, "run_id": run_id, "task_id": task_id}
    given = {name: value for name, value in extents.items() if value is not None}
    if len(given) > 1:
        raise ValueError(f"a feed is of one session, run or task, not of {sorted(given)} at once")
    wanted = event_service_pb2.EventFilter(types=types, visibility=visibility)
    for name, value in given.items():
        setattr(wanted, name, value)
    return wanted


def list(
    *,
    session_id: str | None = None,
    run_id: str | None = None,
    task_id: str | None = None,
    types: Sequence[str] = (),
    visibility: Visibility.ValueType = event_pb2.VISIBILITY_UNSPECIFIED,
    after: bytes = b"",
    page_size: int = 0,
) -> PagedCall[Event]:
    """Committed events after the cursor `after`, in order; without session, run or task all of the scope's, or all that
    the grant covers when the client names no scope. Raises CursorInvalid, CursorExpired, CursorUnknown."""
    request = event_service_pb2.ListEventsRequest(
        filter=_filter(session_id, run_id, task_id, types, visibility), after=after, page_size=page_size
    )
    return PagedCall(Call(_LIST, request, whole), lambda page: page.events)


def subscribe(
    *,
    session_id: str | None = None,
    run_id: str | None = None,
    task_id: str | None = None,
    types: Sequence[str] = (),
    visibility: Visibility.ValueType = event_pb2.VISIBILITY_UNSPECIFIED,
    after: bytes | None = None,
    from_now: bool = False,
    include_live: bool = False,
) -> Feed[Item, bytes]:
    """Events after the cursor `after` (or from the start, or from now), then live ones, each once and in thread order.

    It goes on by itself after a broken connection. A subscription to a run or task ends after its terminal event.
    Raises CursorInvalid, CursorExpired, CursorUnknown, SessionNotFound, RunNotFound, TaskNotFound.
    """
    request = event_service_pb2.SubscribeEventsRequest(
        filter=_filter(session_id, run_id, task_id, types, visibility), include_live=include_live
    )
    if after is not None:
        request.after = after
    elif from_now:
        request.from_now = True
    else:
        request.from_start = True
    return Feed(Call(_SUBSCRIBE, request, whole), _items, _resume, _point)


def subscribe_session(
    session_id: str,
    *,
    after: bytes = b"",
    visibility: Visibility.ValueType = event_pb2.VISIBILITY_UNSPECIFIED,
    kinds: Sequence[StreamKind.ValueType] = (),
    committed_only: bool = False,
    until_task_id: str | None = None,
    until_run_id: str | None = None,
) -> Feed[Item, bytes]:
    """A session's committed events after the cursor `after`, merged with live observations; of some kinds, or of all.

    It ends after the event that ends the task or run of `until_...`, if one is given, and goes on by itself after a
    broken connection. Raises CursorInvalid, CursorExpired, CursorUnknown, SessionNotFound, RunNotFound, TaskNotFound.
    """
    request = stream_service_pb2.SubscribeSessionRequest(
        session_id=session_id, after=after, visibility=visibility, kinds=kinds, committed_only=committed_only
    )
    if until_task_id is not None:
        request.until_task_id = until_task_id
    if until_run_id is not None:
        request.until_run_id = until_run_id
    return Feed(Call(_SUBSCRIBE_SESSION, request, whole), _session_items, _resume, _point)


def _items(frame: event_service_pb2.SubscribeEventsResponse) -> Iterator[tuple[Item | None, bytes | None]]:
    match frame.WhichOneof("frame"):
        case "events":
            for event in frame.events.events:
                yield event, event.cursor
            yield None, frame.cursor or None
        case "live":
            yield frame.live, None
        case "gap":
            yield frame.gap, None
        case _:
            # A bookmark, or a kind of frame that this client does not know yet.
            yield None, frame.cursor or None


def _session_items(
    frame: stream_service_pb2.SubscribeSessionResponse,
) -> Iterator[tuple[Item | None, bytes | None]]:
    match frame.WhichOneof("frame"):
        case "event":
            yield frame.event, frame.cursor or None
        case "live":
            yield frame.live, None
        case "gap":
            yield frame.gap, None
        case _:
            yield None, frame.cursor or None


def _resume(
    request: event_service_pb2.SubscribeEventsRequest | stream_service_pb2.SubscribeSessionRequest, cursor: bytes
) -> None:
    request.after = cursor


def _point(error: ThreadkeepError) -> bytes | None:
    return error.resume_cursor
