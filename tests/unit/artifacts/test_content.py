"""Content is cut into chunks of one size whatever the pieces were, and reads ask for exactly the chunks they need."""

import hashlib

import pytest
from hypothesis import given
from hypothesis import strategies as st

from threadkeep_artifacts.domain.content import Assembler, check_claim, plan_read
from threadkeep_artifacts.domain.errors import OffsetOutOfRange, UploadMismatch
from threadkeep_artifacts.domain.values import ContentClaim, StoredContent

CHUNK = 8


def _cut(pieces: list[bytes]) -> tuple[dict[int, bytes], StoredContent]:
    assembler = Assembler(CHUNK)
    chunks: dict[int, bytes] = {}
    for piece in pieces:
        chunks.update(assembler.take(piece))
    chunks.update(assembler.last())
    digests = b"".join(hashlib.sha256(chunks[index]).digest() for index in sorted(chunks))
    return chunks, assembler.content("blob", hashlib.sha256(b"".join(pieces)).hexdigest(), digests)


@pytest.mark.rule("A3")
@given(st.lists(st.binary(max_size=30), max_size=12))
def test_chunks_together_are_the_content_and_each_has_its_digest(pieces: list[bytes]) -> None:
    whole = b"".join(pieces)
    chunks, content = _cut(pieces)
    assert b"".join(chunks[index] for index in sorted(chunks)) == whole
    assert all(len(chunks[index]) == CHUNK for index in sorted(chunks)[:-1])
    assert content.size == len(whole)
    assert content.sha256 == hashlib.sha256(whole).hexdigest()
    assert content.chunk_count == len(chunks)
    for index, chunk in chunks.items():
        assert content.chunk_digest(index) == hashlib.sha256(chunk).digest()


@pytest.mark.rule("A3")
@given(st.binary(max_size=50), st.integers(0, 60), st.integers(0, 60))
def test_a_plan_reads_exactly_what_was_asked_for(whole: bytes, offset: int, length: int) -> None:
    chunks, content = _cut([whole])
    if offset > len(whole):
        with pytest.raises(OffsetOutOfRange):
            plan_read(content, offset, length)
        return
    plan = plan_read(content, offset, length)
    read = b"".join(chunks[part.index][part.start : part.stop] for part in plan.slices())
    assert read == (whole[offset:] if length == 0 else whole[offset : offset + length])
    assert plan.is_whole == (read == whole)


@pytest.mark.rule("A3")
def test_content_that_differs_from_its_claim_is_refused() -> None:
    _, content = _cut([b"hello"])
    check_claim(content, ContentClaim(5, hashlib.sha256(b"hello").hexdigest()))
    with pytest.raises(UploadMismatch) as wrong_size:
        check_claim(content, ContentClaim(6, content.sha256))
    assert wrong_size.value.metadata["announced"] == "6"
    with pytest.raises(UploadMismatch):
        check_claim(content, ContentClaim(5, "0" * 64))
