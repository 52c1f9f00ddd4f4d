"""Messages from session to session: they arrive once, in order, and only after their commit (R16)."""

import asyncio
import base64
import json

import pytest

from tests.support.calls import refused
from tests.support.descriptors import fresh_id
from tests.support.examples.world import text_input
from tests.support.outbox import DEAD, DELIVERED, deliveries, inbox, settled, to_session, to_webhook
from tests.support.runtime import SUCCEEDED, Runtime, commit, event
from tests.support.suite import Suite
from tests.support.waiting import eventually
from threadkeep.runtime.v1 import outbox_pb2, outbox_service_pb2, session_service_pb2, task_pb2, webhook_pb2


@pytest.fixture
def runtime(shared_suite: Suite) -> Runtime:
    return Runtime(shared_suite)


def value_of(fact: dict) -> object:  # type: ignore[type-arg]
    """The value that a message carried."""
    return json.loads(base64.b64decode(fact["payload"]["data"]))


@pytest.mark.rule("R16", "R1")
async def test_a_message_arrives_once_as_a_fact_of_its_session(runtime: Runtime) -> None:
    target = (await runtime.create()).session_id
    held = await runtime.lease()
    committed = await runtime.work(
        held, events=[event()], outbox=[to_session(target, {"n": 1}, correlation_id="c")], ended=SUCCEEDED
    )
    (one,) = await settled(runtime, held.run.session_id)
    assert committed.outbox_message_ids == [one.message_id]
    assert (one.state, one.target_session_id, one.type, one.attempt) == (DELIVERED, target, "order.placed", 1)
    assert (one.run_id, one.task_id, one.commit_sequence) == (
        held.run.run_id,
        held.task.task_id,
        committed.receipt.commit_sequence,
    )
    (fact,) = await inbox(runtime, target)
    assert value_of(fact) == {"n": 1}
    assert (fact["message_id"], fact["session_id"], fact["correlation_id"]) == (
        one.message_id,
        held.run.session_id,
        "c",
    )
    arrived = (await runtime.events(target))[-1]
    assert (arrived.event_id, arrived.causation_id) == (one.message_id, one.message_id)
    # The sender's log says that it was sent, before the run's end.
    types = await runtime.types(held.run.session_id)
    assert types.index("outbox.addressed") < types.index("run.ended")


@pytest.mark.rule("R16", "X3")
async def test_a_commit_sent_twice_sends_its_messages_once(runtime: Runtime) -> None:
    source, target = (await runtime.create()).session_id, (await runtime.create()).session_id
    request = commit(source, outbox=[to_session(target, 1), to_session(target, 2)])
    answers = [await runtime.call("ThreadService.Commit", request) for _ in range(2)]
    assert answers[0].outbox_message_ids == answers[1].outbox_message_ids
    await settled(runtime, source)
    assert [value_of(fact) for fact in await inbox(runtime, target)] == [1, 2]


@pytest.mark.rule("R16")
async def test_messages_of_many_senders_arrive_in_the_order_of_their_commits(runtime: Runtime) -> None:
    target = (await runtime.create()).session_id
    sources = [(await runtime.create()).session_id for _ in range(3)]

    async def send(source: str) -> None:
        for number in range(8):
            await runtime.commit(source, outbox=[to_session(target, [source, number, part]) for part in (0, 1)])

    await asyncio.gather(*(send(source) for source in sources))
    for source in sources:
        assert {one.state for one in await settled(runtime, source)} == {DELIVERED}
    arrived = [value_of(fact) for fact in await inbox(runtime, target)]
    assert len(arrived) == 48
    for source in sources:
        assert [one[1:] for one in arrived if one[0] == source] == [[n, part] for n in range(8) for part in (0, 1)]


@pytest.mark.rule("R16", "R5")
async def test_a_message_opens_a_task_by_the_ordinary_pipeline(runtime: Runtime) -> None:
    agent, queue = await runtime.agent(), fresh_id("queue")
    busy = await runtime.lease()
    target, source = busy.run.session_id, (await runtime.create()).session_id
    task = outbox_pb2.TaskOnArrival(
        task_id=fresh_id("task"), agent_name=agent, input=text_input("go on"), queue=queue, metadata={"from": "far"}
    )
    await runtime.commit(source, outbox=[to_session(target, 1, task=task)])
    assert (await settled(runtime, source))[0].state == DELIVERED
    opened = await runtime.task(task.task_id)
    # The session is busy, so the task waits for its turn: the default on arrival.
    assert (opened.state, opened.session_id, opened.run_id) == (task_pb2.TASK_STATE_SUBMITTED, target, "")
    assert opened.metadata == {"from": "far"}
    assert opened.manifest_digest
    await runtime.work(busy, ended=SUCCEEDED)
    held = await runtime.acquire(queue)
    assert held is not None
    assert held.task.task_id == task.task_id
    types = await runtime.types(target)
    assert types[types.index("inbox.received") + 1] == "task.submitted"


@pytest.mark.rule("R16")
async def test_a_dedupe_key_stands_for_one_message(runtime: Runtime) -> None:
    source, other, target = [(await runtime.create()).session_id for _ in range(3)]
    draft = to_session(target, 1, dedupe_key="k")
    first = await runtime.commit(source, outbox=[draft, draft])
    assert first.outbox_message_ids[0] == first.outbox_message_ids[1]
    again = await runtime.commit(other, outbox=[draft])
    assert again.outbox_message_ids == first.outbox_message_ids[:1]
    for changed in (to_session(target, 2, dedupe_key="k"), to_session(target, 1, dedupe_key="k", type="other")):
        answer = await refused(runtime.commit(other, outbox=[changed]))
        assert (answer.reason, answer.metadata["message_id"]) == ("DEDUPE_KEY_REUSED", first.outbox_message_ids[0])
    answer = await refused(runtime.commit(other, outbox=[to_session(target, 1, dedupe_key="n"), changed]))
    assert answer.reason == "DEDUPE_KEY_REUSED"
    # At another target the key is another.
    await runtime.commit(source, outbox=[to_session(other, 2, dedupe_key="k")])
    await settled(runtime, source)
    assert len(await inbox(runtime, target)) == 1
    assert len(await deliveries(runtime)) == 2


@pytest.mark.rule("R16")
async def test_two_senders_of_one_dedupe_key_at_once_send_one_message(runtime: Runtime) -> None:
    target = (await runtime.create()).session_id
    sources = [(await runtime.create()).session_id for _ in range(6)]
    draft = to_session(target, 1, dedupe_key="k")
    answers = await asyncio.gather(*(runtime.commit(source, outbox=[draft]) for source in sources))
    assert len({answer.outbox_message_ids[0] for answer in answers}) == 1
    assert len(await deliveries(runtime)) == 1


@pytest.mark.rule("R16", "X2")
async def test_a_message_stays_inside_its_scope(runtime: Runtime, shared_suite: Suite) -> None:
    stranger = Runtime(shared_suite)
    name = (await stranger.create()).session_id
    source = (await runtime.create()).session_id
    sent = await runtime.commit(source, outbox=[to_session(name, 1)])
    (one,) = await settled(runtime, source)
    assert (one.state, one.last_error, one.attempt) == (DEAD, "SESSION_NOT_FOUND", 1)
    assert await inbox(stranger, name) == []
    # Nor does another scope see or settle it.
    assert await deliveries(stranger) == []
    for method in ("RequeueDeadLetters", "PurgeDeadLetters"):
        request = getattr(outbox_service_pb2, f"{method}Request")(
            request_id=fresh_id(), message_ids=sent.outbox_message_ids
        )
        answer = await stranger.call(f"OutboxService.{method}", request)
        assert answer in (type(answer)(),)
    assert (await deliveries(runtime, source))[0].state == DEAD


@pytest.mark.rule("R16", "X3")
async def test_dead_letters_are_listed_requeued_and_purged(runtime: Runtime) -> None:
    source, target = (await runtime.create()).session_id, fresh_id("session")
    sent = (await runtime.commit(source, outbox=[to_session(target, n) for n in range(3)])).outbox_message_ids
    assert {one.state for one in await settled(runtime, source)} == {DEAD}
    listing = outbox_service_pb2.ListDeadLettersRequest(session_id=source, page_size=2, include_payload=True)
    page = await runtime.call("OutboxService.ListDeadLetters", listing)
    assert [one.payload.data for one in page.dead_letters] == [b"2", b"1"]
    listing.page_token = page.next_page_token
    assert [one.message_id for one in (await runtime.call("OutboxService.ListDeadLetters", listing)).dead_letters] == [
        sent[0]
    ]
    purge = outbox_service_pb2.PurgeDeadLettersRequest(request_id=fresh_id(), message_ids=[sent[1], fresh_id()])
    for _ in range(2):
        assert (await runtime.call("OutboxService.PurgeDeadLetters", purge)).purged_count == 1
    await runtime.create(target)
    requeue = outbox_service_pb2.RequeueDeadLettersRequest(request_id=fresh_id())
    for _ in range(2):
        answer = await runtime.call("OutboxService.RequeueDeadLetters", requeue)
        assert (answer.requeued_count, answer.has_more) == (2, False)
    assert {one.state for one in await settled(runtime, source)} == {DELIVERED}
    assert [value_of(fact) for fact in await inbox(runtime, target)] == [0, 2]


@pytest.mark.rule("R16", "R3")
async def test_a_commit_that_is_refused_sends_nothing(runtime: Runtime) -> None:
    held = await runtime.lease()
    target = (await runtime.create()).session_id
    await runtime.work(held, ended=SUCCEEDED)
    assert (await refused(runtime.work(held, outbox=[to_session(target, 1)]))).reason == "LEASE_LOST"
    stale = commit(held.run.session_id, outbox=[to_session(target, 1)], expected_thread_version=1)
    assert (await refused(runtime.call("ThreadService.Commit", stale))).reason == "THREAD_VERSION_CONFLICT"
    assert await deliveries(runtime) == []


@pytest.mark.rule("R16")
async def test_a_message_to_its_own_session_is_a_later_commit(runtime: Runtime) -> None:
    name = (await runtime.create()).session_id
    sent = await runtime.commit(name, outbox=[to_session(name, 1)])
    await settled(runtime, name)
    arrived = (await runtime.events(name))[-1]
    assert arrived.type == "threadkeep.inbox.received"
    assert arrived.commit_sequence == sent.receipt.commit_sequence + 1


@pytest.mark.rule("R16")
@pytest.mark.case("B91")
async def test_a_webhook_leads_nowhere_unless_the_operator_allows_it(runtime: Runtime) -> None:
    source = (await runtime.create()).session_id
    for url in ("https://example.com/", "http://127.0.0.1/", "https://[::1]/", "ftp://example.com/", "no url", "//x"):
        answer = await refused(runtime.commit(source, outbox=[to_webhook(url)]))
        assert list(answer.violations) == ["commit.outbox[0].webhook.url"], url
        assert url not in answer.message
        submission = await runtime.submission(webhook=webhook_pb2.Webhook(url=url))
        assert list((await refused(runtime.call("TaskService.SubmitTask", submission))).violations) == ["webhook.url"]


@pytest.mark.rule("R16", "X9")
async def test_drafts_are_held_to_their_rules(runtime: Runtime) -> None:
    name = (await runtime.create()).session_id
    no_input = outbox_pb2.TaskOnArrival(agent_name="a", input=task_pb2.TaskInput())
    for draft, path in (
        (outbox_pb2.OutboxDraft(type="a"), "commit.outbox[0].target"),
        (to_session(name, type="threadkeep.own"), "commit.outbox[0].type"),
        (to_session(name, task=no_input), "input"),
    ):
        answer = await refused(runtime.commit(name, outbox=[draft]))
        assert (answer.reason, list(answer.violations)) == ("FIELD_INVALID", [path])
    large = await refused(runtime.commit(name, outbox=[to_session(name, "x" * (1 << 20))]))
    assert (large.reason, large.metadata["limit"]) == ("LIMIT_EXCEEDED", "max_outbox_message_bytes")


@pytest.mark.rule("R16", "R10")
async def test_a_busy_target_that_refuses_is_tried_again(runtime: Runtime) -> None:
    agent = await runtime.agent()
    busy = await runtime.lease()
    source = (await runtime.create()).session_id
    task = outbox_pb2.TaskOnArrival(
        task_id=fresh_id("task"),
        agent_name=agent,
        input=text_input("hello"),
        multitask_strategy=task_pb2.MULTITASK_STRATEGY_REJECT,
    )
    await runtime.commit(source, outbox=[to_session(busy.run.session_id, 1, task=task)])

    async def was_refused() -> bool:
        return (await deliveries(runtime, source))[0].last_error == "SESSION_BUSY"

    await eventually(was_refused)
    await runtime.work(busy, ended=SUCCEEDED)
    assert (await settled(runtime, source))[0].state == DELIVERED
    assert (await runtime.task(task.task_id)).state == task_pb2.TASK_STATE_SUBMITTED


@pytest.mark.rule("R16", "R19")
async def test_a_deleted_session_gets_nothing_more_and_leaves_nothing_to_send(runtime: Runtime) -> None:
    source, target = (await runtime.create()).session_id, (await runtime.create()).session_id
    request = session_service_pb2.DeleteSessionRequest(request_id=fresh_id(), session_id=target)
    await runtime.call("SessionService.DeleteSession", request)
    await runtime.commit(source, outbox=[to_session(target, 1)])
    (one,) = await settled(runtime, source)
    assert (one.state, one.last_error) == (DEAD, "SESSION_NOT_FOUND")
    request = session_service_pb2.DeleteSessionRequest(request_id=fresh_id(), session_id=source)
    await runtime.call("SessionService.DeleteSession", request)

    async def is_swept() -> bool:
        return await deliveries(runtime) == []

    await eventually(is_swept)
