"""Answers and frames as messages."""

from __future__ import annotations

from threadkeep.config.v1 import config_service_pb2 as pb
from threadkeep.config.v1 import watch_pb2
from threadkeep_chassis.canonical import canonical_text
from threadkeep_config import wire
from threadkeep_config.domain.diff import ABSENT, FieldChange
from threadkeep_config.store.cache import Entry
from threadkeep_config.store.tail import Logged
from threadkeep_config.watch import Frame, FrameKind


def resolved(entry: Entry, revision: int) -> pb.ResolveResponse:
    """An entry of the resolver; its entity is rendered once."""
    message = entry.memo.get("entity")
    if message is None:
        message = entry.memo["entity"] = wire.entity_to(entry.value)
    return pb.ResolveResponse(entity=message, config_revision=revision)


def field_change(change: FieldChange) -> pb.FieldChange:
    """One difference, its values as JSON."""
    message = pb.FieldChange(path=change.path)
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
