"""Memory across threads: items under namespaces, their searches, and batches of operations."""

from __future__ import annotations

import datetime
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from google.protobuf import duration_pb2

from threadkeep._api.values import given, strict_json
from threadkeep._rpc.method import Call, method, new_request_id, whole
from threadkeep.runtime.v1 import store_pb2, store_service_pb2

_PUT = method(store_service_pb2, "StoreService", "PutItem")
_DELETE = method(store_service_pb2, "StoreService", "DeleteItem")
_GET = method(store_service_pb2, "StoreService", "GetItem")
_SEARCH = method(store_service_pb2, "StoreService", "SearchItems")
_LIST_NAMESPACES = method(store_service_pb2, "StoreService", "ListNamespaces")
_BATCH = method(store_service_pb2, "StoreService", "BatchItems")


def to_put(
    namespace: Sequence[str],
    key: str,
    value: Mapping[str, Any] | bytes,
    *,
    ttl: datetime.timedelta | None = None,
    vectors: Iterable[Sequence[float]] = (),
) -> store_pb2.ItemPut:
    """An item to store. A value as bytes is a JSON object already. ValueError for what JSON can't hold."""
    put = store_pb2.ItemPut(
        namespace=namespace,
        key=key,
        value_json=value if isinstance(value, bytes) else strict_json(dict(value)).encode(),
        vectors=[store_pb2.StoreVector(values=vector) for vector in vectors],
    )
    if ttl is not None:
        duration = duration_pb2.Duration()
        duration.FromTimedelta(ttl)
        put.ttl.CopyFrom(duration)
    return put


def to_search(
    namespace_prefix: Sequence[str] = (),
    *,
    filter: Mapping[str, Any] | None = None,
    limit: int | None = None,
    offset: int = 0,
    query: Sequence[float] | None = None,
    refresh_ttl: bool = False,
) -> store_pb2.ItemSearch:
    """What to find; see ItemSearch. `query` is an embedding. ValueError for a filter that JSON can't hold."""
    return store_pb2.ItemSearch(
        namespace_prefix=namespace_prefix,
        offset=offset,
        refresh_ttl=refresh_ttl,
        **given(
            filter_json=strict_json(dict(filter)) if filter else None,
            limit=limit,
            query=None if query is None else store_pb2.StoreVector(values=query),
        ),
    )


def to_namespace_list(
    *,
    prefix: Sequence[str] = (),
    suffix: Sequence[str] = (),
    max_depth: int | None = None,
    limit: int | None = None,
    offset: int = 0,
) -> store_pb2.NamespaceList:
    """Which namespaces; `*` in `prefix` and `suffix` is any one label."""
    matches = []
    if prefix:
        matches.append(store_pb2.NamespaceMatch(kind=store_pb2.NAMESPACE_MATCH_KIND_PREFIX, path=prefix))
    if suffix:
        matches.append(store_pb2.NamespaceMatch(kind=store_pb2.NAMESPACE_MATCH_KIND_SUFFIX, path=suffix))
    return store_pb2.NamespaceList(matches=matches, offset=offset, **given(max_depth=max_depth, limit=limit))


def put(
    namespace: Sequence[str],
    key: str,
    value: Mapping[str, Any] | bytes,
    *,
    ttl: datetime.timedelta | None = None,
    vectors: Iterable[Sequence[float]] = (),
    request_id: str | None = None,
) -> Call[store_service_pb2.PutItemResponse]:
    """Stores an item, or overwrites it whole. Raises FieldInvalid, LimitExceeded."""
    return put_item(to_put(namespace, key, value, ttl=ttl, vectors=vectors), request_id=request_id)


def put_item(put: store_pb2.ItemPut, *, request_id: str | None = None) -> Call[store_service_pb2.PutItemResponse]:
    """The same, of a message."""
    request = store_service_pb2.PutItemRequest(request_id=request_id or new_request_id(), put=put)
    return Call(_PUT, request, whole)


def delete(
    namespace: Sequence[str], key: str, *, request_id: str | None = None
) -> Call[store_service_pb2.DeleteItemResponse]:
    """Deletes an item; a missing one is no error."""
    request = store_service_pb2.DeleteItemRequest(
        request_id=request_id or new_request_id(), delete=store_pb2.ItemDelete(namespace=namespace, key=key)
    )
    return Call(_DELETE, request, whole)


def get(namespace: Sequence[str], key: str, *, refresh_ttl: bool = False) -> Call[store_pb2.StoreItem | None]:
    """The item, or None."""
    request = store_service_pb2.GetItemRequest(
        get=store_pb2.ItemGet(namespace=namespace, key=key, refresh_ttl=refresh_ttl)
    )
    return Call(_GET, request, lambda response: response.item if response.HasField("item") else None)


def search(search: store_pb2.ItemSearch) -> Call[store_service_pb2.SearchItemsResponse]:
    """Streams items in frames: the last put first, or the nearest to the query."""
    return Call(_SEARCH, store_service_pb2.SearchItemsRequest(search=search), whole)


def list_namespaces(wanted: store_pb2.NamespaceList) -> Call[store_service_pb2.ListNamespacesResponse]:
    """Streams namespaces in frames, sorted."""
    return Call(_LIST_NAMESPACES, store_service_pb2.ListNamespacesRequest(list=wanted), whole)


def batch(
    ops: Iterable[store_pb2.StoreOp], *, request_id: str | None = None
) -> Call[store_service_pb2.BatchItemsResponse]:
    """Runs operations in one transaction, reads first; gives `results`, one for each. Raises FieldInvalid,
    LimitExceeded."""
    request = store_service_pb2.BatchItemsRequest(request_id=request_id or new_request_id(), ops=ops)
    return Call(_BATCH, request, whole)
