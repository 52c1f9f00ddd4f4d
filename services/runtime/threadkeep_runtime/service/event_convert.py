"""Event messages: filters in, events and frames out."""

from __future__ import annotations

from datetime import UTC, datetime

from google.protobuf import timestamp_pb2

from threadkeep.common.v1 import payload_pb2
from threadkeep.runtime.v1 import event_pb2, event_service_pb2
from threadkeep_chassis.errors import FieldInvalid
from threadkeep_runtime.domain.feeds import EventFilter
from threadkeep_runtime.feeds.frames import BookmarkFrame, EventsFrame, Frame, GapFrame
from threadkeep_runtime.store.events_read import EventRow

_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)

Scopes = dict[str, dict[str, str]]


def filter_from_proto(wanted: event_service_pb2.EventFilter) -> EventFilter:
    """Types and visibility of a filter. Raises FieldInvalid for a level that this server does not know."""
    level = wanted.visibility or event_pb2.VISIBILITY_INTERNAL
    if level not in event_pb2.Visibility.values():
        raise FieldInvalid("filter.visibility", "is not a known level")
    return EventFilter.of(tuple(wanted.types), level)


def selection_from_proto(wanted: event_service_pb2.EventFilter, partitions: int) -> frozenset[int] | None:
    """The log partitions of a filter; None: all. Raises FieldInvalid for one that the log doesn't have, a double, and a
    selection in a feed of one thread."""
    if not wanted.partitions:
        return None
    if wanted.WhichOneof("extent") is not None:
        raise FieldInvalid("filter.partitions", "is for feeds over a scope or a grant: a session lies in one partition")
    for index, number in enumerate(wanted.partitions[: partitions + 1]):
        if not 0 <= number < partitions:
            raise FieldInvalid(f"filter.partitions[{index}]", f"must lie between 0 and {partitions - 1}")
        if number in wanted.partitions[:index]:
            raise FieldInvalid(f"filter.partitions[{index}]", "is there twice")
    return frozenset(wanted.partitions)


def event_to_proto(row: EventRow, cursor: bytes, scopes: Scopes | None) -> event_pb2.Event:
    """An event with the cursor just after it; with the thread's scope if `scopes` are given (X13)."""
    event = event_pb2.Event(
        event_id=row.event_id,
        session_id=row.session_id,
        sequence=row.sequence,
        cursor=cursor,
        run_id=row.run_id,
        task_id=row.task_id,
        type=row.type,
        visibility=row.visibility,  # type: ignore[arg-type]
        schema_version=row.schema_version,
        causation_id=row.causation_id,
        correlation_id=row.correlation_id,
        create_time=_timestamp(row.create_time),
        commit_sequence=row.commit_sequence,
    )
    if row.content_type is not None:
        event.payload.CopyFrom(
            payload_pb2.Payload(content_type=row.content_type, data=row.payload or b"", attributes=row.attributes)
        )
    if row.traceparent:
        event.trace.traceparent = row.traceparent
        event.trace.tracestate = row.tracestate
    if scopes is not None:
        event.scope.SetInParent()
        event.scope.values.update(scopes.get(row.scope_key, {}))
    return event


def _timestamp(moment: datetime) -> timestamp_pb2.Timestamp:
    """Much faster than protobuf's own conversion, which a feed would feel."""
    since = moment - _EPOCH
    return timestamp_pb2.Timestamp(seconds=since.days * 86_400 + since.seconds, nanos=since.microseconds * 1000)


def frame_to_proto(frame: Frame) -> event_service_pb2.SubscribeEventsResponse:
    """A frame of a subscription."""
    if isinstance(frame, EventsFrame):
        events = [event_to_proto(row, cursor, frame.scopes) for row, cursor in frame.items]
        return event_service_pb2.SubscribeEventsResponse(
            events=event_service_pb2.EventBatch(events=events), cursor=frame.cursor
        )
    if isinstance(frame, BookmarkFrame):
        return event_service_pb2.SubscribeEventsResponse(bookmark=event_pb2.Bookmark(), cursor=frame.cursor)
    if isinstance(frame, GapFrame):
        return event_service_pb2.SubscribeEventsResponse(gap=event_pb2.LiveGap(dropped_count=frame.dropped_count))
    response = event_service_pb2.SubscribeEventsResponse(live=frame.observation)
    if frame.scope is not None:
        response.live.scope.SetInParent()
        response.live.scope.values.update(frame.scope)
    return response
