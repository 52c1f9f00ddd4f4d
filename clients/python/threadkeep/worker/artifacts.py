"""Artifacts of the run that a tool or node works for: session, task, run and checkpoint are filled in, and each version
is announced in the thread's log (A8).

current_run().artifacts.save("report.md", text)
current_run().artifacts.files().write("/notes/plan.md", "# Plan")
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import AsyncIterable, Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, BinaryIO, TypedDict, Unpack

from threadkeep._api.artifacts import Source, Visibility
from threadkeep._content import Content
from threadkeep.artifacts.v1.artifact_pb2 import ArtifactVersion
from threadkeep.client import AsyncClient, Client
from threadkeep.common.v1 import payload_pb2
from threadkeep.files import ArtifactFiles
from threadkeep.runtime.v1 import commit_pb2, event_pb2

ARTIFACT_SAVED = "artifact.saved"
"""The event that names a new version of a run's artifact. Its payload (`application/json`) has artifact_id, version,
name, type, media_type, size, sha256 and, if there is one, path."""

Data = str | bytes | bytearray | memoryview | Path | BinaryIO | Iterable[bytes]
"""What is saved: text, bytes, a file by its Path, an open binary file, or chunks."""


class SavedFields(TypedDict, total=False):
    """What may be said of a version that is saved, beside what is filled in."""

    artifact_id: str | None
    """The artifact that gets a version. Absent: a new one."""
    expected_version: int | None
    type: str
    media_type: str
    labels: dict[str, str]
    path: str | None
    visibility: Visibility
    produced_from: Sequence[Source]


@dataclass(frozen=True)
class RunArtifacts:
    """Artifacts with the run's session, task, run and checkpoint filled in. Methods that begin with `a` are the asyncio
    twins.
    """

    client: Client
    async_client: AsyncClient
    session_id: str
    task_id: str
    run_id: str
    lease: commit_pb2.Lease

    def save(self, name: str, data: Data, *, once: str | None = None, **fields: Unpack[SavedFields]) -> ArtifactVersion:
        """Saves a new artifact, or a new version of one, and announces it in the thread's log.

        `once` names it within the run: a step that runs again after a crash gets the first version again instead of
        making a second one (with other content it gets RequestIdReused). Raises LeaseLost if the run is another's.
        """
        version = self.client.artifacts.upload(_content(data), name, **self._version(once), **fields)
        self.client.threads.commit(self._announcement(version), request_id=self._announced(version))
        return version

    async def asave(
        self, name: str, data: Data | AsyncIterable[bytes], *, once: str | None = None, **fields: Unpack[SavedFields]
    ) -> ArtifactVersion:
        """The same for asyncio."""
        content = data if isinstance(data, AsyncIterable) else _content(data)
        version = await self.async_client.artifacts.upload(content, name, **self._version(once), **fields)
        await self.async_client.threads.commit(self._announcement(version), request_id=self._announced(version))
        return version

    def upload(
        self, content: Content, name: str, *, once: str | None = None, **fields: Unpack[SavedFields]
    ) -> ArtifactVersion:
        """As `save`, with the content first; text is a path here."""
        return self.save(name, Path(content) if isinstance(content, str) else content, once=once, **fields)  # type: ignore[arg-type]

    async def aupload(
        self,
        content: Content | AsyncIterable[bytes],
        name: str,
        *,
        once: str | None = None,
        **fields: Unpack[SavedFields],
    ) -> ArtifactVersion:
        """The same for asyncio."""
        data: Any = Path(content) if isinstance(content, str) else content
        return await self.asave(name, data, once=once, **fields)

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

    def files(self, *, only_run: bool = False) -> ArtifactFiles:
        """The session's artifacts as files, for tools that work with files; with `only_run` those of this run."""
        return ArtifactFiles(
            self.client,
            session_id=self.session_id,
            run_id=self.run_id,
            only_run=only_run,
            task_id=self.task_id,
            on_written=self._announce,
        )

    def _announce(self, version: ArtifactVersion) -> None:
        self.client.threads.commit(self._announcement(version), request_id=self._announced(version))

    def _version(self, once: str | None) -> dict[str, Any]:
        return {
            "session_id": self.session_id,
            "task_id": self.task_id,
            "run_id": self.run_id,
            "checkpoint_id": current_checkpoint_id(),
            "request_id": None if once is None else f"{self.run_id}/{once}",
        }

    def _announced(self, version: ArtifactVersion) -> str:
        # The same for a step that runs again, so that a version is announced once.
        named = json.dumps([self.run_id, version.artifact_id, version.version])
        return f"artifact-saved-{hashlib.sha256(named.encode()).hexdigest()}"

    def _announcement(self, version: ArtifactVersion) -> commit_pb2.ThreadCommit:
        metadata = version.metadata
        descriptor = {
            "artifact_id": version.artifact_id,
            "version": version.version,
            "name": metadata.name,
            "type": metadata.type,
            "media_type": metadata.media_type,
            "size": version.size,
            "sha256": version.sha256,
            **({"path": metadata.path} if metadata.HasField("path") else {}),
        }
        payload = payload_pb2.Payload(
            content_type="application/json", data=json.dumps(descriptor, ensure_ascii=False).encode()
        )
        event = event_pb2.EventDraft(type=ARTIFACT_SAVED, payload=payload, visibility=event_pb2.VISIBILITY_END_USER)
        return commit_pb2.ThreadCommit(session_id=self.session_id, lease=self.lease, events=[event])


def current_checkpoint_id() -> str | None:
    """The id of the root checkpoint that the calling tool or node works on; None outside of a graph."""
    from langgraph.config import get_config

    try:
        checkpoints = get_config().get("configurable", {}).get("checkpoint_map") or {}
    except RuntimeError:
        return None
    found = checkpoints.get("")
    return found if isinstance(found, str) else None


def _content(data: Data) -> Content:
    if isinstance(data, str):
        return data.encode()
    return data


__all__ = ["ARTIFACT_SAVED", "RunArtifacts", "SavedFields", "current_checkpoint_id"]
