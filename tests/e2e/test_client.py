"""Every call of the Python client once, synchronous and asyncio, against the four services."""

import asyncio
import inspect
import json
import uuid
from collections.abc import AsyncIterator, Callable, Iterator
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest

from tests.support.client_artifacts import use_artifacts
from tests.support.client_projection import projection_calls
from tests.support.messages import message
from tests.support.suite import Suite
from tests.support.waiting import eventually
from threadkeep import AsyncClient, Client, errors
from threadkeep._async_parts import PARTS
from threadkeep.common.v1 import content_pb2
from threadkeep.config.v1 import entity_pb2, set_pb2, watch_pb2
from threadkeep.runtime.v1 import commit_pb2, event_pb2, run_pb2, state_pb2, task_pb2, ticket_pb2

pytestmark = pytest.mark.suite(backends=["sqlite", "postgres"], topologies=["embedded", "split"])


class Both:
    """One client for a test that is written once: a synchronous one runs in a thread."""

    def __init__(self, client: Client | AsyncClient) -> None:
        self.client = client
        self.called: set[str] = set()

    async def __call__(self, name: str, /, *args: Any, **kwargs: Any) -> Any:
        """Calls `part.method`; gives what it gives, lists for iterators."""
        self.called.add(name)
        part, method = name.split(".")
        call = getattr(getattr(self.client, part), method)
        if isinstance(self.client, Client):
            return await asyncio.to_thread(lambda: _listed(call(*args, **kwargs)))
        answer = call(*args, **kwargs)
        if inspect.isawaitable(answer):
            return await answer
        return [one async for one in answer] if isinstance(answer, AsyncIterator) else answer

    async def first(self, name: str, enough: Callable[[list[Any]], bool], /, *args: Any, **kwargs: Any) -> list[Any]:
        """The first items of a feed, until they are enough."""
        self.called.add(name)
        part, method = name.split(".")
        feed = getattr(getattr(self.client, part), method)(*args, **kwargs)
        if isinstance(self.client, Client):

            def take() -> list[Any]:
                items: list[Any] = []
                with feed:
                    while not enough(items):
                        items.append(next(feed))
                return items

            return await asyncio.to_thread(take)
        items: list[Any] = []
        async with feed:
            while not enough(items):
                items.append(await anext(feed))
        return items


def _count(number: int) -> Callable[[list[Any]], bool]:
    return lambda items: len(items) >= number


def _changes(frames: list[Any]) -> list[str]:
    return [one.entity.definition.agent.description for frame in frames for one in frame.changes.changes]


def _listed(answer: Any) -> Any:
    return [*answer] if isinstance(answer, Iterator) else answer


@pytest.fixture(params=["sync", "async"])
async def call(request: pytest.FixtureRequest, shared_suite: Suite) -> AsyncIterator[Both]:
    """The client under test."""
    scope = {"test": uuid.uuid4().hex}
    if request.param == "sync":
        with Client(shared_suite.addresses, scope=scope) as client:
            yield Both(client)
    else:
        async with AsyncClient(shared_suite.addresses, scope=scope) as aclient:
            yield Both(aclient)


def _methods() -> set[str]:
    return {f"{name}.{method}" for name, part in PARTS.items() for method in vars(part) if not method.startswith("_")}


@pytest.mark.rule("X3", "X5", "X6", "R6", "R13", "R16", "R23", "R24", "C5", "C6", "A1", "A3", "P2", "P4", "P5", "X15")
async def test_every_call_of_the_client(call: Both, tmp_path: Path) -> None:
    for part in (_config, _sessions, _runs, _later_tasks, _schedules, _outbox, _checkpoints, _store, use_artifacts):
        await part(call, tmp_path)
    assert _methods() - call.called == set()


async def _config(call: Both, tmp_path: Path) -> None:
    first = await call("config.put", "echo", entity_pb2.Agent(description="one"))
    assert first.changed
    assert not (await call("config.put", "echo", entity_pb2.Agent(description="one"))).changed
    with pytest.raises(errors.RevisionConflict) as conflict:
        await call("config.put", "echo", entity_pb2.Agent(description="two"), expected_revision=0)
    assert conflict.value.current_revision == first.entity.revision
    second = await call("config.put", "echo", entity_pb2.Agent(description="two"))
    assert (await call("config.get", "agent", "echo")).definition.agent.description == "two"
    assert [one.name for one in await call("config.list", types=["agent"])] == ["echo"]
    assert (await call("config.resolve", "agent", "echo")).revision == second.entity.revision
    assert [one.winner for one in (await call("config.explain", "agent", "echo")).candidates] == [True]
    assert (await call("config.resolve_manifest", "echo")).agent_revision == second.entity.revision
    revisions = await call("config.list_revisions", "agent", "echo", page_size=1)
    assert [one.definition.agent.description for one in revisions] == ["two", "one"]
    (change,) = await call("config.diff_revisions", "agent", "echo", first.entity.revision)
    assert json.loads(change.new_json) == "two"
    assert (await call("config.rollback", "agent", "echo", first.entity.revision)).changed
    changed = await call("config.update", "echo", entity_pb2.Agent(description="one", model="m"), ["model"])
    assert (changed.entity.definition.agent.description, changed.entity.definition.agent.model) == ("one", "m")
    assert (await call("config.rollback", "agent", "echo", first.entity.revision)).changed
    assert (await call("config.hide", "tool", "absent")).entity.hidden
    assert (await call("config.delete", "tool", "absent")).deleted
    files = {"agents/filed.md": b"---\ndescription: from a file\n---\nBe brief.\n", "agents/bad.yaml": b"nonsense: ["}
    applied = await call("config.apply_set", files)
    assert [one.entity.name for one in applied.changes] == ["filed"]
    assert [one.path for one in applied.problems] == ["agents/bad.yaml"]
    exported = await call("config.export_set", types=["agent"], page_size=1)
    assert sorted(one.path for one in exported) == ["agents/echo.yaml", "agents/filed.md"]
    found = await call("config.resolve_many", [("agent", "filed"), ("tool", "nowhere")])
    assert [one and one.name for one in found] == ["filed", None]
    kept = await call("config.apply_set", {}, dry_run=True, keep_missing=True, with_fields=True)
    assert [set_pb2.SetAction.Name(one.action) for one in kept.changes] == ["SET_ACTION_KEPT"]
    with pytest.raises(errors.FileManaged):
        await call("config.delete", "agent", "filed")
    only = watch_pb2.WatchFilter(filter_id="f", types=[entity_pb2.ENTITY_TYPE_AGENT], names=["echo"])
    since = {"after_revision": first.entity.revision - 1}
    frames = await call.first("config.watch", lambda items: len(_changes(items)) >= 3, [only], **since)
    assert _changes(frames)[:3] == ["one", "two", "one"]
    snapshot = await call.first("config.watch", _count(2), [only])
    assert [frame.WhichOneof("frame") for frame in snapshot] == ["changes", "synced"]


async def _sessions(call: Both, tmp_path: Path) -> None:
    made = await call("sessions.create", title="t", metadata={"k": "v"}, agent_name="echo")
    session_id = made.session.session_id
    with pytest.raises(errors.IdTaken):
        await call("sessions.create", session_id)
    updated = await call("sessions.update", session_id, title="u", settings={"max_steps": 3}, expected_revision=1)
    assert (updated.session.title, updated.session.settings.max_steps) == ("u", 3)
    assert updated.session.agent_name == "echo"
    assert (await call("sessions.get", session_id)).revision == updated.session.revision
    assert [one.session_id for one in await call("sessions.list", metadata={"k": "v"})] == [session_id]
    assert await call("sessions.list", metadata={"k": "w"}) == []
    policy = await call("retention.set", tasks={"max_age": 86400, "keep_latest": 2}, events={"max_count": 10_000})
    assert (policy.revision, policy.tasks.keep_latest) == (1, 2)
    with pytest.raises(errors.RevisionConflict):
        await call("retention.set", expected_revision=0)
    assert await call("retention.get") == policy
    assert (await call("retention.purge")).events == 0
    forked = (await call("sessions.fork", session_id, title="forked", commit_sequence=1)).session
    assert (forked.forked_from_session_id, forked.forked_from_commit, forked.title) == (session_id, 1, "forked")
    with pytest.raises(errors.CheckpointNotFound):
        await call("sessions.fork", session_id, checkpoint_id="none")
    await call("sessions.delete", forked.session_id)
    doomed = (await call("sessions.create", title="doomed")).session.session_id
    assert (await call("sessions.delete", doomed, expected_revision=1)).receipt.commit_sequence == 2
    with pytest.raises(errors.SessionNotFound):
        await call("sessions.get", doomed)
    assert call.client.sessions.draft("x").session_id == "x"
    call.called.add("sessions.draft")


async def _runs(call: Both, tmp_path: Path) -> None:
    request_id = uuid.uuid4().hex
    submitted = await call("tasks.submit", "hello", agent_name="echo", priority=3, request_id=request_id)
    replay = await call("tasks.submit", "hello", agent_name="echo", priority=3, request_id=request_id)
    assert replay.task.task_id == submitted.task.task_id
    assert replay.receipt.replay
    with pytest.raises(errors.RequestIdReused):
        await call("tasks.submit", "hi", agent_name="echo", request_id=request_id)
    task = submitted.task
    with pytest.raises(errors.SessionBusy):
        await call("tasks.submit", "again", session_id=task.session_id, agent_name="echo")
    with pytest.raises(errors.WaitTimeout):
        await call("tasks.wait", task.task_id, timeout=0.05)
    acquired = (await call("worker.acquire", "w", wait=10, lease_ttl=30)).acquired
    assert acquired.task.task_id == task.task_id
    assert not (await call("worker.heartbeat", acquired.lease)).cancel_requested
    observation = event_pb2.LiveObservation(kind=event_pb2.LIVE_KIND_PROGRESS, index=1)
    assert await call("worker.publish_live", acquired.lease, [observation]) == 1
    ticket = ticket_pb2.TicketDraft(answer_schema_json='{"type": ["integer", "null"]}')
    awaiting = commit_pb2.ThreadCommit(
        session_id=task.session_id, lease=acquired.lease, awaiting=commit_pb2.RunAwaiting(tickets=[ticket])
    )
    key = state_pb2.StateKeyDeclaration(
        key="plan", scope=state_pb2.STATE_SCOPE_THREAD, merge=state_pb2.STATE_MERGE_EXCLUSIVE
    )
    (declared,) = await call("threads.declare_state_keys", [key])
    assert await call("threads.list_state_keys") == [declared]
    unknown = commit_pb2.ThreadCommit(session_id=task.session_id, lease=acquired.lease)
    unknown.state.add(key="unknown", set_json="1")
    with pytest.raises(errors.StateKeyUndeclared):
        await call("threads.commit", unknown)
    awaiting.state.add(key="plan", set_json='{"step": 1}')
    awaiting.audit.add(action="question.asked", target="plan")
    awaiting.messages.add(append=message("asking", "m-1", role=content_pb2.MESSAGE_ROLE_ASSISTANT))
    asked = await call("threads.commit", awaiting)
    (ticket_id,) = asked.ticket_ids
    verified = await call("threads.verify", task.session_id, page_size=2)
    assert [(one.first_commit, one.last_commit) for one in verified] == [(1, 2), (3, 3)]
    assert verified[-1].digest == asked.receipt.digest
    (record,) = await call("threads.list_audit", session_id=task.session_id, actions=["question.asked"])
    assert (record.commit_sequence, record.target) == (3, "plan")
    (view,) = await call("threads.view", task.session_id)
    assert [one.ticket_id for one in view.tickets] == [ticket_id]
    assert [one.value_json for one in view.state] == ['{"step": 1}']
    assert [one.message.message_id for one in view.messages] == ["m-1"]
    (earlier,) = await call("threads.view", task.session_id, view.commit_sequence - 1, state_keys=["plan"])
    assert (len(earlier.tickets), len(earlier.state)) == (0, 0)
    commits = await call("threads.list_commits", task.session_id, page_size=1)
    assert [one.commit_sequence for one in commits] == [3, 2, 1]
    waiting = await call("tasks.wait", task.task_id)
    assert (waiting.state, [*waiting.open_ticket_ids]) == (task_pb2.TASK_STATE_INPUT_REQUIRED, [ticket_id])
    assert (await call("tickets.get", ticket_id)).state == ticket_pb2.TICKET_STATE_OPEN
    with pytest.raises(errors.TicketAnswerInvalid):
        await call("tickets.resolve", ticket_id, "text")
    assert (await call("tickets.resolve", ticket_id, None)).ticket.answer.value_json == "null"
    states = [ticket_pb2.TICKET_STATE_RESOLVED]
    assert [one.ticket_id for one in await call("tickets.list", states=states)] == [ticket_id]
    again = (await call("worker.acquire", "w", wait=10)).acquired
    assert (again.lease.epoch, again.answered_tickets[0].ticket_id) == (2, ticket_id)
    assert (await call("worker.release", again.lease)).run.state == run_pb2.RUN_STATE_QUEUED
    with pytest.raises(errors.LeaseLost):
        await call("worker.heartbeat", again.lease)
    assert (await call("runs.get", task.run_id)).epoch == 2
    assert [one.run_id for one in await call("runs.list", task_id=task.task_id)] == [task.run_id]
    canceled = await call("tasks.cancel", task.task_id, reason="enough")
    assert (await call("tasks.get", task.task_id)).state == task_pb2.TASK_STATE_CANCELED
    states = [task_pb2.TASK_STATE_CANCELED]
    assert [one.task_id for one in await call("tasks.list", states=states, page_size=1)] == [task.task_id]
    await _events(call, task, canceled.receipt.cursor)


async def _schedules(call: Both, tmp_path: Path) -> None:
    task = call.client.schedules.task("hello", agent_name="echo", attempt_timeout=60)
    call.called.add("schedules.task")
    made = await call("schedules.create", "0 8 * * MON", task, schedule_id="weekly", time_zone="Europe/Berlin")
    assert made.next_fire_time.ToDatetime(tzinfo=UTC) > datetime.now(UTC)
    with pytest.raises(errors.IdTaken):
        await call("schedules.create", "0 8 * * MON", task, schedule_id="weekly")
    paused = await call("schedules.update", "weekly", paused=True, expected_revision=1)
    assert (paused.paused, paused.HasField("next_fire_time")) == (True, False)
    assert await call("schedules.get", "weekly") == paused
    assert await call("schedules.list", paused=True) == [paused]
    assert await call("tasks.list", schedule_id="weekly") == []
    await call("schedules.delete", "weekly", expected_revision=2)
    with pytest.raises(errors.ScheduleNotFound):
        await call("schedules.get", "weekly")


async def _later_tasks(call: Both, tmp_path: Path) -> None:
    later = datetime.now(UTC) + timedelta(hours=1)
    made = {"session_id": "for later", "create_missing": True, "agent_name": "echo"}
    task = (await call("tasks.submit", "later", not_before=later, **made)).task
    assert not task.HasField("run_id")
    with pytest.raises(errors.TaskNotTerminal):
        await call("tasks.retry", task.task_id)
    assert await call("tasks.cancel_many", session_id="for later", states=[task_pb2.TASK_STATE_WORKING]) == 0
    assert await call("tasks.cancel_many", session_id="for later", reason="enough") == 1
    retried = (await call("tasks.retry", task.task_id, keep_manifest=True, not_before=later)).task
    assert (retried.retry_of, retried.session_id) == (task.task_id, "for later")


async def _events(call: Both, task: task_pb2.Task, cursor: bytes) -> None:
    listed = await call("events.list", session_id=task.session_id, page_size=3)
    assert [one.sequence for one in listed] == [*range(1, len(listed) + 1)]
    followed = await call.first(
        "events.subscribe", _count(len(listed) - 2), session_id=task.session_id, after=listed[1].cursor
    )
    assert [one.event_id for one in followed] == [one.event_id for one in listed[2:]]
    merged = await call.first("streams.subscribe_session", _count(len(listed)), task.session_id)
    assert [one.event_id for one in merged] == [one.event_id for one in listed]
    fresh = {"at_least": cursor, "max_wait": 20}
    first, second = await call("messages.list", task.session_id, **fresh)
    assert (first.parts[0].text, second.message_id) == ("hello", "m-1")
    assert (await call("messages.get", task.session_id, first.message_id)).position == 1
    assert (await call("summaries.get_session", task.session_id, **fresh)).message_count == 2
    assert (await call("summaries.get_task", task.task_id)).state == task_pb2.TASK_STATE_CANCELED
    assert (await call("summaries.get_run", task.run_id)).lease_count == 2
    assert len(await call("summaries.list_sessions", page_size=1)) == 2
    assert [one.task_id for one in await call("summaries.list_tasks", session_id=task.session_id)] == [task.task_id]
    assert [one.run_id for one in await call("summaries.list_runs", task_id=task.task_id)] == [task.run_id]
    await projection_calls(call, task)
    for service in ("runtime", "config", "artifacts", "projection"):
        assert service in (await call("info.get", service)).services


async def _outbox(call: Both, tmp_path: Path) -> None:
    session_id = (await call("sessions.create")).session.session_id
    call.called |= {"outbox.message", "outbox.task_on_arrival", "outbox.webhook"}
    write = call.client.outbox
    task = write.task_on_arrival("hello", agent_name="echo", queue="arrivals")
    drafts = [
        write.message("order.placed", {"n": 1}, to_session=session_id, task=task, dedupe_key="k"),
        write.message("order.placed", to_session="nobody"),
    ]
    sent = await call("threads.commit", commit_pb2.ThreadCommit(session_id=session_id, outbox=drafts))
    arrived = (await call("worker.acquire", "w", queues=["arrivals"], wait=20)).acquired
    assert arrived.task.session_id == session_id
    other = write.message("order.placed", {"n": 2}, to_session=session_id, dedupe_key="k")
    with pytest.raises(errors.DedupeKeyReused):
        await call("threads.commit", commit_pb2.ThreadCommit(session_id=session_id, outbox=[other]))
    hook = write.message("order.placed", to_webhook=write.webhook("https://example.com", secret="s"))
    with pytest.raises(errors.FieldInvalid):
        await call("threads.commit", commit_pb2.ThreadCommit(session_id=session_id, outbox=[hook]))
    with pytest.raises(errors.FieldInvalid):
        await call("tasks.submit", "hi", agent_name="echo", webhook="https://example.com")

    async def dead() -> list[str]:
        return [one.message_id for one in await call("outbox.list_dead_letters", page_size=1)]

    assert await eventually(dead) == sent.outbox_message_ids[1:]
    listed = await call("outbox.list_deliveries", session_id=session_id, include_payload=True)
    assert [one.message_id for one in listed] == sent.outbox_message_ids[::-1]
    assert listed[1].payload.data == b'{"n":1}'
    assert (await call("outbox.requeue", sent.outbox_message_ids)).requeued_count == 1
    assert await eventually(dead)
    assert (await call("outbox.purge")).purged_count == 1
    assert await call("outbox.list_dead_letters") == []
    for wrong in ({}, {"to_session": "s", "to_webhook": "https://x"}, {"to_webhook": "https://x", "task": task}):
        with pytest.raises(ValueError, match=r"message|session"):
            write.message("t", **wrong)


async def _checkpoints(call: Both, tmp_path: Path) -> None:
    from threadkeep.runtime.v1 import checkpoint_pb2

    put = checkpoint_pb2.CheckpointPut(checkpoint_id="1", checkpoint_json=b'{"v": 1}', metadata_json=b'{"a": 1}')
    assert (await call("checkpoints.put", "by-hand", put)).receipt.commit_sequence == 1
    write = checkpoint_pb2.PendingWrite(task_id="t", channel="c", type="bytes", data=b"x")
    await call("checkpoints.put_writes", "by-hand", checkpoint_pb2.CheckpointWrites(checkpoint_id="1", writes=[write]))
    found = await call("checkpoints.get", "by-hand")
    assert (found.checkpoint.checkpoint_json, found.checkpoint_id_floor) == (b'{"v": 1}', "1")
    (one,) = await call("checkpoints.list", session_id="by-hand", metadata_filter_json='{"a": 1}')
    assert one == found.checkpoint
    assert (await call("checkpoints.copy_thread", "by-hand", "copied")).receipt.commit_sequence == 1
    with pytest.raises(errors.IdTaken):
        await call("checkpoints.copy_thread", "by-hand", "copied")
    assert not (await call("checkpoints.prune_thread", "copied")).HasField("receipt")
    await call("checkpoints.delete_for_runs", ["no such run"])
    assert (await call("checkpoints.get", "copied")).checkpoint.pending_writes == found.checkpoint.pending_writes
    staged = checkpoint_pb2.PendingWrite(task_id="u", channel="c", type="bytes")
    staged.staged.staged_id, staged.staged.chunk_count, staged.staged.size = "large", 2, 2_000_000
    for index in range(2):
        assert (await call("checkpoints.stage_chunk", "large", index, bytes(1_000_000))).HasField("expire_time")
    await call("checkpoints.put_writes", "by-hand", checkpoint_pb2.CheckpointWrites(checkpoint_id="1", writes=[staged]))
    shown = (await call("checkpoints.get", "by-hand")).checkpoint.pending_writes[1]
    assert (shown.data, shown.deferred_size) == (b"", 2_000_000)
    assert await call("checkpoints.read_value", "by-hand", "", "1", shown) == bytes(2_000_000)
    await call("checkpoints.delete_thread", "by-hand")
    assert not (await call("checkpoints.get", "by-hand")).HasField("checkpoint")


async def _store(call: Both, tmp_path: Path) -> None:
    from threadkeep.runtime.v1 import store_pb2

    await call("store.put", ["u", "1"], "k", {"n": 1}, vectors=[[1.0, 0.0]])
    item = await call("store.get", ["u", "1"], "k")
    assert (item.value_json, [*item.namespace]) == (b'{"n":1}', ["u", "1"])
    assert [one.key for one in await call("store.search", ["u"], query=[1.0, 0.0], limit=1)] == ["k"]
    assert await call("store.search", ["u"], filter={"n": {"$gt": 1}}) == []
    assert await call("store.list_namespaces", prefix=["*"]) == [("u", "1")]
    get = store_pb2.StoreOp(get=store_pb2.ItemGet(namespace=["u", "1"], key="k"))
    assert (await call("store.batch", [get])).results[0].items[0].value_json == b'{"n":1}'
    await call("store.delete", ["u", "1"], "k")
    assert await call("store.get", ["u", "1"], "k") is None


@pytest.mark.rule("X13")
async def test_scope_and_grant_bound_what_a_client_sees(call: Both, shared_suite: Suite) -> None:
    session_id = (await call("sessions.create")).session.session_id

    async def denied(client: Any, kind: type[Exception]) -> None:
        with pytest.raises(kind):
            await Both(client)("sessions.get", session_id)

    client = call.client
    await denied(client.with_scope({"test": "other"}), errors.SessionNotFound)
    await denied(client.with_scope({"test": "other"}, grant=[dict(client.scope or {})]), errors.ScopeForbidden)
    await denied(client.with_grant("all"), errors.ScopeRequired)
    await denied(client.with_scope({}), errors.ScopeForbidden)
    await denied(client.with_scope({}, grant="all"), errors.SessionNotFound)
    same = client.with_scope(dict(client.scope or {}), grant="all")
    found = await Both(same)("sessions.get", session_id)
    # Only operators see LangGraph's key.
    assert found.HasField("internal_thread_key")
