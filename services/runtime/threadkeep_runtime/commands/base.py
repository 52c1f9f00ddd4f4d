"""What all use cases share: where a mutation comes from, the look at receipts, and the way into the pipeline."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from threadkeep_chassis.database import Database, SyncConnection
from threadkeep_chassis.errors import RequestIdReused
from threadkeep_chassis.scope import Grant, Scope
from threadkeep_chassis.scope import Trace as CallTrace
from threadkeep_chassis.signals import Signals
from threadkeep_runtime.commands.deletions import Sweeper
from threadkeep_runtime.commands.queue_places import QueuePlaces
from threadkeep_runtime.domain.commands import Command
from threadkeep_runtime.domain.errors import SessionNotFound
from threadkeep_runtime.domain.state import Command as StateCommand
from threadkeep_runtime.domain.state import Declaration, Problem
from threadkeep_runtime.domain.values import Actor, Answer, Ticket, Trace, thread_key_of
from threadkeep_runtime.peers import ConfigPeer
from threadkeep_runtime.pipeline import Outcome, Pipeline, Render, Request, Work
from threadkeep_runtime.store import reads

AnswerCheck = Callable[[Ticket, Answer], tuple[str, str] | None]
"""(field, rule) if an answer does not match its ticket, else None."""
StateCheck = Callable[[Sequence[tuple[Declaration, StateCommand]]], Problem | None]
"""What the first of a commit's commands breaks of its key's schema, or None."""


@dataclass(frozen=True, slots=True)
class Origin:
    """Where a mutation comes from."""

    scope: Scope
    grant: Grant | None
    request: Request
    trace: CallTrace
    actor: Actor
    size: int
    """Bytes of the request."""


class Declarations:
    """State keys that were declared when last looked at, by (scope key, key). Bounded; forgets all."""

    def __init__(self, capacity: int = 10_000) -> None:
        self._capacity = capacity
        self._known: dict[tuple[str, str], Declaration] = {}

    def get(self, pair: tuple[str, str]) -> Declaration | None:
        """The declaration, if it is known."""
        return self._known.get(pair)

    def learn(self, found: Mapping[tuple[str, str], Declaration]) -> None:
        """Remembers declarations."""
        if len(self._known) + len(found) > self._capacity:
            self._known.clear()
        self._known.update(found)

    def forget(self) -> None:
        """Forgets all: one of them has changed."""
        self._known.clear()


class UseCases:
    """The tools that use cases work with."""

    def __init__(
        self,
        database: Database,
        pipeline: Pipeline,
        config: ConfigPeer,
        signals: Signals,
        check_answer: AnswerCheck,
        places: QueuePlaces,
        check_state: StateCheck,
        sweeper: Sweeper,
    ) -> None:
        self.database = database
        self.pipeline = pipeline
        self.config = config
        self.signals = signals
        self.check_answer = check_answer
        self.places = places
        self.check_state = check_state
        self.declarations = Declarations()
        self.sweeper = sweeper

    async def submit(self, origin: Origin, command: Command, render: Render) -> Outcome:
        """Hands a command to the pipeline. Raises what `decide` raises."""
        return await self.pipeline.submit(Work(command, render, origin.request, origin.size))


def to_thread(origin: Origin, session_id: str) -> dict[str, Any]:
    """The fields that every command has."""
    return {
        "scope_key": origin.scope.key,
        "scope": origin.scope.canonical,
        "session_id": session_id,
        "thread_key": thread_key_of(origin.scope.key, session_id),
        "actor": origin.actor,
        "request_id": origin.request.request_id,
        "trace": Trace(origin.trace.traceparent, origin.trace.tracestate),
    }


def answered_before(connection: SyncConnection, request: Request) -> Outcome | None:
    """The first response if the request was answered before. Raises RequestIdReused, SessionNotFound."""
    found = reads.find_receipt(connection, request.receipt_key, request.request_id)
    if found is None:
        return None
    if found[0] != request.fingerprint:
        raise RequestIdReused()
    if found[1] is None:
        raise SessionNotFound()
    return Outcome(found[1], replayed=True)
