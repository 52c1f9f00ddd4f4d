"""Checkpoints over the wire: what is put is what is read, on every backend (R20)."""

import base64
import hashlib
import json
from typing import Any

import pytest

from tests.support.calls import refused
from tests.support.checkpoints import Saver, checkpoint_id, op, put, value, write, writes
from tests.support.descriptors import fresh_id
from tests.support.examples.world import World
from threadkeep.runtime.v1 import checkpoint_pb2, checkpoint_service_pb2, event_service_pb2, session_service_pb2


@pytest.fixture
def saver(world: World) -> Saver:
    """The checkpoints of a session that does not exist yet."""
    return Saver(world)


@pytest.mark.rule("R20")
@pytest.mark.case("B11")
async def test_a_checkpoint_comes_back_as_it_was_put(saver: Saver) -> None:
    one = put(1, value("messages", "1", b"\x00\xff"), document={"channel_values": {"n": 2**70, "zero": -0.0, "ts": ""}})
    one.metadata_json = b'{"source": "loop", "x": -0.0, "y": 1e22,  "b": 1, "a": 2}'
    await saver.put(put(0))
    receipt = await saver.put(checkpoint_pb2.CheckpointPut.FromString(_with_parent(one, checkpoint_id(0))))
    found = await saver.get()
    assert found is not None
    assert (found.checkpoint_json, found.metadata_json) == (one.checkpoint_json, one.metadata_json)
    assert list(found.channel_values) == list(one.channel_values)
    assert found.session_id == saver.session_id
    assert found.parent_checkpoint_id == checkpoint_id(0)
    assert found.commit_sequence == receipt.commit_sequence
    first = await saver.get(0)
    assert first is not None
    assert not first.HasField("parent_checkpoint_id")


def _with_parent(one: checkpoint_pb2.CheckpointPut, parent: str) -> bytes:
    one.parent_checkpoint_id = parent
    return one.SerializeToString()


@pytest.mark.rule("R20")
async def test_the_first_checkpoint_on_an_unused_id_creates_the_session(saver: Saver) -> None:
    await saver.put(put(1))
    asked = session_service_pb2.GetSessionRequest(session_id=saver.session_id)
    session = (await saver.world.call("SessionService.GetSession", asked)).session
    assert session.thread_version >= 1


@pytest.mark.rule("R20")
async def test_reading_what_is_not_there_is_an_empty_answer_with_the_floor(saver: Saver) -> None:
    empty = await saver.answer()
    assert (empty.HasField("checkpoint"), empty.checkpoint_id_floor) == (False, "")
    await saver.put(put(1))
    await saver.put(put(7, ns="child"))
    other = await saver.answer(ns="elsewhere")
    assert (other.HasField("checkpoint"), other.checkpoint_id_floor) == (False, checkpoint_id(7))
    await saver.delete()
    gone = await saver.answer()
    assert (gone.HasField("checkpoint"), gone.checkpoint_id_floor) == (False, checkpoint_id(7))


@pytest.mark.rule("R20")
@pytest.mark.case("B19")
async def test_the_root_namespace_is_one_of_them_and_no_namespace_means_all(saver: Saver) -> None:
    await saver.put(put(1))
    await saver.put(put(2, ns="child:1"))
    assert len(await saver.list()) == 2
    assert [one.checkpoint_ns for one in await saver.list(checkpoint_ns="")] == [""]
    assert [one.checkpoint_ns for one in await saver.list(checkpoint_ns="child:1")] == ["child:1"]
    assert (await saver.get(ns="child:1")).checkpoint_id == checkpoint_id(2)


@pytest.mark.rule("R20")
@pytest.mark.case("B26")
async def test_the_first_ordinary_write_and_the_last_special_one_count(saver: Saver) -> None:
    await saver.put(put(1))
    await saver.write(writes(1, write("t", 0, b"first", path="p"), write("t", -1, b"first", "__error__")))
    await saver.write(writes(1, write("t", 0, b"last"), write("t", -1, b"last", "__error__")))
    assert list((await saver.get()).pending_writes) == [
        write("t", -1, b"last", "__error__"),
        write("t", 0, b"first", path="p"),
    ]


@pytest.mark.rule("R20")
async def test_lists_are_newest_first_with_limits_and_bounds(saver: Saver) -> None:
    for number in range(1, 6):
        await saver.put(put(number, metadata={"step": number, "even": number % 2 == 0}))
    numbers = [checkpoint_id(number) for number in (5, 4, 3, 2, 1)]

    async def listed(**query: Any) -> list[str]:
        return [one.checkpoint_id for one in await saver.list(**query)]

    assert await listed() == numbers
    assert await listed(limit=2) == numbers[:2]
    assert await listed(before_checkpoint_id=checkpoint_id(4)) == numbers[2:]
    assert await listed(before_checkpoint_id=checkpoint_id(4), limit=1) == [numbers[2]]
    assert await listed(checkpoint_id=checkpoint_id(3)) == [numbers[2]]
    assert await listed(filter={"even": True}) == [numbers[1], numbers[3]]
    assert await listed(filter={"even": True}, before_checkpoint_id=checkpoint_id(4)) == [numbers[3]]


@pytest.mark.rule("R20")
@pytest.mark.case("B16")
async def test_limits_below_zero_are_refused_and_zero_is_none(saver: Saver) -> None:
    await saver.put(put(1))
    assert await saver.list(limit=0) == []
    assert len(await saver.list()) == 1
    details = await refused(_drain(saver.stream(limit=-1)))
    assert (details.reason, list(details.violations)) == ("FIELD_INVALID", ["limit"])


async def _drain(stream: Any) -> list[Any]:
    return [one async for one in stream]


@pytest.mark.rule("R20")
@pytest.mark.case("B17", "B18")
async def test_a_filter_has_one_meaning_on_every_backend(saver: Saver) -> None:
    await saver.put(put(1, metadata={"n": None, "m": {"a": 1, "b": 2}, "l": ["b", "a"], "t": True, "tenant": "acme"}))
    await saver.put(put(2, metadata={"t": "true", "tenant": "globex"}))
    for part, count in (
        ({"n": None}, 1),
        ({"m": {"a": 1}}, 1),
        ({"l": ["a"]}, 1),
        ({"t": True}, 1),
        ({"tenant": "acme"}, 1),
        ({"nokey": 1}, 0),
        ({"a') OR 1=1 --": 1}, 0),
        ({"tenant": "a\x00b"}, 0),
        ({}, 2),
    ):
        assert len(await saver.list(filter=part)) == count, part
    details = await refused(_drain(saver.stream(metadata_filter_json="[1]")))
    assert (details.reason, list(details.violations)) == ("FIELD_INVALID", ["metadata_filter_json"])


@pytest.mark.rule("R20", "X2")
async def test_a_list_without_a_session_stays_in_the_scope(saver: Saver, world: World) -> None:
    foreign = Saver(World(world.suite), saver.session_id)
    await foreign.put(put(1))
    await saver.put(put(2))
    second = Saver(world)
    await second.put(put(1))
    listed = await saver.list(session_id=None)
    assert [(one.session_id, one.checkpoint_id) for one in listed] == [
        (saver.session_id, checkpoint_id(2)),
        (second.session_id, checkpoint_id(1)),
    ]
    assert [one.checkpoint_id for one in await foreign.list()] == [checkpoint_id(1)]


@pytest.mark.rule("R20", "X9")
@pytest.mark.case("B92")
async def test_a_list_of_large_checkpoints_comes_in_frames_of_bounded_size(saver: Saver) -> None:
    for number in range(1, 5):
        await saver.put(put(number, value("a", str(number), bytes(3_000_000))))
    for number in range(5, 25):
        await saver.put(put(number, value("a", str(number), bytes(100_000))))
    frames = await saver.frames()
    assert sum(len(frame.checkpoints) for frame in frames) == 24
    assert all(frame.ByteSize() < 1_200_000 or len(frame.checkpoints) == 1 for frame in frames)
    assert len(frames) < 24


@pytest.mark.rule("R20")
@pytest.mark.case("B21")
async def test_a_reader_that_pauses_holds_nobody_up(saver: Saver) -> None:
    for number in range(1, 9):
        await saver.put(put(number, value("a", str(number), bytes(900_000))))
    paused = aiter(saver.stream())
    frame = await anext(paused)
    assert len(frame.checkpoints) == 1
    for number in range(9, 30):
        await saver.put(put(number))
    await saver.delete()
    rest = [one async for one in paused]
    assert len(rest) < 8


@pytest.mark.rule("R19")
async def test_what_was_deleted_stays_deleted_and_the_id_stays_usable(saver: Saver) -> None:
    await saver.put(put(3, value("a", "1")))
    await saver.put(put(5, ns="child"))
    await saver.write(writes(3, write("t", 0)))
    await saver.delete()
    assert await saver.list() == []
    for late in (saver.put(put(3)), saver.put(put(4)), saver.write(writes(3, write("t", 0)))):
        details = await refused(late)
        assert (details.code.name, details.reason) == ("FAILED_PRECONDITION", "CHECKPOINT_DELETED")
    await saver.write(writes(6, write("t", 0)))
    await saver.put(put(6, document={"channel_versions": {"a": "1"}}))
    found = await saver.get()
    assert (found.checkpoint_id, len(found.channel_values), len(found.pending_writes)) == (checkpoint_id(6), 0, 1)


@pytest.mark.rule("R19")
async def test_deleting_what_is_not_there_is_no_error_and_leaves_no_session(saver: Saver) -> None:
    assert not (await saver.delete()).HasField("receipt")
    asked = session_service_pb2.GetSessionRequest(session_id=saver.session_id)
    assert (await refused(saver.world.call("SessionService.GetSession", asked))).reason == "SESSION_NOT_FOUND"


@pytest.mark.rule("R20", "R13")
async def test_each_put_is_an_event_and_so_is_a_delete(saver: Saver) -> None:
    await saver.put(put(1, value("messages", "1")))
    await saver.write(writes(1, write("t", 0)))
    await saver.delete()
    wanted = event_service_pb2.EventFilter(session_id=saver.session_id, types=["threadkeep.checkpoint.*"])
    request = event_service_pb2.ListEventsRequest(filter=wanted)
    saved, deleted = (await saver.world.call("EventService.ListEvents", request)).events
    assert (saved.type, deleted.type) == ("threadkeep.checkpoint.saved", "threadkeep.checkpoint.deleted")
    assert json.loads(saved.payload.data) == {
        "checkpoint_ns": "",
        "checkpoint_id": checkpoint_id(1),
        "parent_checkpoint_id": None,
        "channels": ["messages"],
    }


@pytest.mark.rule("R20", "X8")
@pytest.mark.case("B01", "B02", "B04")
@pytest.mark.parametrize(
    ("change", "field"),
    [
        ({"checkpoint_json": b'{"channel_values":{"m":"a\\u0000b"}}'}, "put.checkpoint_json"),
        ({"checkpoint_json": b'{"a\\u0000b":1}'}, "put.checkpoint_json"),
        ({"metadata_json": b'{"m":["a\\u0000b"]}'}, "put.metadata_json"),
        ({"checkpoint_json": b'{"x":NaN}'}, "put.checkpoint_json"),
        ({"metadata_json": b'{"x":Infinity}'}, "put.metadata_json"),
        ({"metadata_json": b'{"x":"\\ud83d"}'}, "put.metadata_json"),
        ({"checkpoint_json": b"[]"}, "put.checkpoint_json"),
        ({"metadata_json": b'"text"'}, "put.metadata_json"),
        ({"checkpoint_json": b'{"channel_versions":[]}'}, "put.checkpoint_json"),
        ({"checkpoint_json": b'{"channel_values":[]}'}, "put.checkpoint_json"),
        ({"checkpoint_json": b'{"channel_values":null}'}, "put.checkpoint_json"),
        ({"checkpoint_ns": "a\x00b"}, "put.checkpoint_ns"),
        ({"channel_values": [value("a\x00b", "1")]}, "put.channel_values[0].channel"),
        ({"channel_values": [value("a", "1\x00")]}, "put.channel_values[0].version"),
    ],
)
async def test_what_no_backend_could_hold_is_refused_and_nothing_is_written(
    saver: Saver, change: dict[str, Any], field: str
) -> None:
    details = await refused(saver.put(put(1, **change)))
    assert (details.reason, list(details.violations)) == ("FIELD_INVALID", [field])
    asked = session_service_pb2.GetSessionRequest(session_id=saver.session_id)
    assert (await refused(saver.world.call("SessionService.GetSession", asked))).reason == "SESSION_NOT_FOUND"


@pytest.mark.rule("R20", "X8")
@pytest.mark.case("B01")
async def test_nul_is_nothing_special_in_a_value_and_refused_in_a_name(saver: Saver) -> None:
    await saver.put(
        put(1, value("m", "1", b"\xa3a\x00b"), document={"text": "a backslash \\u0000 is no NUL: \\\\u0000"})
    )
    await saver.write(writes(1, write("t", 0, b"\x00")))
    assert (await saver.get()).channel_values[0].data == b"\xa3a\x00b"
    for pending, field in ((write("t\x00", 0), "task_id"), (write("t", 0, channel="\x00"), "channel")):
        details = await refused(saver.write(writes(1, pending)))
        assert list(details.violations) == [f"writes.writes[0].{field}"]


def noise(size: int, seed: str) -> str:
    """Text of so many bytes that no index can compress."""
    return base64.b64encode(hashlib.shake_256(seed.encode()).digest(size)).decode()[:size]


@pytest.mark.rule("R20", "R22", "X8")
async def test_names_of_every_length_that_is_promised_are_kept(saver: Saver) -> None:
    ns = noise(2200, "ns")
    identity = noise(300 - 44, "id")
    channel, version, task_id = noise(200, "channel"), noise(100, "version"), noise(2500 - 2200 - 256, "task")
    await saver.put(put(1, value(channel, version, b"v"), ns=ns, checkpoint_id=identity))
    pending = write(task_id, 0, path=noise(4096, "path"))
    written = writes(1, pending, ns=ns)
    written.checkpoint_id = identity
    await saver.write(written)
    found = await saver.get(ns=ns)
    assert (found.checkpoint_ns, found.checkpoint_id) == (ns, identity)
    assert (found.channel_values[0].channel, found.channel_values[0].version) == (channel, version)
    assert list(found.pending_writes) == [pending]


@pytest.mark.rule("R20", "R22", "X8")
async def test_names_that_are_too_long_together_are_refused_by_the_longest(saver: Saver) -> None:
    wide = "\U0001f600"
    for change, field in (
        ({"checkpoint_ns": wide * 617}, "put.checkpoint_ns"),
        ({"channel_values": [value(wide * 600, "v" * 101)]}, "put.channel_values[0].channel"),
        ({"channel_values": [value("c" * 101, "v" * 2400)]}, "put.channel_values[0].version"),
        ({"channel_values": [value("c" * 2480, "")]}, "put.channel_values[0].channel"),
    ):
        details = await refused(saver.put(put(1, **change)))
        assert (details.reason, list(details.violations)) == ("FIELD_INVALID", [field])
    details = await refused(saver.write(writes(1, write(wide * 620, 0))))
    assert (details.reason, list(details.violations)) == ("FIELD_INVALID", ["writes.writes[0].task_id"])


@pytest.mark.rule("R20")
async def test_backslashes_and_wildcards_are_ordinary_characters(saver: Saver) -> None:
    name = "a\\b%_'\";--\t|:é\U0001f600"
    await saver.put(put(1, value(name, "1", b"v"), ns=name))
    await saver.write(writes(1, write(name, 0, channel=name, path=name), ns=name))
    found = await saver.get(ns=name)
    assert (found.channel_values[0].channel, found.pending_writes[0].task_id) == (name, name)


@pytest.mark.rule("R20")
async def test_versions_that_are_numbers_and_values_without_a_version_are_kept(saver: Saver) -> None:
    kept, own = value("n", "7"), value("u", "", b"own")
    await saver.put(put(1, kept, own, document={"channel_versions": {"n": 7, "f": 1.5}}))
    await saver.put(put(2, document={"channel_versions": {"n": 7}}))
    assert {one.channel: one.version for one in (await saver.get(1)).channel_values} == {"n": "7", "u": ""}
    assert list((await saver.get(2)).channel_values) == [kept]


@pytest.mark.rule("R1", "R20")
async def test_one_commit_carries_puts_and_writes_of_several_namespaces(world: World) -> None:
    session_id = fresh_id("session")
    ops = [put(1, value("a", "1")), writes(1, write("t", 0)), put(2, ns="child"), writes(3, write("u", 0)), put(3)]
    await world.commit(session_id=session_id, checkpoint_ops=[op(one) for one in ops])
    listed = await Saver(world, session_id).list()
    assert [(one.checkpoint_id, one.checkpoint_ns, len(one.pending_writes)) for one in listed] == [
        (checkpoint_id(3), "", 1),
        (checkpoint_id(2), "child", 0),
        (checkpoint_id(1), "", 1),
    ]
    assert len({one.commit_sequence for one in listed}) == 1


@pytest.mark.rule("R1", "R20")
async def test_a_refused_operation_leaves_nothing_of_its_commit(world: World) -> None:
    saver = Saver(world)
    await saver.put(put(3))
    await saver.delete()
    commit = world.commit(session_id=saver.session_id, checkpoint_ops=[op(put(4)), op(writes(2, write("t", 0)))])
    assert (await refused(commit)).reason == "CHECKPOINT_DELETED"
    assert await saver.list() == []


@pytest.mark.rule("R20", "X3")
async def test_a_put_that_is_sent_again_has_one_effect(world: World) -> None:
    session_id, request_id = fresh_id("session"), fresh_id()
    request = checkpoint_service_pb2.PutCheckpointRequest(request_id=request_id, session_id=session_id, put=put(1))
    first = await world.call("CheckpointService.PutCheckpoint", request)
    second = await world.call("CheckpointService.PutCheckpoint", request)
    assert second.receipt.replay
    assert first.receipt.commit_sequence == second.receipt.commit_sequence
    request.put.CopyFrom(put(2))
    assert (await refused(world.call("CheckpointService.PutCheckpoint", request))).reason == "REQUEST_ID_REUSED"
