"""Which entity counts where (C2, C3): a table of cases, the hidden, the tombstones, and a naive model beside it."""

import asyncio
import itertools
import random
from collections.abc import Mapping

import pytest

from tests.support.calls import refused
from tests.support.config import AGENT, PROVIDER, TOOL, Caller, agent, config_server_on, provider, tool
from tests.support.databases import Databases

# The caller's scope; where a tool `x` is defined; and who counts, None for nobody. Letters name scope keys (upper case:
# with another value than the caller's), `-` is the scope without them, `!` marks a hidden one. The declared precedence
# is (project, user); other keys follow by name.
CASES = [
    # one candidate
    ("p", [], None),
    ("p", ["-"], "-"),
    ("p", ["p"], "p"),
    ("-", ["-"], "-"),
    ("-", ["p"], None),
    ("p", ["P"], None),
    ("p", ["u"], None),
    ("p", ["pu"], None),
    # most scope keys win
    ("p", ["-", "p"], "p"),
    ("pu", ["-", "p", "pu"], "pu"),
    ("pu", ["-", "p"], "p"),
    ("pu", ["pU", "p"], "p"),
    ("apu", ["p", "ap"], "ap"),
    ("apu", ["p", "au"], "au"),
    ("apuz", ["apu", "apuz", "-"], "apuz"),
    ("apuz", ["auz", "p"], "auz"),
    # at equal depth the declared precedence
    ("pu", ["p", "u"], "p"),
    ("apu", ["a", "u"], "u"),
    ("apu", ["a", "p", "u"], "p"),
    ("apu", ["au", "ap"], "ap"),
    ("apu", ["pu", "ap"], "pu"),
    ("apu", ["au", "pu", "ap"], "pu"),
    ("az", ["a", "z"], "a"),
    ("apuz", ["az", "uz"], "uz"),
    ("apuz", ["apz", "auz", "apu"], "apu"),
    ("apuz", ["apz", "auz"], "apz"),
    ("abz", ["az", "bz"], "az"),
    # a hidden one hides what its scope would inherit, and nothing else
    ("p", ["-", "!p"], None),
    ("pu", ["-", "!p", "pu"], "pu"),
    ("pu", ["-", "!p", "u"], None),
    ("pu", ["-", "p", "!u"], "p"),
    ("u", ["-", "!p"], "-"),
    ("pu", ["!-"], None),
    ("pu", ["!-", "u"], "u"),
]
NAMES = {"a": "area", "b": "branch", "p": "project", "u": "user", "z": "zone"}


def scope_of_letters(letters: str, tenant: str) -> dict[str, str]:
    """The scope of a row of the table."""
    values = {"tenant": tenant}
    for letter in letters.replace("-", ""):
        values[NAMES[letter.lower()]] = "other" if letter.isupper() else "mine"
    return values


@pytest.mark.rule("C2")
@pytest.mark.case("B84", "B85")
async def test_the_winner_of_every_case_is_the_one_in_the_table(databases: Databases, backend: str) -> None:
    async with config_server_on(databases, backend, scope_key_precedence=["project", "user"]) as server:
        for number, (caller_letters, defined, expected) in enumerate(CASES):
            tenant = f"case-{number}"
            caller = server.caller(**scope_of_letters(caller_letters, tenant))
            # Written in both orders: what counts does not depend on what came first.
            for entry in defined if number % 2 else reversed(defined):
                writer = caller.elsewhere(scope_of_letters(entry.lstrip("!"), tenant))
                definition = None if entry.startswith("!") else tool(entry)
                await writer.put(TOOL, "x", definition, hidden=definition is None)
            await assert_counts(caller, expected, f"{caller_letters} {defined}")


async def assert_counts(caller: Caller, expected: str | None, case: str) -> None:
    """Resolve and Explain agree on who counts."""
    explained = await caller.explain(TOOL, "x")
    winners = [one.entity for one in explained.candidates if one.winner]
    if expected is None:
        assert (await refused(caller.resolve(TOOL, "x"))).reason == "ENTITY_NOT_FOUND", case
        assert winners == [], case
        assert not explained.candidates or explained.candidates[0].entity.hidden, case
    else:
        entity = (await caller.resolve(TOOL, "x")).entity
        assert entity.definition.tool.description == expected, case
        assert winners == [entity] == [explained.candidates[0].entity], case


@pytest.mark.rule("C2")
async def test_explain_gives_every_candidate_in_order_and_why(databases: Databases, backend: str) -> None:
    async with config_server_on(databases, backend, scope_key_precedence=["project"]) as server:
        root = server.caller(tenant="t")
        caller = root.within(area="a", project="p")
        for values in ({}, {"area": "a"}, {"project": "p"}, {"project": "other"}):
            await root.within(**values).put(TOOL, "x", tool())
        await caller.put(TOOL, "x", hidden=True)
        explained = await caller.explain(TOOL, "x")
        assert list(explained.key_precedence) == ["project"]
        assert [sorted(one.entity.scope.values) for one in explained.candidates] == [
            ["area", "project", "tenant"],
            ["project", "tenant"],
            ["area", "tenant"],
            ["tenant"],
        ]
        texts = [one.explanation for one in explained.candidates]
        assert "hidden, so nothing counts" in texts[0]
        assert "fewer scope keys" in texts[1]
        assert "project comes before area" in texts[2]
        assert "fewer scope keys" in texts[3]
        assert all("hides it" in text for text in texts[1:])
        await caller.delete(TOOL, "x")
        assert [one.winner for one in (await caller.explain(TOOL, "x")).candidates] == [True, False, False]


@pytest.mark.rule("C2")
@pytest.mark.case("B85")
async def test_what_is_hidden_comes_back_when_the_hiding_is_deleted(acme: Caller) -> None:
    inner, beside = acme.within(project="p"), acme.within(project="q")
    outer = (await acme.put(PROVIDER, "main", provider())).entity
    await inner.put(PROVIDER, "main", hidden=True)
    assert (await refused(inner.resolve(PROVIDER, "main"))).reason == "ENTITY_NOT_FOUND"
    assert (await refused(inner.within(user="u").resolve(PROVIDER, "main"))).reason == "ENTITY_NOT_FOUND"
    assert (await beside.resolve(PROVIDER, "main")).entity == outer
    assert (await inner.get(PROVIDER, "main")).hidden
    await inner.delete(PROVIDER, "main")
    assert (await inner.resolve(PROVIDER, "main")).entity == outer


@pytest.mark.rule("C2")
@pytest.mark.case("B84")
async def test_the_winner_counts_whole(acme: Caller) -> None:
    await acme.put(PROVIDER, "main", provider(model="big", endpoint="https://x", max_retries=3))
    inner = acme.within(project="p")
    await inner.put(PROVIDER, "main", provider("openai"))
    assert (await inner.resolve(PROVIDER, "main")).entity.definition == provider("openai")


@pytest.mark.rule("C3")
async def test_an_agent_of_the_api_counts_in_its_exact_scope_only(acme: Caller) -> None:
    inner = acme.within(project="p")
    own = (await acme.put(AGENT, "writer", agent("own"))).entity
    assert (await acme.resolve(AGENT, "writer")).entity == own
    assert (await refused(inner.resolve(AGENT, "writer"))).reason == "ENTITY_NOT_FOUND"
    assert (await inner.explain(AGENT, "writer")).candidates == []


@pytest.mark.rule("C3")
async def test_an_agent_from_a_file_is_the_fallback(acme: Caller) -> None:
    inner = acme.within(project="p")
    await acme.apply({"agents/writer.md": "From the file."})
    assert (await inner.resolve(AGENT, "writer")).entity.definition.agent.system_prompt == "From the file."
    await inner.put(AGENT, "writer", agent("override"))
    assert (await inner.resolve(AGENT, "writer")).entity.definition.agent.system_prompt == "override"
    assert (await inner.within(user="u").resolve(AGENT, "writer")).entity.definition.agent.system_prompt == (
        "From the file."
    ), "the override is the API's, so it counts in its own scope alone"
    await inner.delete(AGENT, "writer")
    await inner.put(AGENT, "writer", hidden=True)
    assert (await refused(inner.resolve(AGENT, "writer"))).reason == "ENTITY_NOT_FOUND"
    assert (await inner.within(user="u").resolve(AGENT, "writer")).entity.source.path == "agents/writer.md"


@pytest.mark.rule("C2")
async def test_a_resolution_is_never_older_than_its_question(acme: Caller) -> None:
    """Read your writes, also where the answer, or that there is none, was cached."""
    inner = acme.within(project="p")
    for round_number in range(10):
        assert (await refused(inner.resolve(TOOL, "x"))).reason == "ENTITY_NOT_FOUND"
        outer = (await acme.put(TOOL, "x", tool(f"outer {round_number}"))).entity
        answer = await inner.resolve(TOOL, "x")
        assert answer.entity == outer
        assert answer.config_revision >= outer.revision
        narrower = (await inner.put(TOOL, "x", tool(f"inner {round_number}"))).entity
        assert (await inner.resolve(TOOL, "x")).entity == narrower
        assert (await acme.resolve(TOOL, "x")).entity == outer
        await inner.delete(TOOL, "x")
        assert (await inner.resolve(TOOL, "x")).entity == outer
        await acme.delete(TOOL, "x")


@pytest.mark.rule("C2")
async def test_many_resolutions_at_once_are_each_answered_for_their_own_scope(acme: Caller) -> None:
    callers = [acme.within(user=f"u{n}") for n in range(20)]
    names = [f"tool-{n}" for n in range(10)]
    await asyncio.gather(*(acme.put(TOOL, name, tool(f"shared {name}")) for name in names))
    await asyncio.gather(*(caller.put(TOOL, names[n % 10], tool(f"own {n}")) for n, caller in enumerate(callers)))
    asked = list(itertools.product(range(20), names))
    answers = await asyncio.gather(*(callers[n].resolve(TOOL, name) for n, name in asked))
    for (n, name), answer in zip(asked, answers, strict=True):
        expected = f"own {n}" if name == names[n % 10] else f"shared {name}"
        assert answer.entity.definition.tool.description == expected


class Model:
    """The naive reading of C2: all rows in a list, filtered and compared one by one."""

    def __init__(self, precedence: list[str]) -> None:
        self.precedence = precedence
        self.rows: dict[tuple[tuple[str, str], ...], str | None] = {}

    def put(self, scope: Mapping[str, str], text: str | None) -> None:
        """Puts a row; None is a hidden one."""
        self.rows[tuple(sorted(scope.items()))] = text

    def delete(self, scope: Mapping[str, str]) -> bool:
        """Deletes a row, if there is one."""
        key = tuple(sorted(scope.items()))
        return self.rows.pop(key, "") != "" or key in self.rows

    def counts(self, caller: Mapping[str, str]) -> str | None:
        """What counts for a caller."""
        best: tuple[tuple[str, str], ...] | None = None
        for row in self.rows:
            if all(caller.get(key) == value for key, value in row) and (best is None or self._beats(row, best)):
                best = row
        return None if best is None else self.rows[best]

    def _beats(self, one: tuple[tuple[str, str], ...], other: tuple[tuple[str, str], ...]) -> bool:
        if len(one) != len(other):
            return len(one) > len(other)
        mine, theirs = {key for key, _ in one}, {key for key, _ in other}
        for key in [*self.precedence, *sorted(mine | theirs)]:
            if (key in mine) != (key in theirs):
                return key in mine
        raise AssertionError("two rows of one caller tie")


@pytest.mark.rule("C2")
async def test_resolution_agrees_with_the_naive_reading_under_random_writes(databases: Databases, backend: str) -> None:
    seed = random.randrange(10**9)
    print(f"seed {seed}")
    chance = random.Random(seed)
    precedence = ["user", "project"]
    async with config_server_on(databases, backend, scope_key_precedence=precedence) as server:
        model = Model(precedence)
        root = server.caller(tenant="t")

        def any_scope() -> dict[str, str]:
            keys = [key for key in ("area", "project", "user", "zone") if chance.random() < 0.5]
            return {"tenant": "t", **{key: chance.choice("12") for key in keys}}

        for step in range(120):
            scope = any_scope()
            writer = root.elsewhere(scope)
            kind = chance.random()
            if kind < 0.25 and tuple(sorted(scope.items())) in model.rows:
                await writer.delete(TOOL, "x")
                model.delete(scope)
            else:
                text = None if kind > 0.85 else f"step {step}"
                await writer.put(TOOL, "x", tool(text) if text else None, hidden=text is None)
                model.put(scope, text)
            for _ in range(3):
                asking = any_scope()
                expected = model.counts(asking)
                if expected is None:
                    assert (await refused(root.elsewhere(asking).resolve(TOOL, "x"))).reason == "ENTITY_NOT_FOUND"
                else:
                    answer = await root.elsewhere(asking).resolve(TOOL, "x")
                    assert answer.entity.definition.tool.description == expected
