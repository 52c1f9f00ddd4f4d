"""Database addresses: `memory:`, `sqlite:///path/file.db`, `postgresql://...`.

A PostgreSQL address may say `?pooler=transaction` when it leads through a transaction pooler such as PgBouncer: then no
named prepared statement, session setting or session lock is used, and LISTEN and migrations want the direct address.
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Any

from sqlalchemy.engine import URL, make_url


class DatabaseUrlInvalid(ValueError):
    """The address is none that threadkeep understands. The message never quotes a password."""


@dataclass(frozen=True)
class DatabaseUrl:
    """A parsed address."""

    backend: str
    """`memory`, `sqlite` or `postgresql`, as GetServerInfo shows it."""
    path: Path | None = None
    """The SQLite file."""
    url: URL | None = None
    """The PostgreSQL address, without our own options."""
    through_pooler: bool = False
    """True behind a transaction pooler."""

    @classmethod
    def parse(cls, text: str) -> DatabaseUrl:
        """Reads an address. Raises DatabaseUrlInvalid."""
        if text in ("memory:", "memory://"):
            return cls("memory")
        if text.startswith("sqlite:"):
            path = text.removeprefix("sqlite:").removeprefix("//")
            # sqlite:///relative and sqlite:////absolute, as in SQLAlchemy.
            path = path.removeprefix("/") if text.startswith("sqlite://") else path
            if not path or path == ":memory:":
                raise DatabaseUrlInvalid("a sqlite address names a file: sqlite:///path/file.db (or use memory:)")
            return cls("sqlite", path=Path(path).absolute())
        scheme = text.partition(":")[0]
        if scheme not in ("postgresql", "postgres", "postgresql+asyncpg"):
            raise DatabaseUrlInvalid("a database address is memory:, sqlite:///path/file.db or postgresql://...")
        try:
            url = make_url(text.replace(scheme, "postgresql", 1))
        except Exception as error:
            raise DatabaseUrlInvalid("the postgresql address can't be parsed") from error
        query = dict(url.query)
        pooler = query.pop("pooler", None)
        if pooler not in (None, "transaction", "session"):
            raise DatabaseUrlInvalid("pooler is `transaction` or `session`")
        if "sslmode" in query:
            query["ssl"] = query.pop("sslmode")
        url = url.set(drivername="postgresql+asyncpg", query=query)
        return cls("postgresql", url=url, through_pooler=pooler == "transaction")

    def asyncpg_arguments(self) -> dict[str, Any]:
        """What `asyncpg.connect` takes for this PostgreSQL address."""
        assert self.url is not None
        arguments: dict[str, Any] = dict(self.url.query)
        for name, value in (
            ("host", self.url.host),
            ("port", self.url.port),
            ("user", self.url.username),
            ("password", self.url.password),
            ("database", self.url.database),
        ):
            if value is not None and value != "":
                arguments[name] = value
        if isinstance(arguments.get("port"), str):
            arguments["port"] = int(arguments["port"])
        return arguments

    def __repr__(self) -> str:
        where = self.path if self.path is not None else self.url.render_as_string() if self.url is not None else ""
        return f"DatabaseUrl({self.backend} {where})"
