"""The saver for graphs that run outside a worker: every call is one RPC, and what it acknowledges is durable.

While a worker holds a run of the thread, writes of this saver are refused (LeaseRequired); reads always work. The saver
that a worker binds to its run is in `run_saver`.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any

from langchain_core.runnables import RunnableConfig
from langgraph.checkpoint.base import (
    ChannelVersions,
    Checkpoint,
    CheckpointMetadata,
)
from langgraph.checkpoint.serde.base import SerializerProtocol

from threadkeep.client import AsyncClient, Client
from threadkeep.langgraph import codec, large
from threadkeep.langgraph.reading import SaverBase, batched_run_ids, prune_strategy
from threadkeep.langgraph.serde import AllowedType


class ThreadkeepSaver(SaverBase):
    """A LangGraph checkpoint saver over threadkeep, for synchronous and asyncio graphs alike.

    `client` names the scope that the threads live in; either kind of client serves both kinds of calls. Values are
    decoded strictly: `allowed_types` lists classes of your own that may be built (see `StrictSerializer`), or pass a
    `serde` of your own.
    """

    def __init__(
        self,
        client: Client | AsyncClient,
        *,
        serde: SerializerProtocol | None = None,
        allowed_types: Iterable[AllowedType] = (),
    ) -> None:
        super().__init__(
            client if isinstance(client, AsyncClient) else client.to_async(),
            client if isinstance(client, Client) else client.to_sync(),
            serde,
            allowed_types,
        )
        self._message_limit: int | None = None

    # --- synchronous

    def put(
        self,
        config: RunnableConfig,
        checkpoint: Checkpoint,
        metadata: CheckpointMetadata,
        new_versions: ChannelVersions,
    ) -> RunnableConfig:
        """Stores a checkpoint. Raises EncodingRefused, LeaseRequired, CheckpointDeleted."""
        put = codec.to_put(config, checkpoint, metadata, new_versions, self.serde)
        session_id = codec.session_id_of(config)
        self._stage(put)
        self._sync.checkpoints.put(session_id, put)
        return codec.config_of(session_id, put.checkpoint_ns, put.checkpoint_id)

    def put_writes(
        self, config: RunnableConfig, writes: Sequence[tuple[str, Any]], task_id: str, task_path: str = ""
    ) -> None:
        """Stores a task's writes. Raises EncodingRefused, LeaseRequired, CheckpointDeleted."""
        if writes:
            pending = codec.to_writes(config, writes, task_id, task_path, self.serde)
            self._stage(pending)
            self._sync.checkpoints.put_writes(codec.session_id_of(config), pending)

    def delete_thread(self, thread_id: str) -> None:
        """Deletes a thread's checkpoints and writes; the session stays. Raises LeaseRequired."""
        self._sync.checkpoints.delete_thread(str(thread_id))

    def delete_for_runs(self, run_ids: Sequence[str]) -> None:
        """Deletes the checkpoints of these runs (metadata `run_id`), in all threads. Raises LeaseRequired."""
        for some in batched_run_ids(run_ids):
            self._sync.checkpoints.delete_for_runs(some)

    def copy_thread(self, source_thread_id: str, target_thread_id: str) -> None:
        """Copies all checkpoints and writes into a thread that holds none. Raises IdTaken, LeaseRequired."""
        self._sync.checkpoints.copy_thread(str(source_thread_id), str(target_thread_id))

    def prune(self, thread_ids: Sequence[str], *, strategy: str = "keep_latest") -> None:
        """Prunes each thread: `keep_latest` keeps each namespace's latest checkpoint and what delta channels need
        of its ancestors, `delete` nothing. ValueError for another strategy. Raises LeaseRequired."""
        chosen = prune_strategy(thread_ids, strategy)
        for thread_id in thread_ids:
            self._sync.checkpoints.prune_thread(str(thread_id), chosen)

    def _stage(self, operation: large.Operation) -> None:
        if operation.ByteSize() > large.ALWAYS_FITS:
            if self._message_limit is None:
                self._message_limit = large.message_limit(self._sync.info.get())
            for call in large.stage([operation], self._message_limit):
                self._sync.checkpoints._run(call)

    # --- asyncio

    async def aput(
        self,
        config: RunnableConfig,
        checkpoint: Checkpoint,
        metadata: CheckpointMetadata,
        new_versions: ChannelVersions,
    ) -> RunnableConfig:
        """Stores a checkpoint. Raises EncodingRefused, LeaseRequired, CheckpointDeleted."""
        put = codec.to_put(config, checkpoint, metadata, new_versions, self.serde)
        session_id = codec.session_id_of(config)
        await self._astage(put)
        await self._async.checkpoints.put(session_id, put)
        return codec.config_of(session_id, put.checkpoint_ns, put.checkpoint_id)

    async def aput_writes(
        self, config: RunnableConfig, writes: Sequence[tuple[str, Any]], task_id: str, task_path: str = ""
    ) -> None:
        """Stores a task's writes. Raises EncodingRefused, LeaseRequired, CheckpointDeleted."""
        if writes:
            pending = codec.to_writes(config, writes, task_id, task_path, self.serde)
            await self._astage(pending)
            await self._async.checkpoints.put_writes(codec.session_id_of(config), pending)

    async def adelete_thread(self, thread_id: str) -> None:
        """Deletes a thread's checkpoints and writes; the session stays. Raises LeaseRequired."""
        await self._async.checkpoints.delete_thread(str(thread_id))

    async def adelete_for_runs(self, run_ids: Sequence[str]) -> None:
        """Deletes the checkpoints of these runs (metadata `run_id`), in all threads. Raises LeaseRequired."""
        for some in batched_run_ids(run_ids):
            await self._async.checkpoints.delete_for_runs(some)

    async def acopy_thread(self, source_thread_id: str, target_thread_id: str) -> None:
        """Copies all checkpoints and writes into a thread that holds none. Raises IdTaken, LeaseRequired."""
        await self._async.checkpoints.copy_thread(str(source_thread_id), str(target_thread_id))

    async def aprune(self, thread_ids: Sequence[str], *, strategy: str = "keep_latest") -> None:
        """Prunes each thread: `keep_latest` keeps each namespace's latest checkpoint and what delta channels need
        of its ancestors, `delete` nothing. ValueError for another strategy. Raises LeaseRequired."""
        chosen = prune_strategy(thread_ids, strategy)
        for thread_id in thread_ids:
            await self._async.checkpoints.prune_thread(str(thread_id), chosen)

    async def _astage(self, operation: large.Operation) -> None:
        if operation.ByteSize() > large.ALWAYS_FITS:
            if self._message_limit is None:
                self._message_limit = large.message_limit(await self._async.info.get())
            for call in large.stage([operation], self._message_limit):
                await self._async.checkpoints._run(call)
