"""Calls to other services: the runtime asks config for the manifest of an agent, when a task is submitted (R6)."""

from __future__ import annotations

from typing import NamedTuple

import grpc

from threadkeep.config.v1 import config_service_pb2, config_service_pb2_grpc
from threadkeep_chassis.errors import DeadlineExceeded, PeerUnavailable
from threadkeep_chassis.peers import Peers, call_metadata, peer_error
from threadkeep_chassis.scope import Grant, Scope, Trace

TIMEOUT_SECONDS = 10.0


class Manifest(NamedTuple):
    """An agent with all that it depends on, pinned."""

    digest: str
    agent_revision: int
    manifest_json: bytes
    """Canonical JSON, redacted."""


class ConfigPeer:
    """The config service."""

    def __init__(self, peers: Peers) -> None:
        self._peers = peers

    async def resolve_manifest(self, scope: Scope, grant: Grant | None, agent_name: str, trace: Trace) -> Manifest:
        """The manifest of an agent in a scope. Raises AGENT_UNRESOLVED as config says it, and PeerUnavailable."""
        try:
            stub = config_service_pb2_grpc.ConfigServiceStub(self._peers.channel("config"))
        except LookupError as error:
            raise PeerUnavailable("config") from error
        try:
            response = await stub.ResolveManifest(
                config_service_pb2.ResolveManifestRequest(agent_name=agent_name),
                metadata=call_metadata(scope, grant, trace),
                timeout=TIMEOUT_SECONDS,
            )
        except grpc.RpcError as error:
            answered = peer_error(error, "config")
            if isinstance(answered, DeadlineExceeded):
                raise PeerUnavailable("config") from error
            raise answered from error
        return Manifest(response.digest, response.agent_revision, response.manifest_json)
