"""GetServerInfo: what runs on an address (X15)."""

from __future__ import annotations

from collections.abc import Sequence
from importlib import metadata
from typing import TYPE_CHECKING

import grpc

from threadkeep.common.v1 import server_info_service_pb2, server_info_service_pb2_grpc

if TYPE_CHECKING:
    from threadkeep_chassis.hosting import Service

SERVICE_NAME = "threadkeep.common.v1.ServerInfoService"
CONTRACT_RELEASE = "v1"


def distribution_version() -> str:
    """The installed version of threadkeep."""
    try:
        return metadata.version("threadkeep")
    except metadata.PackageNotFoundError:
        return "0.0.0+source"


class ServerInfo(server_info_service_pb2_grpc.ServerInfoServiceServicer):
    """Answers for all services of one host."""

    def __init__(self, services: Sequence[Service]) -> None:
        self._services = services

    async def GetServerInfo(
        self, request: server_info_service_pb2.GetServerInfoRequest, context: grpc.aio.ServicerContext
    ) -> server_info_service_pb2.GetServerInfoResponse:
        """Services, version, backend, limits in force (the smallest where services differ), capabilities."""
        limits: dict[str, int] = {}
        for service in self._services:
            for name, value in service.limits.items():
                limits[name] = min(value, limits.get(name, value))
        backends = sorted({service.backend for service in self._services})
        return server_info_service_pb2.GetServerInfoResponse(
            services=[service.name for service in self._services],
            version=distribution_version(),
            contract_release=CONTRACT_RELEASE,
            backend=",".join(backends),
            limits=[server_info_service_pb2.Limit(name=name, value=value) for name, value in sorted(limits.items())],
            capabilities=sorted({name for service in self._services for name in service.capabilities}),
        )
