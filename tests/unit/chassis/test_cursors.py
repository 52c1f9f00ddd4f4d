"""Cursors are opaque, signed, and of one kind and subject (R14)."""

import base64

import pytest
from hypothesis import given
from hypothesis import strategies as st

from threadkeep_chassis.cursors import Cursor, CursorCodec, read_cursor
from threadkeep_chassis.errors import CursorInvalid, CursorUnknown

SECRET = bytes(32)
CODEC = CursorCodec(SECRET, "events")


@pytest.mark.rule("R14")
@given(st.lists(st.integers(0, 2**64)), st.text(max_size=40), st.text(max_size=40))
def test_a_cursor_gives_its_positions_again(positions: list[int], incarnation: str, subject: str) -> None:
    encoded = CODEC.encode(positions, incarnation, subject)
    expected = Cursor(tuple(positions), incarnation, "events", subject)
    assert CursorCodec(SECRET, "events").decode(encoded, subject=subject) == expected
    assert read_cursor(encoded) == expected


@pytest.mark.rule("R14")
def test_an_edited_or_foreign_cursor_is_refused() -> None:
    cursor = CODEC.encode([1, 300, 2**40], "life", "thread")
    foreign = [
        CursorCodec(SECRET, "watch").encode([1], "life", "thread"),
        CursorCodec(b"\x01" * 32, "events").encode([1], "life", "thread"),
        CODEC.encode([1], "life", "other thread"),
    ]
    edited = [bytes(cursor[:i] + bytes([cursor[i] ^ 1]) + cursor[i + 1 :]) for i in range(len(cursor))]
    for bad in (*foreign, *edited, b"", b"x", cursor[:-1], cursor + b"\x00"):
        with pytest.raises(CursorInvalid) as caught:
            CODEC.decode(bad, "after", "thread")
        assert caught.value.violations[0][0] == "after"


@pytest.mark.rule("R14")
def test_a_cursor_of_another_incarnation_is_unknown() -> None:
    cursor = CODEC.encode([5], "before the restore")
    assert CODEC.decode_for(cursor, "before the restore") == (5,)
    with pytest.raises(CursorUnknown):
        CODEC.decode_for(cursor, "after the restore")


@pytest.mark.rule("R14")
def test_an_expired_cursor_names_the_oldest_one_left() -> None:
    error = CODEC.expired([42], "life")
    assert CODEC.decode_for(base64.b64decode(error.metadata["oldest_cursor"]), "life") == (42,)


@given(st.binary(max_size=60))
def test_reading_a_cursor_unchecked_refuses_what_has_no_form(noise: bytes) -> None:
    try:
        read_cursor(noise)
    except CursorInvalid:
        return
