"""Serialisers of the user's own: values are theirs alone, and strict decoding refuses by name (R20)."""

import operator
from dataclasses import dataclass
from typing import Annotated, Any, TypedDict

import pytest
from cryptography.exceptions import InvalidTag
from cryptography.hazmat.primitives.ciphers.aead import AESGCM
from langgraph.checkpoint.base import empty_checkpoint
from langgraph.checkpoint.memory import InMemorySaver
from langgraph.checkpoint.serde.encrypted import EncryptedSerializer
from langgraph.graph import START, StateGraph
from langgraph.types import Command, interrupt

from tests.support.graph_traces import Run
from threadkeep import AsyncClient
from threadkeep.langgraph import DecodingRefused, StrictSerializer, ThreadkeepSaver

pytestmark = [pytest.mark.rule("R20"), pytest.mark.suite(topologies=["split"])]

CONFIG: Any = {"configurable": {"thread_id": "sealed", "checkpoint_ns": ""}}


class Sealing:
    """A cipher, as LangGraph wants one."""

    def __init__(self) -> None:
        self.aead = AESGCM(AESGCM.generate_key(256))

    def encrypt(self, plaintext: bytes) -> tuple[str, bytes]:
        return "aesgcm", b"nonce-of-12b" + self.aead.encrypt(b"nonce-of-12b", plaintext, None)

    def decrypt(self, ciphername: str, ciphertext: bytes) -> bytes:
        assert ciphername == "aesgcm"
        return self.aead.decrypt(ciphertext[:12], ciphertext[12:], None)


@dataclass
class Order:
    """A class of somebody's own."""

    number: int


class _Log(TypedDict):
    log: Annotated[list[Any], operator.add]


def _builder() -> StateGraph[Any]:
    builder = StateGraph(_Log).add_node("asks", lambda _: {"log": [interrupt("secret question"), Order(7)]})
    return builder.add_edge(START, "asks")


@pytest.mark.parametrize("mode", ["sync", "async"])
async def test_an_encrypting_serialiser_works_unchanged_and_nothing_of_it_lies_open(
    client: AsyncClient, mode: str
) -> None:
    async def trace(saver: Any) -> Run:
        run = Run(_builder(), saver, mode)
        await run.invoke({"log": ["secret input"]})
        await run.invoke(Command(resume="secret answer"))
        await run.history()
        return run

    serde = EncryptedSerializer(Sealing(), StrictSerializer([Order]))
    ours = await trace(ThreadkeepSaver(client, serde=serde))
    assert ours.shared() == (await trace(InMemorySaver(serde=serde))).shared()
    stored = [one async for one in client.checkpoints.list()]
    assert stored
    for one in stored:
        assert b"secret" not in one.SerializeToString()
        values = [*one.channel_values, *one.pending_writes]
        assert {value.type.partition("+")[2] for value in values if value.type not in ("empty", "null")} <= {"aesgcm"}
    with pytest.raises(InvalidTag):
        await trace(ThreadkeepSaver(client, serde=EncryptedSerializer(Sealing())))


@pytest.mark.parametrize("place", ["value", "write"])
async def test_a_type_that_is_not_listed_is_refused_by_name_and_place_and_the_rest_is_read(
    client: AsyncClient, place: str
) -> None:
    knows, strict = ThreadkeepSaver(client, allowed_types=[Order]), ThreadkeepSaver(client)
    made: Any = {**empty_checkpoint(), "channel_values": {"plain": ["fine"]}, "channel_versions": {"plain": "1"}}
    fine = await knows.aput(CONFIG, made, {}, made["channel_versions"])
    other: Any = {**empty_checkpoint(), "channel_values": {}, "channel_versions": {}}
    if place == "value":
        other["channel_values"], other["channel_versions"] = {"orders": [Order(7)]}, {"orders": "1"}
    head = await knows.aput(fine, other, {}, other["channel_versions"])
    if place == "write":
        await knows.aput_writes(head, [("orders", Order(7))], "task")
    with pytest.raises(DecodingRefused) as refused:
        await strict.aget_tuple(CONFIG)
    assert refused.value.type_name.endswith(".Order")
    assert refused.value.where == {"value": "channel 'orders'", "write": "a write to channel 'orders'"}[place]
    assert refused.value.type_name in str(refused.value)
    known = await knows.aget_tuple(CONFIG)
    assert known is not None
    found = known.checkpoint["channel_values"].get("orders") or [known.pending_writes[0][2]]  # type: ignore[index]
    assert found == [Order(7)]
    # What holds nothing of it is read all the same.
    earlier = await strict.aget_tuple(fine)
    assert earlier is not None
    assert earlier.checkpoint["channel_values"] == {"plain": ["fine"]}
