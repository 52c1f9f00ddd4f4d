"""Reads Server-Sent Events over a real socket, as the HTML standard says that a browser does."""

import json
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from typing import Any

import httpx

from tests.support.suite import Suite


@dataclass
class Block:
    """What stood between two empty lines."""

    id: str | None = None
    event: str = ""
    data: list[str] = field(default_factory=list)
    retry: int | None = None
    comments: list[str] = field(default_factory=list)

    @property
    def plain(self) -> Any:
        """The data, parsed."""
        return json.loads("\n".join(self.data))


async def blocks(response: httpx.Response) -> AsyncIterator[Block]:
    """The blocks of a stream until it ends; what no empty line follows is dropped, as browsers do."""
    block = Block()
    async for line in lines(response):
        if not line:
            yield block
            block = Block()
            continue
        name, _, value = line.partition(":")
        value = value.removeprefix(" ")
        match name:
            case "":
                block.comments.append(value)
            case "id":
                block.id = value
            case "event":
                block.event = value
            case "data":
                block.data.append(value)
            case "retry":
                block.retry = int(value)
            case _:
                raise AssertionError(line)


async def lines(response: httpx.Response) -> AsyncIterator[str]:
    """Lines as the standard ends them: httpx's own also end at characters that JSON may hold."""
    rest = b""
    async for chunk in response.aiter_bytes():
        *whole, rest = (rest + chunk).split(b"\n")
        for line in whole:
            assert b"\r" not in line
            yield line.decode()
    assert rest == b"", rest


class EventsOverHttp:
    """Requests for sessions' events in one scope."""

    def __init__(self, address: str, scope: dict[str, str] | None) -> None:
        self.address = address
        self.client = httpx.AsyncClient(base_url=f"http://{address}", timeout=30, trust_env=False)
        self.identity = {} if scope is None else {"scope": json.dumps(scope)}

    @classmethod
    def of(cls, suite: Suite, scope: dict[str, str] | None) -> "EventsOverHttp":
        """Of a suite whose projection listens over HTTP."""
        (service,) = [one for one in suite.hosts["projection"].services if one.name == "projection"]
        return cls(service.http_address, scope)

    async def get(self, session_id: str, headers: Any = None, **parameters: Any) -> httpx.Response:
        """An answer that ends."""
        return await self.client.get(self.path(session_id), params=self.identity | parameters, headers=headers)

    @asynccontextmanager
    async def stream(
        self, session_id: str, headers: Any = None, **parameters: Any
    ) -> AsyncIterator[tuple[httpx.Response, AsyncIterator[Block]]]:
        """An answer that is read as it comes."""
        path, given = self.path(session_id), self.identity | parameters
        async with self.client.stream("GET", path, params=given, headers=headers) as response:
            yield response, blocks(response)

    async def whole(self, session_id: str, headers: Any = None, **parameters: Any) -> list[Block]:
        """All blocks of a stream that ends, without the first, which is the hint about coming back."""
        async with self.stream(session_id, headers, **parameters) as (response, found):
            assert response.status_code == 200, await response.aread()
            first, *rest = [block async for block in found]
        assert (first.retry, first.data, first.id) == (1000, [], None)
        return rest

    async def read(self, into: list[Block], session_id: str, headers: Any = None, **parameters: Any) -> None:
        """Adds blocks as they come, until the stream ends."""
        async with self.stream(session_id, headers, **parameters) as (response, found):
            assert response.status_code == 200, await response.aread()
            async for block in found:
                into.append(block)

    @staticmethod
    def path(session_id: str) -> str:
        """The path of a session's events."""
        return f"/v1/sessions/{httpx.QueryParams({'x': session_id})}".replace("x=", "").replace("+", "%20") + "/events"

    async def close(self) -> None:
        """Closes the connections."""
        await self.client.aclose()
