"""What the demo can be told, all of it through the environment; `make demo` passes it on."""

from __future__ import annotations

import os
from dataclasses import dataclass
from pathlib import Path

STRIKES = ("stop", "kill")
LEASE_TTL_SECONDS = 4.0


class Unusable(Exception):
    """What the demo was told makes no sense. The message says what does."""


@dataclass(frozen=True)
class Options:
    """How to run."""

    input: Path
    """INPUT: the text file to report on."""
    asks: bool
    """ASK=1: a person approves, instead of the script."""
    database: str
    """DATABASE=postgresql://...: four processes on PostgreSQL. Empty: one process on SQLite."""
    model: str
    """MODEL: a live model. Empty: the scripted one."""
    base_url: str
    """BASE_URL: the endpoint of an OpenAI-compatible model."""
    strikes: tuple[str, ...]
    """STRIKES: what befalls the lease holder, run by run: `stop`, `kill`, or `none`."""

    @property
    def is_live(self) -> bool:
        """True if a real model answers."""
        return bool(self.model)

    @classmethod
    def from_environment(cls) -> Options:
        """Reads INPUT, ASK, DATABASE, MODEL, BASE_URL and STRIKES. Raises Unusable."""
        environment = os.environ
        path = Path(environment.get("INPUT") or "README.md").absolute()
        if not path.is_file():
            raise Unusable(f"INPUT={path} is no file")
        database = environment.get("DATABASE", "")
        if database and not database.startswith(("postgresql://", "postgres://")):
            raise Unusable("DATABASE is the address of a PostgreSQL database: postgresql://user@host/name")
        model, base_url = environment.get("MODEL", ""), environment.get("BASE_URL", "")
        if base_url and not model:
            raise Unusable("BASE_URL says where, MODEL which one: give both")
        strikes = tuple((environment.get("STRIKES") or ",".join(STRIKES)).split(","))
        unknown = set(strikes) - {*STRIKES, "none"}
        if unknown:
            raise Unusable(f"STRIKES are {', '.join(STRIKES)} and none, not {', '.join(sorted(unknown))}")
        return cls(path, environment.get("ASK", "") not in ("", "0"), database, model, base_url, strikes)
