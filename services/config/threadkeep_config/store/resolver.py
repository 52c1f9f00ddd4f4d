"""Resolution that is always up to date and mostly cached (C2).

An answer may not be older than its question, whichever replica wrote last. So every question waits for a look at the
service's revision that began after it, shared by all questions that wait at that moment; one look also reads what the
cache lacks. What a look finds to be behind, the tail reads first.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Callable, Sequence
from dataclasses import dataclass

from threadkeep_chassis.database import Database
from threadkeep_chassis.errors import ShuttingDown
from threadkeep_config.domain.manifest import Reference
from threadkeep_config.domain.values import Entity
from threadkeep_config.domain.views import View
from threadkeep_config.store import revisions
from threadkeep_config.store.cache import Cache, Entry
from threadkeep_config.store.candidates import read_candidates, read_counting
from threadkeep_config.store.counting import counting
from threadkeep_config.store.rows import size_of
from threadkeep_config.store.tail import Logged, Tail

MAX_QUESTIONS = 128
"""Questions answered by one look."""
MAX_SCOPE_KEYS = 512
"""Scopes that one look asks for, unless one question alone has more."""


@dataclass(eq=False)
class _Question:
    answer: asyncio.Future[tuple[Entry, int]]
    view: View | None = None
    reference: Reference | None = None

    @property
    def key(self) -> tuple[object, ...]:
        assert self.view is not None
        assert self.reference is not None
        return ("entity", self.view.own_key, *self.reference)


class Resolver:
    """Answers which entity counts. A Listener of the tail; `run` does its work."""

    def __init__(self, database: Database, tail: Tail, cache: Cache) -> None:
        self._database = database
        self._tail = tail
        self._waiting: deque[_Question] = deque()
        self._asked = asyncio.Event()
        self._closed = False
        self.cache = cache
        """True at the tail's position."""
        tail.attach(self)

    async def resolve(self, view: View, reference: Reference) -> tuple[Entry, int]:
        """The entry whose value is the entity that counts (None if none does), and the revision that this holds for."""
        return await self._ask(_Question(asyncio.get_running_loop().create_future(), view, reference))

    async def resolve_many(
        self, view: View, references: Sequence[Reference], check: Callable[[int], None]
    ) -> tuple[list[Entry], int]:
        """The same for several, all as of one revision. `check` may refuse the bytes of what is about to be read."""
        revision = await self.fresh()
        known = [self.cache.get(("entity", view.own_key, *reference)) for reference in references]
        if all(known):
            return [entry for entry in known if entry is not None], revision
        async with self._database.read(snapshot=True) as connection:
            revision, found = await read_counting(connection, view, references, check)
        entries = []
        for reference in references:
            counts = counting(found.get(reference, ()))
            entry = Entry(counts, (reference,), size_of(counts) if counts is not None else 0)
            entries.append(entry)
            if self._tail.position == revision and self.cache.get(("entity", view.own_key, *reference)) is None:
                self.cache.put(("entity", view.own_key, *reference), entry)
        return entries, revision

    async def fresh(self) -> int:
        """Returns when the cache is no older than this call, with the revision that it then holds for.

        That revision, and what the cache says, are good until the caller awaits anything.
        """
        await self._ask(_Question(asyncio.get_running_loop().create_future()))
        return self._tail.position

    def changed(self, changes: Sequence[Logged]) -> None:
        """See Listener."""
        self.cache.forget((change.entity.key.type, change.entity.key.name) for change in changes)

    def gap(self, oldest: int) -> None:
        """See Listener."""
        self.cache.clear()

    async def run(self) -> None:
        """Answers questions until `close`."""
        while not self._closed:
            await self._asked.wait()
            self._asked.clear()
            while self._waiting:
                await self._answer(self._next_questions())

    def close(self) -> None:
        """Ends `run`; who asks from now on is refused."""
        self._closed = True
        self._asked.set()

    async def _ask(self, question: _Question) -> tuple[Entry, int]:
        if self._closed:
            raise ShuttingDown
        self._waiting.append(question)
        self._asked.set()
        return await question.answer

    def _next_questions(self) -> list[_Question]:
        questions: list[_Question] = []
        scope_keys = 0
        while self._waiting and len(questions) < MAX_QUESTIONS:
            view = self._waiting[0].view
            scope_keys += len(view.scope_keys or ()) if view is not None else 0
            if questions and scope_keys > MAX_SCOPE_KEYS:
                break
            questions.append(self._waiting.popleft())
        return questions

    async def _answer(self, questions: list[_Question]) -> None:
        try:
            await self._look(questions)
        except (Exception, asyncio.CancelledError) as error:
            refusal = error if isinstance(error, Exception) else ShuttingDown()
            for question in questions:
                if not question.answer.done():
                    question.answer.set_exception(refusal)
            if isinstance(error, asyncio.CancelledError):
                raise

    async def _look(self, questions: list[_Question]) -> None:
        while questions:
            unknown = [one for one in questions if one.reference is not None and self.cache.get(one.key) is None]
            async with self._database.read() as connection:
                if unknown:
                    revision, found = await read_candidates(
                        connection,
                        [one.reference for one in unknown if one.reference is not None],
                        [key for one in unknown if one.view is not None for key in one.view.scope_keys or ()],
                    )
                else:
                    (revision, _), found = await revisions.state(connection), {}
            if self._tail.position < revision:
                await self._tail.advance(revision)
            for question in unknown:
                self._keep(question, revision, found)
            # A change that was just read may have taken out what the cache had; those questions look again.
            questions = [question for question in questions if not self._settle(question)]

    def _keep(self, question: _Question, revision: int, found: dict[Reference, list[Entity]]) -> None:
        """Answers from what was read; keeps it if no later change was told meanwhile."""
        assert question.view is not None
        assert question.reference is not None
        counts = counting(question.view.ordered(found.get(question.reference, ())))
        entry = Entry(counts, (question.reference,), size_of(counts) if counts is not None else 0)
        if self._tail.position == revision:
            self.cache.put(question.key, entry)
        if not question.answer.done():
            question.answer.set_result((entry, revision))

    def _settle(self, question: _Question) -> bool:
        if question.answer.done():
            return True
        if question.reference is None:
            question.answer.set_result((Entry(None, (), 0), self._tail.position))
            return True
        entry = self.cache.get(question.key)
        if entry is None:
            return False
        question.answer.set_result((entry, self._tail.position))
        return True
