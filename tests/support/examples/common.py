"""Example requests of what every server has."""

from tests.support.examples.registry import register
from tests.support.examples.world import World
from threadkeep.common.v1 import server_info_service_pb2


@register("ServerInfoService.GetServerInfo")
async def get_server_info(world: World) -> server_info_service_pb2.GetServerInfoRequest:
    return server_info_service_pb2.GetServerInfoRequest()
