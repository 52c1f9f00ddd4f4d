"""A running suite in this process: the four services on one address, or each on its own, over any backend.

Tests speak to it over gRPC only. Services are imported when a suite starts, so that tests which need none stay light.
"""

import importlib
from collections.abc import Mapping, Sequence
from typing import Any, TypeVar, get_args, get_type_hints

import grpc

from tests.support.calls import Metadata, scope
from tests.support.databases import Databases
from tests.support.waiting import eventually

SERVICES = ("config", "runtime", "artifacts", "projection")
"""In the order in which they start: each after those that it calls."""

TOPOLOGIES = ("embedded", "split")

HOOKS = "https://hooks.example"
"""Where webhooks may lead in every suite; no name server knows it."""
DEFAULTS: Mapping[str, Mapping[str, Any]] = {"runtime": {"outbox": {"webhook_origins": [HOOKS]}}}

ServiceSettings = Mapping[str, Mapping[str, Any]]
S = TypeVar("S")


class Suite:
    """Four services and channels to them."""

    def __init__(
        self,
        databases: Databases,
        backend: str,
        topology: str,
        settings: ServiceSettings,
        services: Sequence[str],
        clock: Any = None,
    ) -> None:
        assert topology in TOPOLOGIES, topology
        self.backend = backend
        self.topology = topology
        self.services = tuple(service for service in SERVICES if service in services)
        self.urls: dict[str, str] = {}
        """The database address of each service."""
        self.addresses: dict[str, str] = {}
        """Where each service listens."""
        self._databases = databases
        self._settings = settings
        self.clock = clock
        """The runtime's clock; None: the system's, or the database's."""
        self.hosts: dict[str, Any] = {}
        """The running host of each service; all the same one when embedded."""
        self._hosts: list[Any] = []
        self._channels: dict[str, grpc.aio.Channel] = {}

    @classmethod
    async def start(
        cls,
        databases: Databases,
        backend: str,
        topology: str,
        settings: ServiceSettings | None = None,
        services: Sequence[str] = SERVICES,
        clock: Any = None,
    ) -> "Suite":
        """Prepares databases and starts the services.

        `settings` are more settings by service, and of what hosts them: `{"runtime": {"lease_ttl_seconds": 1}}`.
        """
        suite = cls(databases, backend, topology, settings or {}, services, clock)
        await suite._prepare_databases()
        try:
            await suite.resume()
        except BaseException:
            await suite.close()
            raise
        return suite

    def channel(self, service: str) -> grpc.aio.Channel:
        """The channel to a service; it survives a restart."""
        address = self.addresses[service]
        if address not in self._channels:
            self._channels[address] = grpc.aio.insecure_channel(
                address,
                options=[
                    ("grpc.max_receive_message_length", -1),
                    ("grpc.max_send_message_length", -1),
                    ("grpc.initial_reconnect_backoff_ms", 50),
                    ("grpc.max_reconnect_backoff_ms", 200),
                    ("grpc.use_local_subchannel_pool", 1),
                ],
            )
        return self._channels[address]

    def stub(self, stub: type[S], service: str | None = None) -> S:
        """A generated stub on the right channel: `suite.stub(TaskServiceStub)`.

        ServerInfoServiceStub belongs to every service and needs `service`.
        """
        name = service or stub.__module__.split(".")[1]
        return stub(self.channel(name))  # type: ignore[call-arg]

    def scope(self, **values: str) -> Metadata:
        """Call metadata of a scope; see tests.support.calls for grants."""
        return scope(**values)

    async def stop(self, grace_seconds: float = 5.0) -> None:
        """Stops the services; 0 drops the calls under way."""
        for host in reversed(self._hosts):
            await host.stop(grace_seconds)
        self._hosts.clear()
        self.hosts.clear()

    async def resume(self) -> None:
        """Starts the services, on the addresses that they had before."""
        if self.topology == "embedded":
            await self._host(self.services)
        else:
            for service in self.services:
                await self._host((service,))

    async def restart(self, grace_seconds: float = 5.0) -> None:
        """Stops and starts all services on the same data, and waits until calls get through again."""
        assert self.backend != "memory", "what a memory backend holds ends with its server"
        await self.stop(grace_seconds)
        await self.resume()
        for channel in self._channels.values():
            channel.get_state(try_to_connect=True)
            await eventually(lambda: channel.get_state(try_to_connect=True) == grpc.ChannelConnectivity.READY)  # noqa: B023

    async def rehost(self, service: str, grace_seconds: float = 5.0) -> None:
        """Stops one service of a split suite and starts it again on its data and address, while the others go on."""
        assert self.topology == "split", "embedded services live and end together"
        assert self.backend != "memory", "what a memory backend holds ends with its server"
        host = self.hosts.pop(service)
        self._hosts.remove(host)
        await host.stop(grace_seconds)
        await self._host((service,))

    async def close(self) -> None:
        """Stops everything and removes the databases."""
        for channel in self._channels.values():
            await channel.close()
        await self.stop()
        for url in set(self.urls.values()):
            await self._databases.drop(url)

    async def _host(self, services: tuple[str, ...]) -> None:
        from threadkeep_chassis.hosting import Host
        from threadkeep_chassis.settings import ServerSettings

        built = [self._build(service) for service in services]
        listen = self.addresses.get(services[0], "127.0.0.1:0")
        host = Host(
            built,
            listen=listen,
            peers={name: at for name, at in self.addresses.items() if name not in services},
            settings=ServerSettings(**self._settings.get("host", {})),
        )
        self._hosts.append(host)
        await host.start()
        for service in services:
            self.addresses[service] = host.address
            self.hosts[service] = host

    def _build(self, service: str) -> Any:
        injected = {"clock": self.clock} if self.clock is not None and service == "runtime" else {}
        told = self._databases.service_settings(self.urls[service])
        more = {**DEFAULTS.get(service, {}), **self._settings.get(service, {}), **told}
        return build_service(service, more.pop("database_url"), more, **injected)

    async def _prepare_databases(self) -> None:
        if self.backend == "postgres":
            url = await self._databases.migrated(" ".join(self.services), self._migrate_all)
            self.urls = dict.fromkeys(self.services, url)
        elif self.backend == "sqlite":
            folder = self._databases.folder()
            self.urls = {service: f"sqlite:///{folder / service}.db" for service in self.services}
            for service, url in self.urls.items():
                await migrate_one(url, service)
        else:
            self.urls = dict.fromkeys(self.services, "memory:")

    async def _migrate_all(self, url: str) -> None:
        for service in self.services:
            await migrate_one(url, service)


def build_service(service: str, url: str, more: Mapping[str, Any] | None = None, **injected: Any) -> Any:
    """What hosts one service on the database at `url`, with more settings by name."""
    build = importlib.import_module(f"threadkeep_{service}.server").build
    hint = get_type_hints(build)["settings"]
    kind = next(one for one in (*get_args(hint), hint) if isinstance(one, type) and one is not type(None))
    unknown = set(more or {}) - set(kind.model_fields)
    assert not unknown, f"{service} has no settings named {sorted(unknown)}"
    return build(kind(database_url=url, **(more or {})), **injected)


async def migrate_one(url: str, service: str) -> None:
    """Brings one service's schema to head, as `threadkeepd migrate` does."""
    from threadkeep_chassis.migrations import MigrationSet, migrate

    await migrate(url, MigrationSet(service, f"threadkeep_{service}"))
