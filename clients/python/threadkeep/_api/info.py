"""What a server is."""

from __future__ import annotations

from dataclasses import replace

from threadkeep._rpc.method import Call, method, whole
from threadkeep.common.v1 import server_info_service_pb2
from threadkeep.common.v1.server_info_service_pb2 import GetServerInfoResponse

_INFO = method(server_info_service_pb2, "ServerInfoService", "GetServerInfo")


def get(service: str = "runtime") -> Call[GetServerInfoResponse]:
    """What runs at the address of a service: version, contract release, backend, limits, capabilities."""
    # Every server has this method under one name; only the address differs.
    return Call(replace(_INFO, service=service), server_info_service_pb2.GetServerInfoRequest(), whole)
