"""Use cases of workers: commits and releases."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping, Sequence
from typing import Any

from threadkeep_chassis.database import SyncConnection
from threadkeep_chassis.errors import Contention
from threadkeep_runtime.commands.base import Origin, UseCases, answered_before, to_thread
from threadkeep_runtime.domain import commands
from threadkeep_runtime.domain.errors import RunNotFound
from threadkeep_runtime.domain.state import Command as StateCommand
from threadkeep_runtime.domain.state import Commands as StateCommands
from threadkeep_runtime.domain.state import StateDeclarationChanged
from threadkeep_runtime.domain.values import LeaseRef
from threadkeep_runtime.pipeline import Outcome, Render
from threadkeep_runtime.store import reads
from threadkeep_runtime.store.state import load_declarations

_LOOKS = 5
"""How often a commit is tried while its keys' declarations change under it."""


class ThreadUseCases(UseCases):
    """Use cases of workers: commits and releases."""

    async def release_run(self, origin: Origin, lease: LeaseRef, render: Render) -> Outcome:
        """Raises RunNotFound, LeaseLost."""

        def look(connection: SyncConnection) -> Outcome | reads.RunRow | None:
            return answered_before(connection, origin.request) or reads.find_run(
                connection, origin.scope.key, lease.run_id
            )

        async with self.database.read() as connection:
            found = await connection.run(look)
        if isinstance(found, Outcome):
            return found
        if found is None:
            raise RunNotFound()
        return await self.submit(
            origin, commands.ReleaseRun(**to_thread(origin, found.run.session_id), lease=lease), render
        )

    async def commit(
        self,
        origin: Origin,
        session_id: str,
        rest: Mapping[str, Any],
        render: Render,
        state: Sequence[StateCommand] = (),
    ) -> Outcome:
        """A ThreadCommit. `rest` are the command's other fields. Raises what `commit_thread` raises."""
        thread = to_thread(origin, session_id)
        if not state:
            return await self.submit(origin, commands.CommitThread(**thread, **rest), render)
        for _ in range(_LOOKS):
            checked = await self.held_against_declarations(origin.scope.key, state)
            try:
                return await self.submit(origin, commands.CommitThread(**thread, **rest, state=checked), render)
            except StateDeclarationChanged:
                self.declarations.forget()
        raise Contention()

    async def held_against_declarations(self, scope_key: str, given: Sequence[StateCommand]) -> StateCommands:
        """The commands, and what the declarations that are known here say of them."""
        pairs = {(scope_key, command.key) for command in given}
        found = {pair: known for pair in pairs if (known := self.declarations.get(pair)) is not None}
        if missing := pairs - found.keys():
            async with self.database.read() as connection:
                read = await connection.run(lambda sync: load_declarations(sync, missing))
            self.declarations.learn(read)
            found.update(read)
        declared = {key: declaration for (_, key), declaration in found.items()}
        with_schema = [
            (declared[command.key], command)
            for command in given
            if command.key in declared and declared[command.key].schema_json is not None
        ]
        # Beside the loop, which has other calls to serve meanwhile.
        problem = await asyncio.to_thread(self.check_state, with_schema) if with_schema else None
        versions = {key: declaration.schema_version for key, declaration in declared.items()}
        return StateCommands(tuple(given), versions, problem)
