"""State of any size: what exceeds a message is staged in chunks and read back in pieces (B92)."""

import asyncio
import random
from collections.abc import AsyncIterator
from typing import Any

import pytest
from langgraph.checkpoint.base import BaseCheckpointSaver, Checkpoint, CheckpointTuple, empty_checkpoint

from tests.support.suite import Suite
from threadkeep import AsyncClient, errors
from threadkeep.langgraph import ThreadkeepSaver

pytestmark = [pytest.mark.rule("R20", "X9"), pytest.mark.suite(topologies=["split"])]

CONFIG: Any = {"configurable": {"thread_id": "large", "checkpoint_ns": ""}}
MIB = 1024 * 1024


def checkpoint(**values: Any) -> tuple[Checkpoint, dict[str, str]]:
    """A new checkpoint that holds these channels, and their versions."""
    made = empty_checkpoint()
    versions = dict.fromkeys(values, made["id"])
    made["channel_values"], made["channel_versions"] = values, versions
    return made, versions


def content(size: int) -> bytes:
    """Bytes that don't repeat: a piece in the wrong place shows, and nothing compresses."""
    return random.Random(size).randbytes(size)


@pytest.fixture
async def other(shared_suite: Suite) -> AsyncIterator[AsyncClient]:
    """A client of another scope."""
    async with AsyncClient(shared_suite.addresses, scope={"test": "another"}) as made:
        yield made


@pytest.mark.case("B92")
@pytest.mark.parametrize("mode", ["sync", "async"])
async def test_a_channel_of_thirty_megabytes_comes_back(saver: ThreadkeepSaver, mode: str) -> None:
    big, small = content(30 * MIB), b"\x00small"
    made, versions = checkpoint(big=big, small=small)
    written = [("big", content(20 * MIB)), ("note", "x")]
    if mode == "sync":
        config = await asyncio.to_thread(saver.put, CONFIG, made, {}, versions)
        await asyncio.to_thread(saver.put_writes, config, written, "task")
        found = await asyncio.to_thread(saver.get_tuple, CONFIG)
        (listed,) = await asyncio.to_thread(lambda: [*saver.list(CONFIG)])
    else:
        config = await saver.aput(CONFIG, made, {}, versions)
        await saver.aput_writes(config, written, "task")
        found = await saver.aget_tuple(CONFIG)
        (listed,) = [one async for one in saver.alist(CONFIG)]
    for one in (found, listed):
        assert isinstance(one, CheckpointTuple)
        assert one.checkpoint["channel_values"] == {"big": big, "small": small}
        assert one.pending_writes == [("task", *write) for write in written]


@pytest.mark.case("B92")
async def test_many_values_that_exceed_a_message_together_are_one_commit(saver: ThreadkeepSaver) -> None:
    values = {f"channel-{number}": content(900_000 + number) for number in range(24)}
    made, versions = checkpoint(**values)
    await saver.aput(CONFIG, made, {}, versions)
    found = await saver.aget_tuple(CONFIG)
    assert found is not None
    assert found.checkpoint["channel_values"] == values
    stored = (await saver._async.checkpoints.get("large")).checkpoint
    assert stored.commit_sequence == 1
    assert stored.ByteSize() < 4 * MIB  # a message that every client takes
    assert sum(bool(value.deferred_size) for value in stored.channel_values) > 0


async def test_a_value_that_many_checkpoints_share_is_read_once(saver: ThreadkeepSaver) -> None:
    made, versions = checkpoint(big=content(3 * MIB))
    config = await saver.aput(CONFIG, made, {}, versions)
    for step in range(4):
        later = {**made, "id": empty_checkpoint()["id"]}
        config = await saver.aput(config, later, {"step": step}, {})  # type: ignore[arg-type]
    reads: list[tuple[Any, ...]] = []
    read = saver._async.checkpoints.read_value

    async def counted(*place: Any) -> bytes:
        reads.append(place)
        return await read(*place)

    saver._async.checkpoints.read_value = counted  # type: ignore[method-assign]
    listed = [one async for one in saver.alist(CONFIG)]
    assert [one.checkpoint["channel_values"]["big"] == content(3 * MIB) for one in listed] == [True] * 5
    assert len(reads) == 1


async def test_what_was_staged_is_used_up_by_its_commit_alone(client: AsyncClient, other: AsyncClient) -> None:
    from threadkeep.runtime.v1 import checkpoint_pb2

    def put(number: int, staged_id: str, chunks: int, size: int) -> checkpoint_pb2.CheckpointPut:
        staged = checkpoint_pb2.StagedValue(staged_id=staged_id, chunk_count=chunks, size=size)
        value = checkpoint_pb2.ChannelValue(channel="a", version=str(number), type="bytes", staged=staged)
        document = b'{"v": 4, "id": "%d", "channel_values": {}, "channel_versions": {"a": "%d"}}' % (number, number)
        return checkpoint_pb2.CheckpointPut(
            checkpoint_id=str(number), checkpoint_json=document, metadata_json=b"{}", channel_values=[value]
        )

    await client.checkpoints.stage_chunk("staged", 0, b"abc")
    await client.checkpoints.stage_chunk("staged", 2, b"ghi")
    await other.checkpoints.stage_chunk("foreign", 0, b"abc")
    # A gap, another size, another count, another scope's, and one that never was.
    for staged_id, chunks, size in (("staged", 2, 6), ("foreign", 1, 3), ("none", 0, 0)):
        with pytest.raises(errors.StagedValueIncomplete):
            await client.checkpoints.put("large", put(1, staged_id, chunks, size))
    await client.checkpoints.stage_chunk("staged", 1, b"?")
    await client.checkpoints.stage_chunk("staged", 1, b"def")  # overwritten
    for chunks, size in ((3, 8), (2, 9), (4, 9)):
        with pytest.raises(errors.StagedValueIncomplete):
            await client.checkpoints.put("large", put(1, "staged", chunks, size))
    first = await client.checkpoints.put("large", put(1, "staged", 3, 9), request_id="once")
    assert (await client.checkpoints.get("large")).checkpoint.channel_values[0].data == b"abcdefghi"
    again = await client.checkpoints.put("large", put(1, "staged", 3, 9), request_id="once")
    assert again.receipt.replay
    assert again.receipt.commit_sequence == first.receipt.commit_sequence
    with pytest.raises(errors.StagedValueIncomplete):
        await client.checkpoints.put("large", put(2, "staged", 3, 9))
    assert (await client.checkpoints.get("large")).checkpoint.checkpoint_id == "1"


async def test_a_value_that_was_left_out_is_not_stored_as_an_empty_one(client: AsyncClient) -> None:
    from threadkeep.runtime.v1 import checkpoint_pb2

    write = checkpoint_pb2.PendingWrite(task_id="t", channel="c", type="bytes", deferred_size=7)
    with pytest.raises(errors.FieldInvalid, match="deferred_size"):
        await client.checkpoints.put_writes("large", checkpoint_pb2.CheckpointWrites(checkpoint_id="1", writes=[write]))
    write = checkpoint_pb2.PendingWrite(task_id="t", channel="c", type="bytes", data=b"x")
    write.staged.staged_id = "both"
    with pytest.raises(errors.FieldInvalid, match="data"):
        await client.checkpoints.put_writes("large", checkpoint_pb2.CheckpointWrites(checkpoint_id="1", writes=[write]))


async def test_values_of_another_scope_look_absent(
    saver: ThreadkeepSaver, client: AsyncClient, other: AsyncClient
) -> None:
    made, versions = checkpoint(big=content(2 * MIB))
    await saver.aput(CONFIG, made, {}, versions)
    (value,) = (await client.checkpoints.get("large")).checkpoint.channel_values
    assert await client.checkpoints.read_value("large", "", made["id"], value)
    for reader, place in ((other, ("large", "")), (client, ("large", "elsewhere")), (client, ("other", ""))):
        with pytest.raises(errors.CheckpointValueNotFound):
            await reader.checkpoints.read_value(*place, made["id"], value)


@pytest.mark.suite(
    backends=["sqlite"],
    topologies=["split"],
    services=["config", "runtime"],
    settings={"runtime": {"limits": {"max_checkpoint_value_bytes": 5000, "max_staged_bytes": 8000}}},
)
async def test_staged_values_are_bounded_by_value_and_by_scope(suite: Suite) -> None:
    async with AsyncClient(suite.addresses, scope={"test": "limits"}) as client:
        await client.checkpoints.stage_chunk("one", 0, bytes(4000))
        with pytest.raises(errors.LimitExceeded, match="max_checkpoint_value_bytes"):
            await client.checkpoints.stage_chunk("one", 1, bytes(1001))
        await client.checkpoints.stage_chunk("one", 0, bytes(4500))
        with pytest.raises(errors.LimitExceeded, match="max_staged_bytes"):
            await client.checkpoints.stage_chunk("two", 0, bytes(3501))
        await client.checkpoints.stage_chunk("two", 0, bytes(3500))


@pytest.mark.suite(
    backends=["sqlite"],
    topologies=["split"],
    services=["config", "runtime"],
    settings={"runtime": {"max_message_bytes": 20_000, "inline_value_bytes": 1000}},
)
async def test_a_server_of_small_messages_is_asked_how_small(suite: Suite) -> None:
    async with AsyncClient(suite.addresses, scope={"test": "small"}) as client:
        saver = ThreadkeepSaver(client)
        values = {"big": content(300_000), "small": content(900)}
        made, versions = checkpoint(**values)
        await saver.aput(CONFIG, made, {}, versions)
        found = await saver.aget_tuple(CONFIG)
        assert found is not None
        assert found.checkpoint["channel_values"] == values


@pytest.mark.case("B68")
async def test_a_thread_of_twenty_megabytes_is_copied_pruned_cancelled_and_deleted(
    saver: ThreadkeepSaver, client: AsyncClient
) -> None:
    from threadkeep.config.v1 import entity_pb2

    config = CONFIG
    for number in range(4):
        made, versions = checkpoint(big=content(5 * MIB + number))
        config = await saver.aput(config, made, {}, versions)
    await client.config.put("idle", entity_pb2.Agent())
    task = (await client.tasks.submit({}, agent_name="idle", session_id="large")).task
    await client.tasks.cancel(task.task_id)
    await saver.acopy_thread("large", "copied")
    await saver.aprune(["copied"])
    copied = [one async for one in saver.alist({"configurable": {"thread_id": "copied"}})]
    assert [one.checkpoint["channel_values"]["big"] for one in copied] == [content(5 * MIB + 3)]
    await saver.adelete_thread("large")
    assert await saver.aget_tuple(CONFIG) is None


@pytest.mark.case("B23")
async def test_a_delta_history_reads_what_replies_left_out_of_its_channels_alone(saver: ThreadkeepSaver) -> None:
    made, versions = checkpoint(log=[content(2 * MIB)], other=content(3 * MIB))
    config = await saver.aput(CONFIG, made, {}, versions)
    await saver.aput_writes(config, [("log", content(2 * MIB + 1)), ("other", content(2 * MIB + 2))], "task")
    head = await saver.aput(config, checkpoint()[0], {}, {})
    reads: list[Any] = []
    read = saver._async.checkpoints.read_value

    async def counted(*place: Any) -> bytes:
        reads.append(place[-1].channel)
        return await read(*place)

    saver._async.checkpoints.read_value = counted  # type: ignore[method-assign]
    found = await saver.aget_delta_channel_history(config=head, channels=["log"])
    assert found == {"log": {"writes": [("task", "log", content(2 * MIB + 1))], "seed": [content(2 * MIB)]}}
    assert reads == ["log", "log"]
    walked = await BaseCheckpointSaver.aget_delta_channel_history(saver, config=head, channels=["log"])
    assert found == walked
