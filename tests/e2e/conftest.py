"""A scope with agents, a client of it, and workers for it, in this process or in processes of their own."""

import asyncio
import json
import os
import sys
import uuid
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest

from tests.support.processes import Process, Processes
from tests.support.suite import Suite
from tests.support.worker_graphs import GRAPHS, Folder
from threadkeep import AsyncClient
from threadkeep.config.v1 import entity_pb2
from threadkeep.runtime.v1 import task_pb2
from threadkeep.worker import ExecutionSettings, Worker

ROOT = Path(__file__).resolve().parents[2]
_SOURCES = os.pathsep.join([str(ROOT), *filter(None, [os.environ.get("PYTHONPATH")])])


class Site:
    """Where a test of workers happens."""

    def __init__(self, suite: Suite, folder: Folder, processes: Processes) -> None:
        self.suite, self.folder, self._processes = suite, folder, processes
        self.scope = {"test": uuid.uuid4().hex}
        self.client = AsyncClient(suite.addresses, scope=self.scope)
        self._workers: list[tuple[Worker, asyncio.Task[None]]] = []

    async def agent(self, name: str, **fields: Any) -> None:
        """Defines an agent; one of GRAPHS needs no more than its name."""
        await self.client.config.put(name, entity_pb2.Agent(**fields))

    def worker(self, **arguments: Any) -> Worker:
        """A worker in this process, at work."""
        settings = arguments.pop("settings", ExecutionSettings(heartbeat_interval=0.05, stop_grace=2.0))
        arguments = {"graphs": GRAPHS, "poll_wait": 2.0, "tool_modules": ["tests.support.worker_graphs"], **arguments}
        worker = Worker(self.client.with_grant([self.scope]), settings=settings, **arguments)
        self._workers.append((worker, asyncio.create_task(worker.run())))
        return worker

    async def stop(self, worker: Worker) -> None:
        """Stops a worker in order."""
        worker.stop()
        await asyncio.wait_for(next(task for one, task in self._workers if one is worker), 60)

    async def worker_process(self, *arguments: str, **environment: str) -> Process:
        """A worker as a process of its own, once it takes runs."""
        targets = self.suite.addresses
        process = await self._processes.start(
            sys.executable, "-m", "threadkeep.worker", "--target", targets["config"],
            "--runtime", targets["runtime"], "--artifacts", targets["artifacts"],
            "--scope", json.dumps(self.scope), "--poll-wait", "2", "--tool-module", "tests.support.worker_graphs",
            *[part for name in GRAPHS for part in ("--graph", f"{name}=tests.support.worker_graphs:{name}")],
            *arguments,
            env={"FOLDER": str(self.folder.path), "PYTHONPATH": _SOURCES, **environment},
        )  # fmt: skip
        await process.printed("takes runs")
        return process

    async def submit(self, agent: str, value: Any = None, **fields: Any) -> task_pb2.Task:
        """Submits a task."""
        given = {"log": []} if value is None else value
        return (await self.client.tasks.submit(given, agent_name=agent, **fields)).task

    async def ended(self, task: task_pb2.Task) -> task_pb2.Task:
        """The task, once it is final or waits."""
        return await self.client.tasks.wait(task.task_id, timeout=60)

    async def completed(self, task: task_pb2.Task) -> Any:
        """The result of a task that ended well."""
        ended = await self.ended(task)
        assert ended.state == task_pb2.TASK_STATE_COMPLETED, str(ended.failure)
        return json.loads(ended.result.data)

    async def asked(self, task: task_pb2.Task) -> list[Any]:
        """The open tickets of a task that waits."""
        ended = await self.ended(task)
        assert ended.state == task_pb2.TASK_STATE_INPUT_REQUIRED, ended
        return [await self.client.tickets.get(one) for one in ended.open_ticket_ids]

    async def event_types(self, task: task_pb2.Task) -> list[str]:
        """The types of the session's events, without the prefix `threadkeep.`."""
        events = self.client.events.list(session_id=task.session_id)
        return [one.type.removeprefix("threadkeep.") async for one in events]

    async def close(self) -> None:
        """Ends workers and connections."""
        for worker, _ in self._workers:
            worker.stop()
        for _, task in self._workers:
            await asyncio.wait_for(task, 60)
        await self.client.close()


@pytest.fixture
async def site(
    shared_suite: Suite, processes: Processes, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> AsyncIterator[Site]:
    """A scope on a running suite."""
    monkeypatch.setenv("FOLDER", str(tmp_path))
    made = Site(shared_suite, Folder(tmp_path), processes)
    for name in GRAPHS:
        await made.agent(name)
    yield made
    await made.close()
