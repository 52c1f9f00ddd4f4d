"""Page tokens and pages (X5)."""

from datetime import UTC, datetime

import pytest

from tests.unit.chassis.probe import probe
from threadkeep_chassis.errors import FieldInvalid, PageTokenInvalid
from threadkeep_chassis.paging import DEFAULT_PAGE_SIZE, MAX_PAGE_SIZE, Page, PageBuilder, Pager
from threadkeep_chassis.scope import ALL_SCOPES, Call, Scope

SECRET = bytes(32)
ACME = Call("/threadkeep.probe.v1.ProbeService/List", named_scope=Scope({"tenant": "acme"}))
OTHER = Call(ACME.method, named_scope=Scope({"tenant": "other"}))
ELSEWHERE = Call("/threadkeep.probe.v1.ProbeService/ListOthers", named_scope=ACME.named_scope)
GRANTED = Call(ACME.method, named_grant=ALL_SCOPES)
REQUEST = probe.ListRequest(filter="x")


@pytest.mark.rule("X5")
def test_a_token_gives_the_last_key_again() -> None:
    key = ("é\x00", 2**63 - 1, -1, None, True, 1.5, b"\x00\xff", datetime(2026, 1, 2, 3, 4, 5, 678901, tzinfo=UTC))
    pager = Pager(SECRET)
    token = pager.token(ACME, REQUEST, key)
    request = probe.ListRequest(filter="x", page_token=token, page_size=7)
    assert pager.page(ACME, request) == Page(7, key)
    assert Pager(SECRET).page(ACME, request).after == key


@pytest.mark.rule("X5", "X2")
@pytest.mark.parametrize("call", [OTHER, ELSEWHERE, GRANTED], ids=["scope", "method", "grant"])
def test_a_token_of_another_scope_method_or_grant_is_refused(call: Call) -> None:
    token = Pager(SECRET).token(ACME, REQUEST, ("a",))
    with pytest.raises(PageTokenInvalid):
        Pager(SECRET).page(call, probe.ListRequest(filter="x", page_token=token))


@pytest.mark.rule("X5")
def test_a_token_is_bound_to_the_query_but_not_to_the_size() -> None:
    pager = Pager(SECRET)
    token = pager.token(ACME, REQUEST, ("a",))
    with pytest.raises(PageTokenInvalid):
        pager.page(ACME, probe.ListRequest(filter="y", page_token=token))
    assert pager.page(ACME, probe.ListRequest(filter="x", page_token=token, page_size=1)).after == ("a",)


@pytest.mark.rule("X5")
def test_an_edited_token_is_refused_whatever_was_edited() -> None:
    pager = Pager(SECRET)
    token = pager.token(ACME, REQUEST, ("a", 1))
    edited = {token[:i] + ("A" if token[i] != "A" else "B") + token[i + 1 :] for i in range(len(token))}
    for bad in (*edited, token[:-1], token + "A", token + "=", "x", "\x00", "é", "-", token.upper()):
        if bad != token:
            with pytest.raises(PageTokenInvalid):
                pager.page(ACME, probe.ListRequest(filter="x", page_token=bad))
    with pytest.raises(PageTokenInvalid):
        Pager(b"\x01" * 32).page(ACME, probe.ListRequest(filter="x", page_token=token))


@pytest.mark.rule("X5", "X9")
def test_the_page_size_is_clamped_and_a_negative_one_refused() -> None:
    pager = Pager(SECRET)
    assert pager.page(ACME, probe.ListRequest()).size == DEFAULT_PAGE_SIZE
    assert pager.page(ACME, probe.ListRequest(page_size=3)).size == 3
    assert pager.page(ACME, probe.ListRequest(page_size=2**31 - 1)).size == MAX_PAGE_SIZE
    with pytest.raises(FieldInvalid):
        pager.page(ACME, probe.ListRequest(page_size=-1))


@pytest.mark.rule("X5")
def test_a_page_ends_at_its_number_and_goes_on_after_its_last_row() -> None:
    pager, builder = Pager(SECRET), PageBuilder[str](Page(2, None))
    taken = [builder.add(item, (item,)) for item in "abc"]
    assert (taken, builder.items) == ([True, True, False], ["a", "b"])
    token = builder.token(pager, ACME, REQUEST)
    assert pager.page(ACME, probe.ListRequest(filter="x", page_token=token)).after == ("b",)


@pytest.mark.rule("X5")
@pytest.mark.case("B92")
def test_a_page_ends_at_its_bytes_but_takes_one_row_at_least() -> None:
    builder = PageBuilder[str](Page(10, None), max_bytes=100)
    assert [builder.add(item, (item,), size) for item, size in (("a", 500), ("b", 1))] == [True, False]
    builder = PageBuilder[str](Page(10, None), max_bytes=100)
    assert [builder.add(item, (item,), 40) for item in "abc"] == [True, True, False]
    assert builder.last_key == ("b",)


@pytest.mark.rule("X5")
def test_the_last_page_has_no_token() -> None:
    builder = PageBuilder[str](Page(2, None))
    builder.add("a", ("a",))
    builder.add("b", ("b",))
    assert builder.token(Pager(SECRET), ACME, REQUEST) == ""
    assert PageBuilder[str](Page(2, None)).token(Pager(SECRET), ACME, REQUEST) == ""


def test_messages_are_measured() -> None:
    builder = PageBuilder[probe.ListRequest](Page(10, None), max_bytes=100)
    big = probe.ListRequest(filter="x" * 60)
    assert builder.add(big, ("a",))
    assert not builder.add(big, ("b",))
