"""The four services by name: their composition roots, settings and migrations, and how a daemon builds them."""

from __future__ import annotations

import importlib
import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, get_type_hints

from threadkeep_chassis.hosting import Service
from threadkeep_chassis.migrations import MigrationSet
from threadkeep_chassis.settings import ServerSettings

SERVICES = ("config", "runtime", "artifacts", "projection")
"""In the order in which they start: each after those that it calls."""

PEERS: Mapping[str, tuple[str, ...]] = {
    "config": (),
    "runtime": ("config",),
    "artifacts": ("runtime",),
    "projection": ("runtime",),
}
"""Whom each service calls."""


class Misconfigured(ValueError):
    """What the command line or the environment says can't be followed. The message says what to change."""


@dataclass(frozen=True)
class Place:
    """Where a service's data lies."""

    service: str
    url: str
    """`sqlite:///...`, `postgresql://...` or `memory:`."""
    direct_url: str | None = None
    """Straight to PostgreSQL, where `url` leads to a pooler."""
    file: Path | None = None
    """The SQLite file of a data directory."""

    @property
    def migration_url(self) -> str:
        """The address that migrations go to."""
        return self.direct_url or self.url


@dataclass(frozen=True)
class Told:
    """What the command line says beyond where the data lies."""

    listen: str
    peers: Mapping[str, str] = field(default_factory=dict)
    settings: Mapping[str, Any] = field(default_factory=dict)
    """Settings by name, of whichever service has them."""
    limits: Mapping[str, int] = field(default_factory=dict)


@dataclass(frozen=True)
class Directories:
    """Directories of definitions that the config service follows."""

    directories: Sequence[Path]
    """Each a layer above the one before."""
    scope: Mapping[str, str]
    """The scope that their definitions are of."""
    rescan_seconds: float


def directories(
    paths: Sequence[Path] | None, scope: str, rescan_seconds: float, services: Sequence[str]
) -> Directories | None:
    """What `--config-dir` and `--config-scope` say. Raises Misconfigured."""
    if not paths:
        return None
    if "config" not in services:
        raise Misconfigured("--config-dir is for the config service")
    for path in paths:
        if not path.is_dir():
            raise Misconfigured(f"--config-dir: there is no directory {path}")
    try:
        values = json.loads(scope) if scope.lstrip().startswith("{") else parse_pairs(scope)
    except ValueError as error:
        raise Misconfigured("--config-scope is a JSON object or name=value,name=value") from error
    if not isinstance(values, dict) or not all(isinstance(value, str) for value in values.values()):
        raise Misconfigured("--config-scope has texts as values")
    if rescan_seconds <= 0:
        raise Misconfigured("--config-rescan-seconds must be above 0")
    return Directories([path.absolute() for path in paths], values, rescan_seconds)


def parse_pairs(text: str) -> dict[str, str]:
    """`name=value,name=value`. Raises ValueError."""
    pairs = [part.partition("=") for part in text.split(",")]
    if not all(name and separator for name, separator, _ in pairs):
        raise ValueError(text)
    return {name.strip(): value for name, _, value in pairs}


def places(
    services: Sequence[str], *, database: str | None, direct: str | None = None, data_dir: Path | None = None
) -> list[Place]:
    """Where the data of these services lies: in one database, or in a file per service of a directory.

    Raises Misconfigured when both or neither is given.
    """
    if (database is None) == (data_dir is None):
        raise Misconfigured("say where the data lies: --database URL or --data-dir DIRECTORY, one of them")
    if data_dir is not None:
        files = {service: (data_dir / f"{service}.db").absolute() for service in services}
        return [Place(service, f"sqlite:///{file}", file=file) for service, file in files.items()]
    assert database is not None
    if database.startswith("sqlite:") and len(services) > 1:
        raise Misconfigured("one SQLite file holds one service; use --data-dir DIRECTORY for several")
    return [Place(service, database, direct) for service in services]


def migrations_of(service: str) -> MigrationSet:
    """The service's migrations."""
    migrations: MigrationSet = _server(service).MIGRATIONS
    return migrations


async def renew_runtime_log(url: str) -> str:
    """Gives the runtime's log a new incarnation, which it returns."""
    renewed: str = await _server("runtime").renew_log(url)
    return renewed


def build(place: Place, told: Told) -> tuple[Service, ServerSettings]:
    """Builds a service. Raises Misconfigured, pydantic's ValidationError, DatabaseUrlInvalid."""
    make = _server(place.service).build
    kind: type[ServerSettings] = get_type_hints(make)["settings"]
    given: dict[str, Any] = {name: value for name, value in told.settings.items() if name in kind.model_fields}
    given |= {"database_url": place.url, "listen": told.listen}
    if place.direct_url is not None:
        given["database_direct_url"] = place.direct_url
    settings = kind(**given)
    settings = settings.model_copy(update={"peers": {**settings.peers, **told.peers}, "limits": {}})
    wanted = {**kind(**given).limits, **told.limits}
    known = {name for name, _ in make(settings).limits.items()}
    settings = settings.model_copy(update={"limits": {name: wanted[name] for name in wanted if name in known}})
    service: Service = make(settings)
    return service, settings


def build_all(where: Sequence[Place], told: Told) -> list[tuple[Service, ServerSettings]]:
    """Builds several services. A setting or limit that none of them has is Misconfigured."""
    kinds = [get_type_hints(_server(place.service).build)["settings"] for place in where]
    for name in told.settings:
        if not any(name in kind.model_fields for kind in kinds):
            raise Misconfigured(f"no service here has a setting named {name}")
    built = [build(place, told) for place in where]
    known = {name for service, _ in built for name, _ in service.limits.items()}
    for name in told.limits:
        if name not in known:
            raise Misconfigured(f"no service here has a limit named {name}; they have {', '.join(sorted(known))}")
    return built


def check_peers(services: Sequence[str], settings: Sequence[ServerSettings]) -> None:
    """Raises Misconfigured if a service is to call one whose address nobody said."""
    for service, told in zip(services, settings, strict=True):
        for peer in PEERS[service]:
            if peer not in services and peer not in told.peers:
                raise Misconfigured(f"the {service} service calls {peer}: say where that is with --{peer}-address")


def parse_assignments(texts: Sequence[str], option: str) -> dict[str, Any]:
    """`name=value` texts as a dict; a value that is JSON is taken as such. Raises Misconfigured."""
    found: dict[str, Any] = {}
    for text in texts:
        name, separator, value = text.partition("=")
        if not separator or not name:
            raise Misconfigured(f"{option} takes name=value, not {name}")
        try:
            found[name] = json.loads(value)
        except ValueError:
            found[name] = value
    return found


def _server(service: str) -> Any:
    return importlib.import_module(f"threadkeep_{service}.server")
