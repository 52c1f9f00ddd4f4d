"""What a search finds: how text falls into words, how a query is read, and where a text answers it.

All of it is decided here and not by a database, so that every backend gives the same answer. A word is a run of
letters, digits and their marks. Case does not count (Unicode case folding), nor do compatibility forms (NFKC), accents
and the points of Hebrew and Arabic. Characters of scripts that put no spaces between words are words by themselves.
"""

from __future__ import annotations

import re
import sys
import unicodedata
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from functools import lru_cache
from itertools import chain

from threadkeep_projection.domain.values import Content

MOST_CHARACTERS = 65536
"""So much of a message's words is found, spaces between them included."""

LONGEST_INDEXED = 32
"""Characters of a word that the index holds; the rest is compared."""

MOST_TERMS = 32
"""Terms of a query that count."""

SNIPPET_CHARACTERS = 160

_END_OF_PART = "."


def _ranges(wanted: Iterable[str]) -> str:
    """Characters as the inside of a regular expression's class."""
    found: list[list[int]] = []
    for character in wanted:
        if found and found[-1][1] == ord(character) - 1:
            found[-1][1] += 1
        else:
            found.append([ord(character)] * 2)
    return "".join(f"\\U{first:08x}-\\U{last:08x}" for first, last in found)


_MARK = _ranges(chr(code) for code in range(sys.maxunicode + 1) if unicodedata.category(chr(code))[0] == "M")
_RUN = re.compile(f"[^\\W_](?:[^\\W_]|[{_MARK}])*")
_ASCII_RUN = re.compile("[0-9a-z]+")
# Accents, and the points of Hebrew and Arabic; not the vowel signs of other scripts.
_ACCENT = re.compile(
    "[\u0300-\u036f\u0591-\u05bd\u05bf\u05c1\u05c2\u05c4\u05c5\u05c7\u0610-\u061a\u064b-\u065f\u0670\u1ab0-\u1aff"
    "\u1dc0-\u1dff\u20d0-\u20ff\ufe20-\ufe2f]"
)
# Thai, Lao, Myanmar, Khmer, kana, Han: a character with its marks is a word.
_UNSPACED = re.compile(
    f"[\u0e01-\u0eff\u1000-\u109f\u1780-\u17ff\u3005-\u3007\u3041-\u30ff\u31f0-\u31ff\u3400-\u4dbf\u4e00-\u9fff\uf900-\ufaff"
    f"\U00020000-\U0003ffff][{_MARK}]*"
)


def words_of(text: str) -> list[str]:
    """The words of a text, in order."""
    return list(_words(text))


def _words(text: str) -> Iterator[str]:
    if text.isascii():
        for run in _ASCII_RUN.finditer(text.lower()):
            yield run[0]
        return
    for run in _RUN.finditer(text):
        yield from _folded(run[0])


def _folded(run: str) -> tuple[str, ...]:
    """The words of a run of letters and digits: one, save for some compatibility forms and unspaced scripts."""
    return _folded_short(run) if len(run) <= LONGEST_INDEXED else _fold(run)


@lru_cache(maxsize=8192)
def _folded_short(run: str) -> tuple[str, ...]:
    return _fold(run)


def _fold(run: str) -> tuple[str, ...]:
    plain = _ACCENT.sub("", unicodedata.normalize("NFKD", run)).casefold()
    plain = unicodedata.normalize("NFKC", _ACCENT.sub("", unicodedata.normalize("NFKD", plain)))
    words: list[str] = []
    for one in _RUN.finditer(plain):
        at = 0
        for alone in _UNSPACED.finditer(one[0]):
            words += [piece for piece in (one[0][at : alone.start()], alone[0]) if piece]
            at = alone.end()
        words += [one[0][at:]] if at < len(one[0]) else []
    return tuple(words)


def searched_text(content: Content) -> str:
    """The words of a message's texts, each between spaces; a full stop alone ends a part."""
    found = [""]
    length = 1
    for part in content.parts:
        for word in chain(_words(part.text), (_END_OF_PART,)) if part.text else ():
            length += len(word) + 1
            if length > MOST_CHARACTERS:
                return " ".join([*found, ""])
            found.append(word)
    return " ".join([*found, ""])


def indexed_words(searched: str, prefix: str) -> list[str]:
    """The words to index of a searched text, each once, behind a prefix that keeps conversations apart."""
    return [prefix + word for word in dict.fromkeys(w[:LONGEST_INDEXED] for w in searched.split()) if word != "."]


@dataclass(frozen=True, slots=True)
class Term:
    """Words that follow each other; the last one may be the beginning of one."""

    words: tuple[str, ...]
    is_prefix: bool = False
    is_excluded: bool = False

    @property
    def pattern(self) -> str:
        """What a searched text contains if it answers the term."""
        return f" {' '.join(self.words)}{'' if self.is_prefix else ' '}"


Query = tuple[Term, ...]

# An excluding dash, then text between quotes or up to a space; a quote that nothing closes is no quote.
_TERM = re.compile(r'(-?)(?:"([^"]*)"(\*?)|(\S+))')


def read_query(text: str) -> Query:
    """The terms of a query, each once, the first MOST_TERMS; what holds no word is no term.

    Everything is a query: `word word` asks for both, `"some words"` for these beside each other, `-word` and `-"some
    words"` for messages without, `beg*` for words that begin so. Other signs separate words, and words that are joined
    by signs (`a.b@c`) are beside each other.
    """
    terms: dict[Term, None] = {}
    for dash, quoted, quoted_star, plain in _TERM.findall(text):
        is_prefix = bool(quoted_star) or (bool(plain) and plain.endswith("*"))
        words = tuple(words_of(quoted or plain))
        # A star behind a sign says nothing of the word before it.
        ends = (quoted or plain).rstrip("*")[-1:]
        if words:
            terms[Term(words, is_prefix and bool(words_of(ends)), bool(dash))] = None
        if len(terms) == MOST_TERMS:
            break
    return tuple(terms)


def index_terms(query: Query, prefix: str) -> list[tuple[str, bool]]:
    """The (indexed word, True for a beginning) that every answer has. Excluded words are not among them."""
    found: dict[tuple[str, bool], None] = {}
    for term in query:
        if term.is_excluded:
            continue
        for index, word in enumerate(term.words):
            is_cut = len(word) > LONGEST_INDEXED
            is_prefix = term.is_prefix and index == len(term.words) - 1 and not is_cut
            found[prefix + word[:LONGEST_INDEXED], is_prefix] = None
    return list(found)


@dataclass(frozen=True, slots=True)
class Excerpt:
    """A piece of a part's text around the first match, and what of it matches, as (start, end) in characters."""

    part: int
    text: str
    matches: tuple[tuple[int, int], ...]


def excerpt_of(content: Content, query: Query) -> Excerpt | None:
    """Where the content answers the query; None if it only says nothing that is excluded."""
    wanted = [term for term in query if not term.is_excluded]
    for index, part in enumerate(content.parts):
        if part.text:
            found = _joined(_matches(part.text, wanted))
            if found:
                return _around(index, part.text, found)
    return None


def _matches(text: str, terms: Sequence[Term]) -> list[tuple[int, int]]:
    """(start, end) of every place that a term matches."""
    words: list[str] = []
    spans: list[tuple[int, int]] = []
    for word, start, end in _spans(text):
        words.append(word)
        spans.append((start, end))
    places: dict[str, list[int]] = {}
    for at, word in enumerate(words):
        places.setdefault(word, []).append(at)
    found = []
    for term in terms:
        first = term.words[0]
        if term.is_prefix and len(term.words) == 1:
            starts = [at for word, listed in places.items() if word.startswith(first) for at in listed]
        else:
            starts = places.get(first, [])
        for at in starts:
            last = at + len(term.words) - 1
            if last < len(words) and all(
                words[at + n] == word or (term.is_prefix and at + n == last and words[last].startswith(word))
                for n, word in enumerate(term.words)
            ):
                found.append((spans[at][0], spans[last][1]))
    return sorted(found)


def _spans(text: str) -> Iterator[tuple[str, int, int]]:
    """The words of a text with where they stand; those that a run falls into share its place."""
    length = 0
    for run in _RUN.finditer(text):
        for word in _folded(run[0]):
            length += len(word) + 1
            if length > MOST_CHARACTERS:
                return
            yield word, run.start(), run.end()


def _joined(spans: Iterable[tuple[int, int]]) -> list[tuple[int, int]]:
    joined: list[tuple[int, int]] = []
    for start, end in spans:
        if joined and start <= joined[-1][1]:
            joined[-1] = (joined[-1][0], max(end, joined[-1][1]))
        else:
            joined.append((start, end))
    return joined


def _around(part: int, text: str, found: Sequence[tuple[int, int]]) -> Excerpt:
    begin = max(0, found[0][0] - SNIPPET_CHARACTERS // 4)
    end = min(len(text), begin + SNIPPET_CHARACTERS)
    begin = max(0, end - SNIPPET_CHARACTERS)
    return Excerpt(
        part,
        text[begin:end],
        tuple((start - begin, min(stop, end) - begin) for start, stop in found if begin <= start < end),
    )
