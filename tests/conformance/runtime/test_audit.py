"""Audit records, and the chain of commits that can be verified (R17)."""

import hashlib
import json
from datetime import timedelta
from typing import Any

import grpc
import pytest
from google.protobuf.timestamp_pb2 import Timestamp

from tests.support.calls import refusing
from tests.support.chains import commits, verified, whole_life
from tests.support.checkpoints import Saver, op, put, value, write, writes
from tests.support.descriptors import fresh_id
from tests.support.messages import append
from tests.support.runtime import RUNNING, Runtime, event, text
from tests.support.suite import Suite
from threadkeep.common.v1 import payload_pb2
from threadkeep.runtime.v1 import audit_pb2, session_service_pb2, thread_service_pb2
from threadkeep_chassis.scope import Scope

WORKER = payload_pb2.Actor(kind=payload_pb2.ACTOR_KIND_WORKER, id="w-1")
ALICE = payload_pb2.Actor(kind=payload_pb2.ACTOR_KIND_USER, id="alice")


@pytest.fixture
def runtime(shared_suite: Suite) -> Runtime:
    return Runtime(shared_suite)


def record(action: str = "refund.approved", **more: Any) -> audit_pb2.AuditDraft:
    return audit_pb2.AuditDraft(action=action, **more)


async def records(runtime: Runtime, page_size: int = 0, **wanted: Any) -> list[audit_pb2.AuditRecord]:
    """Audit records, page by page."""
    request = thread_service_pb2.ListAuditRecordsRequest(page_size=page_size, **wanted)
    found: list[audit_pb2.AuditRecord] = []
    while True:
        page = await runtime.call("ThreadService.ListAuditRecords", request)
        found += page.records
        if not page.next_page_token:
            return found
        request.page_token = page.next_page_token


@pytest.mark.rule("R17")
async def test_audit_drafts_become_records_of_their_commit(runtime: Runtime) -> None:
    held = await runtime.lease()
    name = held.run.session_id
    details = text(bytes(range(256)))
    done = await runtime.work(
        held,
        running=RUNNING,
        actor=WORKER,
        audit=[record(target="order 7", details=details), record("refund.paid", actor=ALICE)],
    )
    second, first = sorted(await records(runtime, session_id=name), key=lambda one: -one.ordinal)
    assert (first.action, first.target, first.actor, first.details) == ("refund.approved", "order 7", WORKER, details)
    assert (second.action, second.actor, second.ordinal) == ("refund.paid", ALICE, 2)
    assert not second.HasField("details")
    for one in (first, second):
        assert (one.session_id, one.commit_sequence) == (name, done.receipt.commit_sequence)
        assert (one.run_id, one.task_id) == (held.run.run_id, held.task.task_id)
        assert one.create_time == done.receipt.commit_time
    with refusing(grpc.StatusCode.ABORTED, "THREAD_VERSION_CONFLICT"):
        await runtime.commit(name, expected_thread_version=1, audit=[record("never.happened")])
    with refusing(grpc.StatusCode.RESOURCE_EXHAUSTED, "LIMIT_EXCEEDED"):
        await runtime.commit(name, audit=[record(details=text(b"x" * (1 << 17)))])
    assert len(await records(runtime)) == 2


@pytest.mark.rule("R17", "X2", "X5")
async def test_audit_records_are_listed_by_session_action_actor_and_time(runtime: Runtime) -> None:
    one, other = (await runtime.create()).session_id, (await runtime.create()).session_id
    for number in range(3):
        await runtime.commit(one, audit=[record(f"a{number}", actor=ALICE), record("b")])
    last = await runtime.commit(other, audit=[record("b", actor=ALICE)])
    every = await records(runtime)
    assert len(every) == 7
    assert every == await records(runtime, page_size=2)
    assert [found.create_time.ToMicroseconds() for found in every] == sorted(
        (found.create_time.ToMicroseconds() for found in every), reverse=True
    )
    assert len(await records(runtime, session_id=one)) == 6
    assert {found.action for found in await records(runtime, actions=["a1", "b"])} == {"a1", "b"}
    assert len(await records(runtime, actor_id="alice")) == 4
    later = Timestamp()
    later.FromDatetime(last.receipt.commit_time.ToDatetime() + timedelta(microseconds=1))
    assert len(await records(runtime, created_before=later)) == 7
    assert await records(runtime, created_from=later) == []
    assert await records(Runtime(runtime.world.suite)) == []
    assert await records(runtime, session_id=fresh_id("session")) == []


@pytest.mark.rule("R17", "R19")
async def test_audit_records_outlive_their_session(runtime: Runtime) -> None:
    name = (await runtime.create()).session_id
    await runtime.commit(name, audit=[record()])
    await runtime.call(
        "SessionService.DeleteSession",
        session_service_pb2.DeleteSessionRequest(request_id=fresh_id(), session_id=name),
    )
    assert [one.action for one in await records(runtime, session_id=name)] == ["refund.approved"]
    with refusing(grpc.StatusCode.NOT_FOUND, "SESSION_NOT_FOUND"):
        await verified(runtime, name)


@pytest.mark.rule("R17")
async def test_a_thread_of_every_kind_of_part_verifies(runtime: Runtime) -> None:
    life = await whole_life(runtime)
    pages = await verified(runtime, life.session_id)
    (page,) = pages
    assert (page.first_commit, page.last_commit) == (1, life.last.commit_sequence)
    assert page.digest == life.last.digest
    assert page.purged_parts == 0
    listed = await commits(runtime, life.session_id)
    kinds = {part[0] for one in listed for part in json.loads(one.canonical)[-1]}
    assert kinds == {
        "event", "message", "message_end", "state", "ticket", "ticket_end", "outbox", "audit", "checkpoint", "value",
        "write",
    }  # fmt: skip
    parts = sum(len(json.loads(one.canonical)[-1]) for one in listed)
    assert page.present_parts == parts
    by_pages = await verified(runtime, life.session_id, page_size=2)
    assert by_pages[-1].digest == page.digest
    assert sum(one.present_parts for one in by_pages) == parts


@pytest.mark.rule("R17")
async def test_anybody_can_recompute_the_chain_from_the_list_of_commits(runtime: Runtime) -> None:
    life = await whole_life(runtime)
    scope_key = Scope(runtime.world.values).key
    start = json.dumps(["threadkeep.commit.v1", scope_key, life.session_id], separators=(",", ":"))
    previous = hashlib.sha256(start.encode()).digest()
    for one in reversed(await commits(runtime, life.session_id)):
        previous = hashlib.sha256(previous + one.canonical).digest()
        assert one.digest == previous
        facts = json.loads(one.canonical)
        assert facts[:5] == [
            "threadkeep.commit.v1",
            one.commit_sequence,
            one.kind,
            one.request_id if one.HasField("request_id") else None,
            one.run_id if one.HasField("run_id") else None,
        ]
        assert facts[9] == one.create_time.ToMicroseconds()
    assert previous == life.last.digest


@pytest.mark.rule("R17", "X3")
async def test_a_receipt_has_its_commits_digest_also_when_it_is_replayed(runtime: Runtime) -> None:
    name = (await runtime.create()).session_id
    request_id = fresh_id()
    first = await runtime.commit(name, events=[event()], request_id=request_id)
    await runtime.commit(name, events=[event()])
    again = await runtime.commit(name, events=[event()], request_id=request_id)
    assert len(first.receipt.digest) == 32
    assert again.receipt.digest == first.receipt.digest
    assert (await commits(runtime, name))[1].digest == first.receipt.digest


@pytest.mark.rule("R17", "R20")
async def test_checkpoints_that_are_put_again_pruned_or_deleted_still_verify(runtime: Runtime) -> None:
    name = (await runtime.create()).session_id
    first = put(1, value("c", "1"), value("whole", "", b"one"))
    await runtime.commit(name, checkpoint_ops=[op(first), op(writes(1, write("t", 0), write("t", -1, b"a")))])
    await runtime.commit(name, checkpoint_ops=[op(writes(1, write("t", 0, b"late"), write("t", -1, b"b")))])
    changed = put(1, value("c", "1", b"late"), value("whole", "", b"two"), metadata={"source": "update", "step": 7})
    await runtime.commit(name, checkpoint_ops=[op(changed)])
    await runtime.commit(name, checkpoint_ops=[op(put(2, value("c", "2")))])
    (page,) = await verified(runtime, name)
    present = page.present_parts
    await Saver(runtime.world, name).delete()
    (page,) = await verified(runtime, name)
    assert 0 < page.purged_parts < present


@pytest.mark.rule("R17")
async def test_messages_of_a_leased_run_are_in_the_chain_of_their_own_thread_only(runtime: Runtime) -> None:
    one, other = (await runtime.create()).session_id, (await runtime.create()).session_id
    digests = set()
    for name in (one, other):
        digests.add((await runtime.commit(name, messages=append("same"))).receipt.digest)
    assert len(digests) == 2


@pytest.mark.rule("R17", "R18")
async def test_a_fork_has_a_chain_of_its_own(runtime: Runtime) -> None:
    life = await whole_life(runtime)
    fork = session_service_pb2.ForkSessionRequest(request_id=fresh_id(), session_id=life.session_id)
    name = (await runtime.call("SessionService.ForkSession", fork)).session.session_id
    await runtime.commit(name, events=[event()], messages=append("after"))
    for session_id in (name, life.session_id):
        pages = await verified(runtime, session_id)
        assert pages[-1].digest == (await commits(runtime, session_id))[0].digest
