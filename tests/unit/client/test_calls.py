"""What every call of both clients does: scopes, errors, retries with one request_id, pages, feeds that go on."""

import asyncio
import json
import subprocess
import sys
from collections.abc import Iterator
from typing import Any

import grpc
import pytest

from tests.support.far_end import FarEnd, Refusal
from tests.unit.chassis.probe import ProbeServicer, hosted
from threadkeep import AsyncClient, Client, errors
from threadkeep.common.v1 import error_reason_pb2
from threadkeep.runtime.v1 import (
    event_pb2,
    event_service_pb2,
    session_service_pb2,
    task_pb2,
    task_service_pb2,
    worker_service_pb2,
)

REASONS = [name.removeprefix("ERROR_REASON_") for name in error_reason_pb2.ErrorReason.keys()][1:]


@pytest.mark.rule("X6")
@pytest.mark.parametrize("reason", REASONS)
def test_every_reason_of_the_contract_has_a_class_of_its_code(reason: str) -> None:
    kind = errors.BY_REASON[reason]
    family = next(base for base in kind.__mro__ if base.__mro__[1] is errors.ThreadkeepError)
    comment = _comment_of(reason)
    assert comment.startswith(f"{family.code.name}:"), (reason, comment)


def _comment_of(reason: str) -> str:
    from pathlib import Path

    source = Path(__file__).resolve().parents[3] / "protos/threadkeep/common/v1/error_reason.proto"
    lines = source.read_text().splitlines()
    at = next(index for index, line in enumerate(lines) if f"ERROR_REASON_{reason} =" in line)
    while lines[at - 1].strip().startswith("//"):
        at -= 1
    return lines[at].strip(" /")


@pytest.mark.rule("X6")
async def test_an_error_carries_its_details_in_both_clients(
    far_end: FarEnd, client: Client, async_client: AsyncClient
) -> None:
    def refuse(_: list[Any]) -> Any:
        raise (
            Refusal("ABORTED", "REVISION_CONFLICT", current_revision="7", retry_after=0.25)
            .violate("expected_revision", "must be current")
            .concerning("session", "s-1")
        )

    far_end.answer("GetSession", session_service_pb2.GetSessionRequest, refuse)
    raised = []
    with pytest.raises(errors.RevisionConflict) as caught:
        client.sessions.get("s-1")
    raised.append(caught.value)
    with pytest.raises(errors.Aborted) as family:
        await async_client.sessions.get("s-1")
    raised.append(family.value)
    for error in raised:
        assert isinstance(error, errors.RevisionConflict)
        assert (error.reason, error.code) == ("REVISION_CONFLICT", grpc.StatusCode.ABORTED)
        assert error.current_revision == 7
        assert error.retry_after == 0.25
        assert error.resource == ("session", "s-1")
        assert [(one.field, one.description) for one in error.violations] == [("expected_revision", "must be current")]


@pytest.mark.rule("X12")
def test_a_reason_that_this_client_does_not_know_is_its_codes_family(far_end: FarEnd, client: Client) -> None:
    def refuse(_: list[Any]) -> Any:
        raise Refusal("FAILED_PRECONDITION", "MOON_TOO_FULL")

    far_end.answer("GetSession", session_service_pb2.GetSessionRequest, refuse)
    with pytest.raises(errors.FailedPrecondition) as caught:
        client.sessions.get("s-1")
    assert caught.value.metadata["reason"] == "MOON_TOO_FULL"


@pytest.mark.rule("X1", "X13")
def test_scope_and_grant_travel_as_utf8_json(far_end: FarEnd, client: Client) -> None:
    answer = lambda _: session_service_pb2.GetSessionResponse()  # noqa: E731
    far_end.answer("GetSession", session_service_pb2.GetSessionRequest, answer)
    far_end.answer(
        "AcquireRun", worker_service_pb2.AcquireRunRequest, lambda _: worker_service_pb2.AcquireRunResponse()
    )
    client.sessions.get("s-1")
    client.with_scope({}, grant="all").sessions.get("s-1")
    client.with_grant([{"tenant": "a"}]).worker.acquire("w", wait=0)
    client.worker.acquire("w", wait=0)
    seen = [
        {key: json.loads(value) for key, value in metadata.items() if key.startswith("threadkeep-")}
        for _, _, metadata in far_end.calls
    ]
    assert seen == [
        {"threadkeep-scope-bin": {"tenant": "åcme", "user": "ü1"}},
        {"threadkeep-scope-bin": {}, "threadkeep-grant-bin": {"all": True}},
        {"threadkeep-grant-bin": {"scopes": [{"tenant": "a"}]}},
        {"threadkeep-scope-bin": {"tenant": "åcme", "user": "ü1"}},
    ]


class _Flaky:
    """Fails some times, then answers."""

    def __init__(self, refusals: list[Refusal], answer: Any) -> None:
        self.refusals, self.last = refusals, answer

    def __call__(self, requests: list[Any]) -> Any:
        if self.refusals:
            raise self.refusals.pop(0)
        return self.last


@pytest.mark.rule("X3", "X7")
async def test_a_retry_sends_the_same_request_id(far_end: FarEnd, client: Client, async_client: AsyncClient) -> None:
    def flaky() -> _Flaky:
        refusals = [
            Refusal("UNAVAILABLE", "COMMIT_UNKNOWN", retry_after=0.01),
            Refusal("ABORTED", "CONTENTION"),
            Refusal("UNAVAILABLE", "SHUTTING_DOWN"),
            Refusal("UNAVAILABLE"),
        ]
        return _Flaky(refusals, task_service_pb2.SubmitTaskResponse(task=task_pb2.Task(task_id="t-1")))

    for submit in ("sync", "async"):
        far_end.calls.clear()
        far_end.answer("SubmitTask", task_service_pb2.SubmitTaskRequest, flaky())
        if submit == "sync":
            response = client.tasks.submit("hello", agent_name="echo")
        else:
            response = await async_client.tasks.submit("hello", agent_name="echo")
        assert response.task.task_id == "t-1"
        sent = far_end.requests("SubmitTask")
        assert len(sent) == 5
        assert sent[0].request_id
        assert all(one == sent[0] for one in sent)


@pytest.mark.rule("X6", "R3")
@pytest.mark.parametrize(
    ("code", "reason"),
    [("ABORTED", "LEASE_LOST"), ("ABORTED", "REVISION_CONFLICT"), ("FAILED_PRECONDITION", "SESSION_BUSY")],
)
def test_what_can_not_get_better_is_not_retried(far_end: FarEnd, client: Client, code: str, reason: str) -> None:
    far_end.answer("SubmitTask", task_service_pb2.SubmitTaskRequest, _Flaky([Refusal(code, reason)] * 9, None))
    with pytest.raises(errors.BY_REASON[reason]):
        client.tasks.submit("hello", agent_name="echo")
    assert len(far_end.calls) == 1


def test_retries_end_with_the_timeout(far_end: FarEnd, client: Client) -> None:
    far_end.answer("SubmitTask", task_service_pb2.SubmitTaskRequest, _Flaky([Refusal("UNAVAILABLE")] * 1000, None))
    with pytest.raises(errors.Unavailable):
        client.with_options(timeout=0.5).tasks.submit("hello", agent_name="echo")
    assert 1 < len(far_end.calls) < 1000
    with pytest.raises(errors.Unavailable):
        client.with_options(retry=False).tasks.submit("hello", agent_name="echo")


@pytest.mark.rule("X5")
async def test_lists_fetch_pages_as_they_are_read(far_end: FarEnd, client: Client, async_client: AsyncClient) -> None:
    def page(requests: list[Any]) -> Any:
        start = int(requests[0].page_token or 0)
        tasks = [task_pb2.Task(task_id=f"t-{index}") for index in range(start, start + 2)]
        token = str(start + 2) if start < 4 else ""
        return task_service_pb2.ListTasksResponse(tasks=tasks, next_page_token=token)

    far_end.answer("ListTasks", task_service_pb2.ListTasksRequest, page)
    listed = client.tasks.list(session_id="s-1")
    assert next(listed).task_id == "t-0"
    assert len(far_end.calls) == 1
    assert [one.task_id for one in listed] == [f"t-{index}" for index in range(1, 6)]
    assert [one.task_id async for one in async_client.tasks.list(session_id="s-1")] == [f"t-{i}" for i in range(6)]
    assert all(request.session_id == "s-1" for request in far_end.requests("ListTasks"))


def _events(far_end: FarEnd) -> None:
    """Six events, of which each subscription gets two more before it breaks, in a new way each time."""
    breaks = [
        Refusal("UNAVAILABLE"),
        Refusal("RESOURCE_EXHAUSTED", "SLOW_CONSUMER", resume_cursor="OTk="),
    ]

    def frames(requests: list[Any]) -> Iterator[Any]:
        request = requests[0]
        start = int(request.after or b"0")
        if start >= 6:
            return
        events = [
            event_pb2.Event(sequence=number, cursor=str(number).encode()) for number in range(start + 1, start + 3)
        ]
        batch = event_service_pb2.EventBatch(events=events)
        yield event_service_pb2.SubscribeEventsResponse(events=batch, cursor=str(start + 2).encode())
        yield event_service_pb2.SubscribeEventsResponse(live=event_pb2.LiveObservation(index=start))
        if breaks:
            raise breaks.pop(0)

    far_end.answer("SubscribeEvents", event_service_pb2.SubscribeEventsRequest, frames)


@pytest.mark.rule("R14")
@pytest.mark.case("B73")
async def test_a_broken_subscription_goes_on_after_its_last_event(
    far_end: FarEnd, client: Client, async_client: AsyncClient
) -> None:
    for kind in ("sync", "async"):
        _events(far_end)
        far_end.calls.clear()
        if kind == "sync":
            with client.events.subscribe(task_id="t-1", include_live=True) as feed:
                items = [*feed]
            position = feed.position
        else:
            async with async_client.events.subscribe(task_id="t-1", include_live=True) as afeed:
                items = [item async for item in afeed]
            position = afeed.position
        assert [one.sequence for one in items if isinstance(one, event_pb2.Event)] == [1, 2, 3, 4, 5, 6]
        assert sum(isinstance(one, event_pb2.LiveObservation) for one in items) == 3
        assert position == b"6"
        starts = [(one.from_start, one.after) for one in far_end.requests("SubscribeEvents")]
        assert starts == [(True, b""), (False, b"2"), (False, b"4")]


@pytest.mark.rule("R14")
def test_a_subscription_whose_cursor_is_gone_says_so(far_end: FarEnd, client: Client) -> None:
    def refuse(_: list[Any]) -> Any:
        raise Refusal("OUT_OF_RANGE", "CURSOR_EXPIRED", oldest_cursor="NDI=")

    far_end.answer("SubscribeEvents", event_service_pb2.SubscribeEventsRequest, refuse)
    with pytest.raises(errors.CursorExpired) as caught:
        next(client.events.subscribe(session_id="s-1", after=b"1"))
    assert caught.value.resume_cursor == b"42"


@pytest.mark.rule("X9")
@pytest.mark.parametrize("service", ["sessions", "config"])
async def test_a_message_far_above_the_limit_is_the_documented_error(service: str) -> None:
    """gRPC itself refuses what a server does not even read; whoever calls learns the same as for a little too much."""
    servicer = ProbeServicer()
    async with hosted(servicer, max_message_bytes=2048) as (host, _):
        text = "x" * 3_000_000

        async def ask(client: AsyncClient) -> None:
            await (client.sessions.get(text) if service == "sessions" else client.config.get("agent", text))

        async with AsyncClient(host.address, scope={"a": "b"}) as client:
            with pytest.raises(errors.LimitExceeded) as caught:
                await ask(client)
        facts = caught.value.metadata
        assert (facts["limit"], facts["advice"]) == (
            "max_message_bytes",
            "Stream it, page it, or store an artifact.",
        )
        assert int(facts["actual"]) > 3_000_000 > int(facts["most_bytes_read"]) > 2048
        with Client(host.address, scope={"a": "b"}) as blocking, pytest.raises(errors.LimitExceeded):
            await asyncio.to_thread(blocking.sessions.get, text)


def test_importing_stubs_loads_nothing_of_the_client() -> None:
    code = "import sys, threadkeep.runtime.v1.task_pb2; print([m for m in sys.modules if m.startswith('threadkeep.')])"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    loaded = set(eval(done.stdout))
    assert not {one for one in loaded if "client" in one or "_rpc" in one or "errors" in one}, loaded
    assert "grpc" not in done.stdout


def test_a_client_knows_which_services_it_was_given(far_end: FarEnd) -> None:
    with Client({"runtime": far_end.address}, scope={"a": "b"}) as client:
        with pytest.raises(LookupError, match="config"):
            client.config.get("agent", "x")
    with pytest.raises(ValueError, match="unknown services"):
        Client({"run": "x"})
