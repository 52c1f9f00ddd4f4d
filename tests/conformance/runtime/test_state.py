"""State keys: declared once, merged by their rule, read with their version and who wrote them (R11)."""

import asyncio
import json
from typing import Any

import grpc
import pytest

from tests.support.calls import refusing
from tests.support.checkpoints import op, put
from tests.support.descriptors import fresh_id
from tests.support.examples.threads import declaration
from tests.support.runtime import RUNNING, SUCCEEDED, Runtime, event, failed, together
from tests.support.suite import Suite
from threadkeep.common.v1 import payload_pb2
from threadkeep.runtime.v1 import state_pb2, task_pb2, thread_service_pb2

DISJOINT = {"merge": state_pb2.STATE_MERGE_DISJOINT}
COMMUTATIVE = {"merge": state_pb2.STATE_MERGE_COMMUTATIVE}
OF_RUN = {"scope": state_pb2.STATE_SCOPE_RUN}
INVALID = grpc.StatusCode.INVALID_ARGUMENT


@pytest.fixture
def runtime(shared_suite: Suite) -> Runtime:
    return Runtime(shared_suite)


def command(key: str, **what: Any) -> state_pb2.StateCommand:
    return state_pb2.StateCommand(key=key, **what)


def names(*entries: str) -> state_pb2.StateEntryNames:
    return state_pb2.StateEntryNames(names=entries)


REMOVE = state_pb2.StateRemove()


@pytest.mark.rule("R11")
async def test_a_value_is_read_with_its_version_and_who_wrote_it(runtime: Runtime) -> None:
    await runtime.declare(declaration("plan", schema_version=3))
    held = await runtime.lease()
    actor = payload_pb2.Actor(kind=payload_pb2.ACTOR_KIND_WORKER, id="w-1")
    text = '{"b": 1.0, "a": 12345678901234567890, "t": "\\u0000ü"}'
    await runtime.work(held, state=[command("plan", set_json="1")], running=RUNNING)
    done = await runtime.work(held, state=[command("plan", set_json=text)], actor=actor)
    (page,) = await runtime.view(held.run.session_id)
    (value,) = page.state
    assert value.value_json == text, "byte for byte"
    assert (value.key, value.version, value.schema_version) == ("plan", 2, 3)
    assert (value.commit_sequence, value.run_id, value.actor) == (
        done.receipt.commit_sequence,
        held.run.run_id,
        actor,
    )
    assert value.update_time == done.receipt.commit_time
    changed = (await runtime.events(held.run.session_id))[-1]
    assert changed.type == "threadkeep.state.changed"
    assert json.loads(changed.payload.data) == {"versions": {"plan": "2"}}
    assert changed.run_id == held.run.run_id


@pytest.mark.rule("R11")
async def test_an_undeclared_key_is_refused_and_nothing_of_the_commit_stays(runtime: Runtime) -> None:
    await runtime.declare(declaration("known"))
    held = await runtime.lease()
    before = await runtime.session(held.run.session_id)
    with refusing(INVALID, "STATE_KEY_UNDECLARED") as error:
        await runtime.work(
            held,
            state=[command("known", set_json="1"), command("unknown", set_json="1")],
            events=[event()],
            ended=SUCCEEDED,
        )
    assert "commit.state[1].key" in error.violations
    assert await runtime.session(held.run.session_id) == before
    assert await runtime.state(held.run.session_id) == {}
    other = Runtime(runtime.world.suite)
    session = await other.create()
    with refusing(INVALID, "STATE_KEY_UNDECLARED"):
        await other.commit(session.session_id, state=[command("known", set_json="1")])


@pytest.mark.rule("R11")
@pytest.mark.parametrize(
    ("rule", "commands"),
    [
        ({}, [command("k", set_json="1"), command("k", set_json="1")]),
        ({}, [command("k", set_json="1"), command("k", remove=REMOVE)]),
        (DISJOINT, [command("k", entries_json='{"a":1}'), command("k", entries_json='{"b":1,"a":1}')]),
        (DISJOINT, [command("k", entries_json='{"a":1}'), command("k", remove_entries=names("a"))]),
        (DISJOINT, [command("k", remove=REMOVE), command("k", entries_json='{"a":1}')]),
        (COMMUTATIVE, [command("k", add=1), command("k", union_json="[1]")]),
        (COMMUTATIVE, [command("k", add=1), command("k", remove=REMOVE)]),
    ],
)
async def test_commands_that_exclude_each_other_reject_the_whole_commit(
    runtime: Runtime, rule: dict[str, Any], commands: list[state_pb2.StateCommand]
) -> None:
    await runtime.declare(declaration("k", **rule), declaration("other"))
    session = await runtime.create()
    with refusing(INVALID, "STATE_CONFLICT") as error:
        await runtime.commit(session.session_id, state=[command("other", set_json="1"), *commands], events=[event()])
    assert any(path.startswith("commit.state[") for path in error.violations)
    assert (await runtime.session(session.session_id)).thread_version == 1
    assert await runtime.state(session.session_id) == {}


@pytest.mark.rule("R11")
async def test_each_merge_rule_does_what_it_says(runtime: Runtime) -> None:
    await runtime.declare(
        declaration("exclusive"),
        declaration("entries", **DISJOINT),
        declaration("sum", **COMMUTATIVE),
        declaration("set", **COMMUTATIVE),
    )
    name = (await runtime.create()).session_id
    await runtime.commit(
        name,
        state=[
            command("exclusive", set_json='"one"'),
            command("entries", entries_json='{"b":1,"a":{"x":null}}'),
            command("entries", entries_json='{"c":3}'),
            command("sum", add=5),
            command("sum", add=-7),
            command("set", union_json='["b",1,{"x":1,"y":2}]'),
        ],
    )
    expected = {"exclusive": "one", "entries": {"a": {"x": None}, "b": 1, "c": 3}, "sum": -2}
    assert await runtime.state(name) == {**expected, "set": ["b", 1, {"x": 1, "y": 2}]}
    await runtime.commit(
        name,
        state=[
            command("exclusive", set_json="null"),
            command("entries", remove_entries=names("b", "never")),
            command("entries", entries_json='{"a":2}'),
            command("sum", add=9_223_372_036_854_775_807),
            command("sum", add=9_223_372_036_854_775_807),
            command("set", union_json='[{"y":2.0,"x":1},"a",1.0,true]'),
        ],
    )
    found = await runtime.state(name)
    assert found["exclusive"] is None
    assert found["entries"] == {"a": 2, "c": 3}
    assert found["sum"] == 2 * 9_223_372_036_854_775_807 - 2
    assert found["set"] == ["a", "b", 1, True, {"x": 1, "y": 2}]
    await runtime.commit(name, state=[command(key, remove=REMOVE) for key in found for _ in range(2)])
    assert await runtime.state(name) == {}
    await runtime.commit(name, state=[command("set", add=1)])
    (page,) = await runtime.view(name)
    assert [(value.key, value.value_json, value.version) for value in page.state] == [("set", "1", 4)]


@pytest.mark.rule("R11")
@pytest.mark.parametrize(
    ("rule", "what", "field"),
    [
        ({}, {"add": 1}, "add"),
        ({}, {"entries_json": "{}"}, "entries_json"),
        (DISJOINT, {"set_json": "{}"}, "set_json"),
        (COMMUTATIVE, {"set_json": "1"}, "set_json"),
        (COMMUTATIVE, {"union_json": "{}"}, "union_json"),
        (DISJOINT, {"entries_json": "[]"}, "entries_json"),
        ({}, {"set_json": "NaN"}, "set_json"),
        ({}, {}, ""),
        (OF_RUN, {"set_json": "1"}, "key"),
    ],
)
async def test_a_command_that_the_key_does_not_take_is_refused(
    runtime: Runtime, rule: dict[str, Any], what: dict[str, Any], field: str
) -> None:
    await runtime.declare(declaration("k", **rule))
    session = await runtime.create()
    with refusing(INVALID, "FIELD_INVALID") as error:
        await runtime.commit(session.session_id, state=[command("k", **what)])
    assert f"commit.state[0]{'.' if field else ''}{field}" in error.violations
    assert (await runtime.session(session.session_id)).thread_version == 1


@pytest.mark.rule("R11")
async def test_a_sum_and_a_set_do_not_mix(runtime: Runtime) -> None:
    await runtime.declare(declaration("k", **COMMUTATIVE))
    name = (await runtime.create()).session_id
    await runtime.commit(name, state=[command("k", union_json="[]")])
    assert await runtime.state(name) == {"k": []}
    with refusing(INVALID, "FIELD_INVALID") as error:
        await runtime.commit(name, state=[command("k", add=1)])
    assert "commit.state[0].add" in error.violations


@pytest.mark.rule("R11")
async def test_concurrent_commits_of_commutative_commands_all_count(runtime: Runtime) -> None:
    await runtime.declare(declaration("sum", **COMMUTATIVE), declaration("set", **COMMUTATIVE))
    name = (await runtime.create()).session_id
    await asyncio.gather(
        *(
            runtime.commit(name, state=[command("sum", add=number), command("set", union_json=f"[{number % 5}]")])
            for number in range(1, 21)
        )
    )
    assert await runtime.state(name) == {"sum": 210, "set": [0, 1, 2, 3, 4]}
    (page,) = await runtime.view(name)
    assert {value.version for value in page.state} == {20}


@pytest.mark.rule("R11", "R7")
async def test_a_runs_values_vanish_with_the_run(runtime: Runtime) -> None:
    await runtime.declare(declaration("scratch", **OF_RUN), declaration("kept"))
    policy = task_pb2.RetryPolicy(max_attempts=3)
    policy.initial_backoff.FromMilliseconds(1)
    held = await runtime.lease(retry_policy=policy)
    name = held.run.session_id
    both = [command("scratch", set_json="1"), command("kept", set_json="1")]
    written = await runtime.work(held, state=both, running=RUNNING)
    assert await runtime.state(name) == {"scratch": 1, "kept": 1}
    await runtime.release(held.lease)
    again = await runtime.again(held)
    assert await runtime.state(name) == {"scratch": 1, "kept": 1}, "another lease of the same run"
    failure = failed()
    failure.failure.retryable = True
    await runtime.work(again, ended=failure)
    assert await runtime.state(name) == {"kept": 1}, "the next attempt is another run"
    next_run = await runtime.again(held)
    await runtime.work(next_run, state=[command("scratch", set_json="2")], ended=SUCCEEDED)
    assert await runtime.state(name) == {"kept": 1}
    at = written.receipt.commit_sequence
    assert await runtime.state(name, at) == {"scratch": 1, "kept": 1}, "but they were there then"


@pytest.mark.rule("R3", "R11")
async def test_while_a_run_is_leased_state_needs_its_lease(runtime: Runtime) -> None:
    await runtime.declare(declaration("k"))
    held = await runtime.lease()
    name = held.run.session_id
    with refusing(grpc.StatusCode.FAILED_PRECONDITION, "LEASE_REQUIRED"):
        await runtime.commit(name, state=[command("k", set_json="1")])
    await runtime.release(held.lease)
    with refusing(grpc.StatusCode.ABORTED, "LEASE_LOST"):
        await runtime.work(held, state=[command("k", set_json="1")], checkpoint_ops=[op(put(1))])
    assert await runtime.state(name) == {}
    await runtime.commit(name, state=[command("k", set_json="2")])
    assert await runtime.state(name) == {"k": 2}


@pytest.mark.rule("R11", "R3")
async def test_fence_and_version_are_checked_before_state(runtime: Runtime) -> None:
    session = await runtime.create()
    bad = [command("nowhere", set_json="1")]
    with refusing(grpc.StatusCode.ABORTED, "THREAD_VERSION_CONFLICT"):
        await runtime.commit(session.session_id, expected_thread_version=7, state=bad)
    with refusing(grpc.StatusCode.NOT_FOUND, "SESSION_NOT_FOUND"):
        await runtime.commit(fresh_id("session"), state=bad)


@pytest.mark.rule("R11", "X9")
async def test_a_value_has_a_size_limit_that_its_declaration_sets(runtime: Runtime) -> None:
    await runtime.declare(
        declaration("k", max_value_bytes=10), declaration("e", max_value_bytes=20, **DISJOINT), declaration("d")
    )
    name = (await runtime.create()).session_id
    await runtime.commit(name, state=[command("k", set_json='"12345678"'), command("e", entries_json='{"a":"12345"}')])
    exhausted = grpc.StatusCode.RESOURCE_EXHAUSTED
    with refusing(exhausted, "LIMIT_EXCEEDED") as error:
        await runtime.commit(name, state=[command("k", set_json='"123456789"')])
    assert error.metadata["maximum"] == "10"
    with refusing(exhausted, "LIMIT_EXCEEDED"):
        await runtime.commit(name, state=[command("e", entries_json='{"b":"12345"}')])
    with refusing(exhausted, "LIMIT_EXCEEDED"):
        await runtime.commit(name, state=[command("d", set_json=f'"{"x" * 65536}"')])
    with refusing(exhausted, "LIMIT_EXCEEDED"):
        await runtime.declare(declaration("big", max_value_bytes=1 << 40))


@pytest.mark.rule("R11")
async def test_what_commands_bring_matches_the_keys_schema(runtime: Runtime) -> None:
    number = '{"type": "integer", "maximum": 9}'
    await runtime.declare(
        declaration("value", schema_json=number),
        declaration("entry", schema_json=number, **DISJOINT),
        declaration("element", schema_json=number, **COMMUTATIVE),
    )
    name = (await runtime.create()).session_id
    good = [
        command("value", set_json="9"),
        command("entry", entries_json='{"a":9,"b":1}'),
        command("element", union_json="[1,9]"),
    ]
    await runtime.commit(name, state=good)
    for index, bad in enumerate(
        [
            command("value", set_json="10"),
            command("entry", entries_json='{"a":1,"b":10}'),
            command("element", union_json="[1,10]"),
            command("element", add=10),
        ]
    ):
        with refusing(INVALID, "FIELD_INVALID") as error:
            await runtime.commit(name, state=[bad])
        (path,) = error.violations
        assert path.startswith("commit.state[0]."), index
        assert "10" not in error.message.replace(path, "")


@pytest.mark.rule("R11", "X3")
async def test_declarations_are_pinned(runtime: Runtime) -> None:
    (first,) = await runtime.declare(declaration("k", schema_json='{"type":"integer"}'))
    assert (first.declaration.schema_version, first.declaration.max_value_bytes) == (1, 65536)
    assert await runtime.declare(declaration("k", schema_json='{"type":"integer"}')) == [first]
    precondition = grpc.StatusCode.FAILED_PRECONDITION
    for other in (
        declaration("k", schema_json='{"type":"integer"}', **DISJOINT),
        declaration("k", schema_json='{"type":"integer"}', **OF_RUN),
        declaration("k"),
        declaration("k", schema_json='{"type":"integer"}', max_value_bytes=1),
    ):
        with refusing(precondition, "STATE_KEY_PINNED"):
            await runtime.declare(declaration("fresh"), other)
    name = (await runtime.create()).session_id
    await runtime.commit(name, state=[command("k", set_json="1")])
    (second,) = await runtime.declare(declaration("k", schema_version=2, schema_json='{"type":"string"}'))
    assert (second.declaration.schema_version, second.create_time) == (2, first.create_time)
    with refusing(precondition, "STATE_KEY_PINNED"):
        await runtime.declare(declaration("k", schema_json='{"type":"integer"}'))
    with refusing(INVALID, "FIELD_INVALID"):
        await runtime.commit(name, state=[command("k", set_json="1")])
    (page,) = await runtime.view(name)
    assert [(value.value_json, value.schema_version) for value in page.state] == [("1", 1)], "what was written stays"
    await runtime.commit(name, state=[command("k", set_json='"text"')])
    request = thread_service_pb2.ListStateKeysRequest(page_size=1)
    page = await runtime.call("ThreadService.ListStateKeys", request)
    assert ([one.declaration.key for one in page.keys], page.next_page_token) == (["k"], ""), "all or none"


@pytest.mark.rule("R11", "X5")
async def test_state_keys_are_listed_by_name(runtime: Runtime) -> None:
    keys = [f"key-{number:02d}" for number in range(7)]
    await runtime.declare(*(declaration(key) for key in reversed(keys)))
    request = thread_service_pb2.ListStateKeysRequest(page_size=3)
    found: list[str] = []
    while True:
        page = await runtime.call("ThreadService.ListStateKeys", request)
        found += [one.declaration.key for one in page.keys]
        if not page.next_page_token:
            break
        request.page_token = page.next_page_token
    assert found == keys


@pytest.mark.rule("R11")
async def test_keys_declared_at_once_by_many_are_declared_once(runtime: Runtime) -> None:
    outcomes = await together(*(runtime.declare(declaration("k"), declaration(f"k{n}")) for n in range(8)))
    assert all(isinstance(one, list) for one in outcomes), outcomes
    assert len({one[0].SerializeToString(deterministic=True) for one in outcomes}) == 1


@pytest.mark.rule("R11", "X9")
@pytest.mark.parametrize(
    "broken",
    [
        {"scope": 0},
        {"merge": 0},
        {"merge": 99},
        {"schema_json": '{"type":"nonsense"}'},
        {"schema_json": '{"pattern":"(?=x)"}'},
        {"schema_version": -1},
    ],
)
async def test_a_declaration_that_means_nothing_is_refused(runtime: Runtime, broken: dict[str, Any]) -> None:
    with refusing(INVALID, "FIELD_INVALID"):
        await runtime.declare(declaration("k", **broken))
    with refusing(INVALID, "FIELD_INVALID"):
        await runtime.declare(declaration("k"), declaration("k"))
