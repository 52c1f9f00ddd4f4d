"""What happens around every handler: scope, grant, rules, errors, deadlines, cancellation (X1, X6, X13, B96)."""

import asyncio
from collections.abc import AsyncIterator
from typing import Any

import grpc
import pytest
from google.rpc import error_details_pb2
from grpc_health.v1 import health_pb2, health_pb2_grpc
from grpc_status import rpc_status

from tests.support.waiting import eventually
from tests.unit.chassis.probe import ACME, ProbeClient, ProbeServicer, hosted, probe
from threadkeep_chassis.canonical import JsonInvalid
from threadkeep_chassis.errors import FieldInvalid, RevisionConflict
from threadkeep_chassis.peers import call_metadata
from threadkeep_chassis.scope import ALL_SCOPES, EMPTY_SCOPE, Call, Grant, Scope, current_call

OTHER = Scope({"tenant": "other"})


async def refusal(call: Any) -> tuple[str, str]:
    """The (code, reason) of a call that fails."""
    with pytest.raises(grpc.aio.AioRpcError) as caught:
        await ended(call)
    return caught.value.code().name, reason_of(caught.value)


async def ended(call: Any) -> None:
    if hasattr(call, "__aiter__"):
        async for _ in call:
            pass
    else:
        await call


def reason_of(error: grpc.aio.AioRpcError) -> str:
    status = rpc_status.from_call(error)  # type: ignore[arg-type]
    assert status is not None
    info = error_details_pb2.ErrorInfo()
    status.details[0].Unpack(info)
    assert info.domain == "threadkeep"
    return info.reason


async def one(message: Any) -> AsyncIterator[Any]:
    yield message


def each_kind(client: ProbeClient, metadata: Any) -> dict[str, Any]:
    """A call of each of the four kinds with the same metadata."""
    header = probe.UploadRequest(header=probe.UploadRequest.Header(request_id="r"))
    return {
        "unary": client.change(metadata=metadata),
        "upload": client.upload(one(header), metadata=metadata),
        "chat": client.chat(one(probe.ChatRequest(name="ann")), metadata=metadata),
        "feed": client.feed(metadata=metadata),
    }


@pytest.mark.rule("X1", "X13")
@pytest.mark.parametrize(
    ("metadata", "answer"),
    [
        ((("x-any", "1"),), ("UNAUTHENTICATED", "SCOPE_REQUIRED")),
        ((("threadkeep-scope-bin", b"{"),), ("INVALID_ARGUMENT", "FIELD_INVALID")),
        ((("threadkeep-scope-bin", b'{"A":"b"}'),), ("INVALID_ARGUMENT", "FIELD_INVALID")),
        (
            (("threadkeep-scope-bin", b'{"a":"b"}'), ("threadkeep-grant-bin", b"7")),
            ("INVALID_ARGUMENT", "FIELD_INVALID"),
        ),
        ((*call_metadata(ACME), *call_metadata(OTHER)), ("INVALID_ARGUMENT", "FIELD_INVALID")),
        (
            (*call_metadata(OTHER, Grant.of([ACME])), *call_metadata(grant=ALL_SCOPES)),
            ("INVALID_ARGUMENT", "FIELD_INVALID"),
        ),
        (call_metadata(OTHER, Grant.of([ACME])), ("PERMISSION_DENIED", "SCOPE_FORBIDDEN")),
        ((("threadkeep-scope-bin", b"{}"),), ("PERMISSION_DENIED", "SCOPE_FORBIDDEN")),
        (call_metadata(EMPTY_SCOPE, Grant.of([ACME])), ("PERMISSION_DENIED", "SCOPE_FORBIDDEN")),
    ],
    ids=[
        "no scope", "no json", "no scope's form", "no grant", "two scopes", "two grants", "outside the grant", "empty",
        "empty under a list",
    ],
)  # fmt: skip
async def test_a_call_without_a_right_to_its_scope_is_refused_whatever_its_kind(metadata: Any, answer: Any) -> None:
    async with hosted(ProbeServicer()) as (_, client):
        for kind, call in each_kind(client, metadata).items():
            assert await refusal(call) == answer, kind


@pytest.mark.rule("X13")
async def test_only_a_method_of_grants_takes_a_grant_without_a_scope() -> None:
    for grant in (ALL_SCOPES, Grant.of([ACME])):
        seen: list[Call] = []

        async def feed(request: Any, seen: list[Call] = seen) -> AsyncIterator[Any]:
            seen.append(current_call())
            yield probe.FeedResponse()

        servicer = ProbeServicer()
        servicer.feed = feed
        async with hosted(servicer) as (_, client):
            calls = each_kind(client, call_metadata(grant=grant))
            assert [message async for message in calls.pop("feed")] == [probe.FeedResponse()]
            assert seen[0].reach == grant.scope_keys
            for call in calls.values():
                assert await refusal(call) == ("UNAUTHENTICATED", "SCOPE_REQUIRED")


@pytest.mark.rule("X1")
async def test_each_kind_of_call_reaches_its_handler_in_its_scope() -> None:
    async with hosted(ProbeServicer()) as (_, client):
        calls = each_kind(client, call_metadata(ACME))
        assert (await calls["unary"]) == probe.ChangeResponse()
        assert (await calls["upload"]) == probe.UploadResponse()
        assert [m.text async for m in calls["chat"]] == ["hello ann"]
        assert [m.number async for m in client.feed(3)] == [0, 1, 2]
        assert not (await client.info()).has_scope
        assert (await client.change(metadata=call_metadata(EMPTY_SCOPE, ALL_SCOPES))) == probe.ChangeResponse()


@pytest.mark.rule("X1")
async def test_unicode_scopes_travel_unharmed() -> None:
    seen: list[Scope] = []

    async def change(request: Any) -> Any:
        seen.append(current_call().scope)
        return probe.ChangeResponse()

    servicer = ProbeServicer()
    servicer.change = change
    scope = Scope({"tenant": "Müller 株式会社 😀\u2028"})
    async with hosted(servicer) as (_, client):
        await client.change(metadata=call_metadata(scope))
    assert seen == [scope]


@pytest.mark.rule("X8")
async def test_each_message_of_a_request_stream_is_validated() -> None:
    async def names() -> AsyncIterator[Any]:
        yield probe.ChatRequest(name="ann")
        yield probe.ChatRequest()

    async def chunks() -> AsyncIterator[Any]:
        yield probe.UploadRequest(header=probe.UploadRequest.Header(request_id="r"))
        yield probe.UploadRequest(chunk=b"123456789")

    async with hosted(ProbeServicer()) as (_, client):
        assert await refusal(client.chat(names())) == ("INVALID_ARGUMENT", "FIELD_INVALID")
        assert await refusal(client.upload(chunks())) == ("INVALID_ARGUMENT", "FIELD_INVALID")
        no_header = client.upload(one(probe.UploadRequest(chunk=b"x")))
        assert await refusal(no_header) == ("INVALID_ARGUMENT", "FIELD_INVALID")


@pytest.mark.rule("X3")
async def test_a_mutation_without_request_id_is_refused() -> None:
    async with hosted(ProbeServicer()) as (_, client):
        assert await refusal(client.change(probe.ChangeRequest())) == ("INVALID_ARGUMENT", "FIELD_INVALID")


@pytest.mark.rule("X3")
async def test_a_replay_is_marked_in_the_trailing_metadata() -> None:
    async def change(request: Any) -> Any:
        current_call().mark_replay()
        return probe.ChangeResponse()

    servicer = ProbeServicer()
    servicer.change = change
    async with hosted(servicer) as (_, client):
        call = client.change()
        await call
        assert ("threadkeep-replay", "1") in list(await call.trailing_metadata())


@pytest.mark.rule("X6")
async def test_a_raised_error_becomes_the_callers_status_also_in_the_middle_of_a_stream() -> None:
    async def change(request: Any) -> Any:
        raise RevisionConflict(4)

    async def feed(request: Any) -> AsyncIterator[Any]:
        yield probe.FeedResponse()
        raise FieldInvalid("x", "is wrong")

    servicer = ProbeServicer()
    servicer.change, servicer.feed = change, feed
    async with hosted(servicer) as (_, client):
        assert await refusal(client.change()) == ("ABORTED", "REVISION_CONFLICT")
        assert await refusal(client.feed()) == ("INVALID_ARGUMENT", "FIELD_INVALID")


@pytest.mark.rule("X6", "X11")
async def test_a_fault_is_internal_and_tells_the_trace_but_not_the_text(capsys: pytest.CaptureFixture[str]) -> None:
    async def change(request: Any) -> Any:
        raise ValueError("hunter2")

    servicer = ProbeServicer()
    servicer.change = change
    trace_id = "0af7651916cd43dd8448eb211c80319c"
    metadata = (*call_metadata(Scope({"tenant": "acme-corp"})), ("traceparent", f"00-{trace_id}-b7ad6b7169203331-01"))
    async with hosted(servicer) as (_, client):
        with pytest.raises(grpc.aio.AioRpcError) as caught:
            await client.change(metadata=metadata)
    assert (caught.value.code().name, reason_of(caught.value)) == ("INTERNAL", "INTERNAL")
    assert "hunter2" not in str(caught.value.details())
    printed = "".join(capsys.readouterr())
    assert trace_id in printed
    assert "ValueError" in printed
    assert "hunter2" not in printed
    assert "acme-corp" not in printed


@pytest.mark.rule("X15")
async def test_the_callers_trace_goes_on_and_a_call_without_one_begins_one() -> None:
    seen: list[Call] = []

    async def change(request: Any) -> Any:
        seen.append(current_call())
        return probe.ChangeResponse()

    servicer = ProbeServicer()
    servicer.change = change
    parent = "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01"
    async with hosted(servicer) as (_, client):
        await client.change(metadata=(*call_metadata(ACME), ("traceparent", parent), ("tracestate", "a=b")))
        await client.change(metadata=(*call_metadata(ACME), ("traceparent", "nonsense")))
    assert seen[0].trace.traceparent == parent
    assert seen[0].trace.tracestate == "a=b"
    assert len(seen[1].trace.trace_id) == 32
    assert seen[1].trace.traceparent != "nonsense"


@pytest.mark.rule("X15", "X11")
async def test_calls_are_counted_by_method_and_code_and_never_by_scope() -> None:
    async with hosted(ProbeServicer()) as (host, client):
        await client.change()
        await refusal(client.change(probe.ChangeRequest()))
        assert [m async for m in client.feed(3)]
        dropped = client.feed(1)
        dropped.cancel()

        def count(method: str, code: str) -> float | None:
            labels = {"method": f"/threadkeep.probe.v1.ProbeService/{method}", "code": code}
            return host.registry.get_sample_value("threadkeep_rpcs_total", labels)

        assert count("Change", "OK") == 1
        assert count("Change", "INVALID_ARGUMENT") == 1
        await eventually(lambda: count("Feed", "OK") == 1)
        sent = {"method": "/threadkeep.probe.v1.ProbeService/Feed"}
        assert host.registry.get_sample_value("threadkeep_rpc_stream_messages_total", sent) == 3
        labels = {name for metric in host.registry.collect() for s in metric.samples for name in s.labels}
        assert labels <= {"method", "code", "le"}


@pytest.mark.rule("X9")
async def test_a_message_above_the_limit_is_refused_by_name() -> None:
    async with hosted(ProbeServicer(), max_message_bytes=2048) as (_, client):
        large = probe.ChangeRequest(request_id="r", value="x" * 4096)
        assert await refusal(client.change(large)) == ("RESOURCE_EXHAUSTED", "LIMIT_EXCEEDED")
        # Far beyond, gRPC itself refuses before it takes the memory.
        with pytest.raises(grpc.aio.AioRpcError) as caught:
            await client.change(probe.ChangeRequest(request_id="r", value="x" * 2_000_000))
        assert caught.value.code() == grpc.StatusCode.RESOURCE_EXHAUSTED


@pytest.mark.rule("X9")
async def test_calls_above_the_limit_are_refused_by_name_and_health_is_not() -> None:
    async def feed(request: Any) -> AsyncIterator[Any]:
        yield probe.FeedResponse()
        await asyncio.Event().wait()

    servicer = ProbeServicer()
    servicer.feed = feed
    async with hosted(servicer, max_concurrent_rpcs=3, grace_seconds=0.5) as (_, client):
        streams = [client.feed() for _ in range(3)]
        for stream in streams:
            await stream.read()
        assert await refusal(client.change()) == ("RESOURCE_EXHAUSTED", "LIMIT_EXCEEDED")
        health = health_pb2_grpc.HealthStub(client.channel)
        assert (await health.Check(health_pb2.HealthCheckRequest())).status == health_pb2.HealthCheckResponse.SERVING
        streams[0].cancel()

        async def is_let_in() -> bool:
            try:
                return (await client.change()) == probe.ChangeResponse()
            except grpc.aio.AioRpcError:
                return False

        assert await eventually(is_let_in)


@pytest.mark.rule("X6", "X8")
async def test_a_value_that_a_column_refuses_is_the_callers_fault() -> None:
    async def change(request: Any) -> Any:
        raise JsonInvalid("holds the character NUL, which a filterable document can't")

    servicer = ProbeServicer()
    servicer.change = change
    async with hosted(servicer) as (_, client):
        assert await refusal(client.change()) == ("INVALID_ARGUMENT", "FIELD_INVALID")


async def test_an_unknown_method_is_unimplemented() -> None:
    async with hosted(ProbeServicer()) as (_, client):
        with pytest.raises(grpc.aio.AioRpcError) as caught:
            await client.channel.unary_unary("/threadkeep.probe.v1.ProbeService/Nothing")(b"")
        assert caught.value.code() == grpc.StatusCode.UNIMPLEMENTED
