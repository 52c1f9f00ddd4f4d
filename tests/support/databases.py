"""Databases for tests, of every backend, by address."""

import itertools
from collections.abc import Awaitable, Callable
from pathlib import Path

from tests.support.guardian import GuardedFolder
from tests.support.pgbouncer import PgBouncer
from tests.support.postgres import Postgres

BACKENDS = ("memory", "sqlite", "postgres")

Migrate = Callable[[str], Awaitable[None]]


class Databases:
    """Makes databases; their addresses are what services take as `database`."""

    def __init__(self, *, pooled: bool = False) -> None:
        """`pooled`: suites reach PostgreSQL through a PgBouncer in transaction mode."""
        self._pooled = pooled
        self._pooler: PgBouncer | None = None
        self._folder = GuardedFolder("tk-databases-")
        self._postgres: Postgres | None = None
        self._numbers = itertools.count(1)

    @property
    def postgres(self) -> Postgres:
        """The server, started on first use."""
        if self._postgres is None:
            self._postgres = Postgres()
        return self._postgres

    async def empty(self, backend: str) -> str:
        """The address of a new database without tables."""
        if backend == "memory":
            return "memory:"
        if backend == "sqlite":
            return f"sqlite:///{self.folder() / 'data.db'}"
        return await self.postgres.empty_database()

    async def migrated(self, key: str, migrate: Migrate) -> str:
        """The address of a new PostgreSQL database that `migrate` has run on; see `Postgres.database`."""
        return await self.postgres.database(key, migrate)

    def service_settings(self, url: str) -> dict[str, str]:
        """How a service is told of a database: the address, and the direct one where that leads through a pooler."""
        if not self._pooled or not url.startswith("postgresql:"):
            return {"database_url": url}
        if self._pooler is None:
            self._pooler = PgBouncer(self.postgres.socket_folder)
        return {"database_url": self._pooler.url(url), "database_direct_url": url}

    def folder(self) -> Path:
        """A new folder, for files of SQLite."""
        folder = self._folder.path / str(next(self._numbers))
        folder.mkdir()
        return folder

    async def drop(self, url: str) -> None:
        """Removes a PostgreSQL database; files go with the folder at the end of the run."""
        if url.startswith("postgresql:"):
            await self.postgres.drop(url)

    def close(self) -> None:
        """Stops the PostgreSQL server, if one was started, and removes all files."""
        if self._pooler is not None:
            self._pooler.close()
        if self._postgres is not None:
            self._postgres.close()
        self._folder.close()
