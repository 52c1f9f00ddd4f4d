"""A chat model for endpoints that speak OpenAI's chat completions API.

An answer that ends without saying that it is complete was cut off; taking it for whole would let half a tool call or
half a text into the conversation.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Iterator
from typing import Any

from langchain_core.outputs import ChatGenerationChunk
from langchain_openai import ChatOpenAI
from openai import DefaultAsyncHttpxClient, DefaultHttpxClient

from threadkeep.worker.errors import StreamCut


class CompatibleChatModel(ChatOpenAI):
    """ChatOpenAI that insists on a finish reason, with connections of its own that can be closed."""

    @classmethod
    def of(cls, **settings: Any) -> CompatibleChatModel:
        """A model of ChatOpenAI's settings."""
        clients = {"http_client": DefaultHttpxClient(), "http_async_client": DefaultAsyncHttpxClient()}
        return cls(**{**clients, **settings})

    async def aclose(self) -> None:
        """Closes its connections."""
        await self.root_async_client.close()
        self.root_client.close()

    def _stream(self, *args: Any, **kwargs: Any) -> Iterator[ChatGenerationChunk]:
        finished = False
        for chunk in super()._stream(*args, **kwargs):
            finished = finished or _finishes(chunk)
            yield chunk
        _check(finished)

    async def _astream(self, *args: Any, **kwargs: Any) -> AsyncIterator[ChatGenerationChunk]:
        finished = False
        async for chunk in super()._astream(*args, **kwargs):
            finished = finished or _finishes(chunk)
            yield chunk
        _check(finished)


def _finishes(chunk: ChatGenerationChunk) -> bool:
    return bool((chunk.generation_info or {}).get("finish_reason"))


def _check(finished: bool) -> None:
    if not finished:
        raise StreamCut("the model's answer ended before it was complete")
