"""What a write does to what is there (C4, C5, C7). Pure: from an entity and a wish to a new content, or a refusal."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Set
from dataclasses import dataclass
from enum import IntEnum

from threadkeep_chassis.errors import RevisionConflict
from threadkeep_config.domain.errors import EntityNotFound, FileManaged
from threadkeep_config.domain.values import Content, Entity, Key


@dataclass(frozen=True)
class Change:
    """One revision to be made: the entity as it was locked, and its next content. A deletion keeps a tombstone."""

    before: Entity
    content: Content
    deleted: bool = False


def put(current: Entity, content: Content, expected_revision: int | None) -> Change | None:
    """Puts a content over the API; None when it is there already.

    `current` may be a tombstone or a row that was never written: then it does not exist, and counts as revision 0.
    Raises FileManaged, RevisionConflict, FieldInvalid.
    """
    check_writable(current, expected_revision)
    if current.exists and current.content == content:
        return None
    return Change(current, content)


def check_writable(current: Entity, expected_revision: int | None) -> None:
    """Raises FileManaged, RevisionConflict."""
    if current.exists and current.content.source.is_file:
        raise FileManaged()
    compare(current, expected_revision)


def delete(current: Entity | None, expected_revision: int | None) -> Change:
    """Deletes over the API. Raises EntityNotFound, FileManaged, RevisionConflict, FieldInvalid."""
    if current is None or not current.exists:
        raise EntityNotFound()
    if current.content.source.is_file:
        raise FileManaged()
    compare(current, expected_revision)
    return Change(current, Content(current.content.source), deleted=True)


def compare(current: Entity, expected_revision: int | None) -> None:
    """Raises RevisionConflict unless the entity is at the expected revision (0: does not exist; None: whatever)."""
    if expected_revision is None:
        return
    actual = current.revision if current.exists else 0
    if expected_revision != actual:
        raise RevisionConflict(actual)


class SetAction(IntEnum):
    """What becomes of one entity of a set, with the contract's numbers."""

    CREATED = 1
    UPDATED = 2
    DELETED = 3
    UNCHANGED = 4
    SHADOWED = 5
    KEPT = 6


@dataclass(frozen=True)
class SetStep:
    """What becomes of one entity. `change` is None where nothing is written."""

    action: SetAction
    entity: Entity
    change: Change | None = None


def plan_set(
    current: Mapping[Key, Entity], wanted: Mapping[Key, Content], broken: Set[Key], *, keep_missing: bool = False
) -> list[SetStep]:
    """Plans a set, by key.

    `current` holds an entity for each wanted key (never written, where there is none) and every file entity of the
    scope. File entities that are neither wanted nor `broken` (their file has errors) go, or stay with `keep_missing`.
    """
    steps = []
    for key in sorted(current.keys() | wanted.keys()):
        entity = current[key]
        content = wanted.get(key)
        if content is None:
            if not entity.exists or not entity.content.source.is_file or key in broken:
                continue
            if keep_missing:
                steps.append(SetStep(SetAction.KEPT, entity))
            else:
                change = Change(entity, Content(entity.content.source), deleted=True)
                steps.append(SetStep(SetAction.DELETED, entity, change))
        elif entity.exists and not entity.content.source.is_file:
            steps.append(SetStep(SetAction.SHADOWED, entity))
        elif entity.exists and entity.content == content:
            steps.append(SetStep(SetAction.UNCHANGED, entity))
        else:
            action = SetAction.UPDATED if entity.exists else SetAction.CREATED
            steps.append(SetStep(action, entity, Change(entity, content)))
    return steps


def changes(steps: Iterable[SetStep]) -> list[Change]:
    """The revisions that a plan makes, in its order."""
    return [step.change for step in steps if step.change is not None]
