"""Builds projections anew from the runtime: one session beside the live one, or everything from the start (P3)."""

from __future__ import annotations

from collections.abc import Callable
from typing import TypeVar

from google.protobuf.message import Message

from threadkeep_chassis.database import Connection, Database
from threadkeep_chassis.errors import Contention, ThreadkeepError
from threadkeep_chassis.receipts import check_receipt, find_receipt, fingerprint, idempotent
from threadkeep_chassis.scope import Call
from threadkeep_chassis.signals import Signals
from threadkeep_projection.commands.channels import Channels
from threadkeep_projection.commands.following import ADVANCED
from threadkeep_projection.domain.projector import Draft
from threadkeep_projection.metrics import ProjectionMetrics
from threadkeep_projection.peers import Caller, Runtime
from threadkeep_projection.store.reads import get_session
from threadkeep_projection.store.shares import lock_share, reset_share
from threadkeep_projection.store.threads import Loaded, drop_everything, drop_session, write_threads

ResponseT = TypeVar("ResponseT", bound=Message)

_ROUNDS = 20
"""How often the log may grow past the rebuilt rows before CONTENTION."""


class _Behind(Exception):
    """The live rows hold events that the rebuilt ones don't yet."""


class Rebuilding:
    """Rebuilds, while the follower goes on."""

    def __init__(
        self,
        database: Database,
        signals: Signals,
        runtime: Runtime,
        channels: Channels,
        metrics: ProjectionMetrics,
    ) -> None:
        self._database = database
        self._signals = signals
        self._runtime = runtime
        self._channels = channels
        self._metrics = metrics

    async def rebuild_session(
        self,
        call: Call,
        request: Message,
        session_id: str,
        response_type: type[ResponseT],
        answer: Callable[[int, int], ResponseT],
    ) -> ResponseT:
        """Builds the session's rows from the runtime's events and checkpoints, and swaps them in one transaction.

        `answer` makes the response from the numbers of events and messages. The rows take over at a point that is not
        before the live ones; the follower then skips what they have already. Raises SESSION_NOT_FOUND, Unavailable.
        """
        stored = await self._replayed(call, request)
        if stored is not None:
            return response_type.FromString(stored)
        key = (call.scope_key, session_id)
        draft, count = Draft(session_id), 0
        for _ in range(_ROUNDS):
            count += await self._channels.catch_up(Caller.of(call), draft)

            async def work(connection: Connection, count: int = count) -> ResponseT:
                # Nobody applies events while this lock is held, so live and rebuilt rows can be compared.
                await lock_share(connection)
                live = await get_session(connection, *key)
                reached = draft.session.event_sequence if draft.session is not None else 0
                if live is not None and live.session.event_sequence > reached:
                    raise _Behind()
                await drop_session(connection, key)
                await write_threads(connection, Loaded({key: Draft(session_id)}, {key: draft}))
                connection.after_commit(lambda: self._signals.notify(ADVANCED))
                return answer(count, draft.message_count)

            try:
                response = await idempotent(self._database, call, request, response_type, work)
            except _Behind:
                continue
            self._metrics.rebuilds.labels("session").inc()
            await self._check_alive(call, key)
            return response
        raise Contention("The session grows faster than it can be rebuilt; retry with the same request_id.")

    async def _check_alive(self, call: Call, key: tuple[str, str]) -> None:
        """Drops the rows again if the session was deleted while they were built: its event may have been applied before
        they were there. Raises SESSION_NOT_FOUND then."""
        try:
            await self._runtime.latest_event_sequence(Caller.of(call), key[1])
        except ThreadkeepError as error:
            if error.reason == "SESSION_NOT_FOUND":
                await self._database.retrying(lambda connection: drop_session(connection, key))
            raise

    async def rebuild_all(self) -> None:
        """Drops every row and puts the cursor at the start, in one transaction; the follower then builds all anew."""

        async def work(connection: Connection) -> None:
            await lock_share(connection)
            await drop_everything(connection)
            await reset_share(connection)
            connection.after_commit(lambda: self._signals.notify(ADVANCED))

        await self._database.retrying(work)
        self._metrics.rebuilds.labels("all").inc()

    async def _replayed(self, call: Call, request: Message) -> bytes | None:
        async with self._database.read() as connection:
            receipt = await find_receipt(connection, call.receipt_key, request.request_id)  # type: ignore[attr-defined]
        stored = check_receipt(receipt, fingerprint(call.method, request))
        if stored is not None:
            call.mark_replay()
        return stored
