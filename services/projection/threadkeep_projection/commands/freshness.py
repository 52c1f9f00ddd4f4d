"""Waits until the projection reflects a cursor of the runtime, so that callers read their own writes (P5)."""

from __future__ import annotations

import asyncio
import contextlib
from itertools import zip_longest

from threadkeep_chassis.cursors import LOG_KIND, THREAD_KIND, Cursor, read_cursor, selection_of, thread_subject
from threadkeep_chassis.database import Database
from threadkeep_chassis.errors import (
    CursorInvalid,
    CursorUnknown,
    FieldInvalid,
    ShuttingDown,
    ThreadkeepError,
    Unavailable,
)
from threadkeep_chassis.scope import Call
from threadkeep_chassis.signals import Signals
from threadkeep_projection.commands.following import ADVANCED
from threadkeep_projection.domain.errors import FreshnessTimeout
from threadkeep_projection.metrics import ProjectionMetrics
from threadkeep_projection.peers import Caller, Runtime
from threadkeep_projection.store.reads import event_sequence_of
from threadkeep_projection.store.shares import list_shares

FIELD = "freshness.at_least"

DEFAULT_WAIT_SECONDS = 5.0
MAX_WAIT_SECONDS = 60.0

GRANT_SUBJECT = "grant"
"""The subject of cursors of feeds over a grant."""

_LOOK_SECONDS = 0.25
"""How long a wait goes on without a signal before the cursor is read again: another replica may follow."""


class Freshness:
    """Decides whether the projection has got as far as a cursor."""

    def __init__(self, database: Database, signals: Signals, runtime: Runtime, metrics: ProjectionMetrics) -> None:
        self._database = database
        self._signals = signals
        self._runtime = runtime
        self._metrics = metrics

    async def wait(self, call: Call, at_least: bytes, max_wait: float | None, session_id: str | None = None) -> None:
        """Returns once everything up to the cursor `at_least` (empty: nothing) is projected.

        `max_wait` is in seconds (None: 5 s); the call's own deadline counts too. Raises FieldInvalid, CursorInvalid,
        CursorUnknown, FreshnessTimeout, ShuttingDown.
        """
        if max_wait is not None and not 0 <= max_wait <= MAX_WAIT_SECONDS:
            raise FieldInvalid("freshness.max_wait", f"must lie between 0 and {MAX_WAIT_SECONDS:g} s")
        if not at_least:
            return
        cursor = read_cursor(at_least, FIELD)
        if cursor.kind not in (LOG_KIND, THREAD_KIND) or not cursor.positions:
            raise CursorInvalid(FIELD)
        loop = asyncio.get_running_loop()
        started = loop.time()
        limit = DEFAULT_WAIT_SECONDS if max_wait is None else max_wait
        left = call.seconds_left
        deadline = started + (limit if left is None else min(limit, left))
        is_checked = False
        async with self._signals.subscribe(ADVANCED, drain=call.draining) as changed:
            while True:
                is_reached, is_other_life = await self._look(call, cursor)
                if is_reached:
                    break
                if call.draining.is_set:
                    raise ShuttingDown()
                remaining = deadline - loop.time()
                if remaining <= 0:
                    raise FreshnessTimeout()
                if not is_checked and (is_other_life or loop.time() - started >= _LOOK_SECONDS):
                    # A forged cursor, or one of a life of the log that is over, would never be reached.
                    is_checked = True
                    with contextlib.suppress(TimeoutError):
                        async with asyncio.timeout(remaining):
                            await self._check(call, at_least, cursor, session_id)
                    continue
                await changed.wait(min(remaining, _LOOK_SECONDS))
        self._metrics.freshness.observe(loop.time() - started)

    async def settle(self, call: Call, session_id: str, sequence: int, max_wait: float) -> bool:
        """Waits until the session is projected up to an event of this sequence, for `max_wait` seconds at most.

        For answers that are right without it and better with it: no error says that the wait was too short.
        """
        subject = thread_subject(call.scope_key, session_id)
        loop = asyncio.get_running_loop()
        deadline = loop.time() + max_wait
        async with self._signals.subscribe(ADVANCED, drain=call.draining) as changed:
            while True:
                async with self._database.read() as connection:
                    reached = await event_sequence_of(connection, call.scope_key, subject)
                if (reached or 0) >= sequence:
                    return True
                remaining = deadline - loop.time()
                if remaining <= 0 or call.draining.is_set:
                    return False
                await changed.wait(min(remaining, _LOOK_SECONDS))

    async def _look(self, call: Call, cursor: Cursor) -> tuple[bool, bool]:
        """(the cursor is reached, it counts in another life of the log than the projection does)"""
        async with self._database.read() as connection:
            shares = await list_shares(connection)
            # All that have begun follow one life of the log: who finds another one resets them all.
            reached = [read_cursor(share.cursor) for share in shares if share.cursor]
            if not reached:
                return False, False
            if any(one.incarnation != cursor.incarnation for one in reached):
                return False, True
            if cursor.kind == LOG_KIND:
                # Where a share follows one partition, its cursor says nothing of the others.
                ours = [max(numbers) for numbers in zip_longest(*(one.positions for one in reached), fillvalue=0)]
                return all(got >= wanted for got, wanted in zip_longest(ours, cursor.positions, fillvalue=0)), False
            sequence = await event_sequence_of(connection, call.scope_key, cursor.subject)
            return (sequence or 0) >= cursor.positions[0], False

    async def _check(self, call: Call, at_least: bytes, cursor: Cursor, session_id: str | None) -> None:
        """Asks the runtime, which alone can, whether it gave this cursor. Raises CursorInvalid, CursorUnknown."""
        caller = Caller.of(call)
        try:
            base, partitions = selection_of(cursor.subject)
        except ValueError as error:
            raise CursorInvalid(FIELD) from error
        if cursor.kind == THREAD_KIND:
            if session_id is None or cursor.subject != thread_subject(call.scope_key, session_id):
                # A cursor of a session that this call does not name: only waiting can tell.
                return
        else:
            session_id = None
            if base == GRANT_SUBJECT:
                caller = Caller.everywhere()
        try:
            await self._runtime.check_cursor(caller, at_least, session_id, partitions or ())
        except Unavailable:
            return
        except ThreadkeepError as error:
            if error.reason == CursorInvalid.reason:
                raise CursorInvalid(FIELD) from error
            if error.reason == CursorUnknown.reason:
                raise CursorUnknown() from error
