"""The host: what it listens on, what it says of itself, how it stops (X13, X15, B94, B97)."""

import asyncio
import base64
import os
import signal
import sys
import time
import urllib.request
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import grpc
import pytest
from google.protobuf import descriptor_pb2
from grpc_health.v1 import health_pb2, health_pb2_grpc
from grpc_reflection.v1alpha import reflection_pb2, reflection_pb2_grpc

from tests.support.processes import Processes
from tests.support.waiting import eventually
from tests.unit.chassis.probe import ACME, SERVICE, ProbeClient, ProbeServicer, hosted, probe
from tests.unit.chassis.test_interceptors import reason_of
from threadkeep.common.v1 import options_pb2, server_info_service_pb2, server_info_service_pb2_grpc
from threadkeep_chassis.errors import ShuttingDown
from threadkeep_chassis.hosting import Host, ListenRefused, Service, Surroundings, check_listen_address
from threadkeep_chassis.limits import Limit, Limits
from threadkeep_chassis.peers import call_metadata, open_channel
from threadkeep_chassis.rules import ContractIncomplete
from threadkeep_chassis.scope import current_call
from threadkeep_chassis.settings import ServerSettings
from threadkeep_chassis.signals import LocalSignals

SERVING = health_pb2.HealthCheckResponse.SERVING
NOT_SERVING = health_pb2.HealthCheckResponse.NOT_SERVING


@pytest.mark.rule("X13")
@pytest.mark.parametrize(
    "address", ["127.0.0.1:0", "localhost:7000", "[::1]:7000", "127.8.8.8:1", "unix:/tmp/x", "unix-abstract:x"]
)
def test_a_server_listens_on_loopback_and_unix_sockets(address: str) -> None:
    check_listen_address(address)


@pytest.mark.rule("X13")
@pytest.mark.parametrize(
    "address",
    ["0.0.0.0:7000", "[::]:7000", "10.0.0.1:1", "example.com:7000", ":7000", "7000", "localhost", "[fe80::1]:1"],
)
def test_a_server_refuses_to_listen_anywhere_else(address: str) -> None:
    with pytest.raises(ListenRefused):
        Host([], listen=address)


@pytest.mark.rule("R22")
async def test_two_servers_on_one_port_are_refused_unless_both_share_it() -> None:
    async with Host([ProbeServicer().service()]) as first:
        with pytest.raises(OSError, match="can't listen"):
            await Host([], listen=first.address).start()
        with pytest.raises(OSError, match="can't listen"):
            await Host([], listen=first.address, settings=ServerSettings(reuse_port=True)).start()
    sharing = ServerSettings(reuse_port=True)
    async with Host([], settings=sharing) as first, Host([], listen=first.address, settings=sharing) as second:
        assert second.address == first.address
        with pytest.raises(OSError, match="can't listen"):
            await Host([], listen=first.address).start()


async def test_it_serves_on_a_unix_socket(tmp_path: Path) -> None:
    host = Host([ProbeServicer().service()], listen=f"unix:{tmp_path}/s")
    async with host:
        channel = open_channel(host.address)
        assert await ProbeClient(channel).change() == probe.ChangeResponse()
        await channel.close()


@pytest.mark.rule("X15")
async def test_it_says_what_it_is() -> None:
    limits = [Limits(Limit("max_x", 7, "")), Limits(Limit("max_x", 5, ""))]
    services = [
        ProbeServicer().service(backend="sqlite", capabilities=["b", "a"], limits=limits[0]),
        Service("other", [], lambda _: None, _nothing, _nothing, backend="sqlite", limits=limits[1]),
    ]
    async with Host(services) as host:
        channel = open_channel(host.address)
        stub = server_info_service_pb2_grpc.ServerInfoServiceStub(channel)
        info = await stub.GetServerInfo(server_info_service_pb2.GetServerInfoRequest())
        assert list(info.services) == ["probe", "other"]
        assert (info.contract_release, info.backend) == ("v1", "sqlite")
        assert list(info.capabilities) == ["a", "b"]
        assert {limit.name: limit.value for limit in info.limits}["max_x"] == 5
        assert info.version
        await channel.close()


@pytest.mark.rule("X15")
async def test_reflection_shows_services_and_their_rules() -> None:
    async with hosted(ProbeServicer()) as (_, client):
        stub = reflection_pb2_grpc.ServerReflectionStub(client.channel)
        requests = [
            reflection_pb2.ServerReflectionRequest(list_services=""),
            reflection_pb2.ServerReflectionRequest(file_containing_symbol=SERVICE),
        ]
        listed, described = [answer async for answer in stub.ServerReflectionInfo(iter(requests))]
        names = {service.name for service in listed.list_services_response.service}
        assert {SERVICE, "grpc.health.v1.Health", "threadkeep.common.v1.ServerInfoService"} <= names
        files = [
            descriptor_pb2.FileDescriptorProto.FromString(raw)
            for raw in described.file_descriptor_response.file_descriptor_proto
        ]
        (service, *_) = next(file for file in files if file.package == "threadkeep.probe.v1").service
        assert service.method[0].options.Extensions[options_pb2.method].mutation


@pytest.mark.rule("X15")
async def test_metrics_are_served_over_http() -> None:
    async with hosted(ProbeServicer(), metrics_listen="127.0.0.1:0") as (host, client):
        await client.change()

        def fetch() -> str:
            with urllib.request.urlopen(f"http://127.0.0.1:{host.metrics_port}/metrics") as response:
                return response.read().decode()

        text = await asyncio.to_thread(fetch)
        assert 'threadkeep_rpcs_total{code="OK",method="/threadkeep.probe.v1.ProbeService/Change"} 1.0' in text
        assert 'threadkeep_rpc_seconds_bucket{le="+Inf",method="/threadkeep.probe.v1.ProbeService/Change"} 1.0' in text
        assert "process_cpu_seconds_total" in text


@pytest.mark.rule("X15")
async def test_health_is_known_per_service() -> None:
    async with hosted(ProbeServicer()) as (_, client):
        stub = health_pb2_grpc.HealthStub(client.channel)
        for name in ("", "probe", SERVICE):
            assert (await stub.Check(health_pb2.HealthCheckRequest(service=name))).status == SERVING
        with pytest.raises(grpc.aio.AioRpcError):
            await stub.Check(health_pb2.HealthCheckRequest(service="unknown"))


async def test_services_start_with_the_addresses_bound_and_stop_in_reverse() -> None:
    seen: list[str] = []

    def service(name: str, *, fails: bool = False) -> Service:
        async def start(around: Surroundings) -> None:
            seen.append(f"{name} starts")
            assert around.addresses["first"] == around.address
            assert not around.address.endswith(":0")
            assert around.addresses["far"] == "elsewhere:1"
            assert not around.serving.is_set()
            if fails:
                raise RuntimeError("no")

        async def stop() -> None:
            seen.append(f"{name} stops")

        return Service(name, [], lambda _: None, start, stop)

    async with Host([service("first"), service("second")], peers={"far": "elsewhere:1"}):
        pass
    assert seen == ["first starts", "second starts", "second stops", "first stops"]
    seen.clear()
    with pytest.raises(RuntimeError):
        await Host([service("first"), service("second", fails=True)], peers={"far": "elsewhere:1"}).start()
    assert seen == ["first starts", "second starts", "second stops", "first stops"]


async def test_a_method_without_a_rule_stops_the_start() -> None:
    service = Service("x", ["threadkeep.probe.v1.UnruledService"], lambda _: None, _nothing, _nothing)
    with pytest.raises(ContractIncomplete):
        await Host([service]).start()


async def test_a_taken_address_is_an_error_that_names_it() -> None:
    async with hosted(ProbeServicer()) as (host, _):
        with pytest.raises(OSError, match=host.address):
            await Host([], listen=host.address).start()


@pytest.mark.rule("X6")
@pytest.mark.case("B97")
async def test_a_stop_ends_streams_with_a_resume_point_and_lets_calls_finish() -> None:
    signals = LocalSignals(poll_seconds=60)
    entered = asyncio.Event()

    async def change(request: Any) -> Any:
        entered.set()
        await asyncio.sleep(2)
        return probe.ChangeResponse(value="done")

    async def feed(request: Any) -> AsyncIterator[Any]:
        call = current_call()
        async with signals.subscribe("topic", drain=call.draining) as changed:
            yield probe.FeedResponse(number=1)
            while True:
                if call.draining.is_set:
                    raise ShuttingDown(resume_cursor=base64.b64encode(b"1").decode())
                await changed.wait()

    servicer = ProbeServicer()
    servicer.change, servicer.feed = change, feed
    host = Host([servicer.service()], settings=ServerSettings(grace_seconds=5))
    await host.start()
    channel = open_channel(host.address)
    client = ProbeClient(channel)
    healths: list[int] = []

    async def watch_health() -> None:
        request = health_pb2.HealthCheckRequest(service="probe")
        async for message in health_pb2_grpc.HealthStub(channel).Watch(request):
            healths.append(message.status)

    health = asyncio.create_task(watch_health())
    watches = [client.feed() for _ in range(3)]
    for watch in watches:
        assert (await watch.read()).number == 1
    await eventually(lambda: healths == [SERVING])
    unary = asyncio.create_task(_await(client.change()))
    await entered.wait()

    started = time.monotonic()
    stopping = asyncio.create_task(host.stop())
    for watch in watches:
        with pytest.raises(grpc.aio.AioRpcError) as caught:
            await watch.read()
        assert caught.value.code() == grpc.StatusCode.UNAVAILABLE
        assert reason_of(caught.value) == "SHUTTING_DOWN"
        assert b"resume_cursor" in dict(caught.value.trailing_metadata())["grpc-status-details-bin"]
    # Health said so while the unary call was still under way.
    assert healths == [SERVING, NOT_SERVING]
    assert not unary.done()
    assert (await unary).value == "done"
    await stopping
    assert time.monotonic() - started < 5
    with pytest.raises(grpc.aio.AioRpcError):
        await health
    with pytest.raises(grpc.aio.AioRpcError):
        await client.change(timeout=1)
    await channel.close()


@pytest.mark.case("B97")
async def test_a_stop_ends_also_streams_and_calls_that_know_no_drain_within_the_grace() -> None:
    async def feed(request: Any) -> AsyncIterator[Any]:
        yield probe.FeedResponse()
        await asyncio.Event().wait()

    async def change(request: Any) -> Any:
        await asyncio.Event().wait()

    servicer = ProbeServicer()
    servicer.feed, servicer.change = feed, change
    host = Host([servicer.service()], settings=ServerSettings(grace_seconds=1))
    await host.start()
    channel = open_channel(host.address)
    stream = ProbeClient(channel).feed()
    await stream.read()
    unary = asyncio.create_task(_await(ProbeClient(channel).change(timeout=20)))
    started = time.monotonic()
    stopping = asyncio.create_task(host.stop())
    with pytest.raises(grpc.aio.AioRpcError) as caught:
        await stream.read()
    assert reason_of(caught.value) == "SHUTTING_DOWN"
    await stopping
    assert time.monotonic() - started < 5
    with pytest.raises(grpc.aio.AioRpcError):
        await unary
    await channel.close()


SERVE = """
import sys
sys.path.insert(0, sys.argv[1])
from tests.unit.chassis.probe import ProbeServicer
from threadkeep_chassis.hosting import Host, run_host
run_host(lambda: Host([ProbeServicer().service()]), on_started=lambda host: print("at", host.address, flush=True))
print("ended", flush=True)
"""


@pytest.mark.case("B97")
@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
async def test_a_signal_ends_the_process_in_order_within_the_grace(
    processes: Processes, number: signal.Signals
) -> None:
    server = await processes.start(sys.executable, "-c", SERVE, str(Path(__file__).parents[3]))
    address = (await server.printed("^at (.*)$")).group(1)
    async with grpc.aio.insecure_channel(address) as channel:
        stream = ProbeClient(channel).feed(1)
        assert (await stream.read()).number == 0
        started = time.monotonic()
        os.kill(server.pid, number)
        await server.printed("^ended$")
        await eventually(lambda: not server.is_running)
        assert time.monotonic() - started < 6


@pytest.mark.case("B94")
async def test_a_client_that_pings_every_second_keeps_its_long_call() -> None:
    async def change(request: Any) -> Any:
        await asyncio.sleep(12)
        return probe.ChangeResponse(value="done")

    servicer = ProbeServicer()
    servicer.change = change
    async with hosted(servicer) as (host, _):
        options = [("grpc.keepalive_time_ms", 1000), ("grpc.http2.max_pings_without_data", 0)]
        async with grpc.aio.insecure_channel(host.address, options=options) as channel:
            request = probe.ChangeRequest(request_id="r")
            assert (await ProbeClient(channel).change(request, metadata=call_metadata(ACME))).value == "done"


async def _await(call: Any) -> Any:
    return await call


async def _nothing(*_: Any) -> None:
    return None
