"""`threadkeepd` with its HTTP address: sessions as Server-Sent Events, read as curl does."""

import asyncio
from pathlib import Path

import pytest

from tests.support.processes import BIN, Processes
from threadkeep import AsyncClient

QUERY = "scope=%7B%22tenant%22:%22acme%22%7D"


@pytest.mark.rule("P6", "X13")
@pytest.mark.case("B97")
async def test_up_serves_sessions_over_http_and_ends_streams_when_it_stops(
    processes: Processes, tmp_path: Path
) -> None:
    process, address = await processes.daemon("up", "--data-dir", tmp_path)
    http = (await process.printed(r"is ready on .*, HTTP on (127\.0\.0\.1:\d+)$")).group(1)
    async with AsyncClient(address, scope={"tenant": "acme"}) as client:
        await client.sessions.create(session_id="s-1")
    reader, writer = await asyncio.open_connection(*http.split(":"))
    writer.write(f"GET /v1/sessions/s-1/events?{QUERY} HTTP/1.1\r\nHost: {http}\r\n\r\n".encode())
    begun = await asyncio.wait_for(reader.readuntil(b"threadkeep.session.created"), 20)
    assert begun.startswith(b"HTTP/1.1 200 OK")
    assert await process.stop() == 0
    assert b"SHUTTING_DOWN" in await asyncio.wait_for(reader.read(), 20)
    writer.close()


@pytest.mark.rule("X13")
async def test_http_is_off_where_it_is_not_wanted_and_on_the_loopback_alone(
    processes: Processes, tmp_path: Path
) -> None:
    for number, (listen, more) in enumerate(
        (("127.0.0.1:0", ["--http-listen", "off"]), (f"unix:{tmp_path / 'socket'}", []))
    ):
        process, _ = await processes.daemon("up", "--data-dir", tmp_path / str(number), *more, listen=listen)
        await process.printed(r"is ready on .*\)$")
        assert await process.stop() == 0
    refused = await processes.start(BIN / "threadkeepd", "up", "--data-dir", tmp_path / "x", "--http-listen", "[::]:0")
    assert await refused.wait() == 2
    assert "refusing to listen on [::]:0" in refused.output()
    assert not (tmp_path / "x").exists()
