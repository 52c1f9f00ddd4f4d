"""Example requests of the runtime's Store."""

from tests.support.descriptors import fresh_id
from tests.support.examples.registry import register
from tests.support.examples.world import World
from threadkeep.runtime.v1 import store_pb2, store_service_pb2


async def with_item(world: World) -> store_pb2.ItemPut:
    """A stored item."""
    put = store_pb2.ItemPut(namespace=["users", fresh_id("user")], key=fresh_id("key"), value_json=b'{"text":"hi"}')
    await world.call("StoreService.PutItem", store_service_pb2.PutItemRequest(request_id=fresh_id(), put=put))
    return put


@register("StoreService.PutItem")
async def put_item(world: World) -> store_service_pb2.PutItemRequest:
    put = store_pb2.ItemPut(namespace=["users"], key=fresh_id("key"), value_json=b'{"text":"hi"}')
    return store_service_pb2.PutItemRequest(request_id=fresh_id(), put=put)


@register("StoreService.DeleteItem", "delete.key")
async def delete_item(world: World) -> store_service_pb2.DeleteItemRequest:
    item = await with_item(world)
    delete = store_pb2.ItemDelete(namespace=item.namespace, key=item.key)
    return store_service_pb2.DeleteItemRequest(request_id=fresh_id(), delete=delete)


@register("StoreService.GetItem", "get.key")
async def get_item(world: World) -> store_service_pb2.GetItemRequest:
    item = await with_item(world)
    return store_service_pb2.GetItemRequest(get=store_pb2.ItemGet(namespace=item.namespace, key=item.key))


@register("StoreService.SearchItems", "search.namespace_prefix[0]")
async def search_items(world: World) -> store_service_pb2.SearchItemsRequest:
    item = await with_item(world)
    return store_service_pb2.SearchItemsRequest(search=store_pb2.ItemSearch(namespace_prefix=item.namespace[1:]))


@register("StoreService.ListNamespaces")
async def list_namespaces(world: World) -> store_service_pb2.ListNamespacesRequest:
    await with_item(world)
    return store_service_pb2.ListNamespacesRequest(list=store_pb2.NamespaceList(limit=10))


@register("StoreService.BatchItems", "ops[0].get.key")
async def batch_items(world: World) -> store_service_pb2.BatchItemsRequest:
    item = await with_item(world)
    get = store_pb2.ItemGet(namespace=item.namespace, key=item.key)
    put = store_pb2.ItemPut(namespace=["users"], key=fresh_id("key"), value_json=b"{}")
    return store_service_pb2.BatchItemsRequest(
        request_id=fresh_id(), ops=[store_pb2.StoreOp(get=get), store_pb2.StoreOp(put=put)]
    )
