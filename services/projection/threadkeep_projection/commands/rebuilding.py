"""Builds projections anew from the runtime, each session beside its live rows; or everything from the start (P3)."""

from __future__ import annotations

from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from datetime import timedelta
from typing import TypeVar

from google.protobuf.message import Message

from threadkeep_chassis.canonical import canonical_digest
from threadkeep_chassis.database import Connection, Database
from threadkeep_chassis.errors import Contention, ShuttingDown, ThreadkeepError
from threadkeep_chassis.receipts import check_receipt, find_receipt, fingerprint, idempotent
from threadkeep_chassis.scope import Call, Scope
from threadkeep_chassis.signals import Signals
from threadkeep_projection.commands.channels import Channels
from threadkeep_projection.commands.following import ADVANCED, ShareLost, check_operator
from threadkeep_projection.domain.projector import Draft
from threadkeep_projection.metrics import ProjectionMetrics
from threadkeep_projection.peers import Caller, Runtime
from threadkeep_projection.store import rebuilds
from threadkeep_projection.store.poison import poisoned_sessions
from threadkeep_projection.store.reads import get_session
from threadkeep_projection.store.shares import ShareLease, is_at, lock_shares, reset_shares
from threadkeep_projection.store.threads import Loaded, ThreadKey, drop_everything, drop_session, write_threads

ResponseT = TypeVar("ResponseT", bound=Message)

Swap = Callable[[Connection], Awaitable[None]]
"""Puts built rows in the place of the live ones, inside a transaction."""

Transact = Callable[[Swap, int, int], Awaitable[None]]
"""Runs a swap in a transaction; it gets the numbers of events and messages too."""

SESSION_GONE = "SESSION_NOT_FOUND"

_REMOVED_AT_ONCE = 20
_RETRIED_AT_ONCE = 100

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
        response: list[ResponseT] = []

        async def transact(swap: Swap, events: int, messages: int) -> None:
            async def work(connection: Connection) -> ResponseT:
                await swap(connection)
                return answer(events, messages)

            response.append(await idempotent(self._database, call, request, response_type, work))

        await self._build(Caller.of(call), key, transact)
        self._metrics.rebuilds.labels("session").inc()
        return response[0]

    async def rebuild_many(
        self,
        call: Call,
        request: Message,
        response_type: type[ResponseT],
        answer: Callable[[bool, int, int, int], ResponseT],
        *,
        everything: bool,
    ) -> AsyncIterator[ResponseT]:
        """Builds every session of the call's scope, or of all scopes, beside its live rows, one after the other.

        `answer` makes a frame from: is it the last, numbers of sessions, events, and sessions whose rows went. What the
        rebuild has done is kept until its end, so the same request goes on after a break. Raises ScopeForbidden,
        Unavailable, ShuttingDown.
        """
        if everything:
            check_operator(call)
        stored = await self._replayed(call, request)
        if stored is not None:
            yield response_type.FromString(stored)
            return
        request_id: str = request.request_id  # type: ignore[attr-defined]
        rebuild = canonical_digest([call.receipt_key, request_id, everything])
        scope_key = None if everything else call.scope_key
        await self._database.retrying(lambda connection: rebuilds.begin(connection, rebuild, scope_key))
        reader = Caller.everywhere() if everything else Caller.of(call)
        is_first = True
        async for named in self._runtime.log_sessions(reader):
            if not is_first:
                async with self._database.read() as connection:
                    done = await rebuilds.counts(connection, rebuild)
                yield answer(False, *done, 0)
            is_first = False
            await self._build_those(call, rebuild, named, everything=everything)
        removed = await self._remove_left(rebuild)

        async def finish(connection: Connection) -> ResponseT:
            done = await rebuilds.counts(connection, rebuild)
            await rebuilds.forget(connection, rebuild)
            return answer(True, *done, removed)

        yield await idempotent(self._database, call, request, response_type, finish)
        self._metrics.rebuilds.labels("all" if everything else "scope").inc()

    async def retry_poison(
        self,
        call: Call,
        request: Message,
        session_id: str | None,
        response_type: type[ResponseT],
        answer: Callable[[int, int, bool], ResponseT],
    ) -> ResponseT:
        """Builds sessions with poison events anew: the named one, or up to 100 of the scope.

        `answer` makes the response from the numbers of sessions and of events that are projected now, and whether there
        are more. Raises Unavailable.
        """
        stored = await self._replayed(call, request)
        if stored is not None:
            return response_type.FromString(stored)
        async with self._database.read() as connection:
            found = await poisoned_sessions(connection, call.scope_key, session_id, _RETRIED_AT_ONCE + 1)
        tried, before = found[:_RETRIED_AT_ONCE], sum(events for _, events in found[:_RETRIED_AT_ONCE])
        for one, _ in tried:
            await self._build_alone(Caller.of(call), (call.scope_key, one))
        left = 0
        async with self._database.read() as connection:
            for one, _ in tried:
                left += sum(n for _, n in await poisoned_sessions(connection, call.scope_key, one, 1))

        async def finish(connection: Connection) -> ResponseT:
            return answer(len(tried), max(0, before - left), len(found) > len(tried))

        return await idempotent(self._database, call, request, response_type, finish)

    async def _build_alone(self, caller: Caller, key: ThreadKey) -> None:
        async def transact(swap: Swap, events: int, messages: int) -> None:
            await self._database.retrying(swap)

        try:
            await self._build(caller, key, transact)
        except ThreadkeepError as error:
            if error.reason != SESSION_GONE:
                raise

    async def _build_those(
        self, call: Call, rebuild: str, named: Sequence[tuple[Scope | None, str]], *, everything: bool
    ) -> None:
        """Builds those of a page of the log that the rebuild has not done."""
        callers: dict[ThreadKey, Caller] = {}
        for scope, session_id in named:
            place = call.scope if scope is None else scope
            callers[place.key, session_id] = Caller.operator(place) if everything else Caller.of(call)
        if not callers:
            return
        async with self._database.read() as connection:
            done = await rebuilds.done_of(connection, rebuild, list(callers))
        for key, caller in callers.items():
            if key in done:
                continue
            if call.draining.is_set:
                raise ShuttingDown()

            async def transact(swap: Swap, events: int, _: int, key: ThreadKey = key) -> None:
                async def work(connection: Connection) -> None:
                    await swap(connection)
                    await rebuilds.mark(connection, rebuild, key, events)

                await self._database.retrying(work)

            try:
                await self._build(caller, key, transact)
            except ThreadkeepError as error:
                # Deleted, and its rows with it: the log holds its tombstone only.
                if error.reason != SESSION_GONE:
                    raise

    async def _remove_left(self, rebuild: str) -> int:
        """Drops the rows of sessions that the log did not name; gives how many there were."""
        removed = 0
        while True:
            async with self._database.read() as connection:
                keys = await rebuilds.left(connection, rebuild, _REMOVED_AT_ONCE)
            if not keys:
                return removed

            async def work(connection: Connection, keys: list[ThreadKey] = keys) -> None:
                await lock_shares(connection)
                for key in keys:
                    await drop_session(connection, key)
                    await rebuilds.mark(connection, rebuild, key, 0)
                connection.after_commit(lambda: self._signals.notify(ADVANCED))

            await self._database.retrying(work)
            removed += len(keys)

    async def _build(self, caller: Caller, key: ThreadKey, transact: Transact) -> None:
        """Builds a session's rows; `transact` runs the swap in a transaction. Raises SESSION_NOT_FOUND, Contention."""
        draft, count = Draft(key[1]), 0
        for _ in range(_ROUNDS):
            draft, more = await self._channels.catch_up(caller, draft)
            count += more

            async def swap(connection: Connection, draft: Draft = draft) -> None:
                # Nobody applies events while this lock is held, so live and rebuilt rows can be compared.
                await lock_shares(connection)
                live = await get_session(connection, *key)
                reached = draft.session.event_sequence if draft.session is not None else 0
                if live is not None and live.session.event_sequence > reached:
                    raise _Behind()
                await drop_session(connection, key)
                await write_threads(connection, Loaded({key: Draft(key[1])}, {key: draft}))
                connection.after_commit(lambda: self._signals.notify(ADVANCED))

            try:
                await transact(swap, count, draft.message_count)
            except _Behind:
                continue
            await self._check_alive(caller, key)
            return
        raise Contention("The session grows faster than it can be rebuilt; retry with the same request_id.")

    async def _check_alive(self, caller: Caller, key: ThreadKey) -> None:
        """Drops the rows again if the session was deleted while they were built: its event may have been applied before
        they were there. Raises SESSION_NOT_FOUND then."""
        try:
            await self._runtime.latest_event_sequence(caller, key[1])
        except ThreadkeepError as error:
            if error.reason == SESSION_GONE:
                await self._database.retrying(lambda connection: drop_session(connection, key))
            raise

    async def rebuild_all(self, lease: ShareLease, cursor: bytes) -> None:
        """Drops every row and puts all cursors at the start, in one transaction; the followers then build all anew.

        `cursor` is the one that the log does not know: unless the leased share still stands there, somebody was first.
        Raises ShareLost then.
        """

        async def work(connection: Connection) -> None:
            if not await is_at(connection, lease, cursor):
                raise ShareLost()
            await drop_everything(connection)
            await reset_shares(connection)
            connection.after_commit(lambda: self._signals.notify(ADVANCED))

        await self._database.retrying(work)
        self._metrics.rebuilds.labels("all").inc()

    async def forget_old(self, older_than: timedelta) -> None:
        """Deletes what rebuilds have done that nobody went on with for so long."""
        await self._database.retrying(lambda connection: rebuilds.forget_old(connection, older_than))

    async def _replayed(self, call: Call, request: Message) -> bytes | None:
        async with self._database.read() as connection:
            receipt = await find_receipt(connection, call.receipt_key, request.request_id)  # type: ignore[attr-defined]
        stored = check_receipt(receipt, fingerprint(call.method, request))
        if stored is not None:
            call.mark_replay()
        return stored
