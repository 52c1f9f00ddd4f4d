"""Removing the check behind a rule makes the test that proves the rule fail; tools/mutants.py says which."""

import pytest

from tools import mutants


@pytest.mark.rule("R2", "R3", "R5", "R14", "X2", "X3")
def test_the_rules_that_hold_the_rest_have_mutants() -> None:
    assert {mutant.rule for mutant in mutants.MUTANTS} == {"R2", "R3", "R5", "R14", "X2", "X3"}


@pytest.mark.parametrize("mutant", mutants.MUTANTS, ids=lambda mutant: mutant.name)
def test_a_test_notices_when_the_check_is_gone(mutant: mutants.Mutant) -> None:
    assert mutants.missing(mutant) == [], "tools/mutants.py has to follow the sources"
    noticed, said = mutants.run(mutant)
    assert noticed, said
