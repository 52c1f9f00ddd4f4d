"""Forks: a new session begins as another one was, and the two go their own ways (R18, R20, R11, R12)."""

from typing import Any

import grpc
import pytest

from tests.support.calls import refused
from tests.support.checkpoints import Saver, checkpoint_id, put, value, write, writes
from tests.support.descriptors import fresh_id
from tests.support.runtime import RUNNING, SUCCEEDED, Runtime, event, together
from tests.support.suite import Suite
from threadkeep.runtime.v1 import (
    checkpoint_service_pb2,
    session_pb2,
    session_service_pb2,
)

pb = session_service_pb2
pytestmark = pytest.mark.suite(topologies=["embedded"])


@pytest.fixture
def runtime(shared_suite: Suite) -> Runtime:
    return Runtime(shared_suite)


async def fork(runtime: Runtime, session_id: str, new: str | None = None, **more: Any) -> session_pb2.Session:
    draft = more.pop("session", None) or pb.SessionDraft(session_id=new)
    request = pb.ForkSessionRequest(request_id=fresh_id(), session_id=session_id, session=draft, **more)
    return (await runtime.call("SessionService.ForkSession", request)).session


async def grown(runtime: Runtime, count: int = 4) -> Saver:
    """A session with a checkpoint and its writes per commit pair, and one of a subgraph."""
    saver = Saver(runtime.world, (await runtime.create(title="source", metadata={"k": "v"})).session_id)
    for number in range(1, count + 1):
        await saver.put(put(number, value("a", str(number), b"\x00%d" % number)))
        await saver.write(writes(number, write("t", 0, b"w%d" % number)))
    await saver.put(put(count + 1, value("b", "1"), ns="child:1"))
    return saver


def plain(found: Any) -> list[Any]:
    """Checkpoints without what says whose they are."""
    copies = []
    for one in found:
        copy = type(one)()
        copy.CopyFrom(one)
        copy.ClearField("session_id")
        if "commit_sequence" in one.DESCRIPTOR.fields_by_name:
            copy.ClearField("commit_sequence")
        copies.append(copy)
    return copies


@pytest.mark.rule("R18", "R20")
async def test_a_fork_holds_what_its_source_holds_and_says_where_it_comes_from(runtime: Runtime) -> None:
    source = await grown(runtime)
    before = await runtime.session(source.session_id)
    made = await fork(runtime, source.session_id)
    assert (made.forked_from_session_id, made.forked_from_commit) == (source.session_id, before.thread_version)
    assert (made.title, dict(made.metadata), made.status) == ("source", {"k": "v"}, session_pb2.SESSION_STATUS_IDLE)
    assert made == await runtime.session(made.session_id)
    copied = Saver(runtime.world, made.session_id)
    assert plain(await copied.list()) == plain(await source.list())
    assert (await copied.answer()).checkpoint_id_floor == checkpoint_id(5)
    assert await runtime.types(made.session_id) == ["session.created", "checkpoint.saved"]
    assert await runtime.session(source.session_id) == before, "nothing happened to the source"


@pytest.mark.rule("R18", "R20")
@pytest.mark.parametrize("by", ["checkpoint", "commit"])
async def test_a_fork_at_a_point_has_nothing_that_came_later(runtime: Runtime, by: str) -> None:
    source = await grown(runtime)
    wanted = await source.get(2)
    assert wanted is not None
    at = {"checkpoint_id": checkpoint_id(2)} if by == "checkpoint" else {"commit_sequence": wanted.commit_sequence}
    copied = Saver(runtime.world, (await fork(runtime, source.session_id, **at)).session_id)
    left = {one.checkpoint_id: one for one in await copied.list()}
    assert set(left) == {checkpoint_id(1), checkpoint_id(2)}
    assert (len(left[checkpoint_id(1)].pending_writes), len(left[checkpoint_id(2)].pending_writes)) == (1, 0)
    assert left[checkpoint_id(2)].channel_values[0].data == b"\x002"
    # It goes on from there, and so does its source.
    await copied.put(put(3, value("a", "3", b"another")))
    assert (await source.get(3)).channel_values[0].data == b"\x003"  # type: ignore[union-attr]
    assert (await copied.get()).channel_values[0].data == b"another"  # type: ignore[union-attr]
    again = await fork(runtime, copied.session_id, checkpoint_id=checkpoint_id(2))
    assert again.forked_from_session_id == copied.session_id


@pytest.mark.rule("R18", "R11", "R12")
async def test_messages_and_state_are_as_they_were_after_the_commit(runtime: Runtime) -> None:
    from threadkeep.runtime.v1 import message_pb2, state_pb2, thread_service_pb2

    declare = thread_service_pb2.DeclareStateKeysRequest(
        request_id=fresh_id(),
        declarations=[
            state_pb2.StateKeyDeclaration(
                key=name,
                scope=f"STATE_SCOPE_{scope}",  # type: ignore[arg-type]
                merge=state_pb2.STATE_MERGE_EXCLUSIVE,
            )
            for name, scope in (("plan", "THREAD"), ("scratch", "RUN"))
        ],
    )
    await runtime.call("ThreadService.DeclareStateKeys", declare)

    def says(text: str) -> Any:
        return message_pb2.MessageChange(
            append=message_pb2.MessageDraft(
                message_id=text,
                role="MESSAGE_ROLE_USER",
                parts=[{"text": text}],  # type: ignore[arg-type]
            )
        )

    def sets(key: str, text: str) -> Any:
        return state_pb2.StateCommand(key=key, set_json=f'"{text}"')

    held = await runtime.lease()
    source = held.run.session_id
    await runtime.work(held, running=RUNNING, messages=[says("one"), says("two")], state=[sets("plan", "a")])
    removal = message_pb2.MessageChange(remove="one")
    done = await runtime.work(
        held, running=RUNNING, messages=[removal, says("three")], state=[sets("plan", "b"), sets("scratch", "x")]
    )
    await runtime.work(held, ended=SUCCEEDED, messages=[says("four")], state=[sets("plan", "c")])
    made = await fork(runtime, source, commit_sequence=done.receipt.commit_sequence)

    async def view(session_id: str, commit: int | None = None) -> tuple[list[str], dict[str, str]]:
        request = thread_service_pb2.GetThreadViewRequest(session_id=session_id, commit_sequence=commit, page_size=100)
        found = await runtime.call("ThreadService.GetThreadView", request)
        return (
            [one.message.message_id for one in found.messages],
            {one.key: one.value_json for one in found.state if one.key == "plan"},
        )

    assert await view(made.session_id) == (["two", "three"], {"plan": '"b"'})
    assert await view(made.session_id) == await view(source, done.receipt.commit_sequence)
    assert made.message_source == message_pb2.MESSAGE_SOURCE_FACTS
    await runtime.commit(made.session_id, messages=[says("five")])
    assert (await view(made.session_id))[0] == ["two", "three", "five"]
    assert (await view(source))[0] == ["two", "three", "four"]
    # A task of the fork starts at once: what is at work in the source is not in here.
    await runtime.submit(made.session_id)


@pytest.mark.rule("R18", "X2", "X3", "X8")
async def test_what_a_fork_refuses(runtime: Runtime) -> None:
    source = await grown(runtime, 1)
    version = (await runtime.session(source.session_id)).thread_version
    theirs = Runtime(runtime.world.suite)
    for call, code, reason in (
        (fork(runtime, "never-used"), grpc.StatusCode.NOT_FOUND, "SESSION_NOT_FOUND"),
        (fork(theirs, source.session_id), grpc.StatusCode.NOT_FOUND, "SESSION_NOT_FOUND"),
        (fork(runtime, source.session_id, commit_sequence=version + 1), None, "FIELD_INVALID"),
        (fork(runtime, source.session_id, checkpoint_id=checkpoint_id(9)), None, "CHECKPOINT_NOT_FOUND"),
        (fork(runtime, source.session_id, checkpoint_ns="x"), None, "FIELD_INVALID"),
        (fork(runtime, source.session_id, source.session_id), None, "FIELD_INVALID"),
    ):
        details = await refused(call)
        assert details.reason == reason
        assert code is None or details.code == code
    taken = await runtime.create()
    assert (await refused(fork(runtime, source.session_id, taken.session_id))).reason == "ID_TAKEN"
    delete = pb.DeleteSessionRequest(request_id=fresh_id(), session_id=taken.session_id)
    await runtime.call("SessionService.DeleteSession", delete)
    assert (await refused(fork(runtime, source.session_id, taken.session_id))).reason == "ID_TAKEN"
    assert (await refused(fork(runtime, taken.session_id))).reason == "SESSION_NOT_FOUND"
    name = "fork-'%_\\ü🚢"
    both = await together(fork(runtime, source.session_id, name), fork(runtime, source.session_id, name))
    assert sum(isinstance(one, session_pb2.Session) for one in both) == 1


@pytest.mark.rule("R18", "R3", "R19")
async def test_a_busy_source_can_be_forked_and_a_fork_outlives_it(runtime: Runtime) -> None:
    held = await runtime.lease()
    leased = Saver(runtime.world, held.run.session_id, held.lease)
    await leased.put(put(1, value("a", "1")))
    made = await fork(runtime, held.run.session_id)
    assert (made.status, made.task_count) == (session_pb2.SESSION_STATUS_IDLE, 0)
    delete = pb.DeleteSessionRequest(request_id=fresh_id(), session_id=held.run.session_id)
    await runtime.call("SessionService.DeleteSession", delete)
    copied = Saver(runtime.world, made.session_id)
    assert (await copied.get(1)).channel_values[0].data == b"\xa1x"  # type: ignore[union-attr]
    await runtime.commit(made.session_id, events=[event()])
    prune = checkpoint_service_pb2.DeleteThreadRequest(request_id=fresh_id(), session_id=made.session_id)
    await runtime.call("CheckpointService.DeleteThread", prune)
