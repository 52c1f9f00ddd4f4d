"""Checkpoints as messages and back: exact values, LangGraph's metadata, strict decoding, ids above a thread's."""

import dataclasses
import enum
import json
import math
import threading
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from langgraph.checkpoint.base import empty_checkpoint
from langgraph.checkpoint.base import id as id_module
from langgraph.checkpoint.base.id import uuid6
from langgraph.checkpoint.postgres.aio import AsyncPostgresSaver
from langgraph.checkpoint.serde.types import _DeltaSnapshot

from threadkeep.langgraph import DecodingRefused, EncodingRefused, StrictSerializer, codec, idclock
from threadkeep.runtime.v1 import checkpoint_pb2

SERDE = StrictSerializer()


def _config(**configurable: Any) -> Any:
    return {"configurable": {"thread_id": "s-1", "checkpoint_ns": "", **configurable}}


def _put(values: dict[str, Any], new_versions: dict[str, Any] | None = None, **versions: Any) -> Any:
    checkpoint = {
        **empty_checkpoint(),
        "channel_values": values,
        "channel_versions": versions or dict.fromkeys(values, "1"),
    }
    new = checkpoint["channel_versions"] if new_versions is None else new_versions
    return codec.to_put(_config(), checkpoint, {"source": "loop", "step": 1, "parents": {}}, new, SERDE)


def _back(put: checkpoint_pb2.CheckpointPut) -> Any:
    stored = checkpoint_pb2.CheckpointTuple(
        session_id="s-1",
        checkpoint_id=put.checkpoint_id,
        checkpoint_json=put.checkpoint_json,
        metadata_json=put.metadata_json,
        channel_values=put.channel_values,
    )
    return codec.from_tuple(stored, SERDE)


EXACT = [None, True, 0, -1, 2**63, 2**70, -(2**200), 0.5, 1.0, 1e15, 5e-324, "", "text", "ünï", "x" * 4096, "\\"]
NOT_JSON = [
    math.inf,
    -math.inf,
    -0.0,
    1e16,
    1e22,
    1e300,
    "a\x00b",
    "x" * 4097,
    b"bytes",
    [1],
    [2**70],
    {"a": [2**70, 0.5]},
    {"a": "b\x00"},
]


@pytest.mark.rule("R20", "X8")
@pytest.mark.case("B01", "B02", "B09")
@pytest.mark.parametrize("value", [*EXACT, *NOT_JSON], ids=lambda value: repr(value)[:20])
def test_a_value_comes_back_as_it_was(value: Any) -> None:
    put = _put({"v": value})
    is_inline = any(value is one for one in EXACT)
    assert ("v" in json.loads(put.checkpoint_json)["channel_values"]) == is_inline
    got = _back(put).checkpoint["channel_values"]["v"]
    assert type(got) is type(value)
    assert got == value
    assert str(got) == str(value)


def test_nan_comes_back_as_nan() -> None:
    assert math.isnan(_back(_put({"v": math.nan})).checkpoint["channel_values"]["v"])


@pytest.mark.case("B04")
def test_a_lone_surrogate_is_stored_with_replacement() -> None:
    assert _back(_put({"v": "a\ud83d"})).checkpoint["channel_values"]["v"] in ("a?", "a\ufffd")


class Colour(enum.StrEnum):
    RED = "red"


def test_a_subclass_of_a_primitive_keeps_its_type() -> None:
    put = _put({"v": Colour.RED})
    assert [one.channel for one in put.channel_values] == ["v"]


@given(st.recursive(
    st.none() | st.booleans() | st.integers(-(2**63), 2**64 - 1) | st.floats(allow_nan=False) | st.text() | st.binary(),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=5), inner, max_size=3),
    max_leaves=8,
))  # fmt: skip
@pytest.mark.rule("R20", "X8")
def test_whatever_the_serialiser_takes_comes_back(value: Any) -> None:
    got = _back(_put({"v": value})).checkpoint["channel_values"]["v"]
    assert got == value
    assert repr(got) == repr(value)


@pytest.mark.rule("R20")
def test_a_put_carries_new_versions_and_unversioned_values_alone() -> None:
    put = _put({"new": [1], "old": [2], "loose": [3]}, {"new": "2"}, new="2", old="1")
    assert {(one.channel, one.version) for one in put.channel_values} == {("new", "2"), ("loose", "")}


@pytest.mark.rule("R20")
def test_a_snapshot_leaves_langgraphs_marker_and_a_blob() -> None:
    put = _put({"v": _DeltaSnapshot([1, 2])})
    assert json.loads(put.checkpoint_json)["channel_values"] == {"v": True}
    assert _back(put).checkpoint["channel_values"]["v"] == _DeltaSnapshot([1, 2])


@pytest.mark.rule("R20")
@pytest.mark.parametrize("version", [1, 2.5, "00000000000000000000000000000003.0.1"])
def test_versions_travel_as_the_text_that_a_stock_saver_looks_up(version: Any) -> None:
    put = _put({"v": [1]}, v=version)
    assert put.channel_values[0].version == str(version)
    assert _back(put).checkpoint["channel_versions"] == {"v": version}


@pytest.mark.rule("R20")
@pytest.mark.case("B36", "B01")
def test_metadata_is_langgraphs_without_private_keys_and_nul() -> None:
    config = _config(
        __lock=threading.Lock(),
        __bytes=b"x",
        __f=lambda: 1,
        checkpoint_id="p",
        user="a\x00b",
        count=3,
        ignored=object(),
    )
    config["metadata"] = {"run_id": "r-1", "langgraph_step": 3, "list": [1]}
    metadata = {"source": "loop", "step": 1, "parents": {"a\x00": "b\x00c"}, "writes": {"x": object()}}
    got = json.loads(codec.to_metadata(config, metadata))  # type: ignore[arg-type]
    expected = {"source": "loop", "step": 1, "parents": {"a": "bc"}, "run_id": "r-1", "user": "ab", "count": 3}
    assert got == expected


@pytest.mark.rule("R20")
@pytest.mark.case("B02", "B04")
@pytest.mark.parametrize("value", [math.nan, math.inf, "\ud83d", {1, 2}, {"a": [math.nan]}], ids=repr)
def test_metadata_that_is_no_json_is_refused_by_name(value: Any) -> None:
    with pytest.raises(EncodingRefused, match="metadata"):
        codec.to_metadata(_config(), {"source": "loop", "step": 1, "bad": value})  # type: ignore[typeddict-unknown-key]


def test_a_value_that_nothing_serialises_is_refused_by_channel() -> None:
    with pytest.raises(EncodingRefused, match="'lock'"):
        _put({"lock": threading.Lock()})
    with pytest.raises(EncodingRefused, match="'out'"):
        codec.to_writes(_config(checkpoint_id="c"), [("out", [threading.Lock()])], "t", "", SERDE)


@pytest.mark.rule("R20")
def test_special_channels_have_langgraphs_indexes() -> None:
    writes = [("a", 1), ("__error__", "e"), ("b", 2), ("__interrupt__", []), ("__resume__", []), ("__scheduled__", 1)]
    got = codec.to_writes(_config(checkpoint_id="c"), writes, "t", "~path", SERDE)
    assert [one.index for one in got.writes] == [0, -1, 2, -3, -4, -2]
    assert {(one.task_id, one.task_path) for one in got.writes} == {("t", "~path")}
    assert codec.from_writes(got.writes, SERDE) == [("t", channel, value) for channel, value in writes]


@dataclasses.dataclass
class Mine:
    """A class that no allow-list knows."""

    a: int


@pytest.mark.rule("R20")
def test_a_type_that_is_not_allowed_is_refused_by_name_and_channel() -> None:
    put = _put({"v": [Mine(1)]})
    with pytest.raises(DecodingRefused, match="channel 'v'") as caught:
        _back(put)
    assert caught.value.type_name.endswith("Mine")
    allowed = StrictSerializer([Mine])
    kind, data = SERDE.dumps_typed([Mine(1)])
    assert allowed.loads_typed((kind, data)) == [Mine(1)]
    # LangGraph derives serialisers with more types from ours; they stay strict.
    derived = SERDE.with_msgpack_allowlist([Mine])
    assert derived.loads_typed((kind, data)) == [Mine(1)]
    assert isinstance(derived, StrictSerializer)
    with pytest.raises(DecodingRefused, match="pickle"):
        SERDE.loads_typed(("pickle", b""))


@pytest.mark.rule("R20")
def test_later_ids_sort_above_those_that_were_loaded(monkeypatch: pytest.MonkeyPatch) -> None:
    ahead = str(uuid6())
    monkeypatch.setattr(id_module.time, "time_ns", lambda: 1_000_000_000_000)
    monkeypatch.setattr(id_module, "_last_v6_timestamp", None)
    assert str(uuid6()) < ahead
    idclock.raise_above("", "not an id", ahead, "f47ac10b-58cc-4372-a567-0e02b2c3d479")
    following = [str(uuid6(clock_seq=0)) for _ in range(3)]
    assert [ahead, *following] == sorted([ahead, *following])


@pytest.mark.rule("R20")
@pytest.mark.parametrize("current", [None, "00000000000000000000000000000009.0.5", 7])
def test_versions_count_as_the_postgres_saver_counts(current: Any) -> None:
    from threadkeep.langgraph.reading import SaverBase

    saver = SaverBase(None, None, None, ())  # type: ignore[arg-type]
    ours = saver.get_next_version(current, None)
    theirs = AsyncPostgresSaver.get_next_version(None, current, None)  # type: ignore[arg-type]
    assert ours.split(".")[0] == theirs.split(".")[0]
    assert not isinstance(current, str) or ours > current
