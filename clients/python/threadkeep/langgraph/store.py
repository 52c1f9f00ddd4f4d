"""LangGraph's long-term memory over threadkeep: a BaseStore whose namespaces lie inside the client's scope.

Embeddings are made here, with what the user configured; the server keeps vectors and ranks. Where LangGraph's own
stores differ, the answers are those of the contract (ItemSearch), the same on every backend.
"""

from __future__ import annotations

import datetime
import json
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from google.protobuf import timestamp_pb2
from langchain_core.embeddings import Embeddings
from langgraph.store.base import (
    BaseStore,
    GetOp,
    IndexConfig,
    Item,
    ListNamespacesOp,
    Op,
    PutOp,
    Result,
    SearchItem,
    SearchOp,
    TTLConfig,
    ensure_embeddings,
    get_text_at_path,
    tokenize_path,
)

from threadkeep._api import store as api
from threadkeep.client import AsyncClient, Client
from threadkeep.langgraph.serde import EncodingRefused
from threadkeep.runtime.v1 import store_pb2

Vectors = Mapping[str, Sequence[float]]
"""The embedding of each text."""


class ThreadkeepStore(BaseStore):
    """A LangGraph store over threadkeep, for synchronous and asyncio graphs alike.

    `client` names the scope that the items live in; either kind of client serves both kinds of calls. `index` says how
    texts are embedded for similarity searches, as with LangGraph's own stores; without it a query is ignored. `ttl`
    gives defaults in minutes; expired items are gone at once (`omit_expired` is always true), and the server sweeps.
    """

    supports_ttl = True

    def __init__(
        self, client: Client | AsyncClient, *, index: IndexConfig | None = None, ttl: TTLConfig | None = None
    ) -> None:
        self._sync = client if isinstance(client, Client) else client.to_sync()
        self._async = client if isinstance(client, AsyncClient) else client.to_async()
        self.ttl_config = ttl
        self.index_config = index
        self._embeddings: Embeddings | None = ensure_embeddings(index.get("embed")) if index else None

    def batch(self, ops: Iterable[Op]) -> list[Result]:
        """Runs operations in one call and one transaction. Reads see what was there before the batch; of several puts
        of one item the last counts. Raises EncodingRefused, FieldInvalid, LimitExceeded."""
        asked = _Asked(ops, self.index_config, self._embeddings)
        documents: Vectors = {}
        queries: Vectors = {}
        if self._embeddings is not None:
            if asked.documents:
                documents = dict(zip(asked.documents, self._embeddings.embed_documents(asked.documents), strict=True))
            queries = {text: self._embeddings.embed_query(text) for text in asked.queries}
        message = asked.messages(documents, queries)
        store = self._sync.store
        single = next(iter(message.values())) if len(message) == 1 else None
        which = None if single is None else single.WhichOneof("op")
        if single is None:
            results = list(store._run(api.batch(message.values())).results) if message else []
        elif which == "get":
            found = store._run(api.get(single.get.namespace, single.get.key, refresh_ttl=single.get.refresh_ttl))
            results = [store_pb2.StoreOpResult(items=[found] if found is not None else [])]
        elif which == "search":
            results = [store_pb2.StoreOpResult(items=store._search(single.search))]
        elif which == "list_namespaces":
            names = store._list_namespaces(single.list_namespaces)
            results = [_named(names)]
        elif which == "put":
            store._run(api.put_item(single.put))
            results = [store_pb2.StoreOpResult()]
        else:
            store._run(api.delete(single.delete.namespace, single.delete.key))
            results = [store_pb2.StoreOpResult()]
        return asked.results(dict(zip(message, results, strict=True)))

    async def abatch(self, ops: Iterable[Op]) -> list[Result]:
        """Runs operations in one call and one transaction. Reads see what was there before the batch; of several puts
        of one item the last counts. Raises EncodingRefused, FieldInvalid, LimitExceeded."""
        asked = _Asked(ops, self.index_config, self._embeddings)
        documents: Vectors = {}
        queries: dict[str, Sequence[float]] = {}
        if self._embeddings is not None:
            if asked.documents:
                embedded = await self._embeddings.aembed_documents(asked.documents)
                documents = dict(zip(asked.documents, embedded, strict=True))
            for text in asked.queries:
                queries[text] = await self._embeddings.aembed_query(text)
        message = asked.messages(documents, queries)
        store = self._async.store
        single = next(iter(message.values())) if len(message) == 1 else None
        which = None if single is None else single.WhichOneof("op")
        if single is None:
            results = list((await store._run(api.batch(message.values()))).results) if message else []
        elif which == "get":
            found = await store._run(api.get(single.get.namespace, single.get.key, refresh_ttl=single.get.refresh_ttl))
            results = [store_pb2.StoreOpResult(items=[found] if found is not None else [])]
        elif which == "search":
            results = [store_pb2.StoreOpResult(items=[item async for item in store._search(single.search)])]
        elif which == "list_namespaces":
            results = [_named([name async for name in store._list_namespaces(single.list_namespaces)])]
        elif which == "put":
            await store._run(api.put_item(single.put))
            results = [store_pb2.StoreOpResult()]
        else:
            await store._run(api.delete(single.delete.namespace, single.delete.key))
            results = [store_pb2.StoreOpResult()]
        return asked.results(dict(zip(message, results, strict=True)))


class _Asked:
    """The operations of a batch: what of them must be embedded, their messages, and their results."""

    def __init__(self, ops: Iterable[Op], index: IndexConfig | None, embeddings: Embeddings | None) -> None:
        self._ops = list(ops)
        self._dims = index.get("dims") if index else None
        self._texts: dict[int, list[str]] = {}
        self.queries: list[str] = []
        if embeddings is not None and index is not None:
            default = index.get("fields") or ["$"]
            for number, op in enumerate(self._ops):
                if isinstance(op, PutOp) and op.value is not None and op.index is not False:
                    paths = default if op.index is None else op.index
                    self._texts[number] = [text for path in paths for text in _texts_at(op.value, path)]
                elif isinstance(op, SearchOp) and op.query and op.query not in self.queries:
                    self.queries.append(op.query)
        self.documents = list(dict.fromkeys(text for texts in self._texts.values() for text in texts))
        """Texts to embed, each once."""

    def messages(self, documents: Vectors, queries: Vectors) -> dict[int, store_pb2.StoreOp]:
        """The operations to send, by their number. One that can find nothing is not sent."""
        sent = {}
        for number, op in enumerate(self._ops):
            vectors = [self._checked(documents[text]) for text in self._texts.get(number, ())]
            message = _message(op, vectors, queries, self._checked)
            if message is not None:
                sent[number] = message
        return sent

    def _checked(self, vector: Sequence[float]) -> Sequence[float]:
        if self._dims and len(vector) != self._dims:
            raise ValueError(f"the embedding has {len(vector)} dimensions, and the store's index {self._dims}")
        return vector

    def results(self, answers: Mapping[int, store_pb2.StoreOpResult]) -> list[Result]:
        """LangGraph's results, one for each operation."""
        return [_result(op, answers.get(number, store_pb2.StoreOpResult())) for number, op in enumerate(self._ops)]


def _texts_at(value: Mapping[str, Any], path: str) -> list[str]:
    return get_text_at_path(dict(value), path if path == "$" else tokenize_path(path))


def _message(op: Op, vectors: Sequence[Sequence[float]], queries: Vectors, checked: Any) -> store_pb2.StoreOp | None:
    if isinstance(op, GetOp):
        get = store_pb2.ItemGet(namespace=op.namespace, key=str(op.key), refresh_ttl=op.refresh_ttl)
        return store_pb2.StoreOp(get=get)
    if isinstance(op, SearchOp):
        query = queries.get(op.query) if op.query else None
        try:
            search = api.to_search(
                op.namespace_prefix,
                filter=op.filter,
                limit=op.limit,
                offset=op.offset,
                query=None if query is None else checked(query),
                refresh_ttl=op.refresh_ttl,
            )
        except ValueError:
            # NaN, Infinity and lone surrogates are never stored, so that no item can match.
            return None
        return store_pb2.StoreOp(search=search)
    if isinstance(op, ListNamespacesOp):
        return store_pb2.StoreOp(list_namespaces=_namespace_list(op))
    if isinstance(op, PutOp):
        if op.value is None:
            return store_pb2.StoreOp(delete=store_pb2.ItemDelete(namespace=op.namespace, key=str(op.key)))
        ttl = None if op.ttl is None else datetime.timedelta(minutes=op.ttl)
        try:
            return store_pb2.StoreOp(put=api.to_put(op.namespace, str(op.key), op.value, ttl=ttl, vectors=vectors))
        except (ValueError, TypeError, RecursionError) as error:
            raise EncodingRefused(f"the value of item {op.key!r} has no JSON form: {error}") from error
    raise ValueError(f"unknown operation {type(op).__name__}")


def _namespace_list(op: ListNamespacesOp) -> store_pb2.NamespaceList:
    wanted = store_pb2.NamespaceList(offset=op.offset)
    for match in op.match_conditions or ():
        if match.match_type not in ("prefix", "suffix"):
            raise ValueError(f"unknown match type {match.match_type!r}")
        suffix = match.match_type == "suffix"
        wanted.matches.add(
            kind=store_pb2.NAMESPACE_MATCH_KIND_SUFFIX if suffix else store_pb2.NAMESPACE_MATCH_KIND_PREFIX,
            path=match.path,
        )
    if op.max_depth is not None:
        wanted.max_depth = op.max_depth
    if op.limit is not None:
        wanted.limit = op.limit
    return wanted


def _named(names: Iterable[tuple[str, ...]]) -> store_pb2.StoreOpResult:
    return store_pb2.StoreOpResult(namespaces=[store_pb2.Namespace(labels=labels) for labels in names])


def _result(op: Op, answer: store_pb2.StoreOpResult) -> Result:
    if isinstance(op, GetOp):
        return Item(**_fields(answer.items[0])) if answer.items else None
    if isinstance(op, SearchOp):
        return [
            SearchItem(**_fields(item), score=item.score if item.HasField("score") else None) for item in answer.items
        ]
    if isinstance(op, ListNamespacesOp):
        return [tuple(namespace.labels) for namespace in answer.namespaces]
    return None


def _fields(item: store_pb2.StoreItem) -> dict[str, Any]:
    return {
        "value": json.loads(item.value_json),
        "key": item.key,
        "namespace": tuple(item.namespace),
        "created_at": _time(item.create_time),
        "updated_at": _time(item.update_time),
    }


def _time(moment: timestamp_pb2.Timestamp) -> datetime.datetime:
    return moment.ToDatetime(tzinfo=datetime.UTC)
