"""The saver for graphs that run outside a worker: every call is one RPC, and what it acknowledges is durable.

While a worker holds a run of the thread, writes of this saver are refused (LeaseRequired); reads always work. The saver
that a worker binds to its run is in `run_saver`.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Iterable, Iterator, Mapping, Sequence
from random import random
from typing import Any

from langchain_core.runnables import RunnableConfig
from langgraph.checkpoint.base import (
    BaseCheckpointSaver,
    ChannelVersions,
    Checkpoint,
    CheckpointMetadata,
    CheckpointTuple,
    DeltaChannelHistory,
    get_checkpoint_id,
)
from langgraph.checkpoint.serde.base import SerializerProtocol

from threadkeep._api import threads
from threadkeep._rpc.method import Call
from threadkeep.client import AsyncClient, Client
from threadkeep.langgraph import codec, idclock
from threadkeep.langgraph.history import History
from threadkeep.langgraph.serde import AllowedType, EncodingRefused, StrictSerializer
from threadkeep.runtime.v1 import checkpoint_pb2, checkpoint_service_pb2


class SaverBase(BaseCheckpointSaver[str]):
    """What both savers share: versions, and reading."""

    def __init__(self, serde: SerializerProtocol | None, allowed_types: Iterable[AllowedType]) -> None:
        allowed = tuple(allowed_types)
        if serde is not None and allowed:
            raise ValueError("allowed_types is for the default serialiser; give your own one its own allow-list")
        super().__init__(serde=serde if serde is not None else StrictSerializer(allowed))

    def get_next_version(self, current: str | None, channel: None) -> str:
        """As LangGraph's PostgreSQL saver counts: a number of 32 digits, and a random part against equal forks."""
        # Threads that another saver began may count in integers.
        count = 0 if current is None else int(str(current).split(".")[0])
        return f"{count + 1:032}.{random():016}"

    def _found(self, response: checkpoint_service_pb2.GetCheckpointResponse) -> CheckpointTuple | None:
        """The tuple of an answer; later ids of this process sort above everything that the thread holds."""
        idclock.raise_above(response.checkpoint_id_floor, response.checkpoint.checkpoint_id)
        if not response.HasField("checkpoint"):
            return None
        return codec.from_tuple(response.checkpoint, self.serde)

    def _listed(self, stored: checkpoint_pb2.CheckpointTuple) -> CheckpointTuple:
        idclock.raise_above(stored.checkpoint_id)
        return codec.from_tuple(stored, self.serde)


def get_call(config: RunnableConfig) -> Call[checkpoint_service_pb2.GetCheckpointResponse]:
    """Reads the checkpoint that a config names, or its namespace's latest."""
    return threads.get(codec.session_id_of(config), codec.namespace_of(config), get_checkpoint_id(config) or None)


def list_filters(
    config: RunnableConfig | None,
    filter: dict[str, Any] | None,
    before: RunnableConfig | None,
    limit: int | None,
) -> dict[str, Any] | None:
    """The arguments of a list; None when nothing can match."""
    try:
        wanted: dict[str, Any] = {"metadata_filter_json": codec.to_filter(filter), "limit": limit}
    except EncodingRefused:
        return None
    if config is not None:
        wanted["session_id"] = codec.session_id_of(config)
        # The root namespace is "", which is not the same as none.
        wanted["checkpoint_ns"] = config["configurable"].get("checkpoint_ns")
        wanted["checkpoint_id"] = get_checkpoint_id(config) or None
    if before is not None:
        wanted["before_checkpoint_id"] = get_checkpoint_id(before) or None
    return wanted


def batched_run_ids(run_ids: Sequence[str]) -> Iterator[Sequence[str]]:
    """The run ids in portions that one call takes. TypeError for a single text."""
    if isinstance(run_ids, str):
        raise TypeError("run_ids is a sequence of ids, not one id")
    for start in range(0, len(run_ids), 1000):
        yield [str(one) for one in run_ids[start : start + 1000]]


def prune_strategy(thread_ids: Sequence[str], strategy: str) -> checkpoint_service_pb2.PruneStrategy.ValueType:
    """The contract's strategy. ValueError for an unknown one, TypeError for a single text as thread_ids."""
    if isinstance(thread_ids, str):
        raise TypeError("thread_ids is a sequence of ids, not one id")
    if strategy == "keep_latest":
        return checkpoint_service_pb2.PRUNE_STRATEGY_KEEP_LATEST
    if strategy == "delete":
        return checkpoint_service_pb2.PRUNE_STRATEGY_DELETE
    raise ValueError(f"unknown prune strategy {strategy!r}; there are keep_latest and delete")


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
        super().__init__(serde, allowed_types)
        self._sync = client if isinstance(client, Client) else client.to_sync()
        self._async = client if isinstance(client, AsyncClient) else client.to_async()

    # --- synchronous

    def get_tuple(self, config: RunnableConfig) -> CheckpointTuple | None:
        """The checkpoint that `config` names, or the namespace's latest; None if there is none."""
        return self._found(self._sync.checkpoints._run(get_call(config)))

    def list(
        self,
        config: RunnableConfig | None,
        *,
        filter: dict[str, Any] | None = None,
        before: RunnableConfig | None = None,
        limit: int | None = None,
    ) -> Iterator[CheckpointTuple]:
        """Checkpoints, newest first: of one thread, or of the scope when `config` is None."""
        wanted = list_filters(config, filter, before, limit)
        if wanted is not None:
            for stored in self._sync.checkpoints.list(**wanted):
                yield self._listed(stored)

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
        self._sync.checkpoints.put(session_id, put)
        return codec.config_of(session_id, put.checkpoint_ns, put.checkpoint_id)

    def put_writes(
        self, config: RunnableConfig, writes: Sequence[tuple[str, Any]], task_id: str, task_path: str = ""
    ) -> None:
        """Stores a task's writes. Raises EncodingRefused, LeaseRequired, CheckpointDeleted."""
        if writes:
            pending = codec.to_writes(config, writes, task_id, task_path, self.serde)
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

    def get_delta_channel_history(
        self, *, config: RunnableConfig, channels: Sequence[str]
    ) -> Mapping[str, DeltaChannelHistory]:
        """The writes to each channel by the ancestors of the checkpoint that `config` names (or the latest), oldest
        first, back to the one that stores the channel: its value is the seed. Two calls, however long it is."""
        if not channels:
            return {}
        found = (self._sync.checkpoints._run(get_call(config))).checkpoint
        history = History(channels, found.parent_checkpoint_id, self.serde)
        while history.wants_more():
            moved = False
            for stored in self._sync.checkpoints.list(**history.ancestors(codec.session_id_of(config), found)):
                moved = history.visit(stored) or moved
                if not history.wants_more():
                    break
            if not moved:
                break
        return history.result()

    # --- asyncio

    async def aget_tuple(self, config: RunnableConfig) -> CheckpointTuple | None:
        """The checkpoint that `config` names, or the namespace's latest; None if there is none."""
        return self._found(await self._async.checkpoints._run(get_call(config)))

    async def alist(
        self,
        config: RunnableConfig | None,
        *,
        filter: dict[str, Any] | None = None,
        before: RunnableConfig | None = None,
        limit: int | None = None,
    ) -> AsyncIterator[CheckpointTuple]:
        """Checkpoints, newest first: of one thread, or of the scope when `config` is None."""
        wanted = list_filters(config, filter, before, limit)
        if wanted is not None:
            async for stored in self._async.checkpoints.list(**wanted):
                yield self._listed(stored)

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
        await self._async.checkpoints.put(session_id, put)
        return codec.config_of(session_id, put.checkpoint_ns, put.checkpoint_id)

    async def aput_writes(
        self, config: RunnableConfig, writes: Sequence[tuple[str, Any]], task_id: str, task_path: str = ""
    ) -> None:
        """Stores a task's writes. Raises EncodingRefused, LeaseRequired, CheckpointDeleted."""
        if writes:
            pending = codec.to_writes(config, writes, task_id, task_path, self.serde)
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

    async def aget_delta_channel_history(
        self, *, config: RunnableConfig, channels: Sequence[str]
    ) -> Mapping[str, DeltaChannelHistory]:
        """The writes to each channel by the ancestors of the checkpoint that `config` names (or the latest), oldest
        first, back to the one that stores the channel: its value is the seed. Two calls, however long it is."""
        if not channels:
            return {}
        found = (await self._async.checkpoints._run(get_call(config))).checkpoint
        history = History(channels, found.parent_checkpoint_id, self.serde)
        while history.wants_more():
            moved = False
            async for stored in self._async.checkpoints.list(**history.ancestors(codec.session_id_of(config), found)):
                moved = history.visit(stored) or moved
                if not history.wants_more():
                    break
            if not moved:
                break
        return history.result()
