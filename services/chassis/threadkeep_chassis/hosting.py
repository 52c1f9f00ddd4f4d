"""A server: several services on one address, with health, reflection, server information, metrics and a graceful stop.

A service's `server.py` builds a Service; the Host knows no resource.
"""

from __future__ import annotations

import asyncio
import contextlib
import ipaddress
import os
import signal
from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import grpc
import structlog
import uvloop
from grpc_health.v1 import health, health_pb2, health_pb2_grpc
from grpc_reflection.v1alpha import reflection
from prometheus_client import REGISTRY, CollectorRegistry, start_http_server
from prometheus_client.registry import Collector

from threadkeep.common.v1 import server_info_service_pb2_grpc
from threadkeep_chassis.health import HealthWatch
from threadkeep_chassis.interceptors import ChassisInterceptor
from threadkeep_chassis.limits import Limits
from threadkeep_chassis.rules import AdoptedService, service_rules
from threadkeep_chassis.scope import Drain
from threadkeep_chassis.server_info import SERVICE_NAME as INFO_SERVICE
from threadkeep_chassis.server_info import ServerInfo
from threadkeep_chassis.settings import ServerSettings
from threadkeep_chassis.telemetry import RpcMetrics

_log = structlog.get_logger("threadkeep.host")


class ListenRefused(ValueError):
    """The address is not one that a server may listen on while metadata declares the identity (X13)."""


@dataclass
class Surroundings:
    """What a service learns when it starts: the address is bound, nothing is served yet."""

    address: str
    """Where this host listens, with the real port."""
    addresses: Mapping[str, str]
    """Addresses of all known services by name: those of this host, and the peers from the settings."""
    draining: Drain
    """Set when the host stops."""
    serving: asyncio.Event
    """Set once calls are served; loops that call services of this host wait for it."""
    registry: CollectorRegistry
    """Where the service's metrics go."""
    health: HealthWatch
    """Told of the service's database: `health.follow(name, database)`."""


@dataclass
class Service:
    """One threadkeep service, ready to be hosted."""

    name: str
    """`runtime`, `config`, `artifacts` or `projection`."""
    grpc_services: Sequence[str]
    """Full names of the gRPC services that `register` adds: for health, reflection and the check of their rules."""
    register: Callable[[grpc.aio.Server], None]
    """Adds the servicers."""
    start: Callable[[Surroundings], Awaitable[None]]
    """Opens the database, checks the schema, starts the loops."""
    stop: Callable[[], Awaitable[None]]
    """Stops the loops, closes the database. Called after the calls have ended; also after a failed start."""
    backend: str = "memory"
    """What stores the data, for GetServerInfo."""
    limits: Limits = field(default_factory=Limits)
    capabilities: Sequence[str] = ()
    http_address: str = ""
    """Where it also answers over HTTP, once started: `127.0.0.1:54322` or `unix:/path`; empty if nowhere."""
    adopted: Mapping[str, AdoptedService] = field(default_factory=dict)
    """Which of `grpc_services` belong to another protocol and are served under threadkeep's rules."""


class Host:
    """Serves services on one address."""

    def __init__(
        self,
        services: Sequence[Service],
        *,
        listen: str = "127.0.0.1:0",
        peers: Mapping[str, str] | None = None,
        settings: ServerSettings | None = None,
        registry: CollectorRegistry | None = None,
    ) -> None:
        """Raises ListenRefused for an address that is neither loopback nor a Unix socket."""
        check_listen_address(listen)
        self.services = list(services)
        self._listen = listen
        self._peers = dict(peers or {})
        self._settings = settings or ServerSettings()
        self.registry = registry or CollectorRegistry()
        self.draining = Drain()
        self._serving = asyncio.Event()
        self._server: grpc.aio.Server | None = None
        self._interceptor: ChassisInterceptor | None = None
        self._health = health.aio.HealthServicer()
        self._watch = HealthWatch(
            self._set_serving,
            self.registry,
            every_seconds=self._settings.health_check_seconds,
            after_seconds=self._settings.unhealthy_after_seconds,
        )
        self._away: set[str] = set()
        """The services whose databases are away."""
        self._started: list[Service] = []
        self._metrics_server: Any = None
        self.metrics_port: int | None = None
        self.address = ""
        """Where it listens, once started: `127.0.0.1:54321` or `unix:/path`."""

    async def start(self) -> None:
        """Binds, starts the services, then serves. If a service fails to start, those started are stopped again.

        With `reuse_port` the address is bound after the services have started.
        """
        server = self._build()
        self._server = server
        # A port that others share is bound last: what connects to a bound one waits for whoever does not serve yet.
        is_bound_last = self._settings.reuse_port and not self._listen.endswith(":0")
        self.address = self._listen if is_bound_last else self._bind(server)
        addresses = {**self._peers, **{service.name: self.address for service in self.services}}
        surroundings = Surroundings(self.address, addresses, self.draining, self._serving, self.registry, self._watch)
        try:
            for service in self.services:
                self._started.append(service)
                await service.start(surroundings)
            self._start_metrics()
            if is_bound_last:
                self._bind(server)
            await server.start()
        except BaseException:
            await self.stop(0)
            raise
        await self._set_health(health_pb2.HealthCheckResponse.SERVING)
        self._watch.start()
        self._serving.set()
        _log.info("serving", address=self.address, services=[service.name for service in self.services])

    def _bind(self, server: grpc.aio.Server) -> str:
        try:
            port = server.add_insecure_port(self._listen)
        except RuntimeError as error:
            raise OSError(f"can't listen on {self._listen}: {error}") from error
        return self._listen if self._listen.startswith("unix") else _with_port(self._listen, port)

    def _build(self) -> grpc.aio.Server:
        settings = self._settings
        self._interceptor = ChassisInterceptor(
            RpcMetrics(self.registry),
            self.draining,
            max_message_bytes=settings.max_message_bytes,
            max_concurrent_rpcs=settings.max_concurrent_rpcs,
            adopted={name: rule for service in self.services for name, rule in service.adopted.items()},
        )
        server = grpc.aio.server(
            interceptors=[self._interceptor],
            # The interceptor refuses by name what is above the limits; gRPC's own refusals, which say less, guard
            # the memory beyond that.
            maximum_concurrent_rpcs=2 * settings.max_concurrent_rpcs + 100,
            options=[
                ("grpc.max_receive_message_length", 2 * settings.max_message_bytes + 1024 * 1024),
                # What we send is bounded by pages and limits; a row that came in must be able to go out.
                ("grpc.max_send_message_length", -1),
                ("grpc.max_metadata_size", settings.max_metadata_bytes),
                ("grpc.so_reuseport", 1 if settings.reuse_port else 0),
                # Clients may ping once a second, also while a stream is idle (B94: these two are the names that work).
                ("grpc.http2.min_ping_interval_without_data_ms", 900),
                ("grpc.http2.max_ping_strikes", 0),
                ("grpc.keepalive_permit_without_calls", 1),
                ("grpc.keepalive_time_ms", 20_000),
                ("grpc.keepalive_timeout_ms", 10_000),
            ],
        )
        for service in self.services:
            service.register(server)
        server_info_service_pb2_grpc.add_ServerInfoServiceServicer_to_server(ServerInfo(self.services), server)
        health_pb2_grpc.add_HealthServicer_to_server(self._health, server)
        names = [*self._names(), INFO_SERVICE]
        for name in names:
            # Refuses to start with a method that has no rule.
            service_rules(name)
        reflection.enable_server_reflection([*names, health.SERVICE_NAME, reflection.SERVICE_NAME], server)
        return server

    def _names(self) -> list[str]:
        return [name for service in self.services for name in service.grpc_services]

    async def _set_health(self, status: Any) -> None:
        # "" stands for the server; our own short names are what probes in a deployment use.
        for name in ("", INFO_SERVICE, *self._names(), *(service.name for service in self.services)):
            await self._health.set(name, status)

    async def _set_serving(self, name: str, serves: bool) -> None:
        (self._away.discard if serves else self._away.add)(name)
        service = next(one for one in self.services if one.name == name)
        status = health_pb2.HealthCheckResponse
        for one in (name, *service.grpc_services):
            await self._health.set(one, status.SERVING if serves else status.NOT_SERVING)
        # The server as a whole is what all of its services are.
        await self._health.set("", status.NOT_SERVING if self._away else status.SERVING)

    def _start_metrics(self) -> None:
        if self._settings.metrics_listen is None:
            return
        host, _, port = self._settings.metrics_listen.rpartition(":")
        registry = CollectorRegistry()
        for source in (self.registry, REGISTRY):
            registry.register(_Both(source))
        self._metrics_server, _ = start_http_server(int(port), host.strip("[]") or "127.0.0.1", registry)
        self.metrics_port = self._metrics_server.server_port

    async def stop(self, grace_seconds: float | None = None) -> None:
        """Stops gracefully (B97), within `grace_seconds` (default: the setting).

        Health goes first, then new calls are refused and streams are told to end with a resume point; calls under way
        finish; then the services stop.
        """
        grace = self._settings.grace_seconds if grace_seconds is None else grace_seconds
        loop = asyncio.get_running_loop()
        deadline = loop.time() + grace
        await self._watch.stop()
        if self._serving.is_set():
            await self._set_health(health_pb2.HealthCheckResponse.NOT_SERVING)
        self.draining.begin()
        if self._server is not None:
            ending = asyncio.create_task(self._end_streams(grace))
            try:
                await self._server.stop(max(0.0, grace * 0.9))
            finally:
                ending.cancel()
                await asyncio.gather(ending, return_exceptions=True)
        for service in reversed(self._started):
            try:
                async with asyncio.timeout(max(1.0, deadline - loop.time())):
                    await service.stop()
            except Exception as error:
                _log.error("service did not stop cleanly", service=service.name, error=type(error).__name__)
        self._started.clear()
        if self._metrics_server is not None:
            self._metrics_server.shutdown()
            self._metrics_server.server_close()
            self._metrics_server = None
        _log.info("stopped", address=self.address)

    async def _end_streams(self, grace: float) -> None:
        """Ends what does not end by itself: foreign streams soon, ours when most of the grace is gone."""
        assert self._interceptor is not None
        await asyncio.sleep(min(0.2, grace * 0.1))
        self._interceptor.end_streams(only_foreign=True)
        await asyncio.sleep(grace * 0.7)
        self._interceptor.end_streams()

    async def __aenter__(self) -> Host:
        await self.start()
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.stop()


class _Both(Collector):
    """Shows another registry's metrics."""

    def __init__(self, source: CollectorRegistry) -> None:
        self._source = source

    def collect(self):  # type: ignore[no-untyped-def]
        """Every metric of the source."""
        return self._source.collect()


def check_listen_address(listen: str) -> None:
    """Raises ListenRefused unless the address is loopback or a Unix socket (X13)."""
    if listen.startswith(("unix:", "unix-abstract:")):
        return
    host, separator, port = listen.rpartition(":")
    if not separator or not port.isdigit():
        raise ListenRefused(f"{listen} is no address; use host:port or unix:/path")
    host = host.strip("[]")
    if host == "localhost":
        return
    try:
        loopback = ipaddress.ip_address(host).is_loopback
    except ValueError:
        loopback = False
    if not loopback:
        raise ListenRefused(
            f"refusing to listen on {listen}: scope and grant come from call metadata, which anyone who reaches the "
            "port could declare. Listen on 127.0.0.1, [::1] or unix:/path, and put what authenticates in front."
        )


def _with_port(listen: str, port: int) -> str:
    return f"{listen.rpartition(':')[0]}:{port}"


async def serve_until_signalled(host: Host, *, on_started: Callable[[Host], None] | None = None) -> None:
    """Starts the host, and stops it gracefully at SIGTERM or SIGINT. A second signal ends the process at once."""
    loop = asyncio.get_running_loop()
    stop = asyncio.Event()

    def on_signal() -> None:
        if stop.is_set():
            os._exit(130)
        stop.set()

    for number in (signal.SIGTERM, signal.SIGINT):
        loop.add_signal_handler(number, on_signal)
    try:
        starting = asyncio.create_task(host.start())
        waiting = asyncio.create_task(stop.wait())
        await asyncio.wait({starting, waiting}, return_when=asyncio.FIRST_COMPLETED)
        if not starting.done():
            starting.cancel()
            with contextlib.suppress(asyncio.CancelledError):
                await starting
        else:
            starting.result()
            if on_started is not None:
                on_started(host)
            await waiting
            await host.stop()
        waiting.cancel()
    finally:
        for number in (signal.SIGTERM, signal.SIGINT):
            loop.remove_signal_handler(number)


def run_host(build: Callable[[], Host], *, on_started: Callable[[Host], None] | None = None) -> None:
    """Runs a host on uvloop until SIGTERM or SIGINT. `build` is called inside the loop."""

    async def main() -> None:
        await serve_until_signalled(build(), on_started=on_started)

    uvloop.run(main())
