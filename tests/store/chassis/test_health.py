"""Health follows the database (X15)."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import grpc
import pytest
from grpc_health.v1 import health_pb2, health_pb2_grpc

from tests.support.postgres import Postgres
from tests.support.suite import build_service, migrate_one
from tests.support.waiting import eventually
from threadkeep_chassis.hosting import Host
from threadkeep_chassis.settings import ServerSettings

SERVING = health_pb2.HealthCheckResponse.SERVING
NOT_SERVING = health_pb2.HealthCheckResponse.NOT_SERVING
CONFIG = "threadkeep.config.v1.ConfigService"
INFO = "threadkeep.common.v1.ServerInfoService"


@asynccontextmanager
async def watched(host: Host, *names: str) -> AsyncIterator[dict[str, list[int]]]:
    """What watches of these names have shown."""
    seen: dict[str, list[int]] = {name: [] for name in names}
    async with grpc.aio.insecure_channel(host.address) as channel:

        async def watch(name: str) -> None:
            async for message in health_pb2_grpc.HealthStub(channel).Watch(health_pb2.HealthCheckRequest(service=name)):
                seen[name].append(message.status)

        watching = [asyncio.create_task(watch(name)) for name in names]
        try:
            yield seen
        finally:
            for task in watching:
                task.cancel()
            await asyncio.gather(*watching, return_exceptions=True)


@pytest.mark.rule("X15")
async def test_a_service_without_its_database_does_not_serve_until_it_is_back() -> None:
    private = Postgres()
    try:
        url = await private.empty_database()
        await migrate_one(url, "config")
        settings = ServerSettings(health_check_seconds=0.05, unhealthy_after_seconds=0.3)
        # The other service's database is its own process.
        services = [build_service("config", url), build_service("artifacts", "memory:")]
        async with (
            Host(services, settings=settings) as host,
            watched(host, "", "config", CONFIG, "artifacts", INFO) as seen,
        ):

            def shows(*statuses: int) -> bool:
                return all(seen[name] == [*statuses] for name in ("", "config", CONFIG))

            await eventually(lambda: shows(SERVING) and seen["artifacts"] == seen[INFO] == [SERVING])
            private.stop()
            await eventually(lambda: shows(SERVING, NOT_SERVING))
            gauge = host.registry.get_sample_value
            assert gauge("threadkeep_database_reachable", {"service": "config"}) == 0
            assert gauge("threadkeep_database_reachable", {"service": "artifacts"}) == 1
            private.start()
            await eventually(lambda: shows(SERVING, NOT_SERVING, SERVING))
            assert seen["artifacts"] == seen[INFO] == [SERVING]
    finally:
        private.close()


@pytest.mark.rule("X15")
async def test_an_outage_shorter_than_the_patience_is_nobodys_business(postgres: Postgres) -> None:
    url = await postgres.empty_database()
    await migrate_one(url, "config")
    settings = ServerSettings(health_check_seconds=0.02, unhealthy_after_seconds=60)
    async with Host([build_service("config", url)], settings=settings) as host, watched(host, "config") as seen:
        await eventually(lambda: seen["config"] == [SERVING])
        name = url.removeprefix("postgresql://postgres@/").split("?", 1)[0]
        query = f"SELECT count(pg_terminate_backend(pid)) FROM pg_stat_activity WHERE datname = '{name}'"
        for _ in range(5):
            await postgres.execute(query)
            await asyncio.sleep(0)
        host._watch._reachable.labels("config").set(0)
        gauge = host.registry.get_sample_value
        await eventually(lambda: gauge("threadkeep_database_reachable", {"service": "config"}) == 1)
        assert seen["config"] == [SERVING]
    await postgres.drop(url)
