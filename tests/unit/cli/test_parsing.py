"""What people type becomes scopes, grants, addresses and values, or is refused with an example."""

from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

from threadkeep.runtime.v1 import task_pb2
from threadkeep_cli import parsing
from threadkeep_cli.exits import UsageProblem


@pytest.mark.rule("X1")
@pytest.mark.parametrize(
    ("text", "scope"),
    [
        ("tenant=acme", {"tenant": "acme"}),
        ("tenant=acme,user=ü=1", {"tenant": "acme", "user": "ü=1"}),
        ('{"tenant": "a,b=c"}', {"tenant": "a,b=c"}),
        ("{}", {}),
    ],
)
def test_a_scope_is_read(text: str, scope: dict[str, str]) -> None:
    assert parsing.parse_scope(text) == scope


def test_a_grant_is_all_or_scopes() -> None:
    assert parsing.parse_grant("all") == "all"
    assert parsing.parse_grant("tenant=a; tenant=b") == [{"tenant": "a"}, {"tenant": "b"}]


def test_a_target_is_one_address_or_one_for_each_service() -> None:
    assert parsing.parse_target("127.0.0.1:1") == "127.0.0.1:1"
    assert parsing.parse_target("runtime=a:1,config=unix:/x") == {"runtime": "a:1", "config": "unix:/x"}


def test_states_are_named_shortly() -> None:
    found = parsing.parse_enums(task_pb2.TaskState, "TASK_STATE", ["completed,input-required", "Failed"], "--state")
    assert found == [
        task_pb2.TASK_STATE_COMPLETED,
        task_pb2.TASK_STATE_INPUT_REQUIRED,
        task_pb2.TASK_STATE_FAILED,
    ]


def test_times_have_a_zone_or_count_from_now() -> None:
    now = datetime(2026, 1, 31, tzinfo=UTC)
    assert parsing.parse_time("90m", "--not-before", now) == now + timedelta(minutes=90)
    assert parsing.parse_time("3d", "--not-before", now) == now + timedelta(days=3)
    assert parsing.parse_time("2026-01-31T01:00:00+01:00", "--not-before") == now


@pytest.mark.parametrize(
    "parse",
    [
        lambda: parsing.parse_scope(""),
        lambda: parsing.parse_scope("tenant"),
        lambda: parsing.parse_scope("a=1,a=2"),
        lambda: parsing.parse_scope('{"a": 1}'),
        lambda: parsing.parse_scope("{"),
        lambda: parsing.parse_grant(""),
        lambda: parsing.parse_grant("all;a=b"),
        lambda: parsing.parse_target("nowhere=a:1"),
        lambda: parsing.parse_json("yes", "--value"),
        lambda: parsing.parse_json("@/no/such/file", "--value"),
        lambda: parsing.parse_cursor("?"),
        lambda: parsing.parse_time("tomorrow", "--not-before"),
        lambda: parsing.parse_time("2026-01-31T08:00:00", "--not-before"),
        lambda: parsing.parse_enums(task_pb2.TaskState, "TASK_STATE", ["unspecified"], "--state"),
    ],
)
def test_what_can_not_be_read_is_refused_in_words(parse: Callable[[], Any]) -> None:
    with pytest.raises(UsageProblem) as refused:
        parse()
    assert str(refused.value)
