"""CheckpointService: LangGraph's checkpointer for callers without a run, and reads for all (R20)."""

from __future__ import annotations

from collections.abc import AsyncIterator, Iterator, Sequence
from datetime import timedelta
from typing import Any

import grpc

from threadkeep.runtime.v1 import checkpoint_pb2, checkpoint_service_pb2, checkpoint_service_pb2_grpc
from threadkeep_chassis.database import Connection
from threadkeep_chassis.errors import FieldInvalid
from threadkeep_chassis.receipts import idempotent
from threadkeep_chassis.scope import Call, current_call
from threadkeep_runtime.checkpoints import (
    CheckpointQuery,
    PageKey,
    ValueName,
    load_checkpoint,
    load_checkpoints,
    page_keys,
    read_piece,
    stage_chunk,
)
from threadkeep_runtime.domain.checkpoints import CheckpointOp, StoredCheckpoint
from threadkeep_runtime.domain.errors import CheckpointValueNotFound
from threadkeep_runtime.domain.values import thread_key_of
from threadkeep_runtime.pipeline import Render
from threadkeep_runtime.service import parse
from threadkeep_runtime.service.calls import answer, origin_of, with_staged
from threadkeep_runtime.service.checkpoint_convert import (
    checkpoint_to_proto,
    metadata_filter,
    put_from_proto,
    writes_from_proto,
)
from threadkeep_runtime.service.rooms import Rooms
from threadkeep_runtime.service.store_convert import time_to_proto
from threadkeep_runtime.store.apply import Applied

pb = checkpoint_service_pb2

KEYS_PER_PAGE = 256
"""How many keys a list looks ahead; the checkpoints themselves are read frame by frame."""
FRAME_BYTES = 1024 * 1024
"""Size at which a frame of a list is full; a larger checkpoint travels alone. A value travels in frames of it."""
PIECE_BYTES = 4 * FRAME_BYTES
"""How much of a value is read at a time."""
_WHOLE = 2**31 - 1


class CheckpointServicer(checkpoint_service_pb2_grpc.CheckpointServiceServicer):
    """Translates; `rooms` is set once the database is open."""

    rooms: Rooms

    async def PutCheckpoint(
        self, request: pb.PutCheckpointRequest, context: grpc.aio.ServicerContext
    ) -> pb.PutCheckpointResponse:
        """A commit with one put."""
        return await self._commit(
            request, put_from_proto(request.put, "put", self.rooms.limits), pb.PutCheckpointResponse
        )

    async def PutWrites(self, request: pb.PutWritesRequest, context: grpc.aio.ServicerContext) -> pb.PutWritesResponse:
        """A commit with writes of one checkpoint."""
        writes = writes_from_proto(request.writes, "writes", self.rooms.limits)
        return await self._commit(request, writes, pb.PutWritesResponse)

    async def GetCheckpoint(
        self, request: pb.GetCheckpointRequest, context: grpc.aio.ServicerContext
    ) -> pb.GetCheckpointResponse:
        """One statement, which is one snapshot."""
        thread_key = thread_key_of(current_call().scope_key, request.session_id)
        named = request.checkpoint_id if request.HasField("checkpoint_id") else None
        response = pb.GetCheckpointResponse()
        if "\x00" in request.checkpoint_ns:
            raise FieldInvalid("checkpoint_ns", "must hold no NUL character")
        async with self.rooms.database.read() as connection:
            found = await connection.run(
                lambda c: load_checkpoint(c, thread_key, request.checkpoint_ns, named, self._inline_bytes)
            )
        if found.checkpoint is not None:
            response.checkpoint.CopyFrom(self._shown(found.checkpoint))
        response.checkpoint_id_floor = found.floor
        return response

    async def ListCheckpoints(
        self, request: pb.ListCheckpointsRequest, context: grpc.aio.ServicerContext
    ) -> AsyncIterator[pb.ListCheckpointsResponse]:
        """Reads keys and sizes, then frame by frame what they stand for. A reader that pauses holds nothing (B21)."""
        query = _query(current_call(), request)
        remaining = request.limit if request.HasField("limit") else None
        if query is None or remaining == 0:
            return
        after: PageKey | None = None
        while True:
            count = KEYS_PER_PAGE if remaining is None else min(KEYS_PER_PAGE, remaining)
            keys = await self._keys(query, after, count)
            for frame in _frames(keys):
                stored = await self._stored(frame)
                if stored:
                    yield pb.ListCheckpointsResponse(checkpoints=map(self._shown, stored))
            if len(keys) < count:
                return
            after = keys[-1]
            if remaining is not None:
                remaining -= len(keys)
                if not remaining:
                    return

    async def StageChunk(
        self, request: pb.StageChunkRequest, context: grpc.aio.ServicerContext
    ) -> pb.StageChunkResponse:
        """One row, with its receipt."""
        call, limits = current_call(), self.rooms.limits
        ttl = timedelta(seconds=self.rooms.settings.staged_value_ttl_seconds)

        async def work(connection: Connection) -> pb.StageChunkResponse:
            now = await connection.now()
            of_scope, of_value = await connection.run(
                lambda c: stage_chunk(c, call.scope_key, request.staged_id, request.index, request.data, now)
            )
            limits.check("max_checkpoint_value_bytes", of_value)
            limits.check("max_staged_bytes", of_scope)
            return pb.StageChunkResponse(expire_time=time_to_proto(now + ttl))

        return await idempotent(self.rooms.database, call, request, pb.StageChunkResponse, work)

    async def ReadValue(
        self, request: pb.ReadValueRequest, context: grpc.aio.ServicerContext
    ) -> AsyncIterator[pb.ReadValueResponse]:
        """Piece by piece, each a read of its own: a reader that pauses holds nothing (B21)."""
        name = _value_name(current_call(), request)
        start = 0
        while True:
            async with self.rooms.database.read() as connection:
                found = await connection.run(
                    lambda c, start=start: read_piece(c, name, start, _WHOLE if name.may_change else PIECE_BYTES)  # type: ignore[misc]
                )
            if found is None:
                raise CheckpointValueNotFound()
            size, piece = found
            for at in range(0, len(piece), FRAME_BYTES):
                yield pb.ReadValueResponse(data=piece[at : at + FRAME_BYTES])
            start += len(piece)
            if start >= size:
                return

    async def DeleteThread(
        self, request: pb.DeleteThreadRequest, context: grpc.aio.ServicerContext
    ) -> pb.DeleteThreadResponse:
        """A commit that removes all checkpoints and writes; of a session that never was, nothing."""
        call = current_call()
        outcome = await self.rooms.commands.delete_checkpoints(
            origin_of(call, request),
            request.session_id,
            parse.optional_lease(request),
            self._rendering(pb.DeleteThreadResponse),
        )
        return answer(call, outcome, pb.DeleteThreadResponse)

    async def DeleteForRuns(
        self, request: pb.DeleteForRunsRequest, context: grpc.aio.ServicerContext
    ) -> pb.DeleteForRunsResponse:
        """A commit for each session that holds checkpoints of the runs."""
        call = current_call()
        outcome = await self.rooms.commands.delete_for_runs(
            origin_of(call, request),
            request.run_ids,
            parse.optional_lease(request),
            lambda _: pb.DeleteForRunsResponse().SerializeToString(),
        )
        return answer(call, outcome, pb.DeleteForRunsResponse)

    async def CopyThread(
        self, request: pb.CopyThreadRequest, context: grpc.aio.ServicerContext
    ) -> pb.CopyThreadResponse:
        """A commit of the target."""
        call = current_call()
        if request.source_session_id == request.target_session_id:
            raise FieldInvalid("target_session_id", "must be another session than the source")
        outcome = await self.rooms.commands.copy_checkpoints(
            origin_of(call, request),
            request.source_session_id,
            request.target_session_id,
            parse.optional_lease(request),
            self._rendering(pb.CopyThreadResponse),
        )
        return answer(call, outcome, pb.CopyThreadResponse)

    async def PruneThread(
        self, request: pb.PruneThreadRequest, context: grpc.aio.ServicerContext
    ) -> pb.PruneThreadResponse:
        """A commit that removes what the strategy does not keep."""
        call = current_call()
        commands = self.rooms.commands
        if request.strategy == pb.PRUNE_STRATEGY_KEEP_LATEST:
            prune = commands.prune_checkpoints
        elif request.strategy == pb.PRUNE_STRATEGY_DELETE:
            prune = commands.delete_checkpoints
        else:
            raise FieldInvalid("strategy", "must be a known strategy")
        outcome = await prune(
            origin_of(call, request),
            request.session_id,
            parse.optional_lease(request),
            self._rendering(pb.PruneThreadResponse),
        )
        return answer(call, outcome, pb.PruneThreadResponse)

    @property
    def _inline_bytes(self) -> int:
        return self.rooms.settings.inline_value_bytes

    def _shown(self, stored: StoredCheckpoint) -> checkpoint_pb2.CheckpointTuple:
        return checkpoint_to_proto(stored, self.rooms.limits["max_page_bytes"])

    def _rendering(self, response_type: Any) -> Render:
        """Renders a response whose receipt is absent when nothing was committed."""

        def render(applied: Applied) -> bytes:
            response = response_type()
            if applied.decision.thread is not None:
                response.receipt.CopyFrom(self.rooms.receipts.render(applied))
            serialized: bytes = response.SerializeToString()
            return serialized

        return render

    async def _keys(self, query: CheckpointQuery, after: PageKey | None, count: int) -> list[PageKey]:
        async with self.rooms.database.read() as connection:
            return await connection.run(lambda c: page_keys(c, query, after, count, self._inline_bytes))

    async def _stored(self, keys: Sequence[PageKey]) -> list[StoredCheckpoint]:
        async with self.rooms.database.read() as connection:
            return await connection.run(lambda c: load_checkpoints(c, keys, self._inline_bytes))

    async def _commit(self, request: Any, op: CheckpointOp, response_type: Any) -> Any:
        call = current_call()

        def render(applied: Applied) -> bytes:
            return response_type(receipt=self.rooms.receipts.render(applied)).SerializeToString()

        rest = {"lease": parse.optional_lease(request), "ops": (op,)}
        origin = with_staged(origin_of(call, request), (op,))
        outcome = await self.rooms.commands.commit(origin, request.session_id, rest, render)
        return answer(call, outcome, response_type)


def _value_name(call: Call, request: pb.ReadValueRequest) -> ValueName:
    """Which value. Raises FieldInvalid."""
    texts = {"checkpoint_ns": request.checkpoint_ns}
    which = request.WhichOneof("value")
    if which is None:
        raise FieldInvalid("value", "needs channel or write")
    name = ValueName(thread_key_of(call.scope_key, request.session_id), request.checkpoint_ns, request.checkpoint_id)
    if which == "channel":
        texts |= {"channel.channel": request.channel.channel, "channel.version": request.channel.version}
        name = name._replace(channel=request.channel.channel, version=request.channel.version)
    else:
        texts["write.task_id"] = request.write.task_id
        name = name._replace(task_id=request.write.task_id, write_index=request.write.index)
    for path, text in texts.items():
        if "\x00" in text:
            raise FieldInvalid(path, "must hold no NUL character")
    return name


def _query(call: Call, request: pb.ListCheckpointsRequest) -> CheckpointQuery | None:
    """What to list; None if nothing can match. Raises FieldInvalid."""
    if request.HasField("limit") and request.limit < 0:
        raise FieldInvalid("limit", "must not be negative")
    wanted = None
    if request.HasField("metadata_filter_json"):
        wanted = metadata_filter(request.metadata_filter_json)
        if wanted is None:
            return None
    if "\x00" in request.checkpoint_ns:
        raise FieldInvalid("checkpoint_ns", "must hold no NUL character")
    scope_key = call.scope_key
    return CheckpointQuery(
        scope_key=scope_key,
        thread_key=thread_key_of(scope_key, request.session_id) if request.HasField("session_id") else None,
        checkpoint_ns=request.checkpoint_ns if request.HasField("checkpoint_ns") else None,
        checkpoint_id=request.checkpoint_id if request.HasField("checkpoint_id") else None,
        before_checkpoint_id=request.before_checkpoint_id if request.HasField("before_checkpoint_id") else None,
        metadata_filter=wanted,
    )


def _frames(keys: Sequence[PageKey]) -> Iterator[list[PageKey]]:
    """The keys in runs whose checkpoints fill about a frame."""
    frame: list[PageKey] = []
    size = 0
    for key in keys:
        if frame and size + key.size > FRAME_BYTES:
            yield frame
            frame, size = [], 0
        frame.append(key)
        size += key.size
    if frame:
        yield frame
