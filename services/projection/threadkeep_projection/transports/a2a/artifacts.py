"""A task's artifacts for an A2A client: its result, and what its runs saved and announced (A8).

Small content travels with the answer, larger content as an address.
"""

from __future__ import annotations

import json
from dataclasses import dataclass
from typing import Any
from urllib.parse import quote

from a2a.types import a2a_pb2

from threadkeep.runtime.v1 import event_pb2, task_pb2
from threadkeep_chassis.scope import Call
from threadkeep_projection.transports.a2a.parts import JSON, data_part, file_part, payload_part, struct_of
from threadkeep_projection.transports.a2a.peers import Contents, Work

RESULT = "result"
"""The id of the artifact that holds what a task gave back."""

INLINE_BYTES = 64 * 1024
"""Content up to this size travels with the answer."""
ANSWER_BYTES = 1024 * 1024
"""So much content travels with one answer; what comes then is an address."""


@dataclass
class Budget:
    """How many bytes of content still travel with an answer."""

    left: int = ANSWER_BYTES


class Artifacts:
    """Renders artifacts."""

    def __init__(self, work: Work, contents: Contents) -> None:
        self._work = work
        self._contents = contents

    async def of_task(self, call: Call, task: task_pb2.Task, budget: Budget) -> list[a2a_pb2.Artifact]:
        """What the task made, in the order in which it first appeared, each in its latest version; its result last."""
        latest: dict[str, event_pb2.Event] = {}
        for event in await self._work.artifact_events(call, task.task_id):
            artifact_id = _descriptor(event).get("artifact_id")
            if isinstance(artifact_id, str):
                latest[artifact_id] = event
        shown = [await self.of_event(call, event, budget) for event in latest.values()]
        found = [artifact for artifact in shown if artifact is not None]
        result = result_of(task)
        return found if result is None else [*found, result]

    async def of_event(self, call: Call, event: event_pb2.Event, budget: Budget) -> a2a_pb2.Artifact | None:
        """The artifact that an event announces; None if the caller may not read it, or it is gone."""
        descriptor = _descriptor(event)
        artifact_id, version = descriptor.get("artifact_id"), descriptor.get("version")
        if not isinstance(artifact_id, str) or not isinstance(version, int) or not 0 < version < 2**63:
            return None
        media_type, name = _text(descriptor.get("media_type")), _text(descriptor.get("name"))
        part = await self._part(call, event.session_id, artifact_id, version, media_type, budget)
        if part is None:
            return None
        part.media_type, part.filename = media_type, name
        facts: dict[str, Any] = {"version": version}
        for key in ("type", "path", "sha256", "size"):
            value = descriptor.get(key)
            if isinstance(value, str | int) and value != "":
                facts[key] = value
        return a2a_pb2.Artifact(artifact_id=artifact_id, name=name, parts=[part], metadata=struct_of(facts))

    async def _part(
        self, call: Call, session_id: str, artifact_id: str, version: int, media_type: str, budget: Budget
    ) -> a2a_pb2.Part | None:
        most = min(INLINE_BYTES, budget.left)
        data = await self._contents.read(call, session_id, artifact_id, version, most)
        if data is not None:
            budget.left -= len(data)
            return file_part(data, media_type)
        if not await self._contents.is_there(call, session_id, artifact_id, version):
            return None
        url = await self._contents.signed_url(call, session_id, artifact_id, version)
        return a2a_pb2.Part(url=url or f"threadkeep:artifacts/{quote(artifact_id, safe='')}/versions/{version}")


def result_of(task: task_pb2.Task) -> a2a_pb2.Artifact | None:
    """What a task gave back; of a conversation, the text of its last message and whatever stands beside it."""
    if not task.HasField("result"):
        return None
    parts = [payload_part(task.result)]
    if task.result.content_type == JSON:
        value = _json(task.result.data)
        if isinstance(value, dict) and isinstance(value.get("text"), str) and "message_id" in value:
            rest = {key: one for key, one in value.items() if key not in ("text", "message_id")}
            parts = [a2a_pb2.Part(text=value["text"])]
            if rest:
                parts.append(data_part(json.dumps(rest, ensure_ascii=False)))
    return a2a_pb2.Artifact(artifact_id=RESULT, name=RESULT, parts=parts)


def _descriptor(event: event_pb2.Event) -> dict[str, Any]:
    value = _json(event.payload.data)
    return value if isinstance(value, dict) else {}


def _json(data: bytes) -> Any:
    try:
        return json.loads(data)
    except ValueError:
        return None


def _text(value: Any) -> str:
    return value if isinstance(value, str) else ""
