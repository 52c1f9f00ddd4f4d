"""Checkpoints for tests, as a LangGraph saver would send them."""

from __future__ import annotations

import json
from typing import Any

from tests.support.descriptors import fresh_id
from tests.support.examples.world import CALL_SECONDS, World
from threadkeep.runtime.v1 import checkpoint_pb2, checkpoint_service_pb2, commit_pb2

pb = checkpoint_service_pb2


def checkpoint_id(number: int) -> str:
    """Ids that sort by number."""
    return f"1f0d0000-0000-6000-8000-{number:012d}"


def value(channel: str, version: str, data: bytes = b"\xa1x") -> checkpoint_pb2.ChannelValue:
    """A dumped value."""
    return checkpoint_pb2.ChannelValue(channel=channel, version=version, type="msgpack", data=data)


def put(number: int, *values: checkpoint_pb2.ChannelValue, ns: str = "", **more: Any) -> checkpoint_pb2.CheckpointPut:
    """The checkpoint of this number. `document` and `metadata` say what its JSON holds beyond the usual."""
    document = {
        "v": 4,
        "id": checkpoint_id(number),
        "ts": "",
        "channel_values": {},
        "channel_versions": {one.channel: one.version for one in values if one.version},
        "versions_seen": {},
        **more.pop("document", {}),
    }
    metadata = more.pop("metadata", {"source": "loop", "step": number, "parents": {}})
    parts: dict[str, Any] = {
        "checkpoint_ns": ns,
        "checkpoint_id": checkpoint_id(number),
        "checkpoint_json": json.dumps(document).encode(),
        "metadata_json": json.dumps(metadata).encode(),
        "channel_values": values,
        **more,
    }
    return checkpoint_pb2.CheckpointPut(**parts)


def write(
    task: str, index: int, data: bytes = b"\xa1w", channel: str = "c", path: str = ""
) -> checkpoint_pb2.PendingWrite:
    """A pending write."""
    return checkpoint_pb2.PendingWrite(
        task_id=task, index=index, channel=channel, type="msgpack", data=data, task_path=path
    )


def writes(number: int, *pending: checkpoint_pb2.PendingWrite, ns: str = "") -> checkpoint_pb2.CheckpointWrites:
    """Pending writes of the checkpoint of this number."""
    return checkpoint_pb2.CheckpointWrites(checkpoint_ns=ns, checkpoint_id=checkpoint_id(number), writes=pending)


def op(one: checkpoint_pb2.CheckpointPut | checkpoint_pb2.CheckpointWrites) -> checkpoint_pb2.CheckpointOp:
    """As an operation of a commit."""
    if isinstance(one, checkpoint_pb2.CheckpointPut):
        return checkpoint_pb2.CheckpointOp(put=one)
    return checkpoint_pb2.CheckpointOp(writes=one)


class Saver:
    """One session's checkpoints, over the stubs."""

    def __init__(self, world: World, session_id: str | None = None, lease: commit_pb2.Lease | None = None) -> None:
        self.world = world
        self.session_id = session_id or fresh_id("session")
        self.lease = lease

    async def put(self, one: checkpoint_pb2.CheckpointPut) -> commit_pb2.CommitReceipt:
        """PutCheckpoint."""
        request = pb.PutCheckpointRequest(request_id=fresh_id(), session_id=self.session_id, lease=self.lease, put=one)
        return (await self.world.call("CheckpointService.PutCheckpoint", request)).receipt

    async def write(self, one: checkpoint_pb2.CheckpointWrites) -> commit_pb2.CommitReceipt:
        """PutWrites."""
        request = pb.PutWritesRequest(request_id=fresh_id(), session_id=self.session_id, lease=self.lease, writes=one)
        return (await self.world.call("CheckpointService.PutWrites", request)).receipt

    async def answer(self, number: int | None = None, ns: str = "") -> pb.GetCheckpointResponse:
        """GetCheckpoint."""
        request = pb.GetCheckpointRequest(session_id=self.session_id, checkpoint_ns=ns)
        if number is not None:
            request.checkpoint_id = checkpoint_id(number)
        return await self.world.call("CheckpointService.GetCheckpoint", request)

    async def get(self, number: int | None = None, ns: str = "") -> checkpoint_pb2.CheckpointTuple | None:
        """The checkpoint, or None."""
        response = await self.answer(number, ns)
        return response.checkpoint if response.HasField("checkpoint") else None

    async def list(self, **query: Any) -> list[checkpoint_pb2.CheckpointTuple]:
        """ListCheckpoints of the session; `session_id=None` lists the scope."""
        return [one for frame in await self.frames(**query) for one in frame.checkpoints]

    async def frames(self, **query: Any) -> list[pb.ListCheckpointsResponse]:
        """The same, frame by frame."""
        return [frame async for frame in self.stream(**query)]

    def stream(self, **query: Any) -> Any:
        """The same, as the call."""
        if "filter" in query:
            query["metadata_filter_json"] = json.dumps(query.pop("filter"))
        request = pb.ListCheckpointsRequest(**{"session_id": self.session_id, **query})
        listing = self.world.bind("CheckpointService.ListCheckpoints")
        return listing(request, metadata=self.world.metadata, timeout=CALL_SECONDS)

    async def delete(self) -> pb.DeleteThreadResponse:
        """DeleteThread."""
        request = pb.DeleteThreadRequest(request_id=fresh_id(), session_id=self.session_id, lease=self.lease)
        return await self.world.call("CheckpointService.DeleteThread", request)
