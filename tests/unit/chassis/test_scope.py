"""Scopes, grants and the call's context (X1, X11, X13)."""

import json
from pathlib import Path
from typing import Any

import pytest

from threadkeep_chassis.canonical import canonical_json
from threadkeep_chassis.errors import FieldInvalid, ScopeForbidden, ScopeRequired
from threadkeep_chassis.scope import (
    ALL_SCOPES,
    EMPTY_SCOPE,
    Call,
    Grant,
    Scope,
    parse_grant,
    parse_scope,
)

VECTORS = json.loads((Path(__file__).parents[3] / "clients/vectors/scope_keys.json").read_text())

ACME = Scope({"tenant": "acme"})
ANN = Scope({"tenant": "acme", "user": "ann"})
OTHER = Scope({"tenant": "other"})


@pytest.mark.rule("X1")
@pytest.mark.parametrize("vector", VECTORS["valid"], ids=lambda vector: vector["name"])
def test_the_scope_key_is_that_of_the_shared_vectors(vector: dict[str, Any]) -> None:
    scope = parse_scope(json.dumps(vector["scope"]).encode())
    assert scope.canonical.decode() == vector["canonical"]
    assert scope.key == vector["scope_key"]


@pytest.mark.rule("X1")
@pytest.mark.parametrize("vector", VECTORS["invalid"], ids=lambda vector: vector["name"])
def test_what_is_no_scope_is_refused(vector: dict[str, Any]) -> None:
    with pytest.raises(FieldInvalid):
        parse_scope(json.dumps(vector["scope"]).encode())


@pytest.mark.rule("X1")
@pytest.mark.parametrize("header", [b"", b"{", b"\xff", b'{"tenant":"a","tenant":"b"}', b'{"tenant":"\\ud800"}'])
def test_a_header_that_is_no_json_object_is_refused(header: bytes) -> None:
    with pytest.raises(FieldInvalid) as caught:
        parse_scope(header)
    assert caught.value.field == "threadkeep-scope-bin"


def test_a_scope_contains_itself_and_narrower_ones() -> None:
    assert ACME.contains(ACME)
    assert ACME.contains(ANN)
    assert EMPTY_SCOPE.contains(ANN)
    assert not ANN.contains(ACME)
    assert not ACME.contains(OTHER)


def test_equal_scopes_are_equal_whatever_the_order_of_their_keys() -> None:
    again = Scope({"user": "ann", "tenant": "acme"})
    assert again == ANN
    assert len({again, ANN}) == 1
    assert again != ACME


@pytest.mark.rule("X11")
def test_a_scope_never_shows_its_values() -> None:
    assert "acme" not in repr(ACME)
    assert "acme" not in str(Call("m", named_scope=ACME).named_scope)


@pytest.mark.rule("X13")
def test_a_grant_covers_exactly_what_it_lists() -> None:
    grant = Grant.of([ACME])
    assert grant.covers(ACME)
    assert not grant.covers(ANN)
    assert not grant.covers(OTHER)
    assert ALL_SCOPES.covers(EMPTY_SCOPE)
    assert not Grant.of([EMPTY_SCOPE]).covers(EMPTY_SCOPE)


@pytest.mark.rule("X13")
def test_a_grant_survives_its_encoding() -> None:
    for grant in (ALL_SCOPES, Grant.of([ACME, ANN])):
        assert parse_grant(grant.encode()) == grant


@pytest.mark.rule("X13")
@pytest.mark.parametrize(
    "value",
    [{}, {"all": False}, {"all": 1}, {"scopes": []}, {"scopes": {}}, {"scopes": ["x"]}, {"scopes": [{"A": "b"}]},
     {"all": True, "scopes": [{}]}, [], {"scopes": [{}] * 257}],
)  # fmt: skip
def test_what_is_no_grant_is_refused(value: Any) -> None:
    with pytest.raises(FieldInvalid):
        parse_grant(canonical_json(value))


@pytest.mark.rule("X13")
def test_a_call_without_a_grant_has_exactly_its_scope() -> None:
    call = Call("m", named_scope=ACME)
    call.check()
    assert call.reach == {ACME.key}
    assert call.receipt_key == ACME.key


@pytest.mark.rule("X13")
def test_a_scope_outside_the_grant_is_forbidden() -> None:
    with pytest.raises(ScopeForbidden):
        Call("m", named_scope=ANN, named_grant=Grant.of([ACME])).check()
    Call("m", named_scope=ACME, named_grant=Grant.of([ACME])).check()
    Call("m", named_scope=OTHER, named_grant=ALL_SCOPES).check()


@pytest.mark.rule("X1")
def test_the_empty_scope_needs_the_grant_over_all() -> None:
    with pytest.raises(ScopeForbidden):
        Call("m", named_scope=EMPTY_SCOPE).check()
    with pytest.raises(ScopeForbidden):
        Call("m", named_scope=EMPTY_SCOPE, named_grant=Grant.of([EMPTY_SCOPE])).check()
    call = Call("m", named_scope=EMPTY_SCOPE, named_grant=ALL_SCOPES)
    call.check()
    assert call.reach == {EMPTY_SCOPE.key}


@pytest.mark.rule("X1", "X13")
def test_a_call_without_a_scope_reaches_its_grant_and_has_no_scope() -> None:
    call = Call("m", named_grant=Grant.of([ACME, ANN]))
    assert call.reach == {ACME.key, ANN.key}
    assert Call("m", named_grant=ALL_SCOPES).reach is None
    with pytest.raises(ScopeRequired):
        _ = call.scope
    with pytest.raises(ScopeRequired):
        _ = Call("m").reach


def test_calls_without_a_scope_have_receipts_of_their_own_per_grant() -> None:
    keys = {Call("m", named_grant=grant).receipt_key for grant in (ALL_SCOPES, Grant.of([ACME]), Grant.of([ACME, ANN]))}
    assert len(keys) == 3
    assert ACME.key not in keys
    assert Call("m", named_grant=Grant.of([ANN, ACME])).receipt_key in keys
