"""Calls to other threadkeep services: channels with sane options, and the metadata that carries scope and trace."""

from __future__ import annotations

import json
from collections.abc import Mapping

import grpc

from threadkeep_chassis.errors import ThreadkeepError
from threadkeep_chassis.scope import GRANT_HEADER, NO_TRACE, SCOPE_HEADER, Grant, Scope, Trace
from threadkeep_chassis.status import from_rpc_error

Metadata = tuple[tuple[str, str | bytes], ...]

_SERVICE_CONFIG = json.dumps(
    {
        "loadBalancingConfig": [{"round_robin": {}}],
        "methodConfig": [
            {
                "name": [{}],
                # Safe for mutations too: every one carries a request_id (X3).
                "retryPolicy": {
                    "maxAttempts": 4,
                    "initialBackoff": "0.1s",
                    "maxBackoff": "1s",
                    "backoffMultiplier": 2,
                    "retryableStatusCodes": ["UNAVAILABLE"],
                },
            }
        ],
    }
)


def open_channel(address: str, *, max_message_bytes: int = 16 * 1024 * 1024) -> grpc.aio.Channel:
    """A channel to a peer: host:port, dns:///name:port (client-side round robin) or unix:/path. Close it."""
    return grpc.aio.insecure_channel(
        address,
        options=[
            ("grpc.service_config", _SERVICE_CONFIG),
            ("grpc.enable_retries", 1),
            ("grpc.max_receive_message_length", max_message_bytes),
            ("grpc.max_send_message_length", max_message_bytes),
            ("grpc.keepalive_time_ms", 10_000),
            ("grpc.keepalive_timeout_ms", 5_000),
            ("grpc.keepalive_permit_without_calls", 1),
            ("grpc.http2.max_pings_without_data", 0),
            ("grpc.initial_reconnect_backoff_ms", 100),
            ("grpc.max_reconnect_backoff_ms", 2_000),
        ],
    )


def call_metadata(scope: Scope | None = None, grant: Grant | None = None, trace: Trace = NO_TRACE) -> Metadata:
    """The trusted metadata of a call in a scope, under a grant, within a trace."""
    entries: list[tuple[str, str | bytes]] = []
    if scope is not None:
        entries.append((SCOPE_HEADER, scope.canonical))
        if grant is None and scope.is_empty:
            grant = Grant(all=True)
    if grant is not None:
        entries.append((GRANT_HEADER, grant.encode()))
    if trace.traceparent:
        entries.append(("traceparent", trace.traceparent))
        if trace.tracestate:
            entries.append(("tracestate", trace.tracestate))
    return tuple(entries)


class Peers:
    """The channels to other services, opened when first used."""

    def __init__(self, addresses: Mapping[str, str], *, max_message_bytes: int = 16 * 1024 * 1024) -> None:
        """`addresses` by service name, such as {"config": "127.0.0.1:7433"}."""
        self._addresses = dict(addresses)
        self._max_message_bytes = max_message_bytes
        self._channels: dict[str, grpc.aio.Channel] = {}

    def knows(self, name: str) -> bool:
        """True if somebody said where the service is."""
        return name in self._addresses

    def channel(self, name: str) -> grpc.aio.Channel:
        """The channel to the service. Raises LookupError if nobody said where it is."""
        channel = self._channels.get(name)
        if channel is None:
            if name not in self._addresses:
                raise LookupError(f"no address of the {name} service; set THREADKEEP_PEERS__{name.upper()}")
            channel = open_channel(self._addresses[name], max_message_bytes=self._max_message_bytes)
            self._channels[name] = channel
        return channel

    async def close(self) -> None:
        """Closes the channels."""
        channels, self._channels = self._channels, {}
        for channel in channels.values():
            await channel.close()


def peer_error(error: grpc.RpcError, peer: str) -> ThreadkeepError:
    """What a peer answered, as our own error: `except grpc.RpcError as e: raise peer_error(e, "config") from e`."""
    return from_rpc_error(error, peer)
