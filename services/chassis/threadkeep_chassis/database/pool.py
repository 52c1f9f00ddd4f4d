"""A bounded stock of database sessions, which come back without a round trip."""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Awaitable, Callable

from threadkeep_chassis.database import faults
from threadkeep_chassis.database.session import Session
from threadkeep_chassis.database.url import DatabaseUrlInvalid
from threadkeep_chassis.errors import DatabaseUnavailable


class SessionPool:
    """A bounded stock of sessions; the last used is the next used, so that idle ones can be told from live ones."""

    def __init__(self, open_session: Callable[[], Awaitable[Session]], size: int, timeout: float) -> None:
        self._open = open_session
        self._free = asyncio.Semaphore(size)
        self._idle: deque[Session] = deque()
        self._timeout = timeout
        self._size = size
        self.closed = False

    async def take(self) -> Session:
        """A session, connected but perhaps dead. Raises DatabaseUnavailable."""
        if self.closed:
            raise DatabaseUnavailable("The database is closed.")
        try:
            if self._free.locked():
                async with asyncio.timeout(self._timeout):
                    await self._free.acquire()
            else:
                await self._free.acquire()
        except TimeoutError as error:
            raise DatabaseUnavailable(
                f"All {self._size} database sessions were busy for {self._timeout:g} s; retry."
            ) from error
        try:
            while self._idle:
                session = self._idle.pop()
                if session.is_usable:
                    return session
                await session.close()
            return await self.connect()
        except BaseException:
            self._free.release()
            raise

    async def connect(self) -> Session:
        """A new session, in place of one that was lost. Raises DatabaseUnavailable, DatabaseUrlInvalid."""
        try:
            return await self._open()
        except Exception as error:
            if faults.is_connection_lost(error):
                raise DatabaseUnavailable() from error
            if faults.is_pooler_refusal(error):
                raise DatabaseUrlInvalid(
                    "the address leads through a transaction pooler; say so by adding ?pooler=transaction to it"
                ) from error
            raise

    async def give_back(self, session: Session) -> None:
        """Returns it."""
        try:
            if self.closed or not session.is_usable:
                await session.close()
            else:
                session.last_used = asyncio.get_running_loop().time()
                self._idle.append(session)
        finally:
            self._free.release()

    async def close(self) -> None:
        """Closes the idle sessions; those in use are closed when they come back."""
        self.closed = True
        while self._idle:
            await self._idle.pop().close()
