"""What several processes of one command line share: the port, HTTP's port, database sessions, ports for metrics."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager
from typing import Any

from threadkeep_chassis.database import DatabaseUrl
from threadkeep_chassis.settings import ServerSettings
from threadkeep_embedded.ports import KeptPort
from threadkeep_embedded.processes import Part
from threadkeep_embedded.services import Misconfigured, Place, Told


@contextmanager
def shared_out(
    where: Sequence[Place], told: Told, settings: Sequence[ServerSettings], processes: int
) -> Iterator[list[Part]]:
    """The parts of so many processes; their ports are kept for them meanwhile.

    The sum of their database sessions is what a single process would have. Metrics are served on `metrics_listen`, the
    next port, and so on (0: each on any free one). Raises Misconfigured, PortTaken, OSError.
    """
    _check(where, told, processes)
    with ExitStack() as stack:

        def keep(listen: str) -> str:
            kept = KeptPort(listen)
            stack.callback(kept.close)
            return kept.address

        common: dict[str, Any] = {
            "reuse_port": True,
            "database_pool_size": _pool_share(settings[0].database_pool_size, processes),
        }
        listen = keep(told.listen)
        for one in settings:
            http_listen: str | None = getattr(one, "http_listen", None)
            if http_listen is not None:
                _check_address("--http-listen", http_listen)
                common["http_listen"] = keep(http_listen)
        metrics = settings[0].metrics_listen
        yield [
            Part(index, listen, {**common, **({} if metrics is None else {"metrics_listen": _next(metrics, index)})})
            for index in range(processes)
        ]


def _check(where: Sequence[Place], told: Told, processes: int) -> None:
    for place in where:
        backend = DatabaseUrl.parse(place.url).backend
        if backend != "postgresql":
            raise Misconfigured(
                f"--processes {processes} needs PostgreSQL (rule R22): several server processes share a PostgreSQL "
                f"database, while a SQLite file and memory have one; {place.service} has {backend}"
            )
    _check_address("--listen", told.listen)


def _check_address(option: str, address: str) -> None:
    if address.startswith("unix"):
        raise Misconfigured(f"several processes share no Unix socket: with --processes, {option} is host:port")


def _pool_share(pool_size: int, processes: int) -> int:
    if pool_size < processes:
        raise Misconfigured(
            f"--processes {processes} leaves less than one database session to each: the setting database_pool_size, "
            f"which they share, is {pool_size}"
        )
    return pool_size // processes


def _next(listen: str, index: int) -> str:
    host, _, port = listen.rpartition(":")
    return listen if port == "0" else f"{host}:{int(port) + index}"
