"""What a tool or node knows about the run that it works for: scope, ids, and artifacts of its run.

@tool
def save(text: str) -> str:
    version = current_run().artifacts.upload(text.encode(), "notes.txt", once="notes")
    return version.artifact_id
"""

from __future__ import annotations

from collections.abc import AsyncIterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from threadkeep._content import Content
from threadkeep.artifacts.v1.artifact_pb2 import ArtifactVersion
from threadkeep.client import AsyncClient, Client
from threadkeep.worker.errors import NoRunContext


@dataclass(frozen=True)
class RunContext:
    """The run that code works for. LangGraph's runtime carries it: `runtime.context`, or `current_run()`."""

    scope: Mapping[str, str]
    session_id: str
    task_id: str
    run_id: str
    epoch: int
    """The lease's epoch. It grows with every lease of the run."""
    agent_name: str
    manifest_digest: str
    artifacts: RunArtifacts = field(repr=False, compare=False)


def current_run() -> RunContext:
    """The run that the calling tool or node works for. Raises NoRunContext outside of one."""
    from langgraph.runtime import get_runtime

    try:
        runtime = get_runtime(RunContext)
    except RuntimeError:
        raise NoRunContext("current_run() was called outside of a graph") from None
    context = getattr(runtime, "context", None)
    if not isinstance(context, RunContext):
        raise NoRunContext("the graph was not started by a threadkeep worker")
    return context


@dataclass(frozen=True)
class RunArtifacts:
    """Artifacts with the run's session, task and run filled in. Methods that begin with `a` are the asyncio twins."""

    client: Client
    async_client: AsyncClient
    session_id: str
    task_id: str
    run_id: str

    def upload(
        self,
        content: Content,
        name: str,
        *,
        once: str | None = None,
        artifact_id: str | None = None,
        type: str = "",
        media_type: str = "",
        labels: Mapping[str, str] | None = None,
        expected_version: int | None = None,
    ) -> ArtifactVersion:
        """Uploads content as a new version.

        `once` names this upload within the run: a step that runs again after a crash gets the first version again
        instead of making a second one (with other content it gets RequestIdReused).
        """
        fields = self._fields(once, artifact_id, type, media_type, labels, expected_version)
        return self.client.artifacts.upload(content, name, **fields)

    async def aupload(
        self,
        content: Content | AsyncIterable[bytes],
        name: str,
        *,
        once: str | None = None,
        artifact_id: str | None = None,
        type: str = "",
        media_type: str = "",
        labels: Mapping[str, str] | None = None,
        expected_version: int | None = None,
    ) -> ArtifactVersion:
        """The same for asyncio."""
        fields = self._fields(once, artifact_id, type, media_type, labels, expected_version)
        return await self.async_client.artifacts.upload(content, name, **fields)

    def read(self, artifact_id: str, version: int = 0) -> bytes:
        """A version's whole content, verified."""
        return self.client.artifacts.read(artifact_id, version)

    async def aread(self, artifact_id: str, version: int = 0) -> bytes:
        """The same for asyncio."""
        return await self.async_client.artifacts.read(artifact_id, version)

    def list(self) -> Sequence[ArtifactVersion]:
        """The latest versions of the run's artifacts."""
        return [*self.client.artifacts.list(run_id=self.run_id)]

    async def alist(self) -> Sequence[ArtifactVersion]:
        """The same for asyncio."""
        return [one async for one in self.async_client.artifacts.list(run_id=self.run_id)]

    def _fields(
        self,
        once: str | None,
        artifact_id: str | None,
        type: str,
        media_type: str,
        labels: Mapping[str, str] | None,
        expected_version: int | None,
    ) -> dict[str, Any]:
        return {
            "artifact_id": artifact_id,
            "type": type,
            "media_type": media_type,
            "labels": labels,
            "expected_version": expected_version,
            "session_id": self.session_id,
            "task_id": self.task_id,
            "run_id": self.run_id,
            "request_id": None if once is None else f"{self.run_id}/{once}",
        }
