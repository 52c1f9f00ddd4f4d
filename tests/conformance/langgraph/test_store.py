"""The store over gRPC: what LangGraph's own stores do, one answer where they differ, the same on every backend."""

import asyncio
import math
import random
import uuid
from datetime import timedelta
from typing import Any, TypedDict

import pytest
from langgraph.graph import START, StateGraph
from langgraph.store.base import (
    BaseStore,
    GetOp,
    InvalidNamespaceError,
    ListNamespacesOp,
    MatchCondition,
    PutOp,
    SearchOp,
)
from langgraph.store.memory import InMemoryStore

from tests.support.suite import Suite
from tests.support.waiting import eventually
from threadkeep import AsyncClient, Client, errors
from threadkeep.langgraph import EncodingRefused, ThreadkeepStore
from threadkeep.runtime.v1 import store_pb2


@pytest.fixture
def store(client: AsyncClient) -> ThreadkeepStore:
    """A store in a scope that nobody else uses."""
    return ThreadkeepStore(client)


def _keys(items: Any) -> list[str]:
    return [item.key for item in items]


def _plain(result: Any) -> Any:
    """A result without times, and found items in an order of their own."""
    if isinstance(result, list):
        return sorted((_plain(one) for one in result), key=repr)
    if result is None or isinstance(result, tuple):
        return result
    return (result.namespace, result.key, result.value)


NAMESPACES = [("a",), ("a", "b"), ("a", "b", "c"), ("ab",), ("a", "*"), ("_", "%"), ("a", "ünï"), ("b", "a")]
FILTERS: list[Any] = [
    None, {}, {"n": 1}, {"n": {"$gt": 1}}, {"n": {"$lte": 2, "$ne": 1}}, {"tag": "x"}, {"tag": {"$eq": "y"}},
    {"deep": {"n": 2}}, {"list": [1, 2]}, {"nothing": 1}, {"tag": {"$ne": "x"}},
]  # fmt: skip


def _random_op(chance: random.Random) -> Any:
    namespace, key = chance.choice(NAMESPACES), chance.choice("klm")
    which = chance.randrange(6)
    if which < 2:
        value = {"n": chance.randrange(4), "tag": chance.choice("xy"), "deep": {"n": chance.randrange(3), "m": 1}}
        return PutOp(namespace, key, {**value, "list": [1, chance.randrange(3)]})
    if which == 2:
        return PutOp(namespace, key, None)
    if which == 3:
        return GetOp(namespace, key)
    if which == 4:
        return SearchOp(namespace[: chance.randrange(3)], chance.choice(FILTERS), limit=100)
    kind: Any = chance.choice(["prefix", "suffix"])
    return ListNamespacesOp(
        (MatchCondition(kind, namespace[: chance.randrange(1, 3)]),),
        max_depth=chance.choice([None, 1, 2]),
        limit=chance.randrange(1, 9),
        offset=chance.randrange(2),
    )


@pytest.mark.rule("R21", "R22")
async def test_it_does_step_by_step_what_the_memory_store_does(store: ThreadkeepStore) -> None:
    chance, theirs = random.Random(21), InMemoryStore()
    for _ in range(60):
        ops = [_random_op(chance) for _ in range(chance.randrange(1, 6))]
        # Their store lists namespaces that hold nothing: after a get, and when all was deleted.
        ops.sort(key=lambda op: not isinstance(op, ListNamespacesOp))
        expected = [_plain(one) for one in theirs.batch(ops)]
        for emptied in [namespace for namespace, items in theirs._data.items() if not items]:
            del theirs._data[emptied]
        assert [_plain(one) for one in await store.abatch(ops)] == expected, ops


@pytest.mark.rule("R21")
async def test_the_synchronous_half_does_the_same(store: ThreadkeepStore) -> None:
    def work() -> None:
        store.put(("u", "1"), "k", {"a": 1})
        assert store.get(("u", "1"), "k").value == {"a": 1}  # type: ignore[union-attr]
        assert _keys(store.search(("u",))) == ["k"]
        assert store.list_namespaces() == [("u", "1")]
        results = store.batch([GetOp(("u", "1"), "k"), PutOp(("u", "1"), "k", {"a": 2}), SearchOp(("u",))])
        assert [results[0].value, results[1], results[2][0].value] == [{"a": 1}, None, {"a": 1}]  # type: ignore
        store.delete(("u", "1"), "k")
        assert store.get(("u", "1"), "k") is None

    await asyncio.to_thread(work)


@pytest.mark.rule("R21")
@pytest.mark.case("B07", "B18")
@pytest.mark.parametrize(
    ("wanted", "found"),
    [
        ({"score": {"$gte": 10}}, "c d e big exact"),
        ({"score": {"$gt": 2**53}}, "big exact"),
        ({"score": {"$gte": 2**53 + 1, "$lt": 2**70}}, "big"),
        ({"score": 2**70}, "exact"),
        ({"score": {"$lt": 2.5}}, "a half"),
        ({"score": 0.1}, "half"),
        ({"score": {"$gt": "8"}}, "text"),
        ({"score": None}, "null"),
        ({"score": {"$ne": None}}, "a b c d e text big exact half true absent"),
        ({"score": True}, "true"),
        ({"score": 1}, ""),
        ({"score": "true"}, ""),
        ({"score": {"$gte": None}}, ""),
    ],
    ids=repr,
)
async def test_numbers_compare_exactly_and_with_numbers_only(
    store: ThreadkeepStore, wanted: dict[str, Any], found: str
) -> None:
    scores = {
        "a": 2, "b": 9, "c": 10, "d": 11, "e": 100, "text": "9", "null": None, "big": 2**53 + 1, "exact": 2**70,
        "half": 0.1, "true": True,
    }  # fmt: skip
    await store.abatch([PutOp(("s",), key, {"score": score}) for key, score in scores.items()])
    await store.aput(("s",), "absent", {})
    assert sorted(_keys(await store.asearch(("s",), filter=wanted, limit=100))) == sorted(found.split())


@pytest.mark.rule("R21")
async def test_an_unknown_operator_is_refused(store: ThreadkeepStore) -> None:
    with pytest.raises(errors.FieldInvalid, match="filter_json"):
        await store.asearch(("s",), filter={"a": {"$regex": ".*"}})


@pytest.mark.rule("R21")
@pytest.mark.case("B12")
async def test_no_character_of_a_label_has_power(store: ThreadkeepStore) -> None:
    labels = [
        "john-doe",
        "john_doe",
        "johnXdoe",
        "%",
        "*",
        "\\",
        "a\\",
        "'",
        '"',
        "\U0010ffff\U0010ffffz",
        "foo",
        "foobar",
    ]
    await store.abatch([PutOp(("u", label), "k", {"of": label}) for label in labels])
    for label in labels:
        assert [item.value for item in await store.asearch(("u", label))] == [{"of": label}], label
        if label != "*":
            assert await store.alist_namespaces(prefix=("u", label)) == [("u", label)]
    assert await store.asearch(("%",)) == []
    assert len(await store.asearch(("u",), limit=100)) == len(labels)
    assert await store.alist_namespaces() == sorted(("u", label) for label in labels)


@pytest.mark.rule("R21", "X8")
@pytest.mark.case("B14", "B01")
@pytest.mark.parametrize("label", ["", "a.b", "a\x00b", "a\nb", "\x01"], ids=repr)
async def test_a_label_that_is_none_is_refused_on_every_path(store: ThreadkeepStore, label: str) -> None:
    bad = ("a", label)
    ops: list[Any] = [
        PutOp(bad, "k", {}), PutOp(bad, "k", None), GetOp(bad, "k"), SearchOp(bad),
        ListNamespacesOp((MatchCondition("suffix", bad),)),
    ]  # fmt: skip
    for op in ops:
        for batch in ([op], [op, GetOp(("a",), "k")]):
            with pytest.raises(errors.FieldInvalid) as caught:
                await store.abatch(batch)
            assert next(violation.field for violation in caught.value.violations).endswith("[1]")
    if label in ("", "a.b"):
        with pytest.raises(InvalidNamespaceError):
            await store.aput(bad, "k", {})
    assert await store.asearch(()) == []


@pytest.mark.rule("R21", "X8")
@pytest.mark.case("B01")
async def test_a_key_with_a_control_character_and_an_empty_namespace_are_refused(store: ThreadkeepStore) -> None:
    for op in (PutOp(("a",), "k\x00", {}), GetOp(("a",), ""), PutOp((), "k", {}), GetOp((), "k")):
        with pytest.raises(errors.FieldInvalid):
            await store.abatch([op])


@pytest.mark.rule("R21", "R22", "X9")
async def test_names_are_as_long_as_every_backends_index_takes(store: ThreadkeepStore) -> None:
    # Random, since PostgreSQL compresses what repeats before it measures.
    chance = random.Random(9)

    def text(length: int) -> str:
        return "".join(chr(chance.randrange(0x4E00, 0x9FFF)) for _ in range(length))

    # 3 bytes for each character, and one for each label.
    names, key = (text(256), text(256), text(65), text(170)), text(83)
    await store.aput(names, key, {"n": 1})
    found = await store.aget(names, key)
    assert found is not None
    with pytest.raises(errors.FieldInvalid, match="2500 bytes"):
        await store.aput(names, key + "x" * 7, {"n": 1})


@pytest.mark.rule("R21")
@pytest.mark.case("B15")
async def test_a_wildcard_is_one_label_in_lists_of_namespaces(store: ThreadkeepStore) -> None:
    names = [("users", "alice"), ("users", "malice"), ("users", "x", "alice"), ("users",)]
    await store.abatch([PutOp(name, "k", {}) for name in names])
    assert await store.alist_namespaces(prefix=("users", "*"), suffix=("alice",), max_depth=2) == [
        ("users", "alice"),
        ("users", "x"),
    ]
    assert await store.alist_namespaces(suffix=("*", "alice")) == [("users", "alice"), ("users", "x", "alice")]
    assert await store.asearch(("users", "*")) == []


@pytest.mark.rule("R21")
@pytest.mark.case("B16")
async def test_limits_count_and_a_negative_one_is_refused(store: ThreadkeepStore) -> None:
    await store.abatch([PutOp(("a", str(n)), str(n), {"n": n}) for n in range(12)])
    assert await store.asearch(("a",), limit=0) == []
    assert _keys(await store.asearch(("a",), limit=3, offset=2)) == ["9", "8", "7"]
    assert _keys(await store.asearch(("a",), filter={"n": {"$lt": 8}}, limit=3, offset=2)) == ["5", "4", "3"]
    (everything,) = await store.abatch([SearchOp(("a",), limit=None)])  # type: ignore[arg-type]
    assert _keys(everything) == [str(n) for n in reversed(range(12))], "the last put first"
    for bad in (SearchOp(("a",), limit=-1), SearchOp(("a",), offset=-1), ListNamespacesOp(limit=-1)):
        with pytest.raises(errors.FieldInvalid):
            await store.abatch([bad])


@pytest.mark.rule("R21", "X8")
@pytest.mark.case("B01", "B02", "B04")
async def test_values_come_back_exactly_or_are_refused_before_anything_is_sent(store: ThreadkeepStore) -> None:
    value = {"nul": "a\x00b", "big": 2**70, "zero": -0.0, "e": 1e22, "ünï": "\U0001f600", "list": [None, True, 0.1]}
    await store.aput(("v",), "k", value)
    item = await store.aget(("v",), "k")
    assert item is not None
    assert item.value == value
    assert list(item.value) == list(value)
    assert math.copysign(1, item.value["zero"]) == -1
    for bad in ({"x": math.nan}, {"x": -math.inf}, {"x": "\ud83d"}, {"x": object()}):
        with pytest.raises(EncodingRefused):
            await store.aput(("v",), "bad", bad)
    assert await store.aget(("v",), "bad") is None
    assert await store.asearch(("v",), filter={"nul": "\ud83d"}) == []
    assert _keys(await store.asearch(("v",), filter={"nul": "a\x00b"})) == ["k"]


@pytest.mark.rule("R21")
@pytest.mark.case("B37")
async def test_a_filters_key_is_never_more_than_a_key(store: ThreadkeepStore) -> None:
    await store.aput(("f",), "k", {"a": 1})
    chance = random.Random(37)
    parts = ["a", "'", '"', ")", "(", " OR 1=1", " --", ";", "$.", "->>", "%", "\\", "{", "}", "\x00", "::", ","]
    keys = ["a') OR 1=1 --", *("".join(chance.choices(parts, k=5)) for _ in range(30))]
    for key in keys:
        assert await store.asearch(("f",), filter={key: 1}) == [], key


@pytest.mark.rule("R21", "X2")
async def test_another_scope_has_a_store_of_its_own(store: ThreadkeepStore, shared_suite: Suite) -> None:
    async with AsyncClient(shared_suite.addresses, scope={"test": uuid.uuid4().hex}) as other:
        theirs = ThreadkeepStore(other)
        await theirs.aput(("a",), "k", {"whose": "theirs"})
        assert await store.aget(("a",), "k") is None
        assert await store.asearch(()) == []
        assert await store.alist_namespaces() == []
        await store.aput(("a",), "k", {"whose": "ours"})
        await store.adelete(("a",), "other")
        found = await theirs.aget(("a",), "k")
        assert found is not None
        assert found.value == {"whose": "theirs"}


@pytest.mark.rule("R21")
@pytest.mark.case("B29", "B30")
async def test_what_has_expired_is_gone_before_it_is_swept(store: ThreadkeepStore) -> None:
    await store.aput(("t",), "long", {}, ttl=60)
    await store.aput(("t", "sub"), "shorter", {}, ttl=0.02)
    await store.aput(("t",), "short", {}, ttl=0.03)
    first = await store.aget(("t",), "short", refresh_ttl=False)
    assert first is not None

    async def gone() -> bool:
        return await store.aget(("t",), "short", refresh_ttl=False) is None

    await eventually(gone)
    assert _keys(await store.asearch(("t",))) == ["long"]
    assert await store.alist_namespaces() == [("t",)]
    await store.aput(("t",), "short", {})
    again = await store.aget(("t",), "short")
    assert again is not None
    assert again.created_at > first.created_at, "it is another item"


@pytest.mark.rule("R21")
async def test_reads_start_the_time_to_live_anew_unless_told_otherwise(client: AsyncClient) -> None:
    store = ThreadkeepStore(client, ttl={"default_ttl": 10.0, "refresh_on_read": True})
    await store.aput(("t",), "k", {})

    async def expire_time(refresh: bool = False) -> Any:
        item = await client.store.get(("t",), "k", refresh_ttl=refresh)
        assert item is not None
        return item.expire_time.ToDatetime()

    put = await expire_time()
    assert await expire_time() == put
    await store.aget(("t",), "k", refresh_ttl=False)
    assert await expire_time() == put
    read = []
    for op in (GetOp(("t",), "k"), SearchOp(("t",)), SearchOp(("t",), filter={})):
        await store.abatch([op])
        read.append(await expire_time())
    await store.abatch([GetOp(("t",), "k"), GetOp(("t",), "other")])
    read.append(await expire_time())
    assert put < read[0] < read[1] < read[2] < read[3] < put + timedelta(minutes=5)


@pytest.mark.rule("R21", "X9")
async def test_an_answer_of_any_size_is_streamed_and_a_batch_names_its_limit(client: AsyncClient) -> None:
    store = ThreadkeepStore(client)
    text = "x" * 1_000_000
    for number in range(12):
        await store.aput(("big",), str(number), {"text": text, "n": number})
    found = await store.asearch(("big",), filter={"text": text}, limit=100)
    assert _keys(found) == [str(n) for n in reversed(range(12))]
    with pytest.raises(errors.LimitExceeded, match="max_store_batch_bytes"):
        await store.abatch([SearchOp(("big",), limit=100), GetOp(("big",), "1")])
    with pytest.raises(errors.LimitExceeded, match="max_store_value_bytes"):
        await store.aput(("big",), "larger", {"text": "x" * 5_000_000})


@pytest.mark.rule("R21", "X5")
async def test_many_namespaces_are_listed_in_order(client: AsyncClient) -> None:
    store = ThreadkeepStore(client)
    names = [(f"n{number % 7}", f"m{number:05}") for number in range(1500)]
    for start in range(0, len(names), 500):
        await store.abatch([PutOp(name, "k", {}) for name in names[start : start + 500]])
    assert await store.alist_namespaces(limit=5000) == sorted(names)
    assert await store.alist_namespaces(limit=5000, max_depth=1) == [(f"n{number}",) for number in range(7)]
    assert await store.alist_namespaces(limit=700, offset=600) == sorted(names)[600:1300]


class Count(TypedDict):
    n: int


@pytest.mark.rule("R21")
async def test_a_graph_remembers_across_threads(store: ThreadkeepStore) -> None:
    async def remember(state: Count, *, store: BaseStore) -> Count:
        found = await store.aget(("memories",), "count")
        count = (found.value["n"] if found else 0) + 1
        await store.aput(("memories",), "count", {"n": count})
        return {"n": count}

    builder = StateGraph(Count)
    builder.add_node("remember", remember)
    builder.add_edge(START, "remember")
    graph = builder.compile(store=store)
    assert [(await graph.ainvoke({"n": 0}))["n"] for _ in range(3)] == [1, 2, 3]


@pytest.mark.rule("R21", "X3")
async def test_concurrent_puts_are_all_kept(client: AsyncClient) -> None:
    store = ThreadkeepStore(client)
    batches = [[PutOp(("c",), str(chance), {"by": n}) for chance in range(20)] for n in range(8)]
    await asyncio.gather(*(store.abatch(batch) for batch in batches))
    found = await store.asearch(("c",), limit=100)
    assert len(found) == 20
    assert len({item.value["by"] for item in found}) == 1, "a batch is one transaction"


@pytest.mark.rule("R21")
async def test_the_clients_of_both_kinds_have_the_store(client: AsyncClient) -> None:
    def work(sync: Client) -> None:
        sync.store.put(["a"], "k", {"n": 1}, vectors=[[1.0, 0.0]])
        assert [item.key for item in sync.store.search(["a"], query=[1.0, 0.0], limit=1)] == ["k"]
        assert [*sync.store.list_namespaces(prefix=["*"])] == [("a",)]
        results = sync.store.batch([store_pb2.StoreOp(get=store_pb2.ItemGet(namespace=["a"], key="k"))]).results
        assert results[0].items[0].value_json == b'{"n":1}'
        sync.store.delete(["a"], "k")

    with client.to_sync() as sync:
        await asyncio.to_thread(work, sync)
    assert await client.store.get(["a"], "k") is None
