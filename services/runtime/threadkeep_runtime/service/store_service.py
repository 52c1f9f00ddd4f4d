"""StoreService: memory across threads, LangGraph's Store (R21)."""

from __future__ import annotations

from collections.abc import AsyncIterator, Sequence
from dataclasses import replace
from datetime import datetime

import grpc

from threadkeep.runtime.v1 import store_pb2, store_service_pb2, store_service_pb2_grpc
from threadkeep_chassis.database import Connection, SyncConnection
from threadkeep_chassis.errors import FieldInvalid
from threadkeep_chassis.receipts import idempotent
from threadkeep_chassis.scope import current_call
from threadkeep_runtime.domain.store_items import ItemKey, ItemPut, StoredItem
from threadkeep_runtime.service.rooms import Rooms
from threadkeep_runtime.service.store_convert import (
    item_to_proto,
    key_of,
    namespace_to_proto,
    namespaces_of,
    put_of,
    search_of,
    time_to_proto,
)
from threadkeep_runtime.store.items import apply_puts, load_items, refresh
from threadkeep_runtime.store.items_search import NamespacePlace, Place, find_items, list_namespaces

pb = store_service_pb2


class StoreServicer(store_service_pb2_grpc.StoreServiceServicer):
    """Translates; `rooms` is set once the database is open."""

    rooms: Rooms

    async def PutItem(self, request: pb.PutItemRequest, context: grpc.aio.ServicerContext) -> pb.PutItemResponse:
        """One upsert, with its receipt."""
        call = current_call()
        put = put_of(request.put, "put", self.rooms.limits)

        async def work(connection: Connection) -> pb.PutItemResponse:
            now = await connection.now()
            await connection.run(lambda sync: apply_puts(sync, call.scope_key, {put.at: put}, now))
            return pb.PutItemResponse(update_time=time_to_proto(now))

        return await idempotent(self.rooms.database, call, request, pb.PutItemResponse, work)

    async def DeleteItem(
        self, request: pb.DeleteItemRequest, context: grpc.aio.ServicerContext
    ) -> pb.DeleteItemResponse:
        """One delete, with its receipt."""
        call = current_call()
        at = key_of(request.delete, "delete")

        async def work(connection: Connection) -> pb.DeleteItemResponse:
            now = await connection.now()
            await connection.run(lambda sync: apply_puts(sync, call.scope_key, {at: None}, now))
            return pb.DeleteItemResponse()

        return await idempotent(self.rooms.database, call, request, pb.DeleteItemResponse, work)

    async def GetItem(self, request: pb.GetItemRequest, context: grpc.aio.ServicerContext) -> pb.GetItemResponse:
        """One read; a refresh is a write of its own."""
        scope_key = current_call().scope_key
        at = key_of(request.get, "get")
        async with self.rooms.database.read() as connection:
            now = await connection.now()
            found = (await connection.run(lambda sync: load_items(sync, scope_key, [at], now))).get(at)
        if found is None:
            return pb.GetItemResponse()
        if request.get.refresh_ttl:
            (found,) = await self._refreshed(scope_key, [found])
        return pb.GetItemResponse(item=item_to_proto(found))

    async def SearchItems(
        self, request: pb.SearchItemsRequest, context: grpc.aio.ServicerContext
    ) -> AsyncIterator[pb.SearchItemsResponse]:
        """Frame by frame, each a snapshot of its own. A reader that pauses holds nothing (B21)."""
        search = search_of(request.search, current_call().scope_key, "search", self.rooms.limits)
        place: Place | None = Place()
        while place is not None:
            async with self.rooms.database.read(snapshot=True) as connection:
                now = await connection.now()
                found, place = await connection.run(
                    lambda sync, place=place, now=now: find_items(sync, search, place, now)  # type: ignore[misc]
                )
            if search.refresh_ttl:
                found = await self._refreshed(search.scope_key, found)
            if found:
                yield pb.SearchItemsResponse(items=map(item_to_proto, found))

    async def ListNamespaces(
        self, request: pb.ListNamespacesRequest, context: grpc.aio.ServicerContext
    ) -> AsyncIterator[pb.ListNamespacesResponse]:
        """Frame by frame."""
        wanted = namespaces_of(request.list, current_call().scope_key, "list")
        place: NamespacePlace | None = NamespacePlace()
        while place is not None:
            async with self.rooms.database.read(snapshot=True) as connection:
                now = await connection.now()
                found, place = await connection.run(
                    lambda sync, place=place, now=now: list_namespaces(sync, wanted, place, now)  # type: ignore[misc]
                )
            if found:
                yield pb.ListNamespacesResponse(namespaces=map(namespace_to_proto, found))

    async def BatchItems(
        self, request: pb.BatchItemsRequest, context: grpc.aio.ServicerContext
    ) -> pb.BatchItemsResponse:
        """Reads, then writes, then the receipt: one transaction."""
        call = current_call()
        batch = _Batch(request.ops, call.scope_key, self.rooms)

        async def work(connection: Connection) -> pb.BatchItemsResponse:
            now = await connection.now()
            return await connection.run(lambda sync: batch.run(sync, now))

        return await idempotent(self.rooms.database, call, request, pb.BatchItemsResponse, work)

    async def _refreshed(self, scope_key: str, found: Sequence[StoredItem]) -> list[StoredItem]:
        """The items, with their time to live started anew where they have one."""
        expiring = [item for item in found if item.ttl is not None]
        if not expiring:
            return list(found)

        async def work(connection: Connection) -> datetime:
            now = await connection.now()
            await connection.run(lambda sync: refresh(sync, scope_key, expiring, now))
            return now

        now = await self.rooms.database.retrying(work)
        return [_expiring_from(item, now) for item in found]


class _Batch:
    """The operations of one request, checked; it may run more than once."""

    def __init__(self, ops: Sequence[store_pb2.StoreOp], scope_key: str, rooms: Rooms) -> None:
        """Raises FieldInvalid, LimitExceeded."""
        self._scope_key = scope_key
        self._limits = rooms.limits
        self._ops = [self._parsed(op, f"ops[{index}]") for index, op in enumerate(ops)]

    def _parsed(self, op: store_pb2.StoreOp, path: str) -> tuple[str, object, bool]:
        which = op.WhichOneof("op")
        if which == "get":
            return which, key_of(op.get, f"{path}.get"), op.get.refresh_ttl
        if which == "search":
            search = search_of(op.search, self._scope_key, f"{path}.search", self._limits)
            return which, search, search.refresh_ttl
        if which == "list_namespaces":
            return which, namespaces_of(op.list_namespaces, self._scope_key, f"{path}.list_namespaces"), False
        if which == "put":
            return which, put_of(op.put, f"{path}.put", self._limits), False
        if which == "delete":
            return which, key_of(op.delete, f"{path}.delete"), False
        raise FieldInvalid(path, "needs an operation")

    def run(self, connection: SyncConnection, now: datetime) -> pb.BatchItemsResponse:
        """Runs them. Raises LimitExceeded for an answer that is too large."""
        response = pb.BatchItemsResponse()
        keys = sorted({op for which, op, _ in self._ops if which == "get" and isinstance(op, ItemKey)})
        there = load_items(connection, self._scope_key, keys, now)
        read: dict[int, StoredItem] = {}
        writes: dict[ItemKey, ItemPut | None] = {}
        size = 0
        for which, op, refreshes in self._ops:
            result = response.results.add()
            for frame in self._frames(connection, which, op, there, now):
                if refreshes:
                    read.update((item.sequence, item) for item in frame if isinstance(item, StoredItem))
                    frame = [_expiring_from(item, now) if isinstance(item, StoredItem) else item for item in frame]
                for one in frame:
                    if isinstance(one, StoredItem):
                        result.items.append(item_to_proto(one))
                    else:
                        result.namespaces.append(namespace_to_proto(one))
                    size += len(one.value_json) + 512 if isinstance(one, StoredItem) else 64
                self._limits.check("max_store_batch_bytes", size)
            if isinstance(op, ItemPut):
                writes.pop(op.at, None)
                writes[op.at] = op
            elif which == "delete" and isinstance(op, ItemKey):
                writes.pop(op, None)
                writes[op] = None
        refresh(connection, self._scope_key, list(read.values()), now)
        apply_puts(connection, self._scope_key, writes, now)
        return response

    def _frames(self, connection, which, op, there, now):  # type: ignore[no-untyped-def]
        if which == "get":
            if op in there:
                yield [there[op]]
        elif which == "search":
            place: Place | None = Place()
            while place is not None:
                found, place = find_items(connection, op, place, now)
                yield found
        elif which == "list_namespaces":
            names: NamespacePlace | None = NamespacePlace()
            while names is not None:
                listed, names = list_namespaces(connection, op, names, now)
                yield listed


def _expiring_from(item: StoredItem, now: datetime) -> StoredItem:
    return item if item.ttl is None else replace(item, expire_time=now + item.ttl)
