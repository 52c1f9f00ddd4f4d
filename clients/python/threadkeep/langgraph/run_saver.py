"""The saver that a worker binds to a leased run: its writes carry the lease, and a superstep is one commit.

Durability as LangGraph means it: with `sync` a checkpoint is acknowledged when it is committed, with `async` when it is
queued; with `exit` it waits for the commit that ends the run, which sends whatever is left.
"""

from __future__ import annotations

import contextlib
from collections.abc import Iterable, Iterator, Sequence
from typing import Any, Literal

from langchain_core.runnables import RunnableConfig
from langgraph.checkpoint.base import ChannelVersions, Checkpoint, CheckpointMetadata
from langgraph.checkpoint.serde.base import SerializerProtocol
from langgraph.checkpoint.serde.types import INTERRUPT, RESUME

from threadkeep.client import AsyncClient, Client
from threadkeep.errors import DeadlineExceeded, Unavailable
from threadkeep.langgraph import codec
from threadkeep.langgraph.commit_queue import CommitQueue, Committed, committed
from threadkeep.langgraph.reading import SaverBase, batched_run_ids, prune_strategy
from threadkeep.langgraph.serde import AllowedType
from threadkeep.runtime.v1 import checkpoint_pb2, checkpoint_service_pb2

Durability = Literal["sync", "async", "exit"]

ERROR_SOURCE_NODE = "__error_source_node__"
"""LangGraph marks a failed task with it before it starts the task's error handler, which must find it durable."""
_CONTROL = frozenset((INTERRUPT, RESUME))

TURNS = 2
"""Turns of the event loop between a task's last writes and its superstep's checkpoint."""


class RunSaver(SaverBase):
    """The saver of one leased run. Only for that run's session; unusable once the run is over for this worker."""

    def __init__(
        self,
        queue: CommitQueue,
        client: AsyncClient,
        sync_client: Client,
        *,
        durability: Durability = "sync",
        serde: SerializerProtocol | None = None,
        allowed_types: Iterable[AllowedType] = (),
    ) -> None:
        super().__init__(client, sync_client, serde, allowed_types)
        self.queue = queue
        self.durability = durability

    @property
    def asks(self) -> bool:
        """True if a question of the root graph is kept for the commit that makes the run wait."""
        return any(
            group.checkpoint_ns == "" and any(one.channel == INTERRUPT for one in group.writes)
            for group in self.queue.held()
        )

    # --- writes

    def put(
        self,
        config: RunnableConfig,
        checkpoint: Checkpoint,
        metadata: CheckpointMetadata,
        new_versions: ChannelVersions,
    ) -> RunnableConfig:
        """Queues a checkpoint, and waits for its commit unless durability says otherwise."""
        stored, done = self._add_put(config, checkpoint, metadata, new_versions)
        if self.durability != "exit":
            self.queue.kick_soon()
        if self.durability == "sync":
            done.result()
        return stored

    async def aput(
        self,
        config: RunnableConfig,
        checkpoint: Checkpoint,
        metadata: CheckpointMetadata,
        new_versions: ChannelVersions,
    ) -> RunnableConfig:
        """Queues a checkpoint, and waits for its commit unless durability says otherwise."""
        stored, done = self._add_put(config, checkpoint, metadata, new_versions)
        if self.durability != "exit":
            self.queue.kick_after_turns(TURNS, done)
        if self.durability == "sync":
            await committed(done)
        return stored

    def put_writes(
        self, config: RunnableConfig, writes: Sequence[tuple[str, Any]], task_id: str, task_path: str = ""
    ) -> None:
        """Queues a task's writes; those that an error handler relies on are waited for."""
        done = self._add_writes(config, writes, task_id, task_path)
        if done is not None:
            self.queue.kick_soon()
            if _must_be_durable(writes):
                done.result()

    async def aput_writes(
        self, config: RunnableConfig, writes: Sequence[tuple[str, Any]], task_id: str, task_path: str = ""
    ) -> None:
        """Queues a task's writes; those that an error handler relies on are waited for."""
        done = self._add_writes(config, writes, task_id, task_path)
        if done is not None:
            self.queue.kick_after_turns(TURNS, done)
            if _must_be_durable(writes):
                await committed(done)

    def delete_thread(self, thread_id: str) -> None:
        """Deletes the thread's checkpoints and writes, under the run's lease."""
        self._check_session(str(thread_id))
        self._settle()
        self._sync.checkpoints.delete_thread(str(thread_id), lease=self.queue.lease)

    async def adelete_thread(self, thread_id: str) -> None:
        """Deletes the thread's checkpoints and writes, under the run's lease."""
        self._check_session(str(thread_id))
        await self._asettle()
        await self._async.checkpoints.delete_thread(str(thread_id), lease=self.queue.lease)

    def prune(self, thread_ids: Sequence[str], *, strategy: str = "keep_latest") -> None:
        """Prunes the thread under the run's lease; see `ThreadkeepSaver.prune`. ValueError for another thread."""
        for thread_id, chosen in self._prunes(thread_ids, strategy):
            self._settle()
            self._sync.checkpoints.prune_thread(thread_id, chosen, lease=self.queue.lease)

    async def aprune(self, thread_ids: Sequence[str], *, strategy: str = "keep_latest") -> None:
        """Prunes the thread under the run's lease; see `ThreadkeepSaver.prune`. ValueError for another thread."""
        for thread_id, chosen in self._prunes(thread_ids, strategy):
            await self._asettle()
            await self._async.checkpoints.prune_thread(thread_id, chosen, lease=self.queue.lease)

    def copy_thread(self, source_thread_id: str, target_thread_id: str) -> None:
        """Copies another thread's checkpoints into the run's thread, which holds none, under its lease. ValueError for
        another target."""
        target = self._check_session(str(target_thread_id))
        self._settle()
        self._sync.checkpoints.copy_thread(str(source_thread_id), target, lease=self.queue.lease)

    async def acopy_thread(self, source_thread_id: str, target_thread_id: str) -> None:
        """Copies another thread's checkpoints into the run's thread, which holds none, under its lease. ValueError for
        another target."""
        target = self._check_session(str(target_thread_id))
        await self._asettle()
        await self._async.checkpoints.copy_thread(str(source_thread_id), target, lease=self.queue.lease)

    def delete_for_runs(self, run_ids: Sequence[str]) -> None:
        """Deletes the checkpoints of these runs (metadata `run_id`) in all threads, in the run's under its lease."""
        self._settle()
        for some in batched_run_ids(run_ids):
            self._sync.checkpoints.delete_for_runs(some, lease=self.queue.lease)

    async def adelete_for_runs(self, run_ids: Sequence[str]) -> None:
        """Deletes the checkpoints of these runs (metadata `run_id`) in all threads, in the run's under its lease."""
        await self._asettle()
        for some in batched_run_ids(run_ids):
            await self._async.checkpoints.delete_for_runs(some, lease=self.queue.lease)

    # --- inside

    def _add_put(
        self,
        config: RunnableConfig,
        checkpoint: Checkpoint,
        metadata: CheckpointMetadata,
        new_versions: ChannelVersions,
    ) -> tuple[RunnableConfig, Committed]:
        session_id = self._check_session(codec.session_id_of(config))
        put = codec.to_put(config, checkpoint, metadata, new_versions, self.serde)
        done = self.queue.add(checkpoint_pb2.CheckpointOp(put=put))
        return codec.config_of(session_id, put.checkpoint_ns, put.checkpoint_id), done

    def _add_writes(
        self, config: RunnableConfig, writes: Sequence[tuple[str, Any]], task_id: str, task_path: str
    ) -> Committed | None:
        if not writes:
            return None
        self._check_session(codec.session_id_of(config))
        op = checkpoint_pb2.CheckpointOp(writes=codec.to_writes(config, writes, task_id, task_path, self.serde))
        if all(channel in _CONTROL for channel, _ in writes):
            self.queue.hold(op)
            return None
        return self.queue.add(op)

    def _prunes(
        self, thread_ids: Sequence[str], strategy: str
    ) -> list[tuple[str, checkpoint_service_pb2.PruneStrategy.ValueType]]:
        chosen = prune_strategy(thread_ids, strategy)
        return [(self._check_session(str(thread_id)), chosen) for thread_id in thread_ids]

    def _check_session(self, session_id: str) -> str:
        if session_id != self.queue.session_id:
            raise ValueError(
                f"this saver is bound to the run of session {self.queue.session_id!r} and writes no other thread; "
                "use a ThreadkeepSaver for other threads"
            )
        return session_id

    @contextlib.contextmanager
    def _watching(self) -> Iterator[None]:
        """A run whose checkpoints can't be read can't go on here, which is not the graph's fault."""
        try:
            yield
        except (Unavailable, DeadlineExceeded) as error:
            self.queue.fail(error)
            raise

    def _settle(self) -> None:
        pending = self.queue.flush()
        if pending is not None:
            pending.result()

    async def _asettle(self) -> None:
        pending = self.queue.flush()
        if pending is not None:
            await committed(pending)

    def _overlay(self, stored: checkpoint_pb2.CheckpointTuple) -> None:
        """Puts the writes that are kept over those that are stored, as the server will."""
        if stored.session_id != self.queue.session_id:
            return
        writes = {(one.task_id, one.index): one for one in stored.pending_writes}
        kept = [
            one
            for group in self.queue.held()
            if (group.checkpoint_ns, group.checkpoint_id) == (stored.checkpoint_ns, stored.checkpoint_id)
            for one in group.writes
        ]
        if kept:
            writes.update({(one.task_id, one.index): one for one in kept})
            del stored.pending_writes[:]
            stored.pending_writes.extend(
                sorted(writes.values(), key=lambda one: (one.task_path, one.task_id, one.index))
            )


def _must_be_durable(writes: Sequence[tuple[str, Any]]) -> bool:
    return any(channel == ERROR_SOURCE_NODE for channel, _ in writes)
