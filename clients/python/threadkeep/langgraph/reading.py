"""What every saver of ours does alike: versions, and reads, synchronous and asyncio.

Reads of values that a reply left out are made here; a checkpoint that is deleted meanwhile counts as one that was never
there.
"""

from __future__ import annotations

import contextlib
from collections.abc import AsyncIterator, Collection, Iterable, Iterator, Mapping, Sequence
from random import random
from typing import Any

from langchain_core.runnables import RunnableConfig
from langgraph.checkpoint.base import BaseCheckpointSaver, CheckpointTuple, DeltaChannelHistory, get_checkpoint_id
from langgraph.checkpoint.serde.base import SerializerProtocol

from threadkeep._api import threads
from threadkeep._rpc.method import Call
from threadkeep.client import AsyncClient, Client
from threadkeep.errors import CheckpointValueNotFound
from threadkeep.langgraph import codec, idclock, large
from threadkeep.langgraph.history import History
from threadkeep.langgraph.serde import AllowedType, EncodingRefused, StrictSerializer
from threadkeep.runtime.v1 import checkpoint_pb2, checkpoint_service_pb2

READS = 3
"""How often a checkpoint is read whose large values vanish under the reader."""


class SaverBase(BaseCheckpointSaver[str]):
    """What both savers share: versions, and reading."""

    def __init__(
        self,
        client: AsyncClient,
        sync_client: Client,
        serde: SerializerProtocol | None,
        allowed_types: Iterable[AllowedType],
    ) -> None:
        allowed = tuple(allowed_types)
        if serde is not None and allowed:
            raise ValueError("allowed_types is for the default serialiser; give your own one its own allow-list")
        super().__init__(serde=serde if serde is not None else StrictSerializer(allowed))
        self._async, self._sync = client, sync_client

    def get_next_version(self, current: str | None, channel: None) -> str:
        """As LangGraph's PostgreSQL saver counts: a number of 32 digits, and a random part against equal forks."""
        # Threads that another saver began may count in integers.
        count = 0 if current is None else int(str(current).split(".")[0])
        return f"{count + 1:032}.{random():016}"

    # --- synchronous

    def get_tuple(self, config: RunnableConfig) -> CheckpointTuple | None:
        """The checkpoint that `config` names, or the namespace's latest; None if there is none."""
        self._settle()
        return self._found(self._get(config))

    def list(
        self,
        config: RunnableConfig | None,
        *,
        filter: dict[str, Any] | None = None,
        before: RunnableConfig | None = None,
        limit: int | None = None,
    ) -> Iterator[CheckpointTuple]:
        """Checkpoints, newest first: of one thread, or of the scope when `config` is None."""
        self._settle()
        wanted = list_filters(config, filter, before, limit)
        if wanted is not None:
            reading = large.Reading()
            for stored in self._sync.checkpoints.list(**wanted):
                with contextlib.suppress(CheckpointValueNotFound):
                    self._fill(stored, reading)
                    yield self._listed(stored)

    def get_delta_channel_history(
        self, *, config: RunnableConfig, channels: Sequence[str]
    ) -> Mapping[str, DeltaChannelHistory]:
        """The writes to each channel by the ancestors of the checkpoint that `config` names (or the latest), oldest
        first, back to the one that stores the channel: its value is the seed. Two calls, however long it is."""
        if not channels:
            return {}
        self._settle()
        found = self._sync.checkpoints._run(get_call(config)).checkpoint
        history, reading = History(channels, found.parent_checkpoint_id, self.serde), large.Reading()
        while history.wants_more():
            moved = False
            for stored in self._sync.checkpoints.list(**history.ancestors(codec.session_id_of(config), found)):
                if history.is_next(stored):
                    try:
                        self._fill(stored, reading, history.open_channels)
                    except CheckpointValueNotFound:
                        break
                    history.visit(stored)
                    moved = True
                if not history.wants_more():
                    break
            if not moved:
                break
        return history.result()

    def _get(self, config: RunnableConfig) -> checkpoint_service_pb2.GetCheckpointResponse:
        with self._watching():
            for attempt in range(1, READS + 1):
                response = self._sync.checkpoints._run(get_call(config))
                try:
                    self._fill(response.checkpoint, large.Reading())
                    break
                except CheckpointValueNotFound:
                    if attempt == READS:
                        raise
        return response

    def _fill(
        self,
        stored: checkpoint_pb2.CheckpointTuple,
        reading: large.Reading,
        channels: Collection[str] | None = None,
    ) -> None:
        for missing in reading.missing(stored, channels):
            reading.fill(missing, self._sync.checkpoints.read_value(*missing.place))

    # --- asyncio

    async def aget_tuple(self, config: RunnableConfig) -> CheckpointTuple | None:
        """The checkpoint that `config` names, or the namespace's latest; None if there is none."""
        await self._asettle()
        return self._found(await self._aget(config))

    async def alist(
        self,
        config: RunnableConfig | None,
        *,
        filter: dict[str, Any] | None = None,
        before: RunnableConfig | None = None,
        limit: int | None = None,
    ) -> AsyncIterator[CheckpointTuple]:
        """Checkpoints, newest first: of one thread, or of the scope when `config` is None."""
        await self._asettle()
        wanted = list_filters(config, filter, before, limit)
        if wanted is not None:
            reading = large.Reading()
            async for stored in self._async.checkpoints.list(**wanted):
                with contextlib.suppress(CheckpointValueNotFound):
                    await self._afill(stored, reading)
                    yield self._listed(stored)

    async def aget_delta_channel_history(
        self, *, config: RunnableConfig, channels: Sequence[str]
    ) -> Mapping[str, DeltaChannelHistory]:
        """The writes to each channel by the ancestors of the checkpoint that `config` names (or the latest), oldest
        first, back to the one that stores the channel: its value is the seed. Two calls, however long it is."""
        if not channels:
            return {}
        await self._asettle()
        found = (await self._async.checkpoints._run(get_call(config))).checkpoint
        history, reading = History(channels, found.parent_checkpoint_id, self.serde), large.Reading()
        while history.wants_more():
            moved = False
            async for stored in self._async.checkpoints.list(**history.ancestors(codec.session_id_of(config), found)):
                if history.is_next(stored):
                    try:
                        await self._afill(stored, reading, history.open_channels)
                    except CheckpointValueNotFound:
                        break
                    history.visit(stored)
                    moved = True
                if not history.wants_more():
                    break
            if not moved:
                break
        return history.result()

    async def _aget(self, config: RunnableConfig) -> checkpoint_service_pb2.GetCheckpointResponse:
        with self._watching():
            for attempt in range(1, READS + 1):
                response = await self._async.checkpoints._run(get_call(config))
                try:
                    await self._afill(response.checkpoint, large.Reading())
                    break
                except CheckpointValueNotFound:
                    if attempt == READS:
                        raise
        return response

    async def _afill(
        self,
        stored: checkpoint_pb2.CheckpointTuple,
        reading: large.Reading,
        channels: Collection[str] | None = None,
    ) -> None:
        for missing in reading.missing(stored, channels):
            reading.fill(missing, await self._async.checkpoints.read_value(*missing.place))

    # --- what a saver that is bound to a run adds

    def _settle(self) -> None:
        """Called before a read."""

    async def _asettle(self) -> None:
        """The same, for asyncio."""

    def _watching(self) -> contextlib.AbstractContextManager[None]:
        """Surrounds the reads that a graph can't go on without."""
        return contextlib.nullcontext()

    def _overlay(self, stored: checkpoint_pb2.CheckpointTuple) -> None:
        """Adds to a stored checkpoint what is not stored yet."""

    def _found(self, response: checkpoint_service_pb2.GetCheckpointResponse) -> CheckpointTuple | None:
        """The tuple of an answer; later ids of this process sort above everything that the thread holds."""
        idclock.raise_above(response.checkpoint_id_floor, response.checkpoint.checkpoint_id)
        if not response.HasField("checkpoint"):
            return None
        self._overlay(response.checkpoint)
        return codec.from_tuple(response.checkpoint, self.serde)

    def _listed(self, stored: checkpoint_pb2.CheckpointTuple) -> CheckpointTuple:
        idclock.raise_above(stored.checkpoint_id)
        self._overlay(stored)
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
