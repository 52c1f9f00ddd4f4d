"""One FIFO for everything that a run writes: checkpoints, writes of every namespace, at last what becomes of the run.

Operations that are queued while a commit is under way, or within the same breath, travel in one ThreadCommit. The queue
lives on the worker's I/O loop; its methods may be called from any thread.
"""

from __future__ import annotations

import asyncio
import contextlib
import threading
from collections.abc import Sequence
from concurrent.futures import Future
from dataclasses import dataclass, field
from typing import Any

from threadkeep._api.values import given
from threadkeep.client import AsyncClient
from threadkeep.errors import LeaseLost
from threadkeep.langgraph import large
from threadkeep.langgraph.io_loop import IoLoop
from threadkeep.runtime.v1 import checkpoint_pb2, commit_pb2, event_pb2, thread_service_pb2

MAX_OPS = 500
MAX_BYTES = 2 * 1024 * 1024
"""A commit takes operations up to these; a larger operation travels alone."""

TURNS_AFTER_COMMIT = 6
"""Turns of the graph's event loop between a commit and the next checkpoint, for which LangGraph lets it wait."""

BLOCKED_LOOP_PAUSE = 0.05
"""Seconds after which the turns of a loop that does not turn are not waited for."""

SYNC_PAUSE = 0.002
"""Seconds that a synchronous write waits for its superstep's checkpoint."""

Disposition = commit_pb2.RunRunning | commit_pb2.RunAwaiting | commit_pb2.RunEnded
Committed = Future[thread_service_pb2.CommitResponse]


class QueueClosed(LeaseLost):
    """The run's disposition is committed, or it was given up: nothing more is written for it."""


@dataclass
class _Entry:
    """One operation, or the disposition that ends the queue."""

    op: checkpoint_pb2.CheckpointOp | None
    disposition: Disposition | None = None
    events: Sequence[event_pb2.EventDraft] = ()
    done: Committed = field(default_factory=Future)

    @property
    def size(self) -> int:
        return 0 if self.op is None else self.op.ByteSize()


class CommitQueue:
    """The write side of one leased run. The first failed commit fails every later call."""

    def __init__(self, client: AsyncClient, session_id: str, lease: commit_pb2.Lease, io: IoLoop) -> None:
        self._client, self._io = client, io
        self.session_id, self.lease = session_id, lease
        self._lock = threading.Lock()
        self._entries: list[_Entry] = []
        self._held: list[checkpoint_pb2.CheckpointOp] = []
        self._failure: BaseException | None = None
        self._last: Committed | None = None
        self._sender: asyncio.Task[None] | None = None
        self._ready = False
        self._graphs_loop: asyncio.AbstractEventLoop | None = None
        self._closed = False
        self._message_limit: int | None = None
        self.commit_count = 0

    @property
    def failure(self) -> BaseException | None:
        """What the first failed commit raised."""
        return self._failure

    def add(self, op: checkpoint_pb2.CheckpointOp) -> Committed:
        """Queues an operation; the future is done when it is committed. Call `kick` to send."""
        with self._lock:
            self._check()
            if op.HasField("put"):
                # The writes of the superstep that this checkpoint closes.
                held, self._held = self._held, []
                for one in held:
                    if one.writes.checkpoint_ns == op.put.checkpoint_ns:
                        self._entries.append(_Entry(one))
                    else:
                        self._held.append(one)
            return self._append(_Entry(op))

    def hold(self, op: checkpoint_pb2.CheckpointOp) -> None:
        """Keeps control writes (questions, consumed answers) until their superstep's checkpoint or the disposition: a
        question is committed together with its ticket."""
        with self._lock:
            self._check()
            self._held.append(op)

    def held(self) -> list[checkpoint_pb2.CheckpointWrites]:
        """The control writes that are kept."""
        with self._lock:
            return [one.writes for one in self._held]

    def finish(
        self, disposition: Disposition, events: Sequence[event_pb2.EventDraft] = (), *, anew: bool = False
    ) -> Committed:
        """Commits what is queued and kept together with what becomes of the run, and ends the queue.

        `anew` is for a run of which the server refused something: only the disposition is committed then.
        """
        with self._lock:
            if anew and not isinstance(self._failure, LeaseLost):
                self._failure, self._closed = None, False
                self._entries, self._held = [], []
            self._check()
            self._closed = True
            self._entries += [_Entry(one) for one in self._held]
            self._held = []
            done = self._append(_Entry(None, disposition, events))
        self.kick()
        return done

    def flush(self) -> Committed | None:
        """The future of the last queued operation, which is sent now; None when nothing is under way."""
        with self._lock:
            if self._failure is not None:
                raise self._failure
            last = self._last
        if last is None or last.done():
            return None
        self.kick()
        return last

    def fail(self, error: BaseException) -> None:
        """Fails what is queued and every later call: the run can't go on here."""
        with self._lock:
            entries = self._fail(error)
        for entry in entries:
            _settle(entry.done, error=error)

    def give_up(self, reason: BaseException) -> None:
        """Fails what is queued and every later call: the lease is lost."""
        with self._lock:
            self._closed = True
            entries = self._fail(reason)
        self._io.call_soon(self._stop_sending)
        for entry in entries:
            _settle(entry.done, error=reason)

    def close(self) -> None:
        """Ends the queue without a disposition; what is kept is dropped. For a lease that is given back."""
        with self._lock:
            self._closed, self._held = True, []

    def kick(self) -> None:
        """Sends what is queued."""
        self._io.call_soon(self._start_sending)

    def kick_after_turns(self, turns: int, last: Committed) -> None:
        """Sends what is queued, up to `last`, after some turns of the running event loop: the writes of a superstep and
        its checkpoint come within the same breath. A loop that is blocked delays nothing for long."""
        self._graphs_loop = asyncio.get_running_loop()
        self._turn(self._graphs_loop, turns)
        self._io.call_later(BLOCKED_LOOP_PAUSE, self._nudge, last)

    def _turn(self, loop: asyncio.AbstractEventLoop, left: int) -> None:
        if left:
            loop.call_soon(self._turn, loop, left - 1)
        else:
            self.kick()

    def kick_soon(self) -> None:
        """The same where there is no event loop: after about two milliseconds."""
        self._io.call_later(SYNC_PAUSE, self._start_sending)

    # --- on the I/O loop

    def _start_sending(self) -> None:
        # What is queued is ready; what is queued later waits for its own kick, also while a commit is under way.
        with self._lock:
            self._ready = True
        if self._sender is None or self._sender.done():
            self._sender = asyncio.ensure_future(self._send_all())

    def _nudge(self, last: Committed) -> None:
        with self._lock:
            waits = any(entry.done is last for entry in self._entries)
        if waits:
            self._start_sending()

    def _stop_sending(self) -> None:
        if self._sender is not None:
            self._sender.cancel()

    async def _send_all(self) -> None:
        while batch := self._next_batch():
            try:
                await self._stage(batch)
                response = await self._client.threads.commit(self._commit(batch))
            except BaseException as error:
                # Cancelled: the queue was given up, and `_failure` says why.
                with self._lock:
                    failed = batch + self._fail(error)
                for entry in failed:
                    _settle(entry.done, error=self._failure)
                if isinstance(error, Exception):
                    return
                raise
            self.commit_count += 1
            for entry in batch:
                _settle(entry.done, response)
            self._let_the_graph_go_on()

    async def _stage(self, batch: Sequence[_Entry]) -> None:
        """Stages the values that keep the batch from fitting into one message."""
        if sum(entry.size for entry in batch) <= large.ALWAYS_FITS:
            return
        if self._message_limit is None:
            self._message_limit = large.message_limit(await self._client.info.get())
        operations = [e.op.put if e.op.HasField("put") else e.op.writes for e in batch if e.op is not None]
        for call in large.stage(operations, self._message_limit):
            await self._client.checkpoints._run(call)

    def _let_the_graph_go_on(self) -> None:
        """A commit just happened for which a checkpoint may wait: it belongs to the writes that are queued already."""
        loop = self._graphs_loop
        with self._lock:
            only_writes = all(one.op is not None and one.op.HasField("writes") for one in self._entries)
            if not self._entries or not self._ready or not only_writes or loop is None or loop.is_closed():
                return
            self._ready, last = False, self._entries[-1].done
        asyncio.get_running_loop().call_later(BLOCKED_LOOP_PAUSE, self._nudge, last)
        with contextlib.suppress(RuntimeError):  # closed just now
            loop.call_soon_threadsafe(self._turn, loop, TURNS_AFTER_COMMIT)

    def _next_batch(self) -> list[_Entry]:
        with self._lock:
            batch: list[_Entry] = []
            if not self._ready:
                return batch
            size = 0
            for entry in self._entries:
                size += entry.size
                if batch and (size > MAX_BYTES or len(batch) >= MAX_OPS):
                    break
                batch.append(entry)
            del self._entries[: len(batch)]
            self._ready = bool(self._entries)
            return batch

    def _commit(self, batch: Sequence[_Entry]) -> commit_pb2.ThreadCommit:
        commit = commit_pb2.ThreadCommit(
            session_id=self.session_id, lease=self.lease, checkpoint_ops=[e.op for e in batch if e.op is not None]
        )
        last = batch[-1]
        if last.disposition is not None:
            commit.MergeFrom(commit_pb2.ThreadCommit(events=last.events, **_disposition(last.disposition)))
        return commit

    # --- under the lock

    def _append(self, entry: _Entry) -> Committed:
        self._entries.append(entry)
        self._last = entry.done
        return entry.done

    def _check(self) -> None:
        if self._failure is not None:
            raise self._failure
        if self._closed:
            raise QueueClosed("the run is over for this worker")

    def _fail(self, error: BaseException) -> list[_Entry]:
        if self._failure is None:
            self._failure = error
        entries, self._entries, self._held = self._entries, [], []
        return entries


async def committed(future: Committed) -> thread_service_pb2.CommitResponse:
    """Awaits a commit. Cancelling the wait cancels nothing that is queued."""
    loop = asyncio.get_running_loop()
    woken = loop.create_future()

    def set_woken() -> None:
        if not woken.done():
            woken.set_result(None)

    def wake(_: Committed) -> None:
        with contextlib.suppress(RuntimeError):  # the waiting loop was closed
            loop.call_soon_threadsafe(set_woken)

    future.add_done_callback(wake)
    await woken
    return future.result()


def _disposition(value: Disposition) -> dict[str, Any]:
    return given(
        running=value if isinstance(value, commit_pb2.RunRunning) else None,
        awaiting=value if isinstance(value, commit_pb2.RunAwaiting) else None,
        ended=value if isinstance(value, commit_pb2.RunEnded) else None,
    )


def _settle(
    done: Committed, response: thread_service_pb2.CommitResponse | None = None, error: BaseException | None = None
) -> None:
    if error is not None:
        done.set_exception(error)
    elif response is not None:
        done.set_result(response)
