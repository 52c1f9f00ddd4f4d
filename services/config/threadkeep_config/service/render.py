"""Answers and frames as messages."""

from __future__ import annotations

from collections.abc import Sequence

from threadkeep.config.v1 import config_service_pb2 as pb
from threadkeep.config.v1 import entity_pb2, set_pb2, watch_pb2
from threadkeep_chassis.canonical import canonical_text
from threadkeep_config import wire
from threadkeep_config.commands import SetOutcome
from threadkeep_config.domain.diff import ABSENT, FieldChange
from threadkeep_config.files import Problem
from threadkeep_config.store.cache import Entry
from threadkeep_config.store.tail import Logged
from threadkeep_config.watch import Frame, FrameKind


def resolved(entry: Entry, revision: int) -> pb.ResolveResponse:
    """An entry of the resolver that has a value."""
    return pb.ResolveResponse(entity=_entity(entry), config_revision=revision)


def resolution(entry: Entry) -> pb.Resolution:
    """What a reference resolves to."""
    return pb.Resolution() if entry.value is None else pb.Resolution(entity=_entity(entry))


def _entity(entry: Entry) -> entity_pb2.Entity:
    """The entity of an entry, which is rendered once."""
    message = entry.memo.get("entity")
    if message is None:
        message = entry.memo["entity"] = wire.entity_to(entry.value)
    return message


def set_changes(outcome: Sequence[SetOutcome], *, with_fields: bool, room: int) -> list[set_pb2.SetChange]:
    """What became of a set; with fields as long as there is room for them, in bytes."""
    messages = []
    for one in outcome:
        message = set_pb2.SetChange(action=int(one.action), entity=wire.entity_summary(one.entity))  # type: ignore[arg-type]
        for change in one.fields() if with_fields else ():
            field = field_change(change)
            if field.ByteSize() > room:
                message.fields_left_out = True
                continue
            room -= field.ByteSize()
            message.fields.append(field)
        messages.append(message)
    return messages


def set_problem(problem: Problem) -> set_pb2.SetProblem:
    """A fault in a file."""
    return set_pb2.SetProblem(path=problem.path, line=problem.line, message=problem.message, layer=problem.layer)


def field_change(change: FieldChange) -> entity_pb2.FieldChange:
    """One difference, its values as JSON."""
    message = entity_pb2.FieldChange(path=change.path)
    if change.old is not ABSENT:
        message.old_json = canonical_text(change.old)
    if change.new is not ABSENT:
        message.new_json = canonical_text(change.new)
    return message


def frame(value: Frame) -> pb.WatchResponse:
    """A frame. Frames of one live change, which many watches send alike, are rendered once per set of filters."""
    if value.kind is FrameKind.SYNCED:
        return pb.WatchResponse(synced=watch_pb2.Synced(), revision=value.revision)
    if value.kind is FrameKind.BOOKMARK:
        return pb.WatchResponse(bookmark=watch_pb2.WatchBookmark(), revision=value.revision)
    if len(value.changes) == 1:
        logged, filter_ids = value.changes[0]
        message = logged.memo.get((value.revision, filter_ids))
        if message is None:
            message = logged.memo[value.revision, filter_ids] = _changes(value)
        return message
    return _changes(value)


def _changes(value: Frame) -> pb.WatchResponse:
    changes = [_change(logged, filter_ids) for logged, filter_ids in value.changes]
    return pb.WatchResponse(changes=watch_pb2.EntityChanges(changes=changes), revision=value.revision)


def _change(logged: Logged, filter_ids: tuple[str, ...]) -> watch_pb2.EntityChange:
    entity = logged.memo.get("entity")
    if entity is None:
        entity = logged.memo["entity"] = wire.entity_to(logged.entity)
    return watch_pb2.EntityChange(entity=entity, filter_ids=filter_ids)
