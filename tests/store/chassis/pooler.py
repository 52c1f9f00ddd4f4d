"""A transaction pooler in front of PostgreSQL, as strict as PgBouncer in transaction mode.

Each transaction may run on another server connection; nothing of a session survives it; start-up parameters other than
the usual ones are refused; the process id that a client is told is none of PostgreSQL's.
"""

import asyncio
import struct
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress
from dataclasses import dataclass, field

_ALLOWED = {"user", "database", "application_name", "client_encoding"}
_SSL_REQUEST = 80877103
_CANCEL_REQUEST = 80877102


@dataclass
class _Backend:
    reader: asyncio.StreamReader
    writer: asyncio.StreamWriter
    greeting: bytes
    """The ParameterStatus messages of its start."""


@dataclass
class _Client:
    reader: asyncio.StreamReader
    writer: asyncio.StreamWriter
    backend: _Backend | None = None
    pump: asyncio.Task[None] | None = None
    awaited: int = 0
    """ReadyForQuery messages that are still to come."""
    idle: asyncio.Event = field(default_factory=asyncio.Event)


class Pooler:
    """Listens on loopback; takes turns with its server connections on purpose, so that reuse never goes unnoticed."""

    def __init__(self, socket_folder: str, database: str, size: int) -> None:
        self._target = f"{socket_folder}/.s.PGSQL.5432"
        self._database = database
        self._size = size
        self._free: asyncio.Queue[_Backend] = asyncio.Queue()
        self._all: list[_Backend] = []
        self._tasks: set[asyncio.Task[None]] = set()
        self._server: asyncio.Server | None = None
        self.port = 0

    @property
    def url(self) -> str:
        """The database through the pooler, not saying that it is one."""
        return f"postgresql://postgres@127.0.0.1:{self.port}/{self._database}?ssl=disable"

    async def open(self) -> None:
        """Connects to PostgreSQL and listens."""
        for _ in range(self._size):
            backend = await self._connect()
            self._all.append(backend)
            self._free.put_nowait(backend)
        self._server = await asyncio.start_server(self._client, "127.0.0.1", 0)
        self.port = self._server.sockets[0].getsockname()[1]

    async def close(self) -> None:
        """Cuts everything."""
        assert self._server is not None
        self._server.close()
        for task in list(self._tasks):
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)
        for backend in self._all:
            backend.writer.close()

    async def _connect(self) -> _Backend:
        reader, writer = await asyncio.open_unix_connection(self._target)
        body = struct.pack("!I", 196608) + f"user\0postgres\0database\0{self._database}\0\0".encode()
        writer.write(struct.pack("!I", len(body) + 4) + body)
        greeting = b""
        while True:
            kind, message = await _message(reader)
            if kind == b"S":
                greeting += message
            if kind == b"Z":
                return _Backend(reader, writer, greeting)
            if kind == b"E":
                raise RuntimeError(message)

    async def _client(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        task = asyncio.current_task()
        assert task is not None
        self._tasks.add(task)
        client = _Client(reader, writer)
        try:
            if await self._greet(client):
                await self._talk(client)
        except (asyncio.IncompleteReadError, ConnectionError):
            pass
        finally:
            writer.close()
            await self._leave(client)
            self._tasks.discard(task)

    async def _greet(self, client: _Client) -> bool:
        while True:
            (length,) = struct.unpack("!I", await client.reader.readexactly(4))
            body = await client.reader.readexactly(length - 4)
            (code,) = struct.unpack("!I", body[:4])
            if code == _SSL_REQUEST:
                client.writer.write(b"N")
                continue
            if code == _CANCEL_REQUEST:
                return False
            break
        names = body[4:].split(b"\0")[::2]
        for name in (name.decode() for name in names if name):
            if name not in _ALLOWED:
                client.writer.write(_error("FATAL", "08P01", f"unsupported startup parameter: {name}"))
                return False
        key = b"K" + struct.pack("!III", 12, 99_999_999, 1)
        ok, ready = b"R" + struct.pack("!II", 8, 0), b"Z" + struct.pack("!I", 5) + b"I"
        client.writer.write(ok + self._all[0].greeting + key + ready)
        return True

    async def _talk(self, client: _Client) -> None:
        while True:
            kind, message = await _message(client.reader)
            if kind == b"X":
                return
            if client.backend is None:
                client.backend = await self._free.get()
                client.idle.clear()
                client.pump = asyncio.create_task(self._pump(client, client.backend))
            if kind in b"SQ":
                client.awaited += 1
            client.backend.writer.write(message)
            await client.backend.writer.drain()

    async def _pump(self, client: _Client, backend: _Backend) -> None:
        """Carries answers back until the transaction is over; then the server connection is anyone's."""
        while True:
            kind, message = await _message(backend.reader)
            if kind == b"Z":
                client.awaited -= 1
                if client.awaited == 0 and message[-1:] == b"I":
                    client.backend = None
                    self._free.put_nowait(backend)
                    client.writer.write(message)
                    client.idle.set()
                    return
            with suppress(ConnectionError):
                client.writer.write(message)

    async def _leave(self, client: _Client) -> None:
        """A client that goes away in a transaction takes its server connection with it."""
        backend = client.backend
        if client.pump is not None:
            client.pump.cancel()
            await asyncio.gather(client.pump, return_exceptions=True)
        if backend is not None and client.backend is backend:
            backend.writer.close()
            self._all.remove(backend)
            fresh = await self._connect()
            self._all.append(fresh)
            self._free.put_nowait(fresh)


async def _message(reader: asyncio.StreamReader) -> tuple[bytes, bytes]:
    head = await reader.readexactly(5)
    (length,) = struct.unpack("!I", head[1:])
    return head[:1], head + await reader.readexactly(length - 4)


def _error(severity: str, code: str, text: str) -> bytes:
    fields = b"".join(
        key + value.encode() + b"\0" for key, value in ((b"S", severity), (b"V", severity), (b"C", code), (b"M", text))
    )
    return b"E" + struct.pack("!I", len(fields) + 5) + fields + b"\0"


@asynccontextmanager
async def pooler_to(socket_folder: str, database_url: str, size: int = 4) -> AsyncIterator[Pooler]:
    """A pooler for the duration of the block."""
    name = database_url.removeprefix("postgresql://postgres@/").split("?", 1)[0]
    pooler = Pooler(socket_folder, name, size)
    await pooler.open()
    try:
        yield pooler
    finally:
        await pooler.close()
