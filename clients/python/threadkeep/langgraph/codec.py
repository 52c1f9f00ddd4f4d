"""Between LangGraph's checkpoints and the contract's: pure conversions, with values opaque to the server.

A put carries the values of `new_versions`, which its versions name, and those that have no version. Small primitives
that JSON holds exactly lie in the checkpoint's document, as with LangGraph's PostgreSQL saver; the rest is typed blobs.
"""

from __future__ import annotations

import json
import math
from collections.abc import Collection, Mapping, Sequence
from typing import Any, cast

from langchain_core.runnables import RunnableConfig
from langgraph.checkpoint.base import (
    WRITES_IDX_MAP,
    ChannelVersions,
    Checkpoint,
    CheckpointMetadata,
    CheckpointTuple,
    get_checkpoint_id,
    get_serializable_checkpoint_metadata,
)
from langgraph.checkpoint.serde.base import SerializerProtocol
from langgraph.checkpoint.serde.types import _DeltaSnapshot

from threadkeep._api.values import strict_json
from threadkeep.langgraph.serde import DecodingRefused, EncodingRefused
from threadkeep.runtime.v1 import checkpoint_pb2

NO_VALUE = "empty"
"""LangGraph's type tag of a channel that has a version and no value."""

LONGEST_INLINE_TEXT = 4096
"""Characters. Inline values are sent with every checkpoint, blobs only when they change."""
_WIDEST_INLINE_INT = 14_000
"""Bits. Python parses integers of at most 4,300 digits."""
_EXACT_FLOAT = 1e16
"""From here on jsonb writes a float without its exponent, and it comes back as an integer."""


def session_id_of(config: RunnableConfig) -> str:
    """The session: LangGraph's thread_id, as text."""
    return str(config["configurable"]["thread_id"])


def namespace_of(config: RunnableConfig) -> str:
    """The checkpoint namespace; empty for the root graph's."""
    return config["configurable"].get("checkpoint_ns") or ""


def config_of(session_id: str, checkpoint_ns: str, checkpoint_id: str) -> RunnableConfig:
    """The config that names a checkpoint."""
    return {"configurable": {"thread_id": session_id, "checkpoint_ns": checkpoint_ns, "checkpoint_id": checkpoint_id}}


def to_put(
    config: RunnableConfig,
    checkpoint: Checkpoint,
    metadata: CheckpointMetadata,
    new_versions: ChannelVersions,
    serde: SerializerProtocol,
) -> checkpoint_pb2.CheckpointPut:
    """What to store. Raises EncodingRefused, before anything is sent."""
    inline: dict[str, Any] = {}
    carried: list[checkpoint_pb2.ChannelValue] = []
    for channel, value in checkpoint["channel_values"].items():
        if isinstance(value, _DeltaSnapshot):
            # LangGraph's marker for a snapshot whose value is a blob.
            inline[channel] = True
        elif _is_inline(value):
            inline[channel] = value
            continue
        if channel in new_versions:
            carried.append(_dump(channel, new_versions[channel], value, serde))
        elif channel not in checkpoint["channel_versions"]:
            carried.append(_dump(channel, "", value, serde))
    document = {**checkpoint, "channel_values": inline}
    put = checkpoint_pb2.CheckpointPut(
        checkpoint_ns=namespace_of(config),
        checkpoint_id=checkpoint["id"],
        checkpoint_json=_json(document, "the checkpoint"),
        metadata_json=to_metadata(config, metadata),
        channel_values=carried,
    )
    parent = get_checkpoint_id(config)
    if parent:
        put.parent_checkpoint_id = parent
    return put


def to_metadata(config: RunnableConfig, metadata: CheckpointMetadata) -> bytes:
    """The metadata as LangGraph builds it: with plain values of the config, without private keys and without NUL."""
    built = get_serializable_checkpoint_metadata(config, metadata)
    return _json(_without_nul(built), "the checkpoint's metadata")


def to_writes(
    config: RunnableConfig,
    writes: Sequence[tuple[str, Any]],
    task_id: str,
    task_path: str,
    serde: SerializerProtocol,
) -> checkpoint_pb2.CheckpointWrites:
    """Pending writes to store. Raises EncodingRefused, before anything is sent."""
    pending = []
    for index, (channel, value) in enumerate(writes):
        kind, data = _dumps(channel, value, serde)
        pending.append(
            checkpoint_pb2.PendingWrite(
                task_id=task_id,
                index=WRITES_IDX_MAP.get(channel, index),
                channel=channel,
                type=kind,
                data=data,
                task_path=task_path,
            )
        )
    return checkpoint_pb2.CheckpointWrites(
        checkpoint_ns=namespace_of(config), checkpoint_id=config["configurable"]["checkpoint_id"], writes=pending
    )


def from_tuple(stored: checkpoint_pb2.CheckpointTuple, serde: SerializerProtocol) -> CheckpointTuple:
    """LangGraph's tuple of a stored checkpoint. Raises DecodingRefused."""
    document = json.loads(stored.checkpoint_json)
    values = _values(document, stored, None, serde)
    parent = stored.parent_checkpoint_id
    return CheckpointTuple(
        config=config_of(stored.session_id, stored.checkpoint_ns, stored.checkpoint_id),
        checkpoint=cast(Checkpoint, {**document, "channel_values": values}),
        metadata=json.loads(stored.metadata_json),
        parent_config=config_of(stored.session_id, stored.checkpoint_ns, parent) if parent else None,
        pending_writes=from_writes(stored.pending_writes, serde),
    )


def values_of(
    stored: checkpoint_pb2.CheckpointTuple, channels: Collection[str], serde: SerializerProtocol
) -> dict[str, Any]:
    """The values of some channels, of those that have one. Raises DecodingRefused."""
    return _values(json.loads(stored.checkpoint_json), stored, channels, serde)


def _values(
    document: Mapping[str, Any],
    stored: checkpoint_pb2.CheckpointTuple,
    channels: Collection[str] | None,
    serde: SerializerProtocol,
) -> dict[str, Any]:
    inline = document.get("channel_values") or {}
    values = {channel: value for channel, value in inline.items() if channels is None or channel in channels}
    for one in stored.channel_values:
        if one.type != NO_VALUE and (channels is None or one.channel in channels):
            values[one.channel] = _load(one.type, one.data, f"channel {one.channel!r}", serde)
    return values


def from_writes(writes: Sequence[checkpoint_pb2.PendingWrite], serde: SerializerProtocol) -> list[tuple[str, str, Any]]:
    """(task id, channel, value) of pending writes. Raises DecodingRefused."""
    return [
        (one.task_id, one.channel, _load(one.type, one.data, f"a write to channel {one.channel!r}", serde))
        for one in writes
    ]


def to_filter(filter: Mapping[str, Any] | None) -> str | None:
    """A metadata filter as JSON. Raises EncodingRefused when no metadata can match: NaN and lone surrogates are never
    stored."""
    return None if not filter else _json(dict(filter), "the filter").decode()


def _is_inline(value: Any) -> bool:
    """True for what a JSON document gives back exactly, on every backend, also to a stock saver. Subclasses of the
    primitives (an Enum's members, for example) would lose their type."""
    kind = type(value)
    if value is None or kind is bool:
        return True
    if kind is int:
        return value.bit_length() <= _WIDEST_INLINE_INT
    if kind is float:
        return math.isfinite(value) and abs(value) < _EXACT_FLOAT and (value != 0 or math.copysign(1, value) > 0)
    if kind is str:
        return len(value) <= LONGEST_INLINE_TEXT and "\x00" not in value and _is_unicode(value)
    return False


def _is_unicode(text: str) -> bool:
    if text.isascii():
        return True
    try:
        text.encode("utf-8")
    except UnicodeEncodeError:
        return False
    return True


def _dump(channel: str, version: Any, value: Any, serde: SerializerProtocol) -> checkpoint_pb2.ChannelValue:
    kind, data = _dumps(channel, value, serde)
    text = version if isinstance(version, str) else json.dumps(version)
    return checkpoint_pb2.ChannelValue(channel=channel, version=text, type=kind, data=data)


def _dumps(channel: str, value: Any, serde: SerializerProtocol) -> tuple[str, bytes]:
    try:
        kind, data = serde.dumps_typed(value)
    except Exception as error:
        raise EncodingRefused(f"channel {channel!r} holds a value that can't be serialised: {error}") from error
    return kind, bytes(data)


def _load(kind: str, data: bytes, where: str, serde: SerializerProtocol) -> Any:
    try:
        return serde.loads_typed((kind, data))
    except DecodingRefused as error:
        raise DecodingRefused(error.type_name, where) from None


def _json(value: Any, what: str) -> bytes:
    try:
        return strict_json(value).encode()
    except UnicodeEncodeError:
        raise EncodingRefused(f"{what} holds a lone surrogate, which is no text") from None
    except (TypeError, ValueError, RecursionError) as error:
        raise EncodingRefused(f"{what} is not JSON (NaN and Infinity are not either): {error}") from error


def _without_nul(value: Any) -> Any:
    if isinstance(value, str):
        return value.replace("\x00", "") if "\x00" in value else value
    if isinstance(value, Mapping):
        return {_without_nul(key): _without_nul(one) for key, one in value.items()}
    if isinstance(value, list | tuple):
        return [_without_nul(one) for one in value]
    return value
