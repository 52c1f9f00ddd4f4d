"""Shows what a run does while it does it: token deltas and what nodes write to the stream. Best effort (R15).

Nothing waits for it. What does not fit is dropped, and shows as a gap in the observations' indexes.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections import deque
from collections.abc import AsyncIterator
from typing import Any

from langchain_core.messages import AIMessage

from threadkeep._api.values import json_payload
from threadkeep.client import AsyncClient
from threadkeep.errors import ThreadkeepError
from threadkeep.runtime.v1 import commit_pb2, event_pb2

MAX_WAITING = 2000
"""Observations that wait to be sent; beyond, the oldest are dropped."""
_BATCH = 200
_PAUSE = 0.02


class LivePublisher:
    """Sends the observations of one lease on the running loop."""

    def __init__(self, client: AsyncClient, lease: commit_pb2.Lease) -> None:
        self._client, self._lease = client, lease
        self._waiting: deque[event_pb2.LiveObservation] = deque(maxlen=MAX_WAITING)
        self._index = 0
        self._some = asyncio.Event()
        self._closing = False
        self._task: asyncio.Task[None] | None = None

    def token(self, message: Any) -> None:
        """Shows a piece of a message as the model produces it."""
        if isinstance(message, AIMessage):
            fields = message.model_dump(mode="json", exclude_defaults=True)
            fields.update(type=message.type, content=message.content)
            self._show(event_pb2.LIVE_KIND_TOKEN, fields, message.id)

    def custom(self, value: Any) -> None:
        """Shows what a node wrote to LangGraph's stream writer."""
        self._show(event_pb2.LIVE_KIND_CUSTOM, value, None)

    async def close(self) -> None:
        """Sends what waits, for a short while, and ends."""
        self._closing = True
        self._some.set()
        if self._task is not None:
            with contextlib.suppress(TimeoutError, ThreadkeepError):
                await asyncio.wait_for(self._task, 2.0)

    def cancel(self) -> None:
        """Ends at once."""
        if self._task is not None:
            self._task.cancel()

    def _show(self, kind: event_pb2.LiveKind.ValueType, value: Any, message_id: str | None) -> None:
        if self._closing:
            return
        try:
            payload = json_payload(value)
        except (TypeError, ValueError):
            return
        self._index += 1
        observation = event_pb2.LiveObservation(kind=kind, index=self._index, payload=payload)
        if message_id:
            observation.message_id = message_id
        self._waiting.append(observation)
        self._some.set()
        if self._task is None:
            self._task = asyncio.create_task(self._send())

    async def _send(self) -> None:
        while True:
            try:
                await self._client.worker.publish_live(self._lease, self._batches())
                return
            except ThreadkeepError as error:
                if self._closing or error.reason:
                    # The lease is lost, or the server refuses: nothing that is shown matters any more.
                    self._closing = True
                    self._waiting.clear()
                    return
                await asyncio.sleep(1.0)

    async def _batches(self) -> AsyncIterator[list[event_pb2.LiveObservation]]:
        while True:
            while self._waiting:
                yield [self._waiting.popleft() for _ in range(min(_BATCH, len(self._waiting)))]
            if self._closing:
                return
            self._some.clear()
            await self._some.wait()
            # Tokens come quickly; a short pause puts many into one message.
            if not self._closing:
                await asyncio.sleep(_PAUSE)
