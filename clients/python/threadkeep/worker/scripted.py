"""A chat model that plays a script: deterministic, offline, and the same after a crash.

The script is a list of steps; a step is chosen by how many answers the model has given since the last message of the
user, so a model call that is made again plays the same step. The provider's options:

    {"script": [{"text": "...", "tool_calls": [{"name": "...", "args": {...}}], "hold": {...}}], "chunk_characters": 12}

Texts and arguments may hold `{{input}}` (the user's last message), `{{tool.NAME}}` (the last result of a tool) and
`{{tool.NAME.FIELD}}` (a field of a result that is JSON); an argument that is one such template keeps the value's type.
`{"hold": {"until_file": PATH, "announce_file": PATH, "timeout_seconds": 60}}` keeps a call open until a file appears,
after it said with another that it is open; environment variables in paths are expanded. `{"error": "..."}` fails.
"""

from __future__ import annotations

import asyncio
import json
import os
import re
import time
from collections.abc import AsyncIterator, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from langchain_core.callbacks import AsyncCallbackManagerForLLMRun, CallbackManagerForLLMRun
from langchain_core.language_models import BaseChatModel, LanguageModelInput
from langchain_core.messages import AIMessage, AIMessageChunk, BaseMessage, HumanMessage, ToolMessage
from langchain_core.messages.ai import UsageMetadata
from langchain_core.messages.tool import tool_call_chunk
from langchain_core.outputs import ChatGeneration, ChatGenerationChunk, ChatResult
from langchain_core.runnables import Runnable
from pydantic import Field

_TEMPLATE = re.compile(r"\{\{\s*([^{}]+?)\s*\}\}")
_POLL_SECONDS = 0.02


class ScriptError(RuntimeError):
    """The script has no step for this call, or the step says that the call fails."""


class ScriptedChatModel(BaseChatModel):
    """Plays `script`. Streams its text in pieces of `chunk_characters`, and tool calls in fragments."""

    script: list[dict[str, Any]] = Field(default_factory=list)
    chunk_characters: int = 12
    model_name: str = "scripted"

    @property
    def _llm_type(self) -> str:
        return "scripted"

    def bind_tools(self, tools: Sequence[Any], **kwargs: Any) -> Runnable[LanguageModelInput, AIMessage]:
        """The script says which tools are called; whatever is bound is accepted."""
        return self

    def _generate(
        self,
        messages: list[BaseMessage],
        stop: list[str] | None = None,
        run_manager: CallbackManagerForLLMRun | None = None,
        **kwargs: Any,
    ) -> ChatResult:
        step = self._step(messages)
        for _ in _held(step):
            time.sleep(_POLL_SECONDS)
        return ChatResult(generations=[ChatGeneration(message=_merge(self._chunks(step, messages)))])

    async def _agenerate(
        self,
        messages: list[BaseMessage],
        stop: list[str] | None = None,
        run_manager: AsyncCallbackManagerForLLMRun | None = None,
        **kwargs: Any,
    ) -> ChatResult:
        step = self._step(messages)
        for _ in _held(step):
            await asyncio.sleep(_POLL_SECONDS)
        return ChatResult(generations=[ChatGeneration(message=_merge(self._chunks(step, messages)))])

    def _stream(
        self,
        messages: list[BaseMessage],
        stop: list[str] | None = None,
        run_manager: CallbackManagerForLLMRun | None = None,
        **kwargs: Any,
    ) -> Iterator[ChatGenerationChunk]:
        step = self._step(messages)
        for _ in _held(step):
            time.sleep(_POLL_SECONDS)
        for chunk in self._chunks(step, messages):
            generation = ChatGenerationChunk(message=chunk)
            if run_manager is not None:
                run_manager.on_llm_new_token(chunk.text, chunk=generation)
            yield generation

    async def _astream(
        self,
        messages: list[BaseMessage],
        stop: list[str] | None = None,
        run_manager: AsyncCallbackManagerForLLMRun | None = None,
        **kwargs: Any,
    ) -> AsyncIterator[ChatGenerationChunk]:
        step = self._step(messages)
        for _ in _held(step):
            await asyncio.sleep(_POLL_SECONDS)
        for chunk in self._chunks(step, messages):
            generation = ChatGenerationChunk(message=chunk)
            if run_manager is not None:
                await run_manager.on_llm_new_token(chunk.text, chunk=generation)
            yield generation
            # As a model over a network would, let others run between two chunks.
            await asyncio.sleep(0)

    def _step(self, messages: Sequence[BaseMessage]) -> dict[str, Any]:
        turn = _turn(messages)
        index = sum(isinstance(message, AIMessage) for message in turn)
        if index >= len(self.script):
            raise ScriptError(f"the script has {len(self.script)} steps, and this is call {index + 1} of the turn")
        step = self.script[index]
        if "error" in step:
            raise ScriptError(str(step["error"]))
        return step

    def _chunks(self, step: Mapping[str, Any], messages: Sequence[BaseMessage]) -> Iterator[AIMessageChunk]:
        values = _Values(messages)
        text = str(values.fill(step.get("text", "")))
        size = max(1, self.chunk_characters)
        for start in range(0, len(text), size):
            yield AIMessageChunk(content=text[start : start + size])
        answers = sum(isinstance(message, AIMessage) for message in messages)
        for index, call in enumerate(step.get("tool_calls", ())):
            args = json.dumps(values.fill(call.get("args", {})), ensure_ascii=False)
            middle = len(args) // 2
            # Ids are unique in the conversation and the same when a call is made again.
            call_id = str(call.get("id") or f"call-{answers + 1}-{index + 1}")
            first = tool_call_chunk(name=call["name"], args=args[:middle], id=call_id, index=index)
            yield AIMessageChunk(content="", tool_call_chunks=[first])
            yield AIMessageChunk(content="", tool_call_chunks=[tool_call_chunk(args=args[middle:], index=index)])
        read, written = sum(len(message.text) for message in messages), len(text)
        usage = UsageMetadata(input_tokens=read, output_tokens=written, total_tokens=read + written)
        metadata = {"model_name": self.model_name}
        yield AIMessageChunk(content="", usage_metadata=usage, response_metadata=metadata, chunk_position="last")


class _Values:
    """What templates may name."""

    def __init__(self, messages: Sequence[BaseMessage]) -> None:
        self._input = next((one.text for one in reversed(messages) if isinstance(one, HumanMessage)), "")
        self._tools = {one.name or "": one.text for one in messages if isinstance(one, ToolMessage)}

    def fill(self, value: Any) -> Any:
        """The value with its templates replaced."""
        if isinstance(value, str):
            whole = _TEMPLATE.fullmatch(value)
            if whole:
                return self._look_up(whole.group(1))
            return _TEMPLATE.sub(lambda match: _text(self._look_up(match.group(1))), value)
        if isinstance(value, Mapping):
            return {key: self.fill(one) for key, one in value.items()}
        if isinstance(value, list):
            return [self.fill(one) for one in value]
        return value

    def _look_up(self, path: str) -> Any:
        head, *rest = path.split(".")
        if head == "input" and not rest:
            return self._input
        if head == "tool" and rest and rest[0] in self._tools:
            text = self._tools[rest[0]]
            if len(rest) == 1:
                return text
            try:
                found: Any = json.loads(text)
                for part in rest[1:]:
                    found = found[int(part)] if isinstance(found, list) else found[part]
                return found
            except (ValueError, LookupError, TypeError) as error:
                raise ScriptError(f"the result of tool {rest[0]!r} has no field {'.'.join(rest[1:])!r}") from error
        raise ScriptError(f"nothing is called {path!r} here; there are `input` and tools {sorted(self._tools)}")


def _turn(messages: Sequence[BaseMessage]) -> Sequence[BaseMessage]:
    last = max((index for index, one in enumerate(messages) if isinstance(one, HumanMessage)), default=-1)
    return messages[last + 1 :]


def _held(step: Mapping[str, Any]) -> Iterator[None]:
    """Yields while the step is held. Raises ScriptError when it was held too long."""
    hold = step.get("hold")
    if not hold:
        return
    until = Path(os.path.expandvars(hold["until_file"]))
    if "announce_file" in hold:
        Path(os.path.expandvars(hold["announce_file"])).touch()
    deadline = time.monotonic() + float(hold.get("timeout_seconds", 60))
    while not until.exists():
        if time.monotonic() > deadline:
            raise ScriptError(f"nobody made {until.name} in time")
        yield


def _merge(chunks: Iterator[AIMessageChunk]) -> AIMessage:
    merged = next(chunks)
    for chunk in chunks:
        merged += chunk
    return AIMessage(
        content=merged.content,
        tool_calls=merged.tool_calls,
        usage_metadata=merged.usage_metadata,
        response_metadata=merged.response_metadata,
    )


def _text(value: Any) -> str:
    return value if isinstance(value, str) else json.dumps(value, ensure_ascii=False)
