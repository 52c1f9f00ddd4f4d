"""Use cases: find the thread that an id belongs to, ask peers, and hand the command to the pipeline.

A receipt is looked for before anything else, so that a replay gives the first response whatever has happened since
(X3). The pipeline looks again, inside the transaction.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from threadkeep_chassis.database import Database, SyncConnection
from threadkeep_chassis.errors import FieldInvalid, RequestIdReused, ShuttingDown
from threadkeep_chassis.scope import Call, Grant, Scope
from threadkeep_chassis.scope import Trace as CallTrace
from threadkeep_chassis.signals import Signals
from threadkeep_runtime.checkpoints import sessions_of_runs
from threadkeep_runtime.domain import commands
from threadkeep_runtime.domain.commands import Command, SessionDraft
from threadkeep_runtime.domain.errors import RunNotFound, SessionNotFound, TaskNotFound, TicketNotFound, WaitTimeout
from threadkeep_runtime.domain.transitions import WAITED_FOR_TASK_STATES
from threadkeep_runtime.domain.values import Actor, Answer, LeaseRef, Task, Ticket, Trace, thread_key_of
from threadkeep_runtime.peers import ConfigPeer
from threadkeep_runtime.pipeline import Outcome, Pipeline, Render, Request, Work
from threadkeep_runtime.store import reads

AnswerCheck = Callable[[Ticket, Answer], tuple[str, str] | None]
"""(field, rule) if an answer does not match its ticket, else None."""


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


class Commands:
    """The use cases of one server."""

    def __init__(
        self, database: Database, pipeline: Pipeline, config: ConfigPeer, signals: Signals, check_answer: AnswerCheck
    ) -> None:
        self._database = database
        self._pipeline = pipeline
        self._config = config
        self._signals = signals
        self._check_answer = check_answer

    async def create_session(self, origin: Origin, session_id: str, draft: SessionDraft, render: Render) -> Outcome:
        """Raises IdTaken."""
        return await self._submit(origin, commands.CreateSession(**_to(origin, session_id), draft=draft), render)

    async def update_session(
        self,
        origin: Origin,
        session_id: str,
        changes: Mapping[str, Any],
        expected_revision: int | None,
        render: Render,
    ) -> Outcome:
        """Raises SessionNotFound, RevisionConflict."""
        command = commands.UpdateSession(
            **_to(origin, session_id), changes=changes, expected_revision=expected_revision
        )
        return await self._submit(origin, command, render)

    async def submit_task(
        self, origin: Origin, session_id: str, agent_name: str | None, rest: Mapping[str, Any], render: Render
    ) -> Outcome:
        """Pins the agent's manifest and submits. `rest` are the command's other fields.

        Raises SessionNotFound, SessionBusy, IdTaken, AGENT_UNRESOLVED, FieldInvalid (no agent anywhere).
        """
        create: SessionDraft | None = rest["create"]
        thread_key = thread_key_of(origin.scope.key, session_id)
        needs_session = create is None and agent_name is None

        def look(connection: SyncConnection) -> tuple[Outcome | None, reads.SessionRow | None]:
            answered = _answered(connection, origin.request)
            if answered is not None or not needs_session:
                return answered, None
            return None, reads.find_session(connection, thread_key)

        async with self._database.read() as connection:
            answered, found = await connection.run(look)
        if answered is not None:
            return answered
        if needs_session and found is None:
            raise SessionNotFound()
        if agent_name is None:
            agent_name = create.agent_name if create is not None else found.thread.agent_name if found else ""
        if not agent_name:
            raise FieldInvalid("agent_name", "is required, since the session has no agent")
        manifest = await self._config.resolve_manifest(origin.scope, origin.grant, agent_name, origin.trace)
        command = commands.SubmitTask(
            **_to(origin, session_id),
            **rest,
            agent_name=agent_name,
            agent_revision=manifest.agent_revision,
            manifest_digest=manifest.digest,
            manifest=manifest.manifest_json,
        )
        return await self._submit(origin, command, render)

    async def cancel_task(
        self, origin: Origin, task_id: str, reason: str, grace_seconds: float, render: Render
    ) -> Outcome:
        """Raises TaskNotFound, TaskTerminal."""

        def look(connection: SyncConnection) -> Outcome | Task | None:
            return _answered(connection, origin.request) or reads.find_task(connection, origin.scope.key, task_id)

        async with self._database.read() as connection:
            found = await connection.run(look)
        if isinstance(found, Outcome):
            return found
        if found is None:
            raise TaskNotFound()
        command = commands.CancelTask(
            **_to(origin, found.session_id), task_id=task_id, reason=reason, grace_seconds=grace_seconds
        )
        return await self._submit(origin, command, render)

    async def resolve_ticket(self, origin: Origin, ticket_id: str, answer: Answer, render: Render) -> Outcome:
        """Raises TicketNotFound, TicketNotOpen, TicketAnswerInvalid."""

        def look(connection: SyncConnection) -> Outcome | Ticket | None:
            return _answered(connection, origin.request) or reads.find_ticket(connection, origin.scope.key, ticket_id)

        async with self._database.read() as connection:
            found = await connection.run(look)
        if isinstance(found, Outcome):
            return found
        if found is None:
            raise TicketNotFound()
        # What the answer must match never changes, so it is held against that here, not under the thread's lock; and
        # beside the loop, which has other calls to serve meanwhile.
        problem = await asyncio.to_thread(self._check_answer, found, answer)
        command = commands.ResolveTicket(
            **_to(origin, found.session_id),
            ticket_id=ticket_id,
            answer=answer,
            problem=problem,
        )
        return await self._submit(origin, command, render)

    async def release_run(self, origin: Origin, lease: LeaseRef, render: Render) -> Outcome:
        """Raises RunNotFound, LeaseLost."""

        def look(connection: SyncConnection) -> Outcome | reads.RunRow | None:
            return _answered(connection, origin.request) or reads.find_run(connection, origin.scope.key, lease.run_id)

        async with self._database.read() as connection:
            found = await connection.run(look)
        if isinstance(found, Outcome):
            return found
        if found is None:
            raise RunNotFound()
        return await self._submit(origin, commands.ReleaseRun(**_to(origin, found.run.session_id), lease=lease), render)

    async def commit(self, origin: Origin, session_id: str, rest: Mapping[str, Any], render: Render) -> Outcome:
        """A ThreadCommit. `rest` are the command's other fields. Raises what `commit_thread` raises."""
        return await self._submit(origin, commands.CommitThread(**_to(origin, session_id), **rest), render)

    async def delete_checkpoints(
        self, origin: Origin, session_id: str, lease: LeaseRef | None, render: Render
    ) -> Outcome:
        """Raises RunNotFound, LeaseLost, LeaseRequired."""
        return await self._submit(origin, commands.DeleteCheckpoints(**_to(origin, session_id), lease=lease), render)

    async def prune_checkpoints(
        self, origin: Origin, session_id: str, lease: LeaseRef | None, render: Render
    ) -> Outcome:
        """Keeps the latest. Raises RunNotFound, LeaseLost, LeaseRequired."""
        return await self._submit(origin, commands.RemoveCheckpoints(**_to(origin, session_id), lease=lease), render)

    async def copy_checkpoints(
        self, origin: Origin, source_session_id: str, session_id: str, lease: LeaseRef | None, render: Render
    ) -> Outcome:
        """Raises RunNotFound, LeaseLost, LeaseRequired, IdTaken."""
        command = commands.CopyCheckpoints(
            **_to(origin, session_id), source_key=thread_key_of(origin.scope.key, source_session_id), lease=lease
        )
        return await self._submit(origin, command, render)

    async def delete_for_runs(self, origin: Origin, run_ids: Sequence[str], render: Render) -> Outcome:
        """One commit for each session, then the receipt: a call that was cut off goes on. Raises LeaseRequired."""
        wanted = tuple(sorted(set(run_ids)))

        def look(connection: SyncConnection) -> Outcome | list[str]:
            return _answered(connection, origin.request) or sessions_of_runs(connection, origin.scope.key, wanted)

        async with self._database.read() as connection:
            found = await connection.run(look)
        if isinstance(found, Outcome):
            return found
        for session_id in found:
            command = commands.RemoveCheckpoints(**_to(origin, session_id), run_ids=wanted)
            await self._pipeline.submit(Work(command, size=origin.size))
        # No session has this id: nothing is committed but the receipt.
        return await self._submit(origin, commands.RemoveCheckpoints(**_to(origin, ""), run_ids=wanted), render)

    async def wait_task(self, call: Call, task_id: str, seconds: float) -> Task:
        """The task once it is final or waits for an answer. Raises TaskNotFound, WaitTimeout, ShuttingDown."""
        deadline = asyncio.get_running_loop().time() + seconds
        scope_key = call.scope_key
        task = await self.find_task(scope_key, task_id)
        if task.state in WAITED_FOR_TASK_STATES:
            return task
        draining = asyncio.ensure_future(call.draining.wait())
        try:
            async with self._signals.subscribe(f"thread/{task.thread_key}") as subscription:
                while True:
                    async with self._database.read() as connection:
                        state = await connection.run(lambda sync: reads.task_state(sync, task.thread_key, task.task_id))
                    if state in WAITED_FOR_TASK_STATES:
                        return await self.find_task(scope_key, task_id)
                    remaining = deadline - asyncio.get_running_loop().time()
                    if remaining <= 0:
                        raise WaitTimeout()
                    waiting = asyncio.ensure_future(subscription.wait(remaining))
                    try:
                        await asyncio.wait({waiting, draining}, return_when=asyncio.FIRST_COMPLETED)
                    finally:
                        waiting.cancel()
                    if call.draining.is_set:
                        raise ShuttingDown()
        finally:
            draining.cancel()

    async def find_task(self, scope_key: str, task_id: str) -> Task:
        """The task. Raises TaskNotFound."""
        async with self._database.read() as connection:
            task = await connection.run(lambda sync: reads.find_task(sync, scope_key, task_id))
        if task is None:
            raise TaskNotFound()
        return task

    async def _submit(self, origin: Origin, command: Command, render: Render) -> Outcome:
        return await self._pipeline.submit(Work(command, render, origin.request, origin.size))


def _to(origin: Origin, session_id: str) -> dict[str, Any]:
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


def _answered(connection: SyncConnection, request: Request) -> Outcome | None:
    """The first response if the request was answered before. Raises RequestIdReused."""
    found = reads.find_receipt(connection, request.receipt_key, request.request_id)
    if found is None:
        return None
    if found[0] != request.fingerprint:
        raise RequestIdReused()
    return Outcome(found[1], replayed=True)
