"""`threadkeepd`: up, serve, migrate and check, as real processes."""

import asyncio
import signal
from pathlib import Path

import grpc
import pytest

from tests.support.artifacts import download, upload
from tests.support.calls import Metadata, scope
from tests.support.postgres import Postgres
from tests.support.processes import BIN, Processes
from threadkeep.artifacts.v1.artifact_service_pb2_grpc import ArtifactServiceStub
from threadkeep.common.v1 import server_info_service_pb2 as info_pb
from threadkeep.common.v1.server_info_service_pb2_grpc import ServerInfoServiceStub
from threadkeep.config.v1 import config_service_pb2
from threadkeep.config.v1.config_service_pb2_grpc import ConfigServiceStub

ACME: Metadata = scope(tenant="acme")
SCHEMA, DATABASE, PEER, OWNED = 3, 4, 5, 6


async def _run(processes: Processes, *arguments: str | Path) -> tuple[int, str]:
    process = await processes.start(BIN / "threadkeepd", *arguments)
    return await process.wait(), process.output()


async def _services(address: str) -> list[str]:
    async with grpc.aio.insecure_channel(address) as channel:
        answer = await ServerInfoServiceStub(channel).GetServerInfo(info_pb.GetServerInfoRequest(), timeout=20)
        return sorted(answer.services)


@pytest.mark.rule("X14", "X15", "R22")
async def test_up_migrates_by_itself_serves_all_four_and_keeps_its_data(processes: Processes, tmp_path: Path) -> None:
    data = tmp_path / "not yet there"
    process, address = await processes.daemon("up", "--data-dir", data)
    assert await _services(address) == ["artifacts", "config", "projection", "runtime"]
    assert f"threadkeepd is ready on {address}" in process.output()
    assert sorted(path.name for path in data.glob("*.db")) == [
        "artifacts.db",
        "config.db",
        "projection.db",
        "runtime.db",
    ]
    async with grpc.aio.insecure_channel(address) as channel:
        mine = (await upload(ArtifactServiceStub(channel), ACME, b"kept")).artifact_id
    assert await process.stop() == 0
    process, address = await processes.daemon("up", "--data-dir", data)
    async with grpc.aio.insecure_channel(address) as channel:
        assert await download(ArtifactServiceStub(channel), ACME, mine) == b"kept"
    assert await process.stop() == 0


@pytest.mark.rule("R22")
async def test_a_second_server_on_the_same_data_is_refused_and_told_who_has_it(
    processes: Processes, tmp_path: Path
) -> None:
    first, _ = await processes.daemon("up", "--data-dir", tmp_path)
    code, output = await _run(processes, "up", "--data-dir", tmp_path, "--listen", "127.0.0.1:0")
    assert code == OWNED
    assert str(first.pid) in output
    assert "Traceback" not in output


@pytest.mark.rule("X14")
async def test_serve_refuses_a_schema_that_is_not_there_and_says_what_to_run(
    processes: Processes, postgres: Postgres, tmp_path: Path
) -> None:
    url = await postgres.empty_database()
    for where in (("--database", url), ("--data-dir", tmp_path)):
        code, output = await _run(processes, "serve", "config", *where, "--listen", "127.0.0.1:0")
        assert code == SCHEMA
        assert "run `threadkeepd migrate`" in output
        assert "Traceback" not in output
    code, output = await _run(processes, "up", "--database", url, "--listen", "127.0.0.1:0")
    assert code == SCHEMA, "up migrates its own data directory alone"
    await postgres.drop(url)


@pytest.mark.rule("X14")
@pytest.mark.case("B40")
async def test_many_may_migrate_at_once_and_again(processes: Processes, postgres: Postgres) -> None:
    url = await postgres.empty_database()
    ends = await asyncio.gather(*(_run(processes, "migrate", "--database", url) for _ in range(4)))
    assert [code for code, _ in ends] == [0] * 4, ends
    for service in ("config", "runtime", "artifacts", "projection"):
        assert sum(f"{service}: nothing ->" in output for _, output in ends) == 1
    code, output = await _run(processes, "check", "--database", url)
    assert (code, output.count("ok: postgresql")) == (0, 4)
    process, address = await processes.daemon("up", "--database", url)
    assert len(await _services(address)) == 4
    assert await process.stop() == 0
    await postgres.drop(url)


@pytest.mark.rule("X14")
async def test_check_tells_schema_database_and_peer_apart(processes: Processes, tmp_path: Path) -> None:
    nobody = "postgresql://nobody:secret@127.0.0.1:1/none"
    code, output = await _run(processes, "check", "--service", "artifacts", "--data-dir", tmp_path)
    assert (code, "threadkeepd migrate" in output) == (SCHEMA, True)
    assert not list(tmp_path.glob("*.db")), "a check makes no files"
    code, output = await _run(processes, "check", "--service", "artifacts", "--database", nobody)
    assert code == DATABASE
    assert "secret" not in output
    assert (await _run(processes, "migrate", "--service", "artifacts", "--data-dir", tmp_path))[0] == 0
    code, output = await _run(
        processes, "check", "--service", "artifacts", "--data-dir", tmp_path, "--config-address", "127.0.0.1:1"
    )
    assert code == PEER
    assert "artifacts: ok" in output


@pytest.mark.rule("X13")
async def test_it_listens_on_loopback_alone(processes: Processes, tmp_path: Path) -> None:
    code, output = await _run(processes, "up", "--data-dir", tmp_path / "data", "--listen", "0.0.0.0:0")
    assert code == 2
    assert "refusing to listen" in output
    assert "Traceback" not in output
    assert not (tmp_path / "data").exists()


@pytest.mark.rule("X9", "X13")
async def test_it_listens_on_a_unix_socket_with_limits_and_settings_of_ones_own(
    processes: Processes, tmp_path: Path
) -> None:
    socket = f"unix:{tmp_path / 'socket'}"
    process = await processes.start(
        BIN / "threadkeepd", "up", "--database", "memory:", "--listen", socket,
        "--limit", "max_artifact_bytes=5", "--set", "lease_ttl_seconds=7",
    )  # fmt: skip
    await process.printed("is ready on unix:")
    async with grpc.aio.insecure_channel(socket) as channel:
        answer = await ServerInfoServiceStub(channel).GetServerInfo(info_pb.GetServerInfoRequest(), timeout=20)
    assert {limit.name: limit.value for limit in answer.limits}["max_artifact_bytes"] == 5
    assert answer.backend == "memory"
    assert await process.stop() == 0


@pytest.mark.case("B97")
async def test_a_stop_under_open_streams_takes_no_longer_than_its_grace(processes: Processes, tmp_path: Path) -> None:
    process, address = await processes.daemon("up", "--data-dir", tmp_path, "--grace-seconds", "3")
    async with grpc.aio.insecure_channel(address) as channel:
        watches = [ConfigServiceStub(channel).Watch(config_service_pb2.WatchRequest(), metadata=ACME) for _ in range(3)]
        for watch in watches:
            await watch.read()
        process.signal(signal.SIGTERM)
        codes = await asyncio.gather(*(_end(watch) for watch in watches))
        assert codes == [grpc.StatusCode.UNAVAILABLE] * 3
        assert await process.wait(30) == 0


async def _end(call: grpc.aio.UnaryStreamCall) -> grpc.StatusCode:
    try:
        while await call.read() is not grpc.aio.EOF:
            pass
    except grpc.aio.AioRpcError as error:
        return error.code()
    return grpc.StatusCode.OK


@pytest.mark.rule("C7")
async def test_a_directory_of_definitions_is_applied_and_followed(processes: Processes, tmp_path: Path) -> None:
    base, over = tmp_path / "base", tmp_path / "over"
    for folder in (base / "agents", base / "providers", over / "agents"):
        folder.mkdir(parents=True)
    (base / "agents" / "clerk.md").write_text("---\nprovider: p\n---\nBe brief.")
    (base / "providers" / "p.yaml").write_text("type: scripted\n")
    (over / "agents" / "clerk.md").write_text("---\nmodel: m\n---\n")
    told = ("--config-dir", base, "--config-dir", over, "--config-scope", "tenant=acme")
    process, address = await processes.daemon("up", "--data-dir", tmp_path / "data", *told)
    async with grpc.aio.insecure_channel(address) as channel:
        stub = ConfigServiceStub(channel)

        async def prompts() -> dict[str, str]:
            answer = await stub.ListEntities(config_service_pb2.ListEntitiesRequest(types=[3]), metadata=ACME)
            return {one.name: one.definition.agent.system_prompt for one in answer.entities}

        async def are(expected: dict[str, str]) -> None:
            async with asyncio.timeout(60):
                while await prompts() != expected:
                    await asyncio.sleep(0.05)

        await are({"clerk": "Be brief."})
        answer = await stub.ListEntities(config_service_pb2.ListEntitiesRequest(types=[3]), metadata=ACME)
        assert answer.entities[0].definition.agent.model == "m", "the layers are merged"
        (base / "agents" / "other.md").write_text("New.")
        (base / "agents" / "clerk.md").write_text("Be long.")
        await are({"clerk": "Be long.", "other": "New."})
        (base / "agents" / "other.md").write_text("---\n\nnonsense: 1\n---\nNew.")
        await process.printed(r"agents/other\.md:3")
        await are({"clerk": "Be long.", "other": "New."})
        (base / "agents" / "other.md").unlink()
        await are({"clerk": "Be long."})
        (base / "agents").rename(tmp_path / "away")
        (base / "providers").rename(tmp_path / "gone")
        await process.printed("none of the folders")
        assert await prompts() == {"clerk": "Be long."}, "a mount that is gone for a moment removes nothing"
    assert await process.stop() == 0


@pytest.mark.rule("C7")
async def test_a_directory_that_cannot_be_followed_is_told(processes: Processes, tmp_path: Path) -> None:
    data = ("--data-dir", tmp_path / "data")
    code, output = await _run(processes, "up", *data, "--config-dir", tmp_path / "nowhere")
    assert (code, "there is no directory" in output) == (2, True)
    code, output = await _run(processes, "up", *data, "--config-dir", tmp_path, "--config-scope", "tenant")
    assert (code, "--config-scope" in output) == (2, True)
    code, output = await _run(processes, "serve", "runtime", *data, "--config-dir", tmp_path)
    assert (code, "config service" in output) == (2, True)
