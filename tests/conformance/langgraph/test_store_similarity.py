"""Similarity searches of the store over gRPC, against LangGraph's own memory store."""

import random
from collections.abc import Iterable
from typing import Any

import pytest
from langgraph.store.memory import InMemoryStore

from threadkeep import AsyncClient
from threadkeep.langgraph import ThreadkeepStore


def _keys(items: Any) -> list[str]:
    return [item.key for item in items]


def _embed(texts: Iterable[str]) -> list[list[float]]:
    return [[text.count("a") + 0.5, text.count("b") * 1.0, len(text) / 7] for text in texts]


INDEX: Any = {"dims": 3, "embed": _embed, "fields": ["text", "more[*]"]}


@pytest.mark.rule("R21", "R22")
async def test_similar_items_are_ranked_as_the_memory_store_ranks_them(client: AsyncClient) -> None:
    ours, theirs = ThreadkeepStore(client, index=INDEX), InMemoryStore(index=INDEX)
    chance = random.Random(5)
    for number in range(40):
        text = "".join(chance.choices("abc", k=chance.randrange(1, 12)))
        value = {"text": text, "n": number % 3, "more": ["ab" * (number % 4)] if number % 5 == 0 else []}
        index: Any = False if number % 10 == 9 else None
        for one in (ours, theirs):
            await one.aput(("d", str(number % 2)), str(number), value, index=index)
    for query, wanted in (("aab", None), ("bb", {"n": 1}), ("c", {"n": {"$ne": 1}})):
        expected = await theirs.asearch(("d",), query=query, filter=wanted, limit=100)
        found = await ours.asearch(("d",), query=query, filter=wanted, limit=100)
        scores = {item.key: item.score for item in expected}
        ranked = [item.score for item in found if item.score is not None]
        assert ranked == sorted(ranked, reverse=True)
        assert len(found) == len(scores)
        for item in found:
            expected_score = scores[item.key]
            assert item.score == (None if expected_score is None else pytest.approx(expected_score, abs=1e-6))
        assert _keys(await ours.asearch(("d",), query=query, filter=wanted, limit=5, offset=3)) == _keys(found)[3:8]
