"""Containment of JSON values: our function for SQLite decides as PostgreSQL's jsonb does (R20)."""

import json
from typing import Any

import asyncpg
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from tests.support.postgres import Postgres
from threadkeep_chassis.database.json import is_contained

DOCUMENT = {"n": None, "m": {"a": 1, "b": 2}, "l": ["b", "a"], "t": True, "s": "true", "z": 1, "f": 1e22, "e": []}

TABLE: list[tuple[Any, bool]] = [
    ({}, True),
    ({"n": None}, True),
    ({"missing": None}, False),
    ({"m": None}, False),
    ({"m": {"a": 1}}, True),
    ({"m": {"a": 2}}, False),
    ({"m": {}}, True),
    ({"m": []}, False),
    ({"l": ["a"]}, True),
    ({"l": ["a", "a"]}, True),
    ({"l": ["c"]}, False),
    ({"l": "a"}, False),
    ({"l": []}, True),
    ({"e": []}, True),
    ({"e": {}}, False),
    ({"t": True}, True),
    ({"t": "true"}, False),
    ({"t": 1}, False),
    ({"s": True}, False),
    ({"z": True}, False),
    ({"z": 1.0}, True),
    ({"f": 10**22}, True),
]


@pytest.mark.rule("R20")
@pytest.mark.case("B18")
@pytest.mark.parametrize(("part", "expected"), TABLE)
def test_containment_has_one_meaning(part: Any, expected: bool) -> None:
    assert is_contained(part, DOCUMENT) is expected


SCALAR = st.none() | st.booleans() | st.integers(-2, 2) | st.sampled_from(["", "a", "true", 0.5, -0.0])
VALUE = st.recursive(
    SCALAR, lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.sampled_from("ab"), inner, max_size=2)
)
OBJECT = st.dictionaries(st.sampled_from("ab"), VALUE, max_size=2)


@pytest.mark.rule("R20")
@pytest.mark.case("B18")
@settings(max_examples=25, suppress_health_check=[HealthCheck.function_scoped_fixture], deadline=None)
@given(st.lists(st.tuples(OBJECT, OBJECT), min_size=40, max_size=40))
async def test_containment_is_that_of_jsonb(postgres: Postgres, pairs: list[tuple[Any, Any]]) -> None:
    connection = await asyncpg.connect(postgres.url())
    try:
        rows = await connection.fetch(
            "SELECT whole @> part AS found FROM unnest($1::jsonb[], $2::jsonb[]) AS pairs(part, whole)",
            [json.dumps(part) for part, _ in pairs],
            [json.dumps(whole) for _, whole in pairs],
        )
    finally:
        await connection.close()
    assert [row["found"] for row in rows] == [is_contained(part, whole) for part, whole in pairs]
