"""Calls between services: errors pass through with their reason, absence has a name of its own (X6, X13)."""

import socket
from typing import Any

import grpc
import pytest

from tests.unit.chassis.probe import ACME, ProbeClient, ProbeServicer, hosted, probe
from threadkeep_chassis.errors import (
    Aborted,
    DeadlineExceeded,
    FieldInvalid,
    Internal,
    InvalidArgument,
    PeerUnavailable,
    RevisionConflict,
    ThreadkeepError,
)
from threadkeep_chassis.peers import Peers, call_metadata, peer_error
from threadkeep_chassis.scope import ALL_SCOPES, EMPTY_SCOPE, Grant, Trace, parse_grant, parse_scope


async def answer(client: ProbeClient, **options: Any) -> ThreadkeepError:
    with pytest.raises(grpc.aio.AioRpcError) as caught:
        await client.change(**options)
    return peer_error(caught.value, "config")


def servicer_that_raises(error: Exception) -> ProbeServicer:
    async def change(request: Any) -> Any:
        raise error

    servicer = ProbeServicer()
    servicer.change = change
    return servicer


@pytest.mark.rule("X6")
async def test_a_peers_error_keeps_family_reason_metadata_and_violations() -> None:
    async with hosted(servicer_that_raises(RevisionConflict(7))) as (_, client):
        error = await answer(client)
        assert isinstance(error, Aborted)
        assert (error.reason, error.metadata) == ("REVISION_CONFLICT", {"current_revision": "7"})
    async with hosted(servicer_that_raises(FieldInvalid("a", "b"))) as (_, client):
        error = await answer(client)
        assert isinstance(error, InvalidArgument)
        assert (error.reason, error.violations) == ("FIELD_INVALID", [("a", "b")])


@pytest.mark.rule("X6")
async def test_a_peer_that_is_away_has_a_name_of_its_own() -> None:
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        address = f"127.0.0.1:{free.getsockname()[1]}"
    async with grpc.aio.insecure_channel(address) as channel:
        error = await answer(ProbeClient(channel))
        assert isinstance(error, PeerUnavailable)
        assert error.metadata == {"peer": "config"}


@pytest.mark.rule("X6")
async def test_a_fault_of_a_peer_is_a_fault_and_a_missed_deadline_is_one() -> None:
    async with hosted(servicer_that_raises(ValueError("hunter2"))) as (_, client):
        error = await answer(client)
        assert isinstance(error, Internal)
        assert "hunter2" not in str(error)

    async def change(request: Any) -> Any:
        import asyncio

        await asyncio.Event().wait()

    servicer = ProbeServicer()
    servicer.change = change
    async with hosted(servicer) as (_, client):
        assert isinstance(await answer(client, timeout=0.2), DeadlineExceeded)


@pytest.mark.rule("X13")
def test_a_call_carries_scope_grant_and_trace() -> None:
    trace = Trace("t", "00-1-2-01", "a=b")
    metadata = dict(call_metadata(ACME, Grant.of([ACME]), trace))
    assert parse_scope(metadata["threadkeep-scope-bin"]) == ACME  # type: ignore[arg-type]
    assert parse_grant(metadata["threadkeep-grant-bin"]) == Grant.of([ACME])  # type: ignore[arg-type]
    assert (metadata["traceparent"], metadata["tracestate"]) == ("00-1-2-01", "a=b")
    assert call_metadata() == ()
    # The empty scope needs the grant over all, so its call brings it.
    empty = dict(call_metadata(EMPTY_SCOPE))
    assert parse_grant(empty["threadkeep-grant-bin"]) == ALL_SCOPES  # type: ignore[arg-type]


async def test_channels_are_opened_once_and_an_unknown_peer_is_named() -> None:
    async with hosted(ProbeServicer()) as (host, _):
        peers = Peers({"config": host.address})
        channel = peers.channel("config")
        assert peers.channel("config") is channel
        assert await ProbeClient(channel).change() == probe.ChangeResponse()
        with pytest.raises(LookupError, match="THREADKEEP_PEERS__RUNTIME"):
            peers.channel("runtime")
        await peers.close()
