"""What a write and a set do to what is there (C4, C5, C7), without a database."""

from datetime import UTC, datetime

import pytest
from hypothesis import given
from hypothesis import strategies as st

from threadkeep_chassis.errors import RevisionConflict
from threadkeep_config.domain import writes
from threadkeep_config.domain.diff import diff
from threadkeep_config.domain.errors import EntityNotFound, FileManaged
from threadkeep_config.domain.values import API, Content, Entity, EntityType, Key, Source, SourceKind
from threadkeep_config.domain.writes import SetAction

NOW = datetime(2026, 1, 1, tzinfo=UTC)
FILE = Source(SourceKind.FILE, "tools/x.yaml")


def entity(content: Content, revision: int = 5, *, deleted: bool = False, name: str = "x") -> Entity:
    """An entity."""
    return Entity(Key(EntityType.TOOL, name, "s"), "{}", content, revision, deleted, NOW, NOW)


NEVER = entity(Content(API), 0, deleted=True)


@pytest.mark.rule("C5")
def test_the_same_content_is_no_change() -> None:
    content = Content(API, "{}", "d")
    assert writes.put(entity(content), content, None) is None
    assert writes.put(entity(content), content, 5) is None
    assert writes.put(entity(Content(API), deleted=True), content, 0) is not None
    assert writes.put(entity(content), Content(API, hidden=True), None) is not None


@pytest.mark.rule("C7", "X4")
def test_a_file_is_refused_before_revisions_are_compared() -> None:
    with pytest.raises(FileManaged):
        writes.put(entity(Content(FILE, "{}", "d")), Content(API), 99)
    with pytest.raises(FileManaged):
        writes.delete(entity(Content(FILE, "{}", "d")), 99)


@pytest.mark.rule("X4")
@pytest.mark.parametrize(
    ("current", "expected", "actual"),
    [
        (entity(Content(API)), 4, 5),
        (entity(Content(API)), 0, 5),
        (NEVER, 5, 0),
        (entity(Content(API), deleted=True), 5, 0),
    ],
)
def test_a_conflict_names_the_current_revision(current: Entity, expected: int, actual: int) -> None:
    with pytest.raises(RevisionConflict) as caught:
        writes.put(current, Content(API, "{}", "d"), expected)
    assert caught.value.current == actual


@pytest.mark.rule("C1")
@pytest.mark.parametrize("current", [None, NEVER, entity(Content(API), deleted=True)])
def test_what_does_not_exist_is_not_deleted(current: Entity | None) -> None:
    with pytest.raises(EntityNotFound):
        writes.delete(current, None)


states = st.sampled_from(["never", "api", "file", "deleted api", "deleted file"])
wishes = st.sampled_from(["none", "same", "other", "broken"])


@pytest.mark.rule("C7")
@given(st.lists(st.tuples(states, wishes), max_size=8))
def test_a_set_applied_again_changes_nothing(rows: list[tuple[str, str]]) -> None:
    current, wanted, broken = {}, {}, set()
    for number, (state, wish) in enumerate(rows):
        name = f"t{number}"
        key = Key(EntityType.TOOL, name, "s")
        source = Source(SourceKind.FILE, name) if "file" in state else API
        revision = 0 if state == "never" else number + 1
        deleted = state == "never" or "deleted" in state
        content = Content(source) if deleted else Content(source, "{}", "d")
        if state != "never" or wish in ("same", "other"):
            current[key] = entity(content, revision, deleted=deleted, name=name)
        if wish in ("same", "other"):
            wanted[key] = Content(Source(SourceKind.FILE, name), "{}", "d" if wish == "same" else "e")
        if wish == "broken":
            broken.add(key)
    steps = writes.plan_set(current, wanted, broken)
    after = dict(current)
    for number, change in enumerate(writes.changes(steps)):
        assert not (change.before.exists and not change.before.content.source.is_file), "the API's rows are untouched"
        assert change.before.key not in broken, "what a broken file is about stays"
        after[change.before.key] = entity(
            change.content, 100 + number, deleted=change.deleted, name=change.before.key.name
        )
    again = writes.plan_set(after, wanted, broken)
    assert writes.changes(again) == []
    files = {key for key, row in after.items() if row.exists and row.content.source.is_file}
    assert {key for key in files if key not in broken} <= wanted.keys()
    shadowed = {step.entity.key for step in steps if step.action is SetAction.SHADOWED}
    assert wanted.keys() == {key for key in files if key in wanted} | shadowed


# A field is always a message or always a value.
messages = st.dictionaries(st.sampled_from("xy"), st.integers(), min_size=1)
definitions = st.fixed_dictionaries({}, optional={"a": st.integers(), "b": messages, "c": st.lists(st.integers())})


@pytest.mark.rule("C5")
@given(definitions, definitions)
def test_a_diff_is_empty_for_the_same_and_names_leaves(old: dict[str, object], new: dict[str, object]) -> None:
    changes = diff(old, new)
    assert diff(old, old) == []
    flat_old, flat_new = flatten(old), flatten(new)
    assert [change.path for change in changes] == sorted(
        path for path in flat_old.keys() | flat_new.keys() if flat_old.get(path) != flat_new.get(path)
    )


@pytest.mark.rule("C5")
def test_an_empty_message_is_not_the_same_as_none() -> None:
    (change,) = diff({"agent": {}}, {})
    assert (change.path, change.old) == ("agent", {})
    assert diff({"agent": {}}, {"agent": {"model": "m"}})[0].path == "agent.model"


def flatten(document: dict[str, object]) -> dict[str, object]:
    """Leaves by path."""
    flat: dict[str, object] = {}
    for name, value in document.items():
        if isinstance(value, dict):
            flat.update({f"{name}.{inner}": leaf for inner, leaf in value.items()})
        else:
            flat[name] = value
    return flat
