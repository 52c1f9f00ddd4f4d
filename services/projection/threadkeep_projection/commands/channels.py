"""Gets the `messages` channel that a saved checkpoint brought, as plain values, or says that it can't be had."""

from __future__ import annotations

import asyncio
from dataclasses import dataclass

import structlog

from threadkeep_chassis.errors import DeadlineExceeded, ThreadkeepError, Unavailable
from threadkeep_chassis.logs import fault_facts
from threadkeep_projection.domain.batches import apply_all
from threadkeep_projection.domain.projector import Draft, wanted_checkpoint
from threadkeep_projection.domain.values import Channel, Event
from threadkeep_projection.messages import Undecodable, decode_messages
from threadkeep_projection.metrics import ProjectionMetrics
from threadkeep_projection.peers import Caller, Runtime

_log = structlog.get_logger("threadkeep.projection")

_DECODE_ASIDE_BYTES = 256 * 1024
"""Larger values are decoded in a thread, so that they don't hold up the loop."""

_PAGE_BYTES = 4 * 1024 * 1024
"""Stored bytes of the channels that are held at once while a session is built, or so."""


@dataclass(frozen=True)
class Fetched:
    """What became of a read."""

    channel: Channel | None
    size: int
    """Bytes of the stored value, as a measure of what the channel takes in memory."""


NOTHING = Fetched(None, 0)


class Channels:
    """Reads channels from the runtime, a bounded number at once."""

    def __init__(self, runtime: Runtime, metrics: ProjectionMetrics, *, at_once: int) -> None:
        self._runtime = runtime
        self._metrics = metrics
        self.at_once = at_once
        self._turns = asyncio.Semaphore(at_once)

    async def fetch(self, caller: Caller, session_id: str, checkpoint_id: str) -> Fetched:
        """The channel's messages. No channel if the checkpoint is gone, holds no value of it, or can't be decoded.

        The last is marked in the log and in a metric; the conversation then stays as it is. Raises Unavailable and
        DeadlineExceeded when the runtime is out of reach: asking again may help.
        """
        async with self._turns:
            try:
                value = await self._runtime.messages_channel(caller, session_id, checkpoint_id)
            except (Unavailable, DeadlineExceeded):
                raise
            except ThreadkeepError as error:
                self._mark(caller, "read_" + error.reason.lower(), error)
                return NOTHING
            if value is None:
                self._metrics.checkpoints.labels("absent").inc()
                return NOTHING
            try:
                if len(value[1]) > _DECODE_ASIDE_BYTES:
                    channel = await asyncio.to_thread(decode_messages, *value)
                else:
                    channel = decode_messages(*value)
            except Undecodable as error:
                self._mark(caller, str(error), error)
                return NOTHING
        self._metrics.checkpoints.labels("absent" if channel is None else "decoded").inc()
        return Fetched(channel, len(value[1]))

    async def catch_up(self, caller: Caller, draft: Draft) -> tuple[Draft, int]:
        """The draft with the events applied that it had not, and how many these are.

        Raises SESSION_NOT_FOUND, Unavailable.
        """
        count = 0
        after = draft.session.event_sequence if draft.session is not None else 0
        async for events in self._runtime.session_events(caller, draft.session_id, after):
            pairs: list[tuple[Event, Channel | None]] = []
            size = 0
            for event in events:
                wanted = wanted_checkpoint(event)
                fetched = NOTHING if wanted is None else await self.fetch(caller, draft.session_id, wanted)
                pairs.append((event, fetched.channel))
                size += fetched.size
                if size >= _PAGE_BYTES:
                    draft, more = apply_all(draft, pairs)
                    count, pairs, size = count + more, [], 0
            draft, more = apply_all(draft, pairs)
            count += more
        return draft, count

    def _mark(self, caller: Caller, why: str, error: Exception) -> None:
        self._metrics.checkpoints.labels("undecodable").inc()
        _log.warning("checkpoint not decoded", why=why, scope_key=caller.scope.key, **fault_facts(error))
