"""How a worker asks for runs and keeps their leases, against a server that answers as a test says."""

import asyncio
import threading
import time
from typing import Any

import pytest
from google.protobuf import duration_pb2

from tests.support.far_end import FarEnd, Refusal
from tests.support.waiting import eventually
from threadkeep import AsyncClient
from threadkeep.errors import LeaseLost, ScopeForbidden
from threadkeep.langgraph.io_loop import IoLoop
from threadkeep.runtime.v1 import commit_pb2, worker_service_pb2
from threadkeep.worker import Worker
from threadkeep.worker.lease import LeaseKeeper


async def test_a_worker_that_may_not_ask_says_so_at_once(far_end: FarEnd, async_client: AsyncClient) -> None:
    def refuse(_: list[Any]) -> Any:
        raise Refusal("PERMISSION_DENIED", "SCOPE_FORBIDDEN")

    far_end.answer("AcquireRun", worker_service_pb2.AcquireRunRequest, refuse)
    with pytest.raises(ScopeForbidden):
        await Worker(async_client).run()


async def test_a_worker_that_stops_while_it_polls_gives_back_what_the_poll_got(
    far_end: FarEnd, async_client: AsyncClient
) -> None:
    answers = threading.Event()

    def acquire(_: list[Any]) -> Any:
        if len(far_end.requests("AcquireRun")) == 1:
            # The lease is taken, but its answer comes too late.
            answers.wait(30)
        acquired = worker_service_pb2.AcquiredRun(lease=commit_pb2.Lease(run_id="r", epoch=1))
        acquired.scope.values["tenant"] = "a"
        return worker_service_pb2.AcquireRunResponse(acquired=acquired)

    far_end.answer("AcquireRun", worker_service_pb2.AcquireRunRequest, acquire)
    far_end.answer(
        "ReleaseRun", worker_service_pb2.ReleaseRunRequest, lambda _: worker_service_pb2.ReleaseRunResponse()
    )
    worker = Worker(async_client)
    running = asyncio.create_task(worker.run())
    await eventually(lambda: far_end.requests("AcquireRun"))
    worker.stop()
    await asyncio.wait_for(running, 30)
    answers.set()
    first, replay = far_end.requests("AcquireRun")
    assert first == replay
    (released,) = far_end.requests("ReleaseRun")
    assert (released.lease.run_id, released.lease.epoch) == ("r", 1)


# --- the lease's keeper


class _Kept:
    """A keeper at work, and what it told."""

    def __init__(
        self,
        client: AsyncClient,
        ttl: float,
        interval: float | None = None,
        renew_first: bool = False,
        time_left: float | None = None,
    ) -> None:
        self.cancels: list[str] = []
        self.lost: list[BaseException] = []
        self.lost_at = 0.0
        self.gone = threading.Event()
        self.io = IoLoop()
        keeper = LeaseKeeper(
            client,
            commit_pb2.Lease(run_id="r", epoch=1),
            ttl,
            renew_first=renew_first,
            on_cancel=self.cancels.append,
            on_lost=self._lost,
            interval=interval,
            time_left=time_left,
        )
        self.began = time.monotonic()
        self.task = self.io.run(keeper.keep())

    def _lost(self, error: BaseException) -> None:
        self.lost_at = time.monotonic()
        self.lost.append(error)
        self.gone.set()

    async def close(self) -> None:
        self.task.cancel()
        await asyncio.to_thread(self.io.close)


@pytest.mark.rule("R8", "R9")
async def test_heartbeats_renew_and_bring_the_wish_to_cancel_once(far_end: FarEnd, async_client: AsyncClient) -> None:
    def answer(_: list[Any]) -> Any:
        cancel = len(far_end.calls) >= 3
        return worker_service_pb2.HeartbeatResponse(cancel_requested=cancel, cancel_reason="enough" if cancel else "")

    far_end.answer("Heartbeat", worker_service_pb2.HeartbeatRequest, answer)
    kept = _Kept(async_client, ttl=60, interval=0.02)
    await eventually(lambda: len(far_end.calls) >= 6)
    await kept.close()
    assert kept.cancels == ["enough"]
    assert kept.lost == []


@pytest.mark.rule("R8")
@pytest.mark.case("B60")
async def test_a_heartbeat_that_hangs_stops_the_work_before_the_lease_expires(
    far_end: FarEnd, async_client: AsyncClient
) -> None:
    released = threading.Event()

    def hang(_: list[Any]) -> Any:
        released.wait(30)
        return worker_service_pb2.HeartbeatResponse()

    far_end.answer("Heartbeat", worker_service_pb2.HeartbeatRequest, hang)
    kept = _Kept(async_client, ttl=2.0, interval=0.05)
    await eventually(kept.gone.is_set)
    released.set()
    await kept.close()
    assert kept.lost_at - kept.began < 2.0
    assert isinstance(kept.lost[0], LeaseLost)


@pytest.mark.rule("R8")
async def test_an_outage_shorter_than_the_lease_costs_nothing(far_end: FarEnd, async_client: AsyncClient) -> None:
    def flaky(_: list[Any]) -> Any:
        if len(far_end.calls) < 4:
            raise Refusal("UNAVAILABLE", "DATABASE_UNAVAILABLE")
        return worker_service_pb2.HeartbeatResponse()

    far_end.answer("Heartbeat", worker_service_pb2.HeartbeatRequest, flaky)
    kept = _Kept(async_client, ttl=30, interval=0.02, renew_first=True)
    await eventually(lambda: len(far_end.calls) >= 7)
    await kept.close()
    assert kept.lost == []


@pytest.mark.rule("R3", "R8")
async def test_a_lost_lease_is_told_at_once(far_end: FarEnd, async_client: AsyncClient) -> None:
    def lost(_: list[Any]) -> Any:
        raise Refusal("ABORTED", "LEASE_LOST")

    far_end.answer("Heartbeat", worker_service_pb2.HeartbeatRequest, lost)
    kept = _Kept(async_client, ttl=30, renew_first=True)
    await eventually(kept.gone.is_set)
    await kept.close()
    assert len(far_end.calls) == 1


@pytest.mark.rule("R24", "R8")
async def test_a_worker_stops_when_the_attempts_time_is_over(far_end: FarEnd, async_client: AsyncClient) -> None:
    over = [time.monotonic() + 3600]

    def answer(_: list[Any]) -> Any:
        left = duration_pb2.Duration()
        left.FromMicroseconds(max(0, round((over[0] - time.monotonic()) * 1e6)))
        return worker_service_pb2.HeartbeatResponse(time_left=left)

    far_end.answer("Heartbeat", worker_service_pb2.HeartbeatRequest, answer)
    # What the first answer said was measured from before a long poll; the heartbeat knows better.
    kept = _Kept(async_client, ttl=60, interval=0.02, renew_first=True, time_left=5.0)
    await eventually(lambda: len(far_end.calls) >= 3)
    assert kept.lost == []
    over[0] = time.monotonic() + 0.2
    await eventually(kept.gone.is_set)
    await kept.close()
    assert "time is over" in str(kept.lost[0])
