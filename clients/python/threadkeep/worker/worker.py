"""The worker: takes runs from a queue and works on them until it is told to stop."""

from __future__ import annotations

import asyncio
import contextlib
import logging
import os
import socket
import time
from collections.abc import Mapping, Sequence
from typing import Any

from threadkeep._rpc.context import Grant
from threadkeep._rpc.method import new_request_id
from threadkeep.client import AsyncClient
from threadkeep.errors import InvalidArgument, PermissionDenied, ThreadkeepError, Unauthenticated, Unimplemented
from threadkeep.langgraph.io_loop import IoLoop
from threadkeep.runtime.v1 import worker_service_pb2
from threadkeep.worker.agents import Agents, GraphFactory
from threadkeep.worker.execution import Execution, ExecutionSettings, Stop
from threadkeep.worker.middleware import MiddlewareFactory
from threadkeep.worker.policy import Policy
from threadkeep.worker.sandbox import SandboxFactory
from threadkeep.worker.secrets import Secrets

log = logging.getLogger("threadkeep.worker")

LAST_REPLY_SECONDS = 0.5
"""How long a stopping worker asks once more for the lease that a poll it broke off may have given it."""


_MISTAKES = (InvalidArgument, PermissionDenied, Unauthenticated, Unimplemented)


class Worker:
    """Leases runs that the client's scope or grant covers, and works on up to `max_runs` of them at once.

        worker = Worker(AsyncClient(target, grant="all"), tool_modules=["myapp.tools"])
        await worker.run()          # until stop(), or SIGTERM with run_until_signal()

    `graphs` names factories by agent; other agents are built from their manifests. What definitions may make the worker
    do is listed here, and nothing else: `tool_modules` are the Python modules that tools may come from,
    `allowed_secrets` the secret references that are resolved (None: all); for the others see `Policy`.
    """

    def __init__(
        self,
        client: AsyncClient,
        *,
        graphs: Mapping[str, GraphFactory] | None = None,
        tool_modules: Sequence[str] = (),
        allowed_secrets: Sequence[str] | None = None,
        middleware: Mapping[str, MiddlewareFactory] | None = None,
        middleware_modules: Sequence[str] = (),
        http_origins: Sequence[str] = (),
        provider_origins: Sequence[str] = (),
        mcp_commands: Sequence[str] = (),
        variables: Sequence[str] = (),
        sandboxes: Mapping[str, SandboxFactory] | None = None,
        queues: Sequence[str] = (),
        agent_names: Sequence[str] = (),
        worker_id: str | None = None,
        max_runs: int = 10,
        lease_ttl: float | None = None,
        poll_wait: float = 20.0,
        drain_timeout: float = 30.0,
        settings: ExecutionSettings | None = None,
    ) -> None:
        """Times are in seconds. `lease_ttl` None leaves it to the server; `drain_timeout` bounds how long supersteps
        may take to end when the worker stops."""
        if max_runs < 1:
            raise ValueError("a worker works on at least one run")
        self.worker_id = worker_id or f"{socket.gethostname()}:{os.getpid()}:{os.urandom(3).hex()}"
        self._client = client
        policy = Policy(
            tool_modules=tuple(tool_modules),
            middleware=dict(middleware or {}),
            middleware_modules=tuple(middleware_modules),
            http_origins=tuple(http_origins),
            provider_origins=tuple(provider_origins),
            mcp_commands=tuple(mcp_commands),
            variables=tuple(variables),
            sandboxes=dict(sandboxes or {}),
            secrets=Secrets(allowed_secrets),
        )
        self._agents = Agents(graphs or {}, policy)
        self._queues, self._agent_names, self._lease_ttl = tuple(queues), tuple(agent_names), lease_ttl
        self._max_runs, self._poll_wait, self._drain_timeout = max_runs, poll_wait, drain_timeout
        self._settings = settings or ExecutionSettings()
        self._running: dict[asyncio.Task[None], Execution] = {}
        self._stopping = asyncio.Event()

    def stop(self) -> None:
        """Ends `run`: no more runs are taken, and those at work are given back after their superstep."""
        self._stopping.set()

    async def run_until_signal(self) -> None:
        """Runs until SIGTERM or SIGINT."""
        import signal

        loop = asyncio.get_running_loop()
        for number in (signal.SIGTERM, signal.SIGINT):
            loop.add_signal_handler(number, self.stop)
        try:
            await self.run()
        finally:
            for number in (signal.SIGTERM, signal.SIGINT):
                loop.remove_signal_handler(number)

    async def run(self) -> None:
        """Takes runs and works on them until `stop`; then drains. Raises what the server refuses about the asking:
        Unauthenticated, PermissionDenied, InvalidArgument."""
        io = IoLoop()
        sync_client = self._client.to_sync()
        stopping = asyncio.create_task(self._stopping.wait())
        try:
            while not stopping.done():
                if len(self._running) >= self._max_runs:
                    await asyncio.wait({stopping, *self._running}, return_when=asyncio.FIRST_COMPLETED)
                    continue
                asked_at = time.monotonic()
                acquired = await self._acquire(stopping)
                if acquired is not None:
                    self._begin(acquired, asked_at, io, sync_client)
            await self._drain()
        finally:
            stopping.cancel()
            for task in [*self._running]:
                task.cancel()
            if self._running:
                await asyncio.wait([*self._running], timeout=self._settings.stop_grace)
            await self._agents.close()
            await asyncio.wrap_future(io.run(self._client.leave_loop()))
            await asyncio.to_thread(io.close)
            sync_client.close()

    async def _acquire(self, stopping: asyncio.Task[Any]) -> worker_service_pb2.AcquiredRun | None:
        """One poll; None when there is no run, or when the worker stops."""
        request_id = new_request_id()
        polling = asyncio.create_task(self._poll(request_id))
        await asyncio.wait({polling, stopping}, return_when=asyncio.FIRST_COMPLETED)
        if not polling.done():
            polling.cancel()
            await asyncio.wait({polling})
            await self._release_unseen(request_id)
            return None
        try:
            return polling.result()
        except _MISTAKES:
            # Asking again gets the same answer: the worker's own settings are wrong.
            raise
        except ThreadkeepError as error:
            log.warning("no run could be asked for: %s", error)
            await asyncio.wait({stopping}, timeout=1.0)
            return None

    async def _poll(self, request_id: str) -> worker_service_pb2.AcquiredRun | None:
        answer = await self._client.worker.acquire(
            self.worker_id,
            queues=self._queues,
            agent_names=self._agent_names,
            wait=self._poll_wait,
            lease_ttl=self._lease_ttl,
            request_id=request_id,
        )
        return answer.acquired if answer.HasField("acquired") else None

    async def _release_unseen(self, request_id: str) -> None:
        """Gives back the lease that a poll may have got whose answer nobody waited for: its replay says."""
        with contextlib.suppress(ThreadkeepError, TimeoutError):
            acquired = await asyncio.wait_for(self._poll(request_id), LAST_REPLY_SECONDS)
            if acquired is not None:
                await self._scoped(acquired).worker.release(acquired.lease)

    def _begin(self, acquired: worker_service_pb2.AcquiredRun, asked_at: float, io: IoLoop, sync_client: Any) -> None:
        client = self._scoped(acquired)
        execution = Execution(
            acquired,
            client=client,
            sync_client=sync_client.with_scope(client.scope, _grant(acquired)),
            agents=self._agents,
            io=io,
            settings=self._settings,
            asked_for=time.monotonic() - asked_at,
        )
        task = asyncio.create_task(execution.work(), name=f"execution of {acquired.run.run_id}")
        self._running[task] = execution
        task.add_done_callback(self._ended)

    def _ended(self, task: asyncio.Task[None]) -> None:
        execution = self._running.pop(task)
        if not task.cancelled() and task.exception() is not None:
            log.error("run %s broke the worker's own code", execution.run.run_id, exc_info=task.exception())

    async def _drain(self) -> None:
        for execution in self._running.values():
            execution.drain()
        if self._running:
            await asyncio.wait([*self._running], timeout=self._drain_timeout)
        for execution in self._running.values():
            execution.stop(Stop.DRAIN)
        if self._running:
            await asyncio.wait([*self._running], timeout=self._settings.stop_grace + LAST_REPLY_SECONDS)

    def _scoped(self, acquired: worker_service_pb2.AcquiredRun) -> AsyncClient:
        return self._client.with_scope(dict(acquired.scope.values), _grant(acquired))


def _grant(acquired: worker_service_pb2.AcquiredRun) -> Grant:
    """A lease grants its run's scope alone. The empty scope needs the operator's grant by name."""
    values = dict(acquired.scope.values)
    return [values] if values else "all"
