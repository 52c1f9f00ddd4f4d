"""`--config-dir`: directories of definitions, applied at the start and again whenever they change (C7)."""

from __future__ import annotations

import asyncio
import hashlib
from collections.abc import Mapping, Sequence
from pathlib import Path

import structlog
from watchfiles import awatch

from threadkeep import AsyncClient
from threadkeep.config.v1 import entity_pb2, set_pb2
from threadkeep.config_files import NoDefinitions, read_directories
from threadkeep.errors import ThreadkeepError

log = structlog.get_logger("threadkeep.config_dir")

RETRY_SECONDS = 1.0
"""Pause after the service refused a set, or a directory could not be read."""


class ConfigDirectory:
    """Keeps the file entities of a scope what the directories say. Several are layers, the last one on top.

    A change that the operating system does not tell of is found at the next look, after `rescan_seconds`.
    """

    def __init__(
        self, directories: Sequence[Path], scope: Mapping[str, str], address: str, *, rescan_seconds: float
    ) -> None:
        self._directories = tuple(directories)
        self._scope = dict(scope)
        self._address = address
        self._rescan_seconds = rescan_seconds
        self._applied: bytes | None = None

    async def follow(self) -> None:
        """Applies the directories and follows them, until it is cancelled."""
        async with AsyncClient(self._address, scope=self._scope, grant="all") as client:
            while True:
                try:
                    await self._apply(client)
                    watching = awatch(
                        *self._directories,
                        rust_timeout=int(self._rescan_seconds * 1000),
                        yield_on_timeout=True,
                        # The daemon has its own handling of signals.
                        raise_interrupt=False,
                    )
                    async for _ in watching:
                        await self._apply(client)
                except NoDefinitions as error:
                    # Nothing is removed because a mount is gone for a moment.
                    log.error("config directory not applied", problem=str(error))
                except ThreadkeepError as error:
                    log.error("config directory not applied", reason=error.reason, problem=error.message)
                except OSError as error:
                    log.error("config directory not applied", problem=error.strerror or type(error).__name__)
                await asyncio.sleep(RETRY_SECONDS)

    async def _apply(self, client: AsyncClient) -> None:
        files = await asyncio.to_thread(read_directories, self._directories)
        digest = await asyncio.to_thread(_digest, files)
        if digest == self._applied:
            return
        answer = await client.config.apply_set(files)
        self._applied = digest
        counts: dict[str, int] = {}
        for change in answer.changes:
            action = set_pb2.SetAction.Name(change.action).removeprefix("SET_ACTION_").lower()
            counts[action] = counts.get(action, 0) + 1
            if change.action == set_pb2.SET_ACTION_SHADOWED:
                kind = entity_pb2.EntityType.Name(change.entity.type).removeprefix("ENTITY_TYPE_").lower()
                log.warning("definition is shadowed by one of the API", type=kind, name=change.entity.name)
        for problem in answer.problems:
            path = self._directories[min(problem.layer, len(self._directories) - 1)] / problem.path
            log.error("definition not applied", at=f"{path}:{problem.line}", problem=problem.message)
        log.info("config directory applied", revision=answer.config_revision, problems=len(answer.problems), **counts)


def _digest(files: Sequence[set_pb2.SetFile]) -> bytes:
    digest = hashlib.sha256()
    for file in files:
        digest.update(file.SerializeToString(deterministic=True))
    return digest.digest()
