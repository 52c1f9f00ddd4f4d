"""Use cases of tasks, their tickets, and waiting for them."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from typing import Any

from threadkeep_chassis.database import SyncConnection
from threadkeep_chassis.errors import FieldInvalid, ShuttingDown
from threadkeep_chassis.scope import Call
from threadkeep_runtime.commands.base import Origin, UseCases, answered_before, to_thread
from threadkeep_runtime.domain import commands
from threadkeep_runtime.domain.commands import SessionDraft
from threadkeep_runtime.domain.errors import (
    SessionNotFound,
    TaskNotFound,
    TaskNotTerminal,
    TicketNotFound,
    WaitTimeout,
)
from threadkeep_runtime.domain.transitions import TERMINAL_TASK_STATES, WAITED_FOR_TASK_STATES
from threadkeep_runtime.domain.values import Answer, Task, Ticket, thread_key_of
from threadkeep_runtime.peers import Manifest
from threadkeep_runtime.pipeline import Outcome, Render, Work
from threadkeep_runtime.store import reads, waiting
from threadkeep_runtime.store.apply import Applied

SESSIONS_AT_ONCE = 64
"""How many sessions a cancellation of many tasks works on together."""


class TaskUseCases(UseCases):
    """Use cases of tasks, their tickets, and waiting for them."""

    async def submit_task(
        self, origin: Origin, session_id: str, agent_name: str | None, rest: Mapping[str, Any], render: Render
    ) -> Outcome:
        """Pins the agent's manifest and submits. `rest` are the command's other fields.

        Raises SessionNotFound, SessionBusy, IdTaken, AGENT_UNRESOLVED, FieldInvalid (no agent anywhere),
        LimitExceeded (the session's waiting tasks, or the queue's).
        """
        create: SessionDraft | None = rest["create"]
        thread_key = thread_key_of(origin.scope.key, session_id)
        needs_session = create is None and agent_name is None
        if_missing: SessionDraft | None = rest["if_missing"]

        def look(connection: SyncConnection) -> tuple[Outcome | None, reads.SessionRow | None]:
            answered = answered_before(connection, origin.request)
            if answered is not None or not needs_session:
                return answered, None
            return None, reads.find_session(connection, thread_key)

        async with self.database.read() as connection:
            answered, found = await connection.run(look)
        if answered is not None:
            return answered
        if needs_session and found is None and if_missing is None:
            raise SessionNotFound()
        if agent_name is None:
            agent_name = create.agent_name if create is not None else found.thread.agent_name if found else ""
        if not agent_name:
            raise FieldInvalid("agent_name", "is required, since the session has no agent")
        if if_missing is not None:
            rest = {**rest, "if_missing": replace(if_missing, agent_name=agent_name)}
        async with self.places.place(origin.scope.key, rest["queue"]):
            manifest = await self.config.resolve_manifest(origin.scope, origin.grant, agent_name, origin.trace)
            command = commands.SubmitTask(
                **to_thread(origin, session_id),
                **rest,
                agent_name=agent_name,
                agent_revision=manifest.agent_revision,
                manifest_digest=manifest.digest,
                manifest=manifest.manifest_json,
            )
            return await self.submit(origin, command, render)

    async def cancel_task(
        self, origin: Origin, task_id: str, reason: str, grace_seconds: float, render: Render
    ) -> Outcome:
        """Raises TaskNotFound, TaskTerminal."""
        found = await self._answer_or_task(origin, task_id)
        if isinstance(found, Outcome):
            return found
        command = commands.CancelTask(
            **to_thread(origin, found.session_id), task_id=task_id, reason=reason, grace_seconds=grace_seconds
        )
        return await self.submit(origin, command, render)

    async def set_task_webhook(self, origin: Origin, task_id: str, rest: Mapping[str, Any], render: Render) -> Outcome:
        """Puts a webhook on a task, or takes it off. `rest` are the command's other fields.

        Raises TaskNotFound, LimitExceeded.
        """
        found = await self._answer_or_task(origin, task_id)
        if isinstance(found, Outcome):
            return found
        command = commands.SetTaskWebhook(**to_thread(origin, found.session_id), task_id=task_id, **rest)
        return await self.submit(origin, command, render)

    async def retry_task(
        self,
        origin: Origin,
        task_id: str,
        keep_manifest: bool,
        rest: Callable[[Task], Mapping[str, Any]],
        render: Render,
    ) -> Outcome:
        """Submits the work of a task that has ended once more. `rest` gives the command's fields that follow from it.

        Raises TaskNotFound, TaskNotTerminal, and what `submit_task` raises.
        """

        def look(connection: SyncConnection) -> Outcome | tuple[Task | None, bytes | None]:
            answered = answered_before(connection, origin.request)
            if answered is not None:
                return answered
            task = reads.find_task(connection, origin.scope.key, task_id)
            if task is None or not keep_manifest:
                return task, None
            return task, waiting.find_manifest(connection, task.manifest_digest)

        async with self.database.read() as connection:
            found = await connection.run(look)
        if isinstance(found, Outcome):
            return found
        old, pinned = found
        if old is None:
            raise TaskNotFound()
        # What has ended never changes, so this needs no lock.
        if old.state not in TERMINAL_TASK_STATES:
            raise TaskNotTerminal()
        if pinned is not None:
            manifest = Manifest(old.manifest_digest, old.agent_revision, pinned)
        else:
            manifest = await self.config.resolve_manifest(origin.scope, origin.grant, old.agent_name, origin.trace)
        command = commands.SubmitTask(
            **to_thread(origin, old.session_id),
            **rest(old),
            create=None,
            agent_name=old.agent_name,
            agent_revision=manifest.agent_revision,
            manifest_digest=manifest.digest,
            manifest=manifest.manifest_json,
            input=old.input,
            queue=old.queue,
            priority=old.priority,
            metadata=old.metadata,
            retry=old.retry,
            timeouts=old.timeouts,
            retry_of=old.task_id,
            webhook=old.webhook,
        )
        async with self.places.place(origin.scope.key, old.queue):
            return await self.submit(origin, command, render)

    async def cancel_tasks(
        self,
        origin: Origin,
        session_id: str | None,
        selection: commands.TaskFilter,
        reason: str,
        grace_seconds: float,
        render: Callable[[int], bytes],
    ) -> Outcome:
        """One commit for each session, then the receipt: a call that was cut off goes on. `render` gets how many tasks
        were asked to end."""
        fields: dict[str, Any] = {"selection": selection, "reason": reason, "grace_seconds": grace_seconds}
        thread_key = None if session_id is None else thread_key_of(origin.scope.key, session_id)
        asked, after = 0, ""
        while True:

            def look(connection: SyncConnection, after: str = after) -> Outcome | Sequence[tuple[str, str]]:
                return answered_before(connection, origin.request) or waiting.sessions_with(
                    connection, origin.scope.key, thread_key, selection, after, SESSIONS_AT_ONCE
                )

            async with self.database.read() as connection:
                found = await connection.run(look)
            if isinstance(found, Outcome):
                return found
            outcomes = await asyncio.gather(
                *(
                    self.pipeline.submit(
                        Work(commands.CancelTasks(**to_thread(origin, name), **fields), _count_asked, size=origin.size)
                    )
                    for _, name in found
                )
            )
            asked += sum(int(outcome.response) for outcome in outcomes)
            if len(found) < SESSIONS_AT_ONCE:
                break
            after = found[-1][0]
        # No session has this id: nothing is committed but the receipt.
        last = commands.CancelTasks(**to_thread(origin, ""), **fields)
        return await self.submit(origin, last, lambda _: render(asked))

    async def resolve_ticket(self, origin: Origin, ticket_id: str, answer: Answer, render: Render) -> Outcome:
        """Raises TicketNotFound, TicketNotOpen, TicketAnswerInvalid."""

        def look(connection: SyncConnection) -> Outcome | Ticket | None:
            return answered_before(connection, origin.request) or reads.find_ticket(
                connection, origin.scope.key, ticket_id
            )

        async with self.database.read() as connection:
            found = await connection.run(look)
        if isinstance(found, Outcome):
            return found
        if found is None:
            raise TicketNotFound()
        # What the answer must match never changes, so it is held against that here, not under the thread's lock; and
        # beside the loop, which has other calls to serve meanwhile.
        problem = await asyncio.to_thread(self.check_answer, found, answer)
        command = commands.ResolveTicket(
            **to_thread(origin, found.session_id),
            ticket_id=ticket_id,
            answer=answer,
            problem=problem,
        )
        return await self.submit(origin, command, render)

    async def wait_task(self, call: Call, task_id: str, seconds: float) -> Task:
        """The task once it is final or waits for an answer. Raises TaskNotFound, WaitTimeout, ShuttingDown."""
        deadline = asyncio.get_running_loop().time() + seconds
        scope_key = call.scope_key
        task = await self.find_task(scope_key, task_id)
        if task.state in WAITED_FOR_TASK_STATES:
            return task
        draining = asyncio.ensure_future(call.draining.wait())
        try:
            async with self.signals.subscribe(f"tasks/{task.thread_key}") as subscription:
                while True:
                    async with self.database.read() as connection:
                        state = await connection.run(lambda sync: reads.task_state(sync, task.thread_key, task.task_id))
                    if state is None:
                        raise TaskNotFound()
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

    async def _answer_or_task(self, origin: Origin, task_id: str) -> Outcome | Task:
        """What the request was answered before, or else the task that it is about. Raises TaskNotFound."""

        def look(connection: SyncConnection) -> Outcome | Task | None:
            return answered_before(connection, origin.request) or reads.find_task(connection, origin.scope.key, task_id)

        async with self.database.read() as connection:
            found = await connection.run(look)
        if found is None:
            raise TaskNotFound()
        return found

    async def find_task(self, scope_key: str, task_id: str) -> Task:
        """The task. Raises TaskNotFound."""
        async with self.database.read() as connection:
            task = await connection.run(lambda sync: reads.find_task(sync, scope_key, task_id))
        if task is None:
            raise TaskNotFound()
        return task


def _count_asked(applied: Applied) -> bytes:
    """How many tasks' cancellation a commit asked for."""
    decision = applied.decision
    return str(sum(change.value.cancel_request_time == decision.now for change in decision.tasks)).encode()
