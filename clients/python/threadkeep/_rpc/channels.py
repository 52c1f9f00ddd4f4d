"""Where the services are, and the options of the channels to them."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

import grpc

SERVICES = ("runtime", "config", "artifacts", "projection")

CHANNEL_OPTIONS: tuple[tuple[str, Any], ...] = (
    # The server bounds messages, and says so with LIMIT_EXCEEDED; a smaller bound here would hide what it answered.
    ("grpc.max_receive_message_length", -1),
    ("grpc.max_send_message_length", -1),
    ("grpc.service_config", json.dumps({"loadBalancingConfig": [{"round_robin": {}}]})),
    ("grpc.initial_reconnect_backoff_ms", 100),
    # In spite of its name it bounds how long one attempt to connect may take: a busy server needs more than a moment.
    ("grpc.min_reconnect_backoff_ms", 5000),
    ("grpc.max_reconnect_backoff_ms", 2000),
    # A half-open connection shows while calls wait on it.
    ("grpc.keepalive_time_ms", 30_000),
    ("grpc.keepalive_timeout_ms", 10_000),
)


@dataclass(frozen=True)
class Targets:
    """Addresses of the services: one for all, or one for each. Forms are gRPC's: `host:port`, `dns:///name:port`,
    `unix:/path`."""

    addresses: Mapping[str, str]
    credentials: grpc.ChannelCredentials | None = field(default=None, compare=False)

    @classmethod
    def of(cls, target: str | Mapping[str, str], credentials: grpc.ChannelCredentials | None = None) -> Targets:
        """Builds targets from one address, or from a map of service names to addresses."""
        if isinstance(target, str):
            return cls(dict.fromkeys(SERVICES, target), credentials)
        unknown = sorted(set(target) - set(SERVICES))
        if unknown:
            raise ValueError(f"unknown services {unknown}; there are {list(SERVICES)}")
        return cls(dict(target), credentials)

    def address(self, service: str) -> str:
        """The address of a service. LookupError when none was given."""
        try:
            return self.addresses[service]
        except KeyError:
            raise LookupError(f"this client was given no address for the {service} service") from None
