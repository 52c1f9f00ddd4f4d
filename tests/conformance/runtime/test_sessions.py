"""Sessions: created, read, listed, changed (R23, X2, X4, X5, X8)."""

from typing import Any

import grpc
import pytest

from tests.support.calls import grant_all, refused
from tests.support.descriptors import fresh_id
from tests.support.runtime import SUCCEEDED, Runtime, awaiting, event, together
from tests.support.suite import Suite
from threadkeep.runtime.v1 import session_pb2, session_service_pb2

pb = session_service_pb2


@pytest.fixture
def runtime(shared_suite: Suite) -> Runtime:
    return Runtime(shared_suite)


async def listed(runtime: Runtime, **query: Any) -> list[str]:
    """Ids of a list, over all its pages."""
    found: list[str] = []
    request = pb.ListSessionsRequest(**query)
    while True:
        page = await runtime.call("SessionService.ListSessions", request)
        found += [session.session_id for session in page.sessions]
        if not page.next_page_token:
            return found
        request.page_token = page.next_page_token


def update(session_id: str, *paths: str, **more: Any) -> pb.UpdateSessionRequest:
    expected = more.pop("expected_revision", None)
    request = pb.UpdateSessionRequest(
        request_id=fresh_id(), session=pb.SessionDraft(session_id=session_id, **more), expected_revision=expected
    )
    request.update_mask.paths.extend(paths)
    return request


@pytest.mark.rule("R23", "X8")
async def test_a_session_comes_back_as_it_was_created(runtime: Runtime) -> None:
    created = await runtime.create(
        "sitzung-ü-🚢",
        title="A title with \\ and é\n",
        agent_name="writer",
        metadata={"topic": "ships", "empty": "", "ü": "\\"},
        settings=session_pb2.SessionSettings(model="m", max_steps=7),
    )
    read = await runtime.session("sitzung-ü-🚢")
    assert read == created
    assert read.title == "A title with \\ and é\n"
    assert dict(read.metadata) == {"topic": "ships", "empty": "", "ü": "\\"}
    assert (read.settings.model, read.settings.max_steps) == ("m", 7)
    assert (read.status, read.revision, read.thread_version) == (session_pb2.SESSION_STATUS_IDLE, 1, 1)
    assert await runtime.types("sitzung-ü-🚢") == ["session.created"]


@pytest.mark.rule("X2")
async def test_an_id_lives_in_its_scope(shared_suite: Suite) -> None:
    ours, theirs = Runtime(shared_suite), Runtime(shared_suite)
    name = fresh_id("session")
    await ours.create(name, title="ours")
    for read in (theirs.session(name), theirs.session("never-used")):
        details = await refused(read)
        assert (details.code, details.reason) == (grpc.StatusCode.NOT_FOUND, "SESSION_NOT_FOUND")
    await theirs.create(name, title="theirs")
    assert ((await ours.session(name)).title, (await theirs.session(name)).title) == ("ours", "theirs")
    assert await listed(theirs) == [name]


@pytest.mark.rule("R23")
async def test_a_taken_id_is_refused(runtime: Runtime) -> None:
    session = await runtime.create()
    details = await refused(runtime.create(session.session_id))
    assert (details.code, details.reason) == (grpc.StatusCode.ALREADY_EXISTS, "ID_TAKEN")


@pytest.mark.rule("X3")
async def test_of_many_creations_of_one_id_one_wins(runtime: Runtime) -> None:
    name = fresh_id("session")
    outcomes = await together(*(runtime.create(name) for _ in range(10)))
    assert sum(isinstance(outcome, session_pb2.Session) for outcome in outcomes) == 1
    assert (await runtime.session(name)).thread_version == 1


@pytest.mark.rule("R20", "X13")
async def test_only_operators_see_the_internal_key(runtime: Runtime) -> None:
    session = await runtime.create()
    assert not session.HasField("internal_thread_key")
    request = pb.GetSessionRequest(session_id=session.session_id)
    shown = await runtime.call("SessionService.GetSession", request, runtime.metadata + grant_all())
    assert len(shown.session.internal_thread_key) == 40
    page = await runtime.call("SessionService.ListSessions", pb.ListSessionsRequest())
    assert not page.sessions[0].HasField("internal_thread_key")


@pytest.mark.rule("X5", "R23")
async def test_lists_are_paged_newest_first_and_lose_nothing(runtime: Runtime) -> None:
    names = [(await runtime.create()).session_id for _ in range(7)]
    assert await listed(runtime, page_size=3) == names[::-1]
    assert await listed(runtime) == names[::-1]


@pytest.mark.rule("X5")
async def test_a_page_token_belongs_to_its_query(runtime: Runtime, shared_suite: Suite) -> None:
    for _ in range(3):
        await runtime.create()
    page = await runtime.call("SessionService.ListSessions", pb.ListSessionsRequest(page_size=1))
    wrong = pb.ListSessionsRequest(page_size=1, page_token=page.next_page_token, agent_name="a")
    edited = pb.ListSessionsRequest(page_size=1, page_token=page.next_page_token[:-2] + "AA")
    same = pb.ListSessionsRequest(page_size=1, page_token=page.next_page_token)
    elsewhere = Runtime(shared_suite)
    for call in (
        runtime.call("SessionService.ListSessions", wrong),
        runtime.call("SessionService.ListSessions", edited),
        elsewhere.call("SessionService.ListSessions", same),
    ):
        assert (await refused(call)).reason == "PAGE_TOKEN_INVALID"


@pytest.mark.rule("R23")
async def test_lists_filter_by_metadata_agent_and_status(runtime: Runtime) -> None:
    agent = await runtime.agent()
    ships = await runtime.create(metadata={"topic": "ships", "year": "1912"}, agent_name=agent)
    trains = await runtime.create(metadata={"topic": "trains", "year": "1912"})
    assert await listed(runtime, metadata={"topic": "ships"}) == [ships.session_id]
    assert await listed(runtime, metadata={"year": "1912"}) == [trains.session_id, ships.session_id]
    assert await listed(runtime, metadata={"year": "1912", "topic": "trains"}) == [trains.session_id]
    assert await listed(runtime, metadata={"topic": "ship"}) == []
    assert await listed(runtime, metadata={"x') OR 1=1 --": "1"}) == []
    assert await listed(runtime, agent_name=agent) == [ships.session_id]
    await runtime.submit(ships.session_id)
    assert await listed(runtime, statuses=[session_pb2.SESSION_STATUS_QUEUED]) == [ships.session_id]
    assert await listed(runtime, statuses=[session_pb2.SESSION_STATUS_IDLE]) == [trains.session_id]


@pytest.mark.rule("R23")
async def test_the_status_follows_the_open_run(runtime: Runtime) -> None:
    held = await runtime.lease()
    name = held.run.session_id
    seen = [(await runtime.session(name)).status]
    waiting = await runtime.work(held, awaiting=awaiting())
    seen.append((await runtime.session(name)).status)
    await runtime.resolve(waiting.ticket_ids[0])
    seen.append((await runtime.session(name)).status)
    await runtime.work(await runtime.again(held), ended=SUCCEEDED)
    seen.append((await runtime.session(name)).status)
    assert seen == [
        session_pb2.SESSION_STATUS_RUNNING,
        session_pb2.SESSION_STATUS_AWAITING,
        session_pb2.SESSION_STATUS_QUEUED,
        session_pb2.SESSION_STATUS_IDLE,
    ]
    session = await runtime.session(name)
    assert (session.task_count, session.run_count) == (1, 1)
    assert (session.latest_run_id, session.latest_task_id) == (held.run.run_id, held.task.task_id)
    assert not session.HasField("active_run_id")


@pytest.mark.rule("R23")
async def test_an_update_changes_what_the_mask_names(runtime: Runtime) -> None:
    session = await runtime.create(title="one", metadata={"a": "1", "b": "2"}, agent_name="x")
    request = update(session.session_id, "title", "metadata", title="two", metadata={"b": "3"}, agent_name="ignored")
    changed = (await runtime.call("SessionService.UpdateSession", request)).session
    assert (changed.title, dict(changed.metadata), changed.agent_name) == ("two", {"b": "3"}, "x")
    assert changed.revision == 2
    assert await runtime.session(session.session_id) == changed
    assert await listed(runtime, metadata={"a": "1"}) == []
    assert await listed(runtime, metadata={"b": "3"}) == [session.session_id]
    assert await runtime.types(session.session_id) == ["session.created", "session.updated"]


@pytest.mark.rule("X4")
async def test_of_many_updates_of_one_revision_one_wins(runtime: Runtime) -> None:
    session = await runtime.create()
    updates = [update(session.session_id, "title", title=f"title {number}", expected_revision=1) for number in range(8)]
    outcomes = await together(*(runtime.call("SessionService.UpdateSession", one) for one in updates))
    won = [outcome for outcome in outcomes if not isinstance(outcome, BaseException)]
    assert len(won) == 1
    details = await refused(
        runtime.call("SessionService.UpdateSession", update(session.session_id, "title", expected_revision=1))
    )
    assert (details.code, details.reason) == (grpc.StatusCode.ABORTED, "REVISION_CONFLICT")
    assert details.metadata["current_revision"] == "2"
    assert (await runtime.session(session.session_id)).title == won[0].session.title


@pytest.mark.rule("R23")
async def test_commits_do_not_change_the_revision(runtime: Runtime) -> None:
    session = await runtime.create()
    await runtime.commit(session.session_id, events=[event()])
    read = await runtime.session(session.session_id)
    assert (read.revision, read.thread_version, read.latest_event_sequence) == (1, 2, 2)
    assert read.update_time == session.update_time


@pytest.mark.rule("X9", "X8")
@pytest.mark.parametrize(
    ("draft", "field"),
    [
        ({"title": "x" * 1025}, "session.title"),
        ({"title": "a\x00b"}, "session.title"),
        ({"metadata": {str(number): "" for number in range(65)}}, "session.metadata"),
        ({"metadata": {"k" * 257: ""}}, "session.metadata"),
        ({"metadata": {"": "v"}}, "session.metadata"),
        ({"metadata": {"k": "v" * 257}}, "session.metadata"),
        ({"settings": {"max_steps": 0}}, "session.settings.max_steps"),
        ({"agent_name": ""}, "session.agent_name"),
    ],
)
async def test_what_is_out_of_bounds_is_refused_by_name(runtime: Runtime, draft: dict[str, Any], field: str) -> None:
    details = await refused(runtime.create(**draft))
    assert (details.reason, list(details.violations)) == ("FIELD_INVALID", [field])
    assert await listed(runtime) == []


@pytest.mark.rule("X8")
async def test_an_update_names_its_session_and_its_fields(runtime: Runtime) -> None:
    session = await runtime.create()
    nameless = pb.UpdateSessionRequest(request_id=fresh_id(), session=pb.SessionDraft(title="x"))
    nameless.update_mask.paths.append("title")
    for request, field in (
        (nameless, "session.session_id"),
        (update(session.session_id, title="x"), "update_mask"),
        (update(session.session_id, "status"), "update_mask"),
    ):
        assert list((await refused(runtime.call("SessionService.UpdateSession", request))).violations) == [field]
    gone = await refused(runtime.call("SessionService.UpdateSession", update("never-used", "title")))
    assert gone.reason == "SESSION_NOT_FOUND"
