"""One leased run, from its lease to its disposition.

What counts is committed: every superstep as one commit under the lease, at last what becomes of the run. A run that
crashed is continued from its last checkpoint, so that only the node that was running runs again (R7, R10).
"""

from __future__ import annotations

import asyncio
import contextlib
import enum
import logging
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, cast

from langchain_core.runnables import RunnableConfig
from langgraph.errors import GraphDrained
from langgraph.pregel import Pregel
from langgraph.runtime import RunControl
from langgraph.types import Command

from threadkeep.client import AsyncClient, Client
from threadkeep.errors import Contention, DeadlineExceeded, LeaseLost, ThreadkeepError, Unavailable
from threadkeep.langgraph import idclock, large
from threadkeep.langgraph.commit_queue import CommitQueue, committed
from threadkeep.langgraph.io_loop import IoLoop
from threadkeep.langgraph.run_saver import Durability, RunSaver
from threadkeep.runtime.v1 import commit_pb2, run_pb2, worker_service_pb2
from threadkeep.worker import inputs, interrupts
from threadkeep.worker.agents import Agents
from threadkeep.worker.context import RunArtifacts, RunContext
from threadkeep.worker.failures import is_passing, to_failure
from threadkeep.worker.lease import LeaseKeeper
from threadkeep.worker.live import LivePublisher
from threadkeep.worker.manifest import Manifest, parse_manifest
from threadkeep.worker.schemas import state_types

log = logging.getLogger("threadkeep.worker")


@dataclass(frozen=True)
class ExecutionSettings:
    """What a worker decides about how it runs graphs. Times are in seconds."""

    durability: Durability = "sync"
    max_steps: int = 100
    heartbeat_interval: float | None = None
    stop_grace: float = 10.0
    """How long a run that must stop may take to unwind before the worker goes on without it."""
    publish_live: bool = True
    retryable: Callable[[BaseException], bool] = is_passing
    """Which errors of a graph may be gone in another attempt, as far as the task's retry policy allows one."""


_OUTAGES = (Unavailable, DeadlineExceeded, Contention)
"""The suite was out of reach. The run is not at fault, and goes on elsewhere or later."""


class Stop(enum.Enum):
    """Why a run is stopped from outside."""

    CANCEL = "canceled"
    LOST = "lost"
    DRAIN = "drain"


class Execution:
    """Works on one acquired run."""

    def __init__(
        self,
        acquired: worker_service_pb2.AcquiredRun,
        *,
        client: AsyncClient,
        sync_client: Client,
        agents: Agents,
        io: IoLoop,
        settings: ExecutionSettings,
        asked_for: float,
    ) -> None:
        """`client` and `sync_client` name the run's scope. `asked_for` says how many seconds the poll took."""
        self.acquired, self._settings, self._agents, self._io = acquired, settings, agents, io
        self._client, self._sync = client, sync_client
        self.run, self.task, self.session = acquired.run, acquired.task, acquired.session
        self.queue = CommitQueue(client, self.run.session_id, acquired.lease, io)
        self._asked_for = asked_for
        self._control = RunControl()
        self._stop: Stop | None = None
        self._stopped = asyncio.Event()
        self._loop = asyncio.get_running_loop()
        self._live = LivePublisher(client, acquired.lease) if settings.publish_live else None

    # --- from outside

    def drain(self) -> None:
        """Asks the graph to stop after its superstep, so that the lease can be given back."""
        self._control.request_drain()

    def stop(self, why: Stop) -> None:
        """Stops the work now."""
        if self._stop is None:
            self._stop = why
            self._stopped.set()

    # --- the work

    async def work(self) -> None:
        """Runs until the run has a disposition, or is not this worker's any more. Raises nothing but cancellation."""
        keeping = self._io.run(self._keeper().keep())
        working = asyncio.create_task(self._run_graph(), name=f"run {self.run.run_id}")
        stopping = asyncio.create_task(self._stopped.wait())
        try:
            await asyncio.wait({working, stopping}, return_when=asyncio.FIRST_COMPLETED)
            if not working.done():
                working.cancel()
                await asyncio.wait({working}, timeout=self._settings.stop_grace)
            await self._dispose(working)
        except LeaseLost:
            log.info("run %s is not ours any more", self.run.run_id)
        except ThreadkeepError as error:
            # The lease runs out, and another worker goes on.
            log.warning("run %s could not be ended: %s", self.run.run_id, error)
        finally:
            keeping.cancel()
            stopping.cancel()
            if not working.done():
                working.cancel()
            self.queue.close()
            if self._live is not None:
                self._live.cancel()

    def _keeper(self) -> LeaseKeeper:
        def on_cancel(reason: str) -> None:
            self._loop.call_soon_threadsafe(self.stop, Stop.CANCEL)

        def on_lost(error: BaseException) -> None:
            # At once, from here: nothing of this worker is committed from now on, whatever its own loop does.
            self.queue.give_up(error if isinstance(error, LeaseLost) else LeaseLost(str(error)))
            self._loop.call_soon_threadsafe(self.stop, Stop.LOST)

        ttl = self.acquired.lease_ttl.ToTimedelta().total_seconds()
        left = None
        if self.acquired.HasField("time_left"):
            left = self.acquired.time_left.ToTimedelta().total_seconds()
        patience = min(ttl, left or ttl) / 3
        return LeaseKeeper(
            self._client,
            self.acquired.lease,
            ttl,
            renew_first=self._asked_for > patience,
            on_cancel=on_cancel,
            on_lost=on_lost,
            interval=self._settings.heartbeat_interval,
            time_left=left,
        )

    async def _dispose(self, working: asyncio.Task[commit_pb2.RunAwaiting | commit_pb2.RunEnded]) -> None:
        """Commits what became of the run."""
        if self._stop is Stop.LOST:
            raise LeaseLost("the lease is lost")
        error = None if working.cancelled() or not working.done() else working.exception()
        drained = isinstance(error, GraphDrained) or (self._stop is Stop.DRAIN and not _has_result(working))
        if self._stop is Stop.CANCEL:
            ended = commit_pb2.RunEnded(cause=run_pb2.RUN_END_CAUSE_CANCELED)
            await committed(self.queue.finish(ended, anew=self.queue.failure is not None))
        elif drained or isinstance(self.queue.failure, _OUTAGES):
            await self._give_back()
        elif error is not None:
            await self._fail(error)
        elif not _has_result(working):
            # Somebody cancelled the task from inside: the graph, or a library.
            await self._fail(asyncio.CancelledError("the graph was cancelled from inside"))
        else:
            if self._live is not None:
                await self._live.close()
            try:
                await self._check_result(working.result())
                await committed(self.queue.finish(working.result()))
            except (LeaseLost, *_OUTAGES):
                raise
            except ThreadkeepError as refused:
                await self._fail(refused)

    async def _check_result(self, disposition: commit_pb2.RunAwaiting | commit_pb2.RunEnded) -> None:
        """Refuses what the server would refuse, while the state that is queued can still be committed. Raises
        LimitExceeded."""
        if isinstance(disposition, commit_pb2.RunEnded) and disposition.result.ByteSize() > large.ALWAYS_FITS:
            large.check_result(disposition.result.ByteSize(), await self._client.info.get("runtime"))

    async def _fail(self, error: BaseException) -> None:
        # What the server refused comes first: the graph only saw its own write fail.
        cause = self.queue.failure or error
        log.warning("run %s failed: %s", self.run.run_id, cause, exc_info=cause)
        ended = commit_pb2.RunEnded(cause=run_pb2.RUN_END_CAUSE_FAILED, failure=to_failure(cause, self._retryable))
        await committed(self.queue.finish(ended, anew=self.queue.failure is not None))

    def _retryable(self, error: BaseException) -> bool:
        try:
            return bool(self._settings.retryable(error))
        except Exception:
            log.exception("could not tell whether the failure of run %s is retryable", self.run.run_id)
            return False

    async def _give_back(self) -> None:
        """Another worker goes on after the last commit. Questions that are kept are asked again there."""
        if self.queue.failure is None:
            pending = self.queue.flush()
            if pending is not None:
                await committed(pending)
        self.queue.close()
        await self._client.worker.release(self.acquired.lease)

    # --- the graph

    async def _run_graph(self) -> commit_pb2.RunAwaiting | commit_pb2.RunEnded:
        idclock.raise_above(self.acquired.checkpoint_id_floor, self.acquired.last_checkpoint_id)
        manifest = parse_manifest(self.acquired.manifest_json, self.task.manifest_digest)
        settings = self.session.settings
        model = settings.model if settings.HasField("model") else ""
        async with self._agents.lease(manifest, model) as built, built.running(self._context()):
            return await self._run_built(built.graph, manifest)

    async def _run_built(self, graph: Pregel, manifest: Manifest) -> commit_pb2.RunAwaiting | commit_pb2.RunEnded:
        settings = self.session.settings
        saver = RunSaver(
            self.queue,
            self._client,
            self._sync,
            durability=self._settings.durability,
            allowed_types=state_types(graph),
        )
        bound: Pregel = graph.copy({"checkpointer": saver})
        steps = settings.max_steps if settings.HasField("max_steps") else manifest.max_steps
        config: RunnableConfig = {
            "configurable": {"thread_id": self.run.session_id},
            "metadata": {"run_id": self.run.run_id, "task_id": self.task.task_id},
            "recursion_limit": steps or self._settings.max_steps,
            "run_name": manifest.name or self.run.agent_name,
        }
        begin = await self._begin(bound, config, saver)
        if isinstance(begin, commit_pb2.RunAwaiting):
            return begin
        output = await self._stream(bound, begin.input, config)
        if saver.asks:
            # Every question that is open now was asked in this invocation: LangGraph runs unfinished tasks again.
            state = await bound.aget_state(config)
            return commit_pb2.RunAwaiting(tickets=[interrupts.to_draft(one) for one in state.interrupts])
        result = inputs.result_payload(output)
        return commit_pb2.RunEnded(cause=run_pb2.RUN_END_CAUSE_SUCCEEDED, result=result)

    async def _begin(self, graph: Pregel, config: RunnableConfig, saver: RunSaver) -> _Begin | commit_pb2.RunAwaiting:
        """What the graph is invoked with, or the tickets of questions that nobody was asked yet."""
        recorded = self.run.HasField("last_checkpoint_id")
        if recorded or self.acquired.answered_tickets:
            state = await graph.aget_state(config)
            found = interrupts.resumption(state.interrupts, self.acquired.answered_tickets)
            if found.unasked and (recorded or found.answers):
                return commit_pb2.RunAwaiting(tickets=[interrupts.to_draft(one) for one in found.unasked])
            if found.answers:
                return _Begin(Command(resume=dict(found.answers)))
        if recorded:
            # Its checkpoints hold the input already: go on where they end.
            return _Begin(None)
        # Nothing of this run is recorded: it gets its input, whatever the session holds from earlier tasks.
        return _Begin(inputs.graph_input(self.task, saver.serde))

    async def _stream(self, graph: Pregel, given: Any, config: RunnableConfig) -> Any:
        """Runs the graph to its end; gives the output, as `ainvoke` would."""
        output: Any = None
        stream = cast(Any, graph).astream(
            given,
            config,
            context=self._context(),
            stream_mode=["values", "messages", "custom"] if self._live is not None else ["values"],
            subgraphs=True,
            durability=self._settings.durability,
            control=self._control,
        )
        async with contextlib.aclosing(stream) as chunks:
            async for namespace, mode, chunk in chunks:
                if mode == "values":
                    if not namespace:
                        output = chunk
                elif self._live is not None and mode == "messages":
                    self._live.token(chunk[0])
                elif self._live is not None:
                    self._live.custom(chunk)
        return output

    def _artifacts(self) -> RunArtifacts:
        run, lease = self.run, self.acquired.lease
        # So that the run reads what only its lease holder, or readers of its session, may read.
        sync = self._sync.as_reader(session_id=run.session_id, run_id=run.run_id, epoch=lease.epoch)
        client = self._client.as_reader(session_id=run.session_id, run_id=run.run_id, epoch=lease.epoch)
        return RunArtifacts(sync, client, run.session_id, run.task_id, run.run_id, lease)

    def _context(self) -> RunContext:
        run = self.run
        return RunContext(
            scope=_frozen(self.acquired.scope.values),
            session_id=run.session_id,
            task_id=run.task_id,
            run_id=run.run_id,
            epoch=self.acquired.lease.epoch,
            agent_name=run.agent_name,
            manifest_digest=self.task.manifest_digest,
            artifacts=self._artifacts(),
        )


@dataclass(frozen=True, slots=True)
class _Begin:
    input: Any


def _has_result(task: asyncio.Task[Any]) -> bool:
    return task.done() and not task.cancelled() and task.exception() is None


def _frozen(values: Mapping[str, str]) -> Mapping[str, str]:
    from types import MappingProxyType

    return MappingProxyType(dict(values))
