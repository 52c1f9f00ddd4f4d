"""Keeps a lease: renews it in time, brings back the wish to cancel, tells in time when it is over (R8, R9, R24).

It lives on the worker's I/O loop, so that user code that blocks the worker's own loop costs no lease. Time is counted
from before each call, on this machine's monotonic clock, so that clocks need not agree.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable

from threadkeep.client import AsyncClient
from threadkeep.errors import LeaseLost, NotFound, ThreadkeepError
from threadkeep.runtime.v1 import commit_pb2

LARGEST_INTERVAL = 5.0
"""Seconds between heartbeats at most: a cancellation is seen within that."""


class LeaseKeeper:
    """Renews one lease until it is stopped. Calls back at most once each, on the I/O loop."""

    def __init__(
        self,
        client: AsyncClient,
        lease: commit_pb2.Lease,
        ttl: float,
        *,
        renew_first: bool,
        on_cancel: Callable[[str], None],
        on_lost: Callable[[BaseException], None],
        interval: float | None = None,
        time_left: float | None = None,
    ) -> None:
        """`ttl` is in seconds. `renew_first`: the lease may be old already (the poll that gave it took long).
        `time_left`: how many seconds the lease may last from now on, however often it is renewed."""
        self._client, self._lease, self._ttl = client, lease, ttl
        self._renew_first = renew_first
        self._expires = time.monotonic() + ttl
        self._on_cancel, self._on_lost = on_cancel, on_lost
        self._interval = min(ttl / 3, LARGEST_INTERVAL) if interval is None else interval
        # Work stops this long before the server may give the run to another worker.
        self._margin = min(1.0, ttl / 10)
        self._cancel_seen = False
        self._over = float("inf") if time_left is None else time.monotonic() + time_left

    async def keep(self) -> None:
        """Renews until it is cancelled or the lease is lost."""
        pause = 0.0 if self._renew_first else self._interval
        while True:
            await asyncio.sleep(max(0.0, min(pause, self._left())))
            if self._left() <= 0:
                is_over = time.monotonic() >= self._over
                self._on_lost(LeaseLost("the attempt's time is over" if is_over else "it could not be renewed in time"))
                return
            pause = self._interval
            asked_at = time.monotonic()
            try:
                client = self._client.with_options(timeout=self._left(), retry=False)
                answer = await client.worker.heartbeat(self._lease)
            except (LeaseLost, NotFound) as error:
                self._on_lost(error)
                return
            except ThreadkeepError:
                # Out of reach; try often, while there is time.
                pause = min(self._interval, self._ttl / 20)
                continue
            self._expires = asked_at + self._ttl
            if answer.HasField("time_left"):
                self._over = asked_at + answer.time_left.ToTimedelta().total_seconds()
            if answer.cancel_requested and not self._cancel_seen:
                self._cancel_seen = True
                self._on_cancel(answer.cancel_reason)

    def _left(self) -> float:
        """Seconds until work must stop."""
        return min(self._expires - self._margin, self._over) - time.monotonic()
