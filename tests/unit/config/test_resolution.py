"""The order of candidates (C2): total, and the same as the naive reading."""

from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

from threadkeep_config.domain.resolution import Precedence, is_candidate
from threadkeep_config.domain.values import EntityType

KEYS = ["area", "branch", "cell", "project", "tenant", "user", "w", "zone"]
key_sets = st.sets(st.sampled_from(KEYS), max_size=8)
precedences = st.lists(st.sampled_from(KEYS), unique=True).map(lambda keys: Precedence(tuple(keys)))


def beats(one: set[str], other: set[str], precedence: Precedence) -> bool:
    """The rule as people say it: more keys; else whoever has the strongest key that the other lacks."""
    if len(one) != len(other):
        return len(one) > len(other)
    for key in [*precedence.keys, *sorted(KEYS)]:
        if (key in one) != (key in other):
            return key in one
    raise AssertionError("a tie")


@pytest.mark.rule("C2")
@given(key_sets, key_sets, precedences)
def test_two_different_scopes_never_tie(one: set[str], other: set[str], precedence: Precedence) -> None:
    if one == other:
        assert precedence.strength(one) == precedence.strength(other)
    else:
        assert (precedence.strength(one) < precedence.strength(other)) is beats(one, other, precedence)
        assert precedence.strength(one) != precedence.strength(other)


@pytest.mark.rule("C2")
@given(key_sets, precedences)
def test_the_subsets_of_a_scope_come_strongest_first_each_once(keys: set[str], precedence: Precedence) -> None:
    subsets = precedence.subsets(keys)
    assert len(subsets) == 2 ** len(keys)
    assert len({frozenset(subset) for subset in subsets}) == len(subsets)
    assert set(subsets[0]) == keys
    assert subsets[-1] == ()
    for stronger, weaker in pairwise(subsets):
        assert beats(set(stronger), set(weaker), precedence)


@pytest.mark.rule("C3")
@pytest.mark.parametrize("type", list(EntityType))
def test_only_agents_of_the_api_stay_in_their_scope(type: EntityType) -> None:
    assert is_candidate(type, is_exact=True, is_file=False)
    assert is_candidate(type, is_exact=False, is_file=True)
    assert is_candidate(type, is_exact=False, is_file=False) is (type is not EntityType.AGENT)
