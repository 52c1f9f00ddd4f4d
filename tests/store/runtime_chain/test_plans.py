"""What a view reads is found by keys, so that its cost does not grow with the thread (R12)."""

from typing import Any

import pytest
import sqlalchemy as sa

from threadkeep_runtime.store import messages, state
from threadkeep_runtime.tables import metadata

AT = {"thread_key": "t", "commit_sequence": 5}
ALL = {"scope_key": "s", "after": "", "open_run_id": "", "count": 5}


@pytest.mark.rule("R12", "R11")
@pytest.mark.parametrize(
    ("statement", "bound", "steps"),
    [
        (state._VIEW, {**AT, **ALL}, ["thread_key=? AND key=? AND commit_sequence=?", "commit_sequence<?"]),
        (
            state._HEADS,
            {"pairs": [("t", "k")], "thread_keys": ["t"], "keys": ["k"]},
            ["thread_key=? AND key=? AND commit_sequence=?"],
        ),
        (messages._REMOVED, {**AT, "after": 0}, ["messages_removed (thread_key=? AND to_commit>? AND to_commit<?)"]),
        (messages._PLACES, AT, ["thread_key=? AND commit_sequence<?"]),
        (messages._AT, {**AT, "positions": [1, 2]}, ["thread_key=? AND position=? AND from_commit<?"]),
    ],
)
def test_a_view_looks_up_and_scans_nothing(statement: Any, bound: dict[str, Any], steps: list[str]) -> None:
    engine = sa.create_engine("sqlite://")
    metadata.create_all(engine)

    @sa.event.listens_for(engine, "before_cursor_execute", retval=True)
    def explain(_c: Any, _u: Any, text: str, values: Any, _x: Any, _m: bool) -> tuple[str, Any]:
        return f"EXPLAIN QUERY PLAN {text}" if text.lstrip().startswith("SELECT") else text, values

    with engine.connect() as connection:
        plan = [row[3] for row in connection.execute(statement, bound).cursor.fetchall()]
    assert [step for step in plan if step.startswith("SCAN ") and "CONSTANT" not in step] == []
    for expected in steps:
        assert any(expected in step for step in plan), plan
