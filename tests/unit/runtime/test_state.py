"""State commands, as pure decisions: in any order the same where the rule says so (R11)."""

import json
from datetime import UTC, datetime
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from threadkeep_runtime.domain.state import Command, Commands, Declaration, Held, StateConflict, check_batch, new_values
from threadkeep_runtime.domain.values import NOBODY

NOW = datetime(2026, 1, 1, tzinfo=UTC)
VALUES = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False, allow_infinity=False) | st.text(max_size=3),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=2), inner, max_size=3),
    max_leaves=5,
)


def held(merge: str) -> Held:
    return Held(Declaration("k", "THREAD", merge, 1, 1 << 20, None, NOW, NOW), None)


def outcome(merge: str, *batches: list[Command]) -> Any:
    """The value after commits with these commands."""
    known = held(merge)
    for number, batch in enumerate(batches):
        commands = Commands(tuple(batch), {"k": 1})
        check_batch(commands, {"k": known}, with_lease=False)
        (value,) = new_values(commands, {"k": known}, commit_sequence=number + 1, run_id=None, actor=NOBODY, now=NOW)
        known = Held(known.declaration, value)
    assert known.newest is not None
    assert known.newest.version == len(batches)
    return None if known.newest.value is None else known.newest.value


def command(kind: str, value: Any) -> Command:
    return Command("k", kind, value, "commit.state[0]")


@pytest.mark.rule("R11")
@given(st.lists(st.lists(VALUES, max_size=4), min_size=1, max_size=5), st.randoms())
def test_sets_grow_to_the_same_whatever_the_order_and_the_batches(parts: list[list[Any]], random: Any) -> None:
    shuffled = list(parts)
    random.shuffle(shuffled)
    one_by_one = outcome("COMMUTATIVE", *([command("union", part)] for part in parts))
    together = outcome("COMMUTATIVE", [command("union", part) for part in shuffled])
    assert one_by_one == together
    json.loads(together)


@pytest.mark.rule("R11")
@given(st.lists(st.integers(-(2**63), 2**63 - 1), min_size=1))
def test_sums_are_exact(numbers: list[int]) -> None:
    value = outcome("COMMUTATIVE", *([command("add", number)] for number in numbers))
    assert value == str(sum(numbers)).encode()
    assert value == outcome("COMMUTATIVE", [command("add", number) for number in reversed(numbers)])


@pytest.mark.rule("R11")
@given(st.lists(st.dictionaries(st.text(max_size=2), VALUES, max_size=3), min_size=1, max_size=4), st.randoms())
def test_entries_of_a_batch_come_to_the_same_in_any_order_or_conflict(parts: list[dict[str, Any]], random: Any) -> None:
    batch = [command("entries", part) for part in parts]
    names = [name for part in parts for name in part]
    if len(set(names)) < len(names):
        with pytest.raises(StateConflict):
            outcome("DISJOINT", batch)
        return
    shuffled = list(batch)
    random.shuffle(shuffled)
    assert outcome("DISJOINT", batch) == outcome("DISJOINT", shuffled)
    assert json.loads(outcome("DISJOINT", batch)) == {name: value for part in parts for name, value in part.items()}
