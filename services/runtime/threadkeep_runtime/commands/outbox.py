"""Use cases of the outbox: a message arrives in its session (R16)."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from threadkeep_chassis.errors import FieldInvalid
from threadkeep_chassis.ids import new_id
from threadkeep_chassis.scope import ALL_SCOPES, Scope
from threadkeep_chassis.scope import Trace as CallTrace
from threadkeep_runtime.commands.base import UseCases
from threadkeep_runtime.domain import commands
from threadkeep_runtime.domain.errors import SessionNotFound
from threadkeep_runtime.domain.outbox import OutboxMessage, inbox_event
from threadkeep_runtime.domain.values import SYSTEM, thread_key_of
from threadkeep_runtime.pipeline import Work
from threadkeep_runtime.store import reads


class OutboxUseCases(UseCases):
    """Use cases of the outbox."""

    async def deliver(
        self, scope: Scope, message: OutboxMessage, agent_name: str | None, task: Mapping[str, Any] | None
    ) -> None:
        """Commits the message's arrival in its session, once. `task` are the fields of the task that it opens, if any.

        Raises SessionNotFound, and with a task SessionBusy, AGENT_UNRESOLVED, IdTaken, LimitExceeded, FieldInvalid.
        """
        base: dict[str, Any] = {
            "scope_key": scope.key,
            "scope": scope.canonical,
            "session_id": message.target,
            "thread_key": thread_key_of(scope.key, message.target),
            "actor": SYSTEM,
            "inbox": inbox_event(message),
        }
        size = 0 if message.payload is None else len(message.payload.data)
        if task is None:
            await self.pipeline.submit(Work(commands.DeliverMessage(**base), size=size))
            return
        if agent_name is None:
            agent_name = await self._agent_of(base["thread_key"])
        grant = ALL_SCOPES if scope.is_empty else None
        async with self.places.place(scope.key, task["queue"]):
            manifest = await self.config.resolve_manifest(scope, grant, agent_name, CallTrace("", ""))
            command = commands.DeliverTask(
                **base,
                **task,
                create=None,
                run_id=new_id(),
                agent_name=agent_name,
                agent_revision=manifest.agent_revision,
                manifest_digest=manifest.digest,
                manifest=manifest.manifest_json,
            )
            await self.pipeline.submit(Work(command, size=size))

    async def _agent_of(self, thread_key: str) -> str:
        async with self.database.read() as connection:
            found = await connection.run(lambda sync: reads.find_session(sync, thread_key))
        if found is None:
            raise SessionNotFound()
        if not found.thread.agent_name:
            raise FieldInvalid("task.agent_name", "is required, since the session has no agent")
        return found.thread.agent_name
