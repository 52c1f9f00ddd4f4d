"""Canonical JSON and strict parsing, against the vectors that every language shares (X1, X8)."""

import json
from pathlib import Path
from typing import Any

import pytest
import rfc8785
from hypothesis import given
from hypothesis import strategies as st

from threadkeep_chassis.canonical import (
    MAX_DEPTH,
    JsonInvalid,
    canonical_digest,
    canonical_json,
    exact_text,
    parse_json,
)

VECTORS = json.loads((Path(__file__).parents[3] / "clients/vectors/canonical_json.json").read_text())

# What IEEE doubles hold exactly: beyond it RFC 8785 has no integers, and we have our deviation.
SAFE = st.integers(-(2**53) + 1, 2**53 - 1)
TEXT = st.text(st.characters(exclude_categories=["Cs"]))


def values(integers: st.SearchStrategy[int]) -> st.SearchStrategy[Any]:
    leaves = st.none() | st.booleans() | integers | st.floats(allow_nan=False, allow_infinity=False) | TEXT
    return st.recursive(leaves, lambda inner: st.lists(inner) | st.dictionaries(TEXT, inner), max_leaves=20)


@pytest.mark.rule("X1", "X8")
@pytest.mark.parametrize("vector", VECTORS["valid"], ids=lambda vector: vector["name"])
def test_the_canonical_form_is_that_of_the_shared_vectors(vector: dict[str, str]) -> None:
    value = parse_json(vector["json"].encode())
    assert canonical_json(value).decode() == vector["canonical"]
    assert canonical_digest(value) == vector["sha256"]


@pytest.mark.rule("X8")
@pytest.mark.parametrize("vector", VECTORS["invalid"], ids=lambda vector: vector["name"])
def test_what_two_readers_could_read_differently_is_refused(vector: dict[str, str]) -> None:
    with pytest.raises(JsonInvalid):
        parse_json(vector["json"].encode())


@pytest.mark.rule("X8")
@given(values(SAFE))
def test_the_canonical_form_is_rfc_8785(value: Any) -> None:
    assert canonical_json(value) == rfc8785.dumps(value)


@pytest.mark.rule("X8")
@given(values(st.integers()))
def test_parsing_what_was_written_gives_the_value_again(value: Any) -> None:
    assert canonical_json(parse_json(canonical_json(value))) == canonical_json(value)
    read = parse_json(exact_text(value))
    assert repr(read) == repr(value)


@pytest.mark.rule("X8")
@given(st.dictionaries(TEXT, st.integers()))
def test_key_order_is_irrelevant_to_the_digest(value: dict[str, int]) -> None:
    assert canonical_digest(dict(reversed(value.items()))) == canonical_digest(value)


@pytest.mark.rule("X8")
@pytest.mark.parametrize("value", [float("nan"), float("inf"), [float("-inf")], "\ud800", {"\udc00": 1}, {1: 2}, b"x"])
def test_values_without_a_json_form_are_refused(value: Any) -> None:
    with pytest.raises(JsonInvalid):
        canonical_json(value)


@pytest.mark.rule("X8")
@pytest.mark.parametrize("value", [float("nan"), float("inf"), "\ud800", b"x"])
def test_the_exact_form_refuses_the_same_values(value: Any) -> None:
    with pytest.raises(JsonInvalid):
        exact_text(value)


@pytest.mark.rule("X9")
def test_depth_is_bounded_so_that_no_document_exhausts_a_stack() -> None:
    deepest = "[" * MAX_DEPTH + "]" * MAX_DEPTH
    assert canonical_json(parse_json(deepest)).decode() == deepest
    for document in ("[" * (MAX_DEPTH + 1) + "]" * (MAX_DEPTH + 1), '{"a":' * 100_000 + "1" + "}" * 100_000):
        with pytest.raises(JsonInvalid):
            parse_json(document)
    # Many brackets side by side are not depth, nor are those inside of text.
    assert parse_json("[" + ",".join(["[]"] * 300) + "]") == [[]] * 300
    assert parse_json(json.dumps("[" * 1000)) == "[" * 1000


@pytest.mark.rule("X8")
def test_bytes_that_are_not_utf8_are_refused() -> None:
    with pytest.raises(JsonInvalid):
        parse_json(b'"\xff"')


@pytest.mark.rule("X11")
def test_a_refusal_never_quotes_the_document() -> None:
    for document in ('{"secret-text" 1}', '{"secret-text":1,"secret-text":2}', '["secret-text",NaN]', "secret-text"):
        with pytest.raises(JsonInvalid) as caught:
            parse_json(document)
        assert "secret" not in str(caught.value)
