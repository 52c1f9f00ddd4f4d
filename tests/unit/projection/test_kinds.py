"""What an event or an observation is, by its type and, where that does not say enough, by its payload (P6)."""

from typing import Any

import pytest

from threadkeep_projection.domain.kinds import EVERY_KIND, Kind, kinds_of_event, kinds_of_live

M, T, C, S, X = Kind.MESSAGES, Kind.TOKENS, Kind.TOOL_CALLS, Kind.STATE, Kind.CUSTOM


def fact(**fields: Any) -> dict[str, Any]:
    return {"message": {"message_id": "m", **fields}}


@pytest.mark.rule("P6")
@pytest.mark.parametrize(
    ("type_", "payload", "kinds"),
    [
        ("order.placed", {"message": 1}, (X,)),
        ("threadkeepish.run", None, (X,)),
        ("threadkeep.message.appended", fact(role="MESSAGE_ROLE_USER"), (M,)),
        ("threadkeep.message.appended", fact(role="MESSAGE_ROLE_TOOL"), (M, C)),
        ("threadkeep.message.replaced", fact(tool_calls=[{"name": "add"}]), (M, C)),
        ("threadkeep.message.appended", fact(tool_calls=[]), (M,)),
        ("threadkeep.message.removed", {"message_id": "m"}, (M,)),
        ("threadkeep.message.appended", "no object", (M,)),
        ("threadkeep.message.appended", {"message": None}, (M,)),
        ("threadkeep.task.submitted", None, (M, S)),
        ("threadkeep.task.completed", None, (S,)),
        ("threadkeep.checkpoint.saved", {"checkpoint_ns": "", "channels": ["a", "messages"]}, (M, C, S)),
        ("threadkeep.checkpoint.saved", {"checkpoint_ns": "sub:1", "channels": ["messages"]}, (S,)),
        ("threadkeep.checkpoint.saved", {"channels": "messages"}, (S,)),
        ("threadkeep.checkpoint.saved", None, (S,)),
        ("threadkeep.checkpoint.pruned", None, (S,)),
        ("threadkeep.checkpoint.deleted", None, (M, S)),
        ("threadkeep.checkpoint.rolled_back", None, (M, S)),
        ("threadkeep.session.purged", None, (M, S)),
        ("threadkeep.something.newer", None, (S,)),
    ],
)
def test_what_an_event_is(type_: str, payload: Any, kinds: tuple[Kind, ...]) -> None:
    assert kinds_of_event(type_, lambda: payload) == kinds


@pytest.mark.rule("P6", "R15")
@pytest.mark.parametrize(
    ("kind", "payload", "kinds"),
    [
        ("TOKEN", {"content": "he", "type": "AIMessageChunk"}, (T,)),
        ("TOKEN", {"content": "", "tool_call_chunks": [{"name": "add"}]}, (T, C)),
        ("TOKEN", {"content": "42", "type": "tool"}, (T, C)),
        ("TOKEN", None, (T,)),
        ("TOKEN", [], (T,)),
        ("PROGRESS", None, (C,)),
        ("CUSTOM", {"tool_calls": [1]}, (X,)),
        ("", None, (X,)),
    ],
)
def test_what_an_observation_is(kind: str, payload: Any, kinds: tuple[Kind, ...]) -> None:
    assert kinds_of_live(kind, lambda: payload) == kinds


@pytest.mark.rule("P6")
@pytest.mark.parametrize("type_", ["order.placed", "threadkeep.run.queued", "threadkeep.x"])
def test_a_payload_is_not_read_where_the_type_says_it_all(type_: str) -> None:
    def read() -> Any:
        raise AssertionError("read")

    assert set(kinds_of_event(type_, read)) <= EVERY_KIND
