"""A page of a thread's view (R12): its parts one after the other, each by its key, until the page is full."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from threadkeep.runtime.v1 import thread_service_pb2
from threadkeep_chassis.database import SyncConnection
from threadkeep_chassis.paging import PageBuilder
from threadkeep_runtime.domain.messages import Range
from threadkeep_runtime.service.calls import CHUNK
from threadkeep_runtime.service.message_convert import fact_to_proto
from threadkeep_runtime.service.render import actor_to_proto, run_to_proto, ticket_to_proto
from threadkeep_runtime.service.state_convert import value_to_proto
from threadkeep_runtime.store.messages import messages_at, places_at
from threadkeep_runtime.store.state import view_values
from threadkeep_runtime.store.thread_views import CommitRow, Moment, run_at, tickets_at

pb = thread_service_pb2

Part = tuple[str, Callable[[Any, int], Sequence[Any]], Callable[[Any], Any], Callable[[Any], Any]]
"""Name of the part; how rows behind a key are read; a row as a message; a row's key."""


class ViewPage:
    """Reads one page inside a snapshot."""

    def __init__(self, connection: SyncConnection, moment: Moment, state_keys: Sequence[str]) -> None:
        self._connection = connection
        self._moment = moment
        self._state_keys = state_keys
        self._run = run_at(connection, moment)
        self._places: list[Range] | None = None
        self._found: dict[str, list[Any]] = {"tickets": [], "state": [], "messages": []}

    def _parts(self) -> Sequence[Part]:
        connection, moment = self._connection, self._moment
        open_run_id = None if moment.open_run is None else moment.open_run.run_id

        def state(after: str, count: int) -> Sequence[Any]:
            thread = moment.thread
            return view_values(
                connection,
                thread.scope_key,
                thread.thread_key,
                moment.commit.sequence,
                open_run_id,
                self._state_keys,
                after,
                count,
            )

        return (
            (
                "tickets",
                lambda after, count: tickets_at(connection, moment, after, count),
                ticket_to_proto,
                lambda row: row.ticket_id,
            ),
            ("state", state, value_to_proto, lambda row: row.key),
            ("messages", self._messages, fact_to_proto, lambda row: row.position),
        )

    def _messages(self, after: Any, count: int) -> Sequence[Any]:
        moment = self._moment
        key, sequence = moment.thread.thread_key, moment.commit.sequence
        if not moment.message_position:
            return ()
        if self._places is None:
            self._places = list(places_at(self._connection, key, sequence, moment.message_position))
        return messages_at(self._connection, key, sequence, self._places, after or 0, count)

    def fill(self, builder: PageBuilder[Any], part: str, after: Any) -> None:
        """Fills the page, beginning in `part` ('': the first) behind the key `after`."""
        started = part == ""
        for name, read, render, key_of in self._parts():
            if not started and name != part:
                continue
            place: Any = after if name == part else ""
            started = True
            while True:
                count = min(CHUNK, builder.wanted - len(builder.items))
                rows = read(place, count)
                for row in rows:
                    place = key_of(row)
                    message = render(row)
                    if not builder.add(message, (self._moment.commit.sequence, name, place)):
                        return
                    self._found[name].append(message)
                if len(rows) < count:
                    break

    def response(self) -> pb.GetThreadViewResponse:
        """The page, without its token."""
        moment = self._moment
        response = pb.GetThreadViewResponse(
            commit_sequence=moment.commit.sequence,
            commit_time=moment.commit.create_time,  # type: ignore[arg-type]
            tickets=self._found["tickets"],
            state=self._found["state"],
            messages=self._found["messages"],
            message_source=f"MESSAGE_SOURCE_{moment.thread.message_source or 'UNSPECIFIED'}",  # type: ignore[arg-type]
        )
        if self._run is not None:
            response.run.CopyFrom(run_to_proto(self._run.run, self._run.lease_expire_time))
        if moment.root_checkpoint_id is not None:
            response.checkpoint.CopyFrom(pb.CheckpointRef(checkpoint_id=moment.root_checkpoint_id))
        return response


def commit_to_proto(row: CommitRow) -> pb.Commit:
    """A commit."""
    return pb.Commit(
        commit_sequence=row.sequence,
        kind=row.kind,
        request_id=row.request_id,
        run_id=row.run_id,
        actor=actor_to_proto(row.actor),
        first_event_sequence=row.first_event_sequence,
        last_event_sequence=row.first_event_sequence + row.event_count - 1 if row.event_count else 0,
        create_time=row.create_time,  # type: ignore[arg-type]
        digest=row.digest or b"",
        canonical=row.canonical,
    )
