"""Which checkpoint operations a thread takes: order, deletion, and what must be looked up for it (R19, R20)."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from threadkeep_runtime.domain.checkpoints import (
    ChannelValue,
    CheckpointDeleted,
    CheckpointIdOrder,
    CheckpointIndex,
    CheckpointOp,
    CheckpointPut,
    CheckpointWrites,
    PendingWrite,
    decide_checkpoint_ops,
    named_at_or_below,
    saved_payload,
)


def put(checkpoint_id: str, ns: str = "") -> CheckpointPut:
    return CheckpointPut(ns, checkpoint_id, None, b"{}", b"{}")


def writes(checkpoint_id: str, ns: str = "") -> CheckpointWrites:
    return CheckpointWrites(ns, checkpoint_id, (PendingWrite("task", 0, "c", "msgpack", b""),))


def index(*stored: tuple[str, str], deleted_floor: str = "") -> CheckpointIndex:
    greatest: dict[str, str] = {}
    for ns, checkpoint_id in stored:
        greatest[ns] = max(checkpoint_id, greatest.get(ns, ""))
    floor = max([deleted_floor, *greatest.values()])
    return CheckpointIndex(floor, deleted_floor, frozenset(stored), greatest)


@pytest.mark.rule("R20")
@pytest.mark.parametrize("fenced", [True, False])
def test_a_put_raises_the_floor_and_one_that_exists_is_an_update(fenced: bool) -> None:
    decided = decide_checkpoint_ops([put("5"), put("7", "child"), put("5")], index(("", "4")), fenced=fenced)
    assert decided.floor == "7"
    assert [one.checkpoint_id for one in decided.saved] == ["5", "7", "5"]
    assert decide_checkpoint_ops([put("4")], index(("", "4")), fenced=fenced).floor == "4"


@pytest.mark.rule("R20")
def test_a_fenced_put_of_a_new_id_sorts_above_its_namespaces_greatest() -> None:
    with pytest.raises(CheckpointIdOrder) as refused:
        decide_checkpoint_ops([put("3")], index(("", "4")), fenced=True)
    assert refused.value.violations[0][0] == "put.checkpoint_id"
    assert refused.value.metadata == {"greatest_checkpoint_id": "4"}
    with pytest.raises(CheckpointIdOrder):
        decide_checkpoint_ops([put("9"), put("8")], index(("", "4")), fenced=True)


@pytest.mark.rule("R19")
@pytest.mark.parametrize("op", [put("4"), writes("4"), put("2", "never-seen"), writes("2", "never-seen")])
@pytest.mark.parametrize("fenced", [True, False])
def test_what_was_deleted_does_not_come_back(op: CheckpointOp, fenced: bool) -> None:
    with pytest.raises(CheckpointDeleted):
        decide_checkpoint_ops([op], index(deleted_floor="4"), fenced=fenced)


@pytest.mark.rule("R19")
def test_an_id_that_its_namespace_has_passed_counts_as_deleted() -> None:
    for op in (put("3"), writes("3")):
        with pytest.raises(CheckpointDeleted):
            decide_checkpoint_ops([op], index(("", "4")), fenced=False)


@pytest.mark.rule("R19", "R20")
def test_writes_may_arrive_before_their_checkpoint() -> None:
    decided = decide_checkpoint_ops([writes("5"), put("5"), writes("5")], index(("", "4")), fenced=True)
    assert decided.floor == "5"


@pytest.mark.rule("R20")
@pytest.mark.parametrize("fenced", [True, False])
def test_subgraphs_side_by_side_save_in_any_order(fenced: bool) -> None:
    stored = index(("", "4"), ("a:1", "6"))
    decided = decide_checkpoint_ops([put("5", "b:1"), writes("5", "b:1")], stored, fenced=fenced)
    assert decided.floor == "6"


@pytest.mark.rule("R20")
@given(
    st.lists(st.tuples(st.sampled_from(["", "a", "b"]), st.sampled_from("123456789")), max_size=6),
    st.lists(st.tuples(st.booleans(), st.sampled_from(["", "a", "b"]), st.sampled_from("123456789")), max_size=6),
    st.sampled_from(["", "2", "5"]),
    st.booleans(),
)
def test_looking_up_only_ids_up_to_the_floor_decides_the_same(
    stored: list[tuple[str, str]], named: list[tuple[bool, str, str]], deleted_floor: str, fenced: bool
) -> None:
    ops: list[CheckpointOp] = [(put if is_put else writes)(one, ns) for is_put, ns, one in named]
    whole = index(*stored, deleted_floor=deleted_floor)
    wanted = named_at_or_below(ops, whole.floor)
    missing = {ns for ns, one in wanted if (ns, one) not in whole.existing}
    looked_up = CheckpointIndex(
        whole.floor,
        deleted_floor,
        frozenset(name for name in whole.existing if name in wanted),
        {ns: top for ns, top in whole.greatest.items() if ns in missing},
    )

    def outcome(known: CheckpointIndex) -> object:
        try:
            return decide_checkpoint_ops(ops, known, fenced=fenced)
        except (CheckpointDeleted, CheckpointIdOrder) as refused:
            return str(refused)

    assert outcome(looked_up) == outcome(whole)


def test_the_event_of_a_put_names_what_is_new() -> None:
    one = CheckpointPut("ns", "5", "4", b"{}", b"{}", (ChannelValue("messages", "3", "msgpack", b"secret"),))
    assert saved_payload(one) == {
        "checkpoint_ns": "ns",
        "checkpoint_id": "5",
        "parent_checkpoint_id": "4",
        "channels": ["messages"],
    }
