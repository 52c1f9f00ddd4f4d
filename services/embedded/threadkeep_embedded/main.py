"""The command line of `threadkeepd`. Every flag can also come from the environment, as THREADKEEP_...

Exit codes: 0 fine, 1 failed, 2 usage, 3 schema, 4 database out of reach, 5 peer out of reach, 6 data owned by another.
"""

from __future__ import annotations

import sys
from enum import StrEnum
from pathlib import Path
from typing import Annotated, Any

import typer
import uvloop

from threadkeep_chassis.logs import configure_logs
from threadkeep_chassis.server_info import distribution_version
from threadkeep_chassis.telemetry import configure_tracing
from threadkeep_embedded import serving, upkeep
from threadkeep_embedded.exits import told_failures
from threadkeep_embedded.services import SERVICES, Told, directories, parse_assignments, places

DEFAULT_LISTEN = "127.0.0.1:7433"
DEFAULT_HTTP_LISTEN = "127.0.0.1:7434"
HTTP_OFF = "off"

app = typer.Typer(
    name="threadkeepd",
    help="The threadkeep services. Start with `threadkeepd up`.",
    no_args_is_help=True,
    add_completion=False,
    pretty_exceptions_enable=False,
)


class ServiceName(StrEnum):
    """The services that can run alone."""

    CONFIG = "config"
    RUNTIME = "runtime"
    ARTIFACTS = "artifacts"
    PROJECTION = "projection"


class LogFormat(StrEnum):
    """How log lines look."""

    JSON = "json"
    TEXT = "text"


Database = Annotated[
    str | None,
    typer.Option("--database", envvar="THREADKEEP_DATABASE_URL", help="postgresql://..., sqlite:///file or memory:"),
]
Direct = Annotated[
    str | None,
    typer.Option(
        "--database-direct",
        envvar="THREADKEEP_DATABASE_DIRECT_URL",
        help="PostgreSQL itself, where --database leads to a transaction pooler.",
    ),
]
DataDir = Annotated[
    Path | None,
    typer.Option("--data-dir", envvar="THREADKEEP_DATA_DIR", help="A directory with one SQLite file per service."),
]
ConfigDir = Annotated[
    list[Path] | None,
    typer.Option(
        "--config-dir",
        envvar="THREADKEEP_CONFIG_DIR",
        help="A directory of definitions that is applied, and again when it changes. Repeatable: layers.",
    ),
]
ConfigScope = Annotated[
    str,
    typer.Option(
        "--config-scope", envvar="THREADKEEP_CONFIG_SCOPE", help="The scope of --config-dir. Default: the empty one."
    ),
]
ConfigRescan = Annotated[
    float,
    typer.Option(
        "--config-rescan-seconds",
        envvar="THREADKEEP_CONFIG_RESCAN_SECONDS",
        help="How often --config-dir is looked at although nothing was told to change.",
    ),
]
Listen = Annotated[
    str,
    typer.Option("--listen", envvar="THREADKEEP_LISTEN", help="host:port (0: any free port) or unix:/path. Loopback."),
]
Http = Annotated[
    str | None,
    typer.Option(
        "--http-listen",
        envvar="THREADKEEP_HTTP_LISTEN",
        help="host:port or unix:/path where the projection serves sessions as Server-Sent Events, or off. Loopback.",
    ),
]
ReadyFile = Annotated[
    Path | None,
    typer.Option("--ready-file", envvar="THREADKEEP_READY_FILE", help="Gets the address once calls are served."),
]
Metrics = Annotated[
    str | None,
    typer.Option("--metrics-listen", envvar="THREADKEEP_METRICS_LISTEN", help="host:port of HTTP /metrics."),
]
Grace = Annotated[
    float | None,
    typer.Option("--grace-seconds", envvar="THREADKEEP_GRACE_SECONDS", help="What a stop leaves to calls under way."),
]
Count = Annotated[
    int,
    typer.Option(
        "--processes",
        envvar="THREADKEEP_PROCESSES",
        min=1,
        max=64,
        help="Server processes behind the one port, each a core's worth of work. PostgreSQL only. They share the "
        "setting database_pool_size; metrics are on the port of --metrics-listen and those after it.",
    ),
]
Sets = Annotated[
    list[str] | None, typer.Option("--set", help="A setting as name=value, such as lease_ttl_seconds=10. Repeatable.")
]
LimitsSet = Annotated[
    list[str] | None, typer.Option("--limit", help="A limit as name=value, as GetServerInfo names it. Repeatable.")
]
Level = Annotated[str, typer.Option("--log-level", envvar="THREADKEEP_LOG_LEVEL", help="DEBUG, INFO, WARNING, ERROR.")]
Format = Annotated[
    LogFormat | None,
    typer.Option("--log-format", envvar="THREADKEEP_LOG_FORMAT", help="json, or text (the default on a terminal)."),
]
ConfigAddress = Annotated[str | None, typer.Option("--config-address", envvar="THREADKEEP_PEERS__CONFIG")]
RuntimeAddress = Annotated[str | None, typer.Option("--runtime-address", envvar="THREADKEEP_PEERS__RUNTIME")]
ArtifactsAddress = Annotated[str | None, typer.Option("--artifacts-address", envvar="THREADKEEP_PEERS__ARTIFACTS")]
ProjectionAddress = Annotated[str | None, typer.Option("--projection-address", envvar="THREADKEEP_PEERS__PROJECTION")]


@app.command()
def up(
    data_dir: DataDir = None,
    database: Database = None,
    direct: Direct = None,
    listen: Listen = DEFAULT_LISTEN,
    http_listen: Http = None,
    config_dir: ConfigDir = None,
    config_scope: ConfigScope = "{}",
    config_rescan_seconds: ConfigRescan = 10.0,
    ready_file: ReadyFile = None,
    metrics_listen: Metrics = None,
    grace_seconds: Grace = None,
    processes: Count = 1,
    sets: Sets = None,
    limits: LimitsSet = None,
    log_level: Level = "INFO",
    log_format: Format = None,
) -> None:
    """Runs all four services in this process, or in several, on one port.

    With --data-dir (default: ./threadkeep-data) the schemas are made and kept up to date by themselves. With --database
    they are not: run `threadkeepd migrate` first. HTTP is at 127.0.0.1:7434 beside the default --listen, at any free
    port beside another one, and off beside a Unix socket.
    """
    _configure(log_level, log_format)
    with told_failures():
        if data_dir is None and database is None:
            data_dir = Path("threadkeep-data")
        where = places(SERVICES, database=database, direct=direct, data_dir=data_dir)
        told = _told(listen, {}, metrics_listen, grace_seconds, sets, limits, http_listen or _usual_http_listen(listen))
        followed = directories(config_dir, config_scope, config_rescan_seconds, SERVICES)
        serving.run(
            where, told, migrates=data_dir is not None, ready_file=ready_file, config_dir=followed, processes=processes
        )


@app.command()
def serve(
    service: Annotated[ServiceName, typer.Argument(help="Which service.")],
    database: Database = None,
    direct: Direct = None,
    data_dir: DataDir = None,
    listen: Listen = DEFAULT_LISTEN,
    http_listen: Http = None,
    config_address: ConfigAddress = None,
    runtime_address: RuntimeAddress = None,
    artifacts_address: ArtifactsAddress = None,
    projection_address: ProjectionAddress = None,
    config_dir: ConfigDir = None,
    config_scope: ConfigScope = "{}",
    config_rescan_seconds: ConfigRescan = 10.0,
    ready_file: ReadyFile = None,
    metrics_listen: Metrics = None,
    grace_seconds: Grace = None,
    processes: Count = 1,
    sets: Sets = None,
    limits: LimitsSet = None,
    log_level: Level = "INFO",
    log_format: Format = None,
) -> None:
    """Runs one service alone; several of it may share one PostgreSQL database.

    It never changes a schema, and refuses to start on one that it does not know.
    """
    _configure(log_level, log_format)
    with told_failures():
        where = places([service.value], database=database, direct=direct, data_dir=data_dir)
        peers = _peers(config_address, runtime_address, artifacts_address, projection_address)
        # The environment may say it to all services alike.
        http_listen = http_listen if service is ServiceName.PROJECTION else None
        told = _told(listen, peers, metrics_listen, grace_seconds, sets, limits, http_listen)
        followed = directories(config_dir, config_scope, config_rescan_seconds, [service.value])
        serving.run(where, told, migrates=False, ready_file=ready_file, config_dir=followed, processes=processes)


@app.command()
def migrate(
    service: Annotated[
        list[ServiceName] | None, typer.Option("--service", help="Only this service. Repeatable. Default: all four.")
    ] = None,
    database: Database = None,
    direct: Direct = None,
    data_dir: DataDir = None,
    log_level: Level = "WARNING",
    log_format: Format = None,
) -> None:
    """Brings schemas up to date. Safe to repeat, to run many times at once, and to kill."""
    _configure(log_level, log_format)
    with told_failures():
        where = places(_names(service), database=database, direct=direct, data_dir=data_dir)
        uvloop.run(upkeep.migrate_all(where))


@app.command()
def check(
    service: Annotated[
        list[ServiceName] | None, typer.Option("--service", help="Only this service. Repeatable. Default: all four.")
    ] = None,
    database: Database = None,
    direct: Direct = None,
    data_dir: DataDir = None,
    config_address: ConfigAddress = None,
    runtime_address: RuntimeAddress = None,
    artifacts_address: ArtifactsAddress = None,
    projection_address: ProjectionAddress = None,
    log_level: Level = "ERROR",
    log_format: Format = None,
) -> None:
    """Says whether services could start here: databases, schemas, and the peers whose addresses are given.

    Exit code 0 if so, 3 for a schema, 4 for a database, 5 for a peer.
    """
    _configure(log_level, log_format)
    with told_failures():
        peers = _peers(config_address, runtime_address, artifacts_address, projection_address)
        where = (
            places(_names(service), database=database, direct=direct, data_dir=data_dir)
            if database or data_dir or not peers
            else []
        )
        found = uvloop.run(upkeep.check_all(where, peers))
    raise typer.Exit(int(found))


@app.command("renew-log")
def renew_log(
    database: Database = None,
    direct: Direct = None,
    data_dir: DataDir = None,
    log_level: Level = "WARNING",
    log_format: Format = None,
) -> None:
    """Run this once after the runtime's data was restored to an earlier point.

    The event log gets a new incarnation: cursors from before are refused as unknown, and followers (the projection
    among them) build anew instead of missing what happens again under the same numbers. A data directory must not be in
    use.
    """
    _configure(log_level, log_format)
    with told_failures():
        (place,) = places(["runtime"], database=database, direct=direct, data_dir=data_dir)
        uvloop.run(upkeep.renew_log(place))


@app.command()
def version() -> None:
    """Prints the version."""
    print(distribution_version())


def main() -> None:
    """The entry point of the `threadkeepd` command."""
    app()


def _configure(level: str, form: LogFormat | None) -> None:
    try:
        configure_logs(level, json=(form or _usual_format()) is LogFormat.JSON)
    except KeyError as error:
        raise typer.BadParameter(f"{level} is no log level", param_hint="--log-level") from error
    configure_tracing("threadkeepd")


def _usual_format() -> LogFormat:
    return LogFormat.TEXT if sys.stderr.isatty() else LogFormat.JSON


def _usual_http_listen(listen: str) -> str:
    # Whoever listens on a Unix socket leaves it to the file system who may connect.
    if listen.startswith("unix"):
        return HTTP_OFF
    return DEFAULT_HTTP_LISTEN if listen == DEFAULT_LISTEN else "127.0.0.1:0"


def _names(chosen: list[ServiceName] | None) -> list[str]:
    return [name.value for name in chosen] if chosen else list(SERVICES)


def _peers(*addresses: str | None) -> dict[str, str]:
    named = zip(("config", "runtime", "artifacts", "projection"), addresses, strict=True)
    return {name: address for name, address in named if address is not None}


def _told(
    listen: str,
    peers: dict[str, str],
    metrics_listen: str | None,
    grace_seconds: float | None,
    sets: list[str] | None,
    limits: list[str] | None,
    http_listen: str | None,
) -> Told:
    settings: dict[str, Any] = parse_assignments(sets or [], "--set")
    if http_listen is not None:
        settings.setdefault("http_listen", None if http_listen == HTTP_OFF else http_listen)
    for name, value in (("metrics_listen", metrics_listen), ("grace_seconds", grace_seconds)):
        if value is not None:
            settings[name] = value
    return Told(listen, peers, settings, parse_assignments(limits or [], "--limit"))


if __name__ == "__main__":
    main()
