"""A wire to PostgreSQL that tests can cut: before a COMMIT arrives, after it took effect, or silently."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress
from enum import Enum, auto


class Cut(Enum):
    """What happens to the next COMMIT."""

    NOTHING = auto()
    BEFORE_COMMIT = auto()
    """The connection is cut before PostgreSQL sees it."""
    AFTER_COMMIT = auto()
    """PostgreSQL commits, and the answer is lost."""


class Wire:
    """A TCP proxy in front of PostgreSQL's Unix socket."""

    def __init__(self, socket_folder: str) -> None:
        self._target = f"{socket_folder}/.s.PGSQL.5432"
        self._server: asyncio.Server | None = None
        self._tasks: set[asyncio.Task[None]] = set()
        self._writers: set[asyncio.StreamWriter] = set()
        self.port = 0
        self.next_commit = Cut.NOTHING
        self.is_refusing = False
        """Connections are closed at once."""
        self.is_silent = False
        """Nothing passes any more in either direction, and nobody is told (a half-open socket)."""
        self.connections = 0
        self.cut = asyncio.Event()
        """Set when a COMMIT was cut."""

    def url(self, database_url: str) -> str:
        """The same database through this wire."""
        name = database_url.removeprefix("postgresql://postgres@/").split("?", 1)[0]
        return f"postgresql://postgres@127.0.0.1:{self.port}/{name}?ssl=disable"

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        if self.is_refusing:
            writer.close()
            return
        self.connections += 1
        up_reader, up_writer = await asyncio.open_unix_connection(self._target)
        self._writers |= {writer, up_writer}
        both = (self._forward(reader, up_writer, writer, up_reader), self._back(up_reader, writer))
        tasks = [asyncio.create_task(one) for one in both]
        self._tasks.update(tasks)
        await asyncio.wait(tasks, return_when=asyncio.FIRST_COMPLETED)
        for one in (writer, up_writer):
            one.close()
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)

    async def _forward(
        self,
        reader: asyncio.StreamReader,
        up: asyncio.StreamWriter,
        writer: asyncio.StreamWriter,
        up_reader: asyncio.StreamReader,
    ) -> None:
        while chunk := await reader.read(65536):
            if self.is_silent:
                continue
            if b"COMMIT\x00" in chunk and self.next_commit is not Cut.NOTHING:
                kind, self.next_commit = self.next_commit, Cut.NOTHING
                if kind is Cut.AFTER_COMMIT:
                    # Whoever reads the answer (the other direction) finds the wire cut by then.
                    self._drop = writer
                    up.write(chunk)
                    await up.drain()
                    return await self._until_answered()
                self.cut.set()
                return None
            up.write(chunk)
            await up.drain()
        return None

    async def _until_answered(self) -> None:
        await self.cut.wait()

    _drop: asyncio.StreamWriter | None = None

    async def _back(self, up_reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        while chunk := await up_reader.read(65536):
            if self._drop is writer:
                self.cut.set()
                return
            if not self.is_silent:
                writer.write(chunk)
                await writer.drain()

    def cut_all(self) -> None:
        """Cuts the connections that there are; new ones pass."""
        for writer in self._writers:
            writer.close()
        self._writers.clear()

    async def close(self) -> None:
        """Cuts everything."""
        assert self._server is not None
        self._server.close()
        for writer in self._writers:
            writer.close()
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)
        with suppress(TimeoutError):
            async with asyncio.timeout(2):
                await self._server.wait_closed()

    async def open(self) -> None:
        """Listens."""
        self._server = await asyncio.start_server(self._serve, "127.0.0.1", 0)
        self.port = self._server.sockets[0].getsockname()[1]


@asynccontextmanager
async def wire_to(socket_folder: str) -> AsyncIterator[Wire]:
    """A wire for the duration of the block."""
    wire = Wire(socket_folder)
    await wire.open()
    try:
        yield wire
    finally:
        await wire.close()
