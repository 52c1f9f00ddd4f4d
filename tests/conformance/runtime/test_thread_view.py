"""The thread as it is and as it was: one state at any commit, however it is paged (R12)."""

from typing import Any

import grpc
import pytest
from google.protobuf.field_mask_pb2 import FieldMask

from tests.support.calls import refusing
from tests.support.checkpoints import checkpoint_id, op, put
from tests.support.descriptors import fresh_id
from tests.support.examples.threads import declaration
from tests.support.runtime import RUNNING, SUCCEEDED, Runtime, awaiting, event
from tests.support.suite import Suite
from threadkeep.runtime.v1 import run_pb2, session_service_pb2, state_pb2, thread_service_pb2, ticket_pb2


@pytest.fixture
def runtime(shared_suite: Suite) -> Runtime:
    return Runtime(shared_suite)


async def commits(runtime: Runtime, session_id: str, page_size: int = 0) -> list[thread_service_pb2.Commit]:
    """All commits of a session, page by page."""
    request = thread_service_pb2.ListCommitsRequest(session_id=session_id, page_size=page_size)
    found: list[thread_service_pb2.Commit] = []
    while True:
        page = await runtime.call("ThreadService.ListCommits", request)
        found += page.commits
        if not page.next_page_token:
            return found
        request.page_token = page.next_page_token


@pytest.mark.rule("R12")
async def test_every_past_commit_shows_what_its_head_showed(runtime: Runtime) -> None:
    """A whole life of a run; after each commit the head is looked at, at the end every commit again."""
    await runtime.declare(declaration("k"), declaration("scratch", scope=state_pb2.STATE_SCOPE_RUN))
    heads: dict[int, Any] = {}

    async def look() -> None:
        (page,) = await runtime.view(name)
        heads[page.commit_sequence] = page

    task = await runtime.submit()
    name = task.session_id
    await look()
    held = await runtime.acquire(task.queue)
    assert held is not None
    await look()
    state = [state_pb2.StateCommand(key=key, set_json="1") for key in ("k", "scratch")]
    await runtime.work(held, checkpoint_ops=[op(put(1))], running=RUNNING, state=state)
    await look()
    drafts = [ticket_pb2.TicketDraft(ticket_id=fresh_id("ticket")) for _ in range(2)]
    await runtime.work(held, awaiting=awaiting(*drafts), checkpoint_ops=[op(put(2))])
    await look()
    await runtime.call("SessionService.UpdateSession", await _retitled(name))
    await look()
    for draft in drafts:
        await runtime.resolve(draft.ticket_id)
        await look()
    again = await runtime.again(held)
    await look()
    await runtime.work(again, state=[state_pb2.StateCommand(key="k", set_json="2")], ended=SUCCEEDED)
    await look()
    await runtime.commit(name, events=[event()])
    await look()

    assert sorted(heads) == list(range(1, 11))
    for sequence, head in heads.items():
        (page,) = await runtime.view(name, sequence)
        # A lease is what holds now; a view of the past has none.
        assert not page.run.HasField("lease_expire_time") or sequence == max(heads)
        head.run.ClearField("lease_expire_time")
        head.message_source = page.message_source
        if not head.HasField("run") or head.run == run_pb2.Run():
            head.ClearField("run")
        assert page == head, sequence
    states = [run_pb2.RunState.Name(heads[sequence].run.state).removeprefix("RUN_STATE_") for sequence in sorted(heads)]
    waits = ["AWAITING"] * 3
    assert states == ["QUEUED", "RUNNING", "RUNNING", *waits, "QUEUED", "RUNNING", "UNSPECIFIED", "UNSPECIFIED"]
    assert [len(heads[sequence].tickets) for sequence in (3, 4, 5, 6, 7)] == [0, 2, 2, 1, 0]
    assert [heads[sequence].checkpoint.checkpoint_id for sequence in (2, 3, 4)] == [
        "",
        checkpoint_id(1),
        checkpoint_id(2),
    ]
    values = [{value.key: value.value_json for value in heads[sequence].state} for sequence in (2, 3, 8, 9)]
    assert values == [{}, {"k": "1", "scratch": "1"}, {"k": "1", "scratch": "1"}, {"k": "2"}]


async def _retitled(session_id: str) -> Any:
    draft = session_service_pb2.SessionDraft(session_id=session_id, title="later")
    return session_service_pb2.UpdateSessionRequest(
        request_id=fresh_id(), session=draft, update_mask=FieldMask(paths=["title"])
    )


@pytest.mark.rule("R12", "X5")
async def test_all_pages_show_the_commit_of_the_first(runtime: Runtime) -> None:
    keys = [f"key-{number:02d}" for number in range(9)]
    await runtime.declare(*(declaration(key) for key in keys))
    held = await runtime.lease()
    name = held.run.session_id
    state = [state_pb2.StateCommand(key=key, set_json='"old"') for key in keys]
    drafts = [ticket_pb2.TicketDraft(ticket_id=fresh_id("ticket")) for _ in range(3)]
    done = await runtime.work(held, state=state, awaiting=awaiting(*drafts))
    request = thread_service_pb2.GetThreadViewRequest(session_id=name, page_size=2)
    pages = []
    while True:
        pages.append(await runtime.call("ThreadService.GetThreadView", request))
        for draft in drafts:  # the thread moves on between the pages
            await runtime.resolve(draft.ticket_id)
        drafts = []
        await runtime.commit(name, state=[state_pb2.StateCommand(key=key, set_json='"new"') for key in keys])
        if not pages[-1].next_page_token:
            break
        request.page_token = pages[-1].next_page_token
    assert {page.commit_sequence for page in pages} == {done.receipt.commit_sequence}
    assert {page.run.state for page in pages} == {run_pb2.RUN_STATE_AWAITING}
    assert all(len(page.tickets) + len(page.state) <= 2 for page in pages)
    assert [ticket.ticket_id for page in pages for ticket in page.tickets] == sorted(done.ticket_ids)
    assert {ticket.state for page in pages for ticket in page.tickets} == {ticket_pb2.TICKET_STATE_OPEN}
    assert [(value.key, value.value_json) for page in pages for value in page.state] == [(key, '"old"') for key in keys]
    assert await runtime.state(name, state_keys=[keys[3], "unknown"]) == {keys[3]: "new"}


@pytest.mark.rule("R12", "X5")
async def test_a_view_is_bounded_by_bytes(runtime: Runtime) -> None:
    keys = [f"key-{number}" for number in range(6)]
    await runtime.declare(*(declaration(key, max_value_bytes=1 << 20) for key in keys))
    name = (await runtime.create()).session_id
    text = f'"{"x" * 900_000}"'
    for key in keys:
        await runtime.commit(name, state=[state_pb2.StateCommand(key=key, set_json=text)])
    pages = await runtime.view(name, page_size=1000)
    assert [len(page.state) for page in pages] == [3, 3]


@pytest.mark.rule("R12")
async def test_a_commit_that_is_not_there_is_refused(runtime: Runtime) -> None:
    name = (await runtime.create()).session_id
    with refusing(grpc.StatusCode.INVALID_ARGUMENT, "FIELD_INVALID") as error:
        await runtime.view(name, 2)
    assert "commit_sequence" in error.violations
    with refusing(grpc.StatusCode.OUT_OF_RANGE, "COMMIT_COMPACTED") as error:
        await runtime.view(name, 0)
    assert error.metadata["oldest_commit"] == "1"
    other = Runtime(runtime.world.suite)
    for call in (other.view(name), commits(other, name)):
        with refusing(grpc.StatusCode.NOT_FOUND, "SESSION_NOT_FOUND"):
            await call


@pytest.mark.rule("R2", "R12")
async def test_commits_are_listed_newest_first(runtime: Runtime) -> None:
    held = await runtime.lease()
    name = held.run.session_id
    request_id = fresh_id()
    done = await runtime.commit(
        name, lease=held.lease, request_id=request_id, events=[event(), event()], ended=SUCCEEDED
    )
    found = await commits(runtime, name, page_size=1)
    assert found == await commits(runtime, name)
    assert [(one.commit_sequence, one.kind) for one in found] == [(3, "commit"), (2, "lease_run"), (1, "submit_task")]
    newest = found[0]
    assert (newest.request_id, newest.run_id) == (request_id, held.run.run_id)
    assert newest.create_time == done.receipt.commit_time
    assert (newest.first_event_sequence, newest.last_event_sequence) == (
        done.receipt.first_event_sequence,
        done.receipt.last_event_sequence,
    )
