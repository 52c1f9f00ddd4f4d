"""Messages of the Store to domain values and back, with the checks that the descriptors can't say (R21)."""

from __future__ import annotations

import math
from collections.abc import Sequence
from datetime import datetime, timedelta
from typing import Any

from google.protobuf.timestamp_pb2 import Timestamp

from threadkeep.runtime.v1 import store_pb2
from threadkeep_chassis.errors import FieldInvalid
from threadkeep_chassis.limits import Limits
from threadkeep_runtime.domain.checkpoints import check_key
from threadkeep_runtime.domain.store_items import (
    ItemKey,
    ItemPut,
    Labels,
    NamespaceMatch,
    NamespaceQuery,
    Search,
    StoredItem,
    decode_namespace,
    encode_namespace,
    filter_problem,
    label_problem,
    pack_vectors,
)
from threadkeep_runtime.store.items_search import parse_value

_LONGEST_TTL = timedelta(days=36_500)


def key_of(message: Any, path: str) -> ItemKey:
    """What an item is found by. Raises FieldInvalid."""
    namespace = encode_namespace(_labels(message.namespace, f"{path}.namespace"))
    check_key(namespace=(f"{path}.namespace", namespace), key=(f"{path}.key", message.key))
    return ItemKey(namespace, message.key)


def put_of(put: store_pb2.ItemPut, path: str, limits: Limits) -> ItemPut:
    """An item to store. Raises FieldInvalid, LimitExceeded."""
    at = key_of(put, path)
    limits.check("max_store_value_bytes", len(put.value_json))
    # The field's rule has seen that it is a JSON document.
    if not put.value_json.lstrip().startswith(b"{"):
        raise FieldInvalid(f"{path}.value_json", "must be a JSON object")
    ttl = None
    if put.HasField("ttl"):
        ttl = put.ttl.ToTimedelta()
        if not timedelta() < ttl <= _LONGEST_TTL:
            raise FieldInvalid(f"{path}.ttl", "must be above 0 and at most 100 years")
    if not put.vectors:
        return ItemPut(at, put.value_json, ttl)
    vectors = [_vector(vector, f"{path}.vectors[{index}]") for index, vector in enumerate(put.vectors)]
    if len({len(vector) for vector in vectors}) > 1:
        raise FieldInvalid(f"{path}.vectors", "must have one length")
    return ItemPut(at, put.value_json, ttl, pack_vectors(vectors), len(vectors[0]))


def search_of(search: store_pb2.ItemSearch, scope_key: str, path: str, limits: Limits) -> Search:
    """What to find. Raises FieldInvalid, LimitExceeded."""
    limit = _natural(search.limit, f"{path}.limit") if search.HasField("limit") else None
    offset = _natural(search.offset, f"{path}.offset")
    wanted = None
    if search.HasField("filter_json"):
        wanted = parse_value(search.filter_json)
        problem = filter_problem(wanted)
        if problem:
            raise FieldInvalid(f"{path}.filter_json", problem)
    query = None
    if search.HasField("query"):
        query = _vector(search.query, f"{path}.query")
        if limit is None:
            raise FieldInvalid(f"{path}.limit", "is required with a query")
        limits.check("max_store_ranked_items", offset + limit)
    return Search(
        scope_key=scope_key,
        prefix=_labels(search.namespace_prefix, f"{path}.namespace_prefix"),
        filter=wanted or None,
        limit=limit,
        offset=offset,
        query=query,
        refresh_ttl=search.refresh_ttl,
    )


def namespaces_of(wanted: store_pb2.NamespaceList, scope_key: str, path: str) -> NamespaceQuery:
    """Which namespaces to list. Raises FieldInvalid."""
    if wanted.HasField("max_depth") and wanted.max_depth < 1:
        raise FieldInvalid(f"{path}.max_depth", "must be at least 1")
    matches = []
    for index, match in enumerate(wanted.matches):
        at = f"{path}.matches[{index}]"
        if match.kind not in (store_pb2.NAMESPACE_MATCH_KIND_PREFIX, store_pb2.NAMESPACE_MATCH_KIND_SUFFIX):
            raise FieldInvalid(f"{at}.kind", "must be a known kind")
        matches.append(
            NamespaceMatch(_labels(match.path, f"{at}.path"), match.kind == store_pb2.NAMESPACE_MATCH_KIND_SUFFIX)
        )
    return NamespaceQuery(
        scope_key=scope_key,
        matches=tuple(matches),
        max_depth=wanted.max_depth if wanted.HasField("max_depth") else None,
        limit=_natural(wanted.limit, f"{path}.limit") if wanted.HasField("limit") else None,
        offset=_natural(wanted.offset, f"{path}.offset"),
    )


def item_to_proto(item: StoredItem) -> store_pb2.StoreItem:
    """An item."""
    message = store_pb2.StoreItem(
        namespace=decode_namespace(item.at.namespace),
        key=item.at.key,
        value_json=item.value_json,
        create_time=time_to_proto(item.create_time),
        update_time=time_to_proto(item.update_time),
        score=item.score,
    )
    if item.expire_time is not None:
        message.expire_time.CopyFrom(time_to_proto(item.expire_time))
    return message


def namespace_to_proto(labels: Labels) -> store_pb2.Namespace:
    """A namespace."""
    return store_pb2.Namespace(labels=labels)


def time_to_proto(moment: datetime) -> Timestamp:
    """A moment."""
    message = Timestamp()
    message.FromDatetime(moment)
    return message


def _labels(labels: Sequence[str], path: str) -> Labels:
    for index, label in enumerate(labels):
        problem = label_problem(label)
        if problem:
            raise FieldInvalid(f"{path}[{index}]", problem)
    return tuple(labels)


def _natural(number: int, path: str) -> int:
    if number < 0:
        raise FieldInvalid(path, "must not be negative")
    return number


def _vector(vector: store_pb2.StoreVector, path: str) -> tuple[float, ...]:
    values = tuple(vector.values)
    if not all(map(math.isfinite, values)):
        raise FieldInvalid(f"{path}.values", "must be finite")
    return values
