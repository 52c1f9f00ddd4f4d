"""The tables of legal transitions (R4, R6, R7)."""

import pytest

from threadkeep_runtime.domain import transitions
from threadkeep_runtime.domain.errors import IllegalTransition
from threadkeep_runtime.tables import RUN_STATES, TASK_STATES, TICKET_STATES


@pytest.mark.rule("R6", "R7")
@pytest.mark.parametrize(
    ("table", "states"),
    [(transitions.TASK, TASK_STATES), (transitions.RUN, RUN_STATES), (transitions.TICKET, TICKET_STATES)],
)
def test_the_tables_know_exactly_the_states_that_rows_may_have(table: dict, states: tuple[str, ...]) -> None:
    assert set(table) == set(states)
    assert {after for steps in table.values() for after in steps} <= set(states)


@pytest.mark.rule("R4")
def test_nothing_leads_out_of_a_terminal_state() -> None:
    assert {"COMPLETED", "FAILED", "CANCELED", "REJECTED"} == transitions.TERMINAL_TASK_STATES
    assert transitions.RUN["ENDED"] == frozenset()


@pytest.mark.rule("R4")
@pytest.mark.parametrize("state", sorted(transitions.TERMINAL_TASK_STATES))
def test_a_step_out_of_a_terminal_state_is_refused(state: str) -> None:
    with pytest.raises(IllegalTransition):
        transitions.check(transitions.TASK, state, "WORKING")
