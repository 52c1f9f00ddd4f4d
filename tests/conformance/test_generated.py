"""What every RPC owes, generated from the descriptors: ids are checked (X8), other scopes' records do not exist (X2),
and every mutation happens once (X3).

Each RPC has its example request in tests/support/examples; a new one without an example fails here.
"""

import asyncio
from dataclasses import dataclass
from typing import Any

import grpc
import pytest
from google.protobuf.message import Message

from tests.support.calls import REPLAY_KEY, error_details, grant_all
from tests.support.descriptors import FieldPlace, Rpc, complete, fields, fresh_id, id_fields, minimal, rpcs
from tests.support.examples import example, examples
from tests.support.examples.world import CALL_SECONDS, World
from tests.support.suite import Suite
from threadkeep.common.v1 import options_pb2
from threadkeep.runtime.v1 import commit_pb2

ID_FIELDS = [(rpc, place) for rpc in rpcs() for place in id_fields(rpc.method.input_type)]
REFERENCES = [(one.rpc, place) for _, one in sorted(examples().items()) for place in one.references()]
MUTATIONS = [rpc for rpc in rpcs() if rpc.rule.mutation]
# Those whose requests hold an identifier or a name beside the request_id: another one is another request.
CHANGEABLE = [
    rpc
    for rpc in MUTATIONS
    if any(place.field.name != "request_id" for place in id_fields(rpc.method.input_type))
    or any(True for _ in fields(rpc.method.input_type, lambda place: place.rule.kind == options_pb2.FIELD_KIND_NAME))
]


def _name(value: Any) -> str:
    return value.name if isinstance(value, Rpc | FieldPlace) else str(value)


@dataclass(frozen=True)
class Outcome:
    """How a call ended: its answer's frames as bytes, or the error with its details as bytes."""

    code: grpc.StatusCode
    frames: tuple[Message, ...] = ()
    error: bytes = b""
    message: str = ""
    is_replay: bool = False

    def as_bytes(self, of: str = "", becomes: str = "") -> tuple[Any, ...]:
        """All of it, comparable; with the id `of` written as `becomes`, which has the same length."""
        texts = [frame.SerializeToString(deterministic=True) for frame in self.frames]
        parts = [self.code.name.encode(), self.error, self.message.encode(), *texts]
        return tuple(part.replace(of.encode(), becomes.encode()) if of else part for part in parts)


async def answer(world: World, rpc: Rpc, frames: list[Message], limit: int = 0) -> tuple[list[Message], bool]:
    """Sends a request in the world's scope; gives the answer's frames, and whether it was a replay.

    Of an answer that streams it reads at most `limit` frames (0: all). Raises grpc.aio.AioRpcError.
    """
    request: Any = iter(frames) if rpc.method.client_streaming else frames[0]
    metadata = world.metadata + grant_all() if example(rpc.name).is_operators else world.metadata
    call = world.bind(rpc.name)(request, metadata=metadata, timeout=CALL_SECONDS)
    if rpc.method.server_streaming:
        read: list[Message] = []
        async for frame in call:
            read.append(frame)
            if limit and len(read) == limit:
                call.cancel()
                return read, False
    else:
        read = [await call]
    return read, (REPLAY_KEY, "1") in tuple(await call.trailing_metadata())


async def send(world: World, rpc: Rpc, frames: list[Message], limit: int = 0) -> Outcome:
    """The same, with an error as an outcome."""
    try:
        read, is_replay = await answer(world, rpc, frames, limit)
    except grpc.aio.AioRpcError as error:
        details = error_details(error)
        return Outcome(details.code, error=details.raw, message=details.message)
    return Outcome(grpc.StatusCode.OK, tuple(read), is_replay=is_replay)


def copy_of(message: Message) -> Message:
    """A copy that can be changed."""
    copy = type(message)()
    copy.CopyFrom(message)
    return copy


def without_replay_mark(frame: Message) -> Message:
    """A copy of an answer whose commit receipts do not say whether they are replays."""
    copy = copy_of(frame)

    def clear(message: Message) -> None:
        if isinstance(message, commit_pb2.CommitReceipt):
            message.replay = False
        for field, value in message.ListFields():
            if field.message_type and not field.is_repeated:
                clear(value)

    clear(copy)
    return copy


def never_used(value: str) -> str:
    """An id of the same length that nobody ever used."""
    return "~" + value[1:] if value[0] != "~" else "!" + value[1:]


def test_every_rpc_has_an_example_request() -> None:
    assert sorted(examples()) == sorted(rpc.name for rpc in rpcs())


@pytest.mark.rule("X8")
@pytest.mark.case("B67")
@pytest.mark.suite(backends=["memory"], topologies=["embedded"])
@pytest.mark.parametrize(("rpc", "place"), ID_FIELDS, ids=_name)
@pytest.mark.parametrize("value", ["", "a\x00b", "a\nb", "a" * 257], ids=["empty", "nul", "newline", "long"])
async def test_an_id_that_is_none_is_refused_and_the_field_is_named(
    shared_suite: Suite, rpc: Rpc, place: FieldPlace, value: str
) -> None:
    world = World(shared_suite)
    request = minimal(rpc.request)
    complete(place, request)
    place.set(request, value)
    with pytest.raises(grpc.aio.AioRpcError) as caught:
        await answer(world, rpc, [request], limit=1)
    details = error_details(caught.value)
    assert (details.code, details.reason) == (grpc.StatusCode.INVALID_ARGUMENT, "FIELD_INVALID")
    assert place.name in details.violations, details.violations
    assert value == "" or value not in details.message


@pytest.mark.rule("X2")
@pytest.mark.parametrize(("rpc", "place"), REFERENCES, ids=_name)
async def test_a_foreign_id_answers_like_one_that_was_never_used(
    shared_suite: Suite, rpc: Rpc, place: FieldPlace
) -> None:
    """One field of an otherwise valid request names another scope's record, then a record that never was."""
    one = example(rpc.name)
    theirs, own = World(shared_suite), World(shared_suite)
    their_frames, own_frames = await one.make(theirs), await one.make(own)
    foreign = next(value for frame in their_frames if (value := place.get(frame)))
    assert (await send(theirs, rpc, their_frames, one.frames)).code == grpc.StatusCode.OK, "the id exists"

    async def ask(value: str) -> Outcome:
        frames = [copy_of(frame) for frame in own_frames]
        place.set(next(frame for frame in frames if place.get(frame)), value)
        for request_id in fields(rpc.method.input_type, lambda place: place.field.name == "request_id"):
            if request_id.get(frames[0]):
                request_id.set(frames[0], fresh_id())
        return await send(own, rpc, frames, one.frames)

    unknown = never_used(foreign)
    about_foreign, about_unknown = await ask(foreign), await ask(unknown)
    if rpc.rule.mutation and about_foreign.code == grpc.StatusCode.OK:
        # The id was free in this scope, too: both calls made something, with ids and times of its own.
        assert about_unknown.code == grpc.StatusCode.OK
    else:
        assert about_foreign.as_bytes(foreign, unknown) == about_unknown.as_bytes()


@pytest.mark.rule("X3")
@pytest.mark.parametrize("rpc", MUTATIONS, ids=_name)
async def test_a_mutation_sent_again_gives_the_first_answer(shared_suite: Suite, rpc: Rpc) -> None:
    world = World(shared_suite)
    frames = await example(rpc.name).make(world)
    first = await send(world, rpc, frames)
    assert first.code == grpc.StatusCode.OK, first
    assert not first.is_replay
    count = await world.effect_count(rpc.service)

    again = await send(world, rpc, frames)
    assert again.is_replay
    assert [without_replay_mark(frame) for frame in again.frames] == [
        without_replay_mark(frame) for frame in first.frames
    ]
    assert await world.effect_count(rpc.service) == count, "a replay commits nothing"


@pytest.mark.rule("X3")
@pytest.mark.parametrize("rpc", CHANGEABLE, ids=_name)
async def test_a_request_id_is_not_used_for_another_request(shared_suite: Suite, rpc: Rpc) -> None:
    world = World(shared_suite)
    frames = await example(rpc.name).make(world)
    assert (await send(world, rpc, frames)).code == grpc.StatusCode.OK
    count = await world.effect_count(rpc.service)

    change(rpc, frames)
    with pytest.raises(grpc.aio.AioRpcError) as caught:
        await answer(world, rpc, frames)
    details = error_details(caught.value)
    assert (details.code, details.reason) == (grpc.StatusCode.ALREADY_EXISTS, "REQUEST_ID_REUSED")
    assert await world.effect_count(rpc.service) == count


@pytest.mark.rule("X3")
@pytest.mark.parametrize("rpc", MUTATIONS, ids=_name)
async def test_a_mutation_sent_twice_at_once_has_one_effect(shared_suite: Suite, rpc: Rpc) -> None:
    alone, world = World(shared_suite), World(shared_suite)
    single = await example(rpc.name).make(alone)
    before_alone = await alone.effect_count(rpc.service)
    assert (await send(alone, rpc, single)).code == grpc.StatusCode.OK
    effect = await alone.effect_count(rpc.service) - before_alone

    frames = await example(rpc.name).make(world)
    before = await world.effect_count(rpc.service)
    outcomes = await asyncio.gather(*(send(world, rpc, frames) for _ in range(4)))
    assert [outcome.code for outcome in outcomes] == [grpc.StatusCode.OK] * 4, outcomes
    answers = {
        tuple(without_replay_mark(frame).SerializeToString(deterministic=True) for frame in outcome.frames)
        for outcome in outcomes
    }
    assert len(answers) == 1, outcomes
    assert sum(not outcome.is_replay for outcome in outcomes) == 1
    assert await world.effect_count(rpc.service) - before == effect


def change(rpc: Rpc, frames: list[Message]) -> None:
    """Makes a valid request of the same request_id another one: it changes the first id, text or number that is set."""
    for frame in frames:
        for place in id_fields(rpc.method.input_type):
            if place.field.name != "request_id" and place.get(frame):
                place.set(frame, never_used(place.get(frame)))
                return
        for place in _named(rpc):
            if place.get(frame):
                place.set(frame, place.get(frame) + "x")
                return
        for place in fields(rpc.method.input_type, lambda place: place.field.cpp_type == place.field.CPPTYPE_INT64):
            if place.get(frame):
                place.set(frame, place.get(frame) + 1)
                return
    raise AssertionError(f"the example of {rpc.name} sets nothing that could be changed")


def _named(rpc: Rpc) -> list[FieldPlace]:
    return list(fields(rpc.method.input_type, lambda place: place.rule.kind == options_pb2.FIELD_KIND_NAME))
