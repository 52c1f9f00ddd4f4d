"""The follower: reads the runtime's log of all scopes for deleted sessions, with a cursor of its own (A7).

It knows when to read and when to stop; what an event means for artifacts is `commands.following`.
"""

from __future__ import annotations

import asyncio
from datetime import timedelta

import structlog
from prometheus_client import CollectorRegistry, Counter

from threadkeep_artifacts.commands.following import Following, FollowingLost
from threadkeep_artifacts.peers import DeletedSessions
from threadkeep_chassis.errors import CursorExpired, CursorInvalid, CursorUnknown, ThreadkeepError
from threadkeep_chassis.loops import Loops

_START_AGAIN = frozenset((CursorUnknown.reason, CursorExpired.reason, CursorInvalid.reason))
"""What the runtime says of a cursor from another life of its log, or from before what it keeps."""

_LONGEST_PAUSE = 5.0

_log = structlog.get_logger("threadkeep.artifacts")


class Follower:
    """Follows the log. One per replica; those without the right to follow wait for it."""

    def __init__(
        self,
        runtime: DeletedSessions,
        following: Following,
        loops: Loops,
        registry: CollectorRegistry,
        ttl: timedelta,
    ) -> None:
        self._runtime = runtime
        self._following = following
        self._loops = loops
        self._ttl = ttl.total_seconds()
        self._deleted = Counter(
            "threadkeep_artifacts_of_deleted_sessions", "Artifacts deleted with their session", registry=registry
        )

    async def run(self) -> None:
        """Follows until the loops stop. Never raises for what passes by itself."""
        pause = 0.1
        while not self._loops.stopping.is_set():
            cursor = await self._following.acquire()
            if cursor is None:
                await self._loops.pause(self._ttl / 3)
                continue
            try:
                await self._hold(cursor)
                pause = 0.1
            except FollowingLost:
                _log.info("another replica follows")
            except ThreadkeepError as error:
                if error.reason in _START_AGAIN and cursor:
                    _log.warning("the log's past is gone; following it from its start", reason=error.reason)
                    await self._following.advance(b"")
                else:
                    _log.info("follower waits", reason=error.reason)
                    pause = min(pause * 2, _LONGEST_PAUSE)
            await self._loops.pause(pause)
        await self._following.release()

    async def _hold(self, cursor: bytes) -> None:
        """Follows and renews, until one of them fails or the loops stop."""
        works = [
            asyncio.ensure_future(self._consume(cursor)),
            asyncio.ensure_future(self._renew()),
            asyncio.ensure_future(self._loops.stopping.wait()),
        ]
        try:
            await asyncio.wait(works, return_when=asyncio.FIRST_COMPLETED)
        finally:
            ended = [work for work in works if work.done()]
            for work in works:
                work.cancel()
            await asyncio.gather(*works, return_exceptions=True)
        for work in ended:
            work.result()

    async def _renew(self) -> None:
        while True:
            await asyncio.sleep(self._ttl / 3)
            await self._following.renew()

    async def _consume(self, cursor: bytes) -> None:
        async for frame in self._runtime.follow(cursor):
            for session in frame.sessions:
                if session.deletes_artifacts:
                    self._deleted.inc(await self._following.delete_session(session.scope_key, session.session_id))
            if frame.cursor != cursor:
                cursor = frame.cursor
                await self._following.advance(cursor)
