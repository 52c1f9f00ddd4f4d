"""Reads messages and summaries."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from threadkeep_chassis.database import Connection, Database
from threadkeep_projection.domain.errors import MessageNotFound, RunNotFound, SessionNotFound, TaskNotFound
from threadkeep_projection.domain.values import Message, Poison, Task
from threadkeep_projection.domain.words import Query
from threadkeep_projection.store import poison, reads, task_states
from threadkeep_projection.store.agents import AgentView, Counts, count_all, list_agents
from threadkeep_projection.store.reads import RunView, SessionView, SummaryFilter, TaskView
from threadkeep_projection.store.search import search_messages
from threadkeep_projection.store.task_states import TaskStateFilter
from threadkeep_projection.store.usage import UsageFilter, UsageTotal, list_usage


class Reading:
    """What servicers ask for, in one scope at a time."""

    def __init__(self, database: Database) -> None:
        self._database = database

    async def session(self, scope_key: str, session_id: str) -> SessionView:
        """Raises SessionNotFound."""
        async with self._database.read() as connection:
            found = await reads.get_session(connection, scope_key, session_id)
        if found is None:
            raise SessionNotFound(session_id)
        return found

    async def sessions(
        self, scope_key: str, wanted: SummaryFilter, after: Sequence[Any] | None, limit: int
    ) -> list[SessionView]:
        """A page of sessions, the newest first; `after` is (create_time, session_id)."""
        async with self._database.read() as connection:
            return await reads.list_sessions(connection, scope_key, wanted, after, limit)

    async def task(self, scope_key: str, task_id: str) -> TaskView:
        """Raises TaskNotFound."""
        async with self._database.read() as connection:
            found = await reads.get_task(connection, scope_key, task_id)
        if found is None:
            raise TaskNotFound(task_id)
        return found

    async def tasks(
        self, scope_key: str, wanted: SummaryFilter, after: Sequence[Any] | None, limit: int
    ) -> list[TaskView]:
        """A page of tasks, the newest first; `after` is (create_time, task_id)."""
        async with self._database.read() as connection:
            return await reads.list_tasks(connection, scope_key, wanted, after, limit)

    async def tasks_by_update(
        self, scope_key: str, wanted: TaskStateFilter, after: Sequence[Any] | None, limit: int
    ) -> tuple[list[Task], int]:
        """A page of tasks, the one that changed last first, and how many there are, up to 10,000.

        `after` is (update_time, task_id). A task that changes between two pages moves to the front.
        """
        async with self._database.read() as connection:
            found = await task_states.list_by_update(connection, scope_key, wanted, after, limit)
            return found, await task_states.count_tasks(connection, scope_key, wanted)

    async def task_messages(
        self, scope_key: str, session_id: str, task_id: str, roles: Sequence[str], limit: int
    ) -> list[Message]:
        """The last messages that a task brought into the conversation, oldest first."""
        async with self._database.read() as connection:
            return await task_states.messages_of_task(connection, scope_key, session_id, task_id, roles, limit)

    async def run(self, scope_key: str, run_id: str) -> RunView:
        """Raises RunNotFound."""
        async with self._database.read() as connection:
            found = await reads.get_run(connection, scope_key, run_id)
        if found is None:
            raise RunNotFound(run_id)
        return found

    async def runs(
        self, scope_key: str, wanted: SummaryFilter, after: Sequence[Any] | None, limit: int
    ) -> list[RunView]:
        """A page of runs, the newest first; `after` is (create_time, run_id)."""
        async with self._database.read() as connection:
            return await reads.list_runs(connection, scope_key, wanted, after, limit)

    async def message(self, scope_key: str, session_id: str, message_id: str) -> Message:
        """A message of the conversation as it stands. Raises MessageNotFound."""
        async with self._database.read() as connection:
            found = await reads.get_message(connection, scope_key, session_id, message_id)
        if found is None:
            raise MessageNotFound(message_id)
        return found

    async def messages(
        self, scope_key: str, session_id: str, after: Sequence[Any] | None, *, newest_first: bool, limit: int
    ) -> list[Message]:
        """A page of the conversation, in its order or backwards; `after` is (message_id,). Raises SessionNotFound.

        A page goes on where the message now is that the last one stopped at; if that was taken out meanwhile, where it
        was.
        """
        # One snapshot: between two statements, positions could move.
        async with self._database.read(snapshot=True) as connection:
            if await reads.get_session(connection, scope_key, session_id) is None:
                raise SessionNotFound(session_id)
            place = await _place(connection, scope_key, session_id, after, newest_first=newest_first)
            return await reads.list_messages(
                connection, scope_key, session_id, after=place, newest_first=newest_first, limit=limit
            )

    async def search(
        self,
        scope_key: str,
        session_id: str,
        query: Query,
        roles: Sequence[str],
        after: Sequence[Any] | None,
        *,
        newest_first: bool,
        limit: int,
    ) -> list[Message]:
        """A page of the messages that answer a query; pages go on as those of `messages`. Raises SessionNotFound."""
        async with self._database.read(snapshot=True) as connection:
            if await reads.get_session(connection, scope_key, session_id) is None:
                raise SessionNotFound(session_id)
            place = await _place(connection, scope_key, session_id, after, newest_first=newest_first)
            return await search_messages(
                connection, scope_key, session_id, query, roles, after=place, newest_first=newest_first, limit=limit
            )

    async def agents(
        self, scope_key: str, agent_name: str | None, after: Sequence[Any] | None, limit: int
    ) -> list[AgentView]:
        """A page of agents, by name; `after` is (agent_name,)."""
        async with self._database.read() as connection:
            return await list_agents(connection, scope_key, agent_name, after, limit)

    async def counts(self, scope_key: str, wanted: SummaryFilter) -> Counts:
        """How many sessions, tasks and runs are in each state, at one moment."""
        async with self._database.read(snapshot=True) as connection:
            return await count_all(connection, scope_key, wanted)

    async def usage(
        self, scope_key: str, wanted: UsageFilter, after: Sequence[Any] | None, limit: int
    ) -> list[UsageTotal]:
        """A page of sums; `after` is a sum's key."""
        async with self._database.read() as connection:
            return await list_usage(connection, scope_key, wanted, after, limit)

    async def poison(
        self, scope_key: str, session_id: str | None, after: Sequence[Any] | None, limit: int
    ) -> list[tuple[str, Poison]]:
        """A page of events that could not be projected, with their sessions; `after` is (session_id, sequence)."""
        async with self._database.read() as connection:
            return await poison.list_poison(connection, scope_key, session_id, after, limit)


async def _place(
    connection: Connection, scope_key: str, session_id: str, after: Sequence[Any] | None, *, newest_first: bool
) -> int | None:
    """The position behind which a page begins that follows the key (message_id,)."""
    if after is None:
        return None
    place, is_itself = await reads.place_of(connection, scope_key, session_id, after[0])
    # Of one that was taken out, the predecessor stands for it, and was not shown yet.
    return place + 1 if newest_first and not is_itself else place
