"""Between the contract's messages and the domain's values, both ways. No rule is decided here but what a message is."""

from __future__ import annotations

import json
from datetime import datetime
from functools import lru_cache
from typing import Any

from google.protobuf import duration_pb2, field_mask_pb2, json_format, timestamp_pb2

from threadkeep.common.v1 import payload_pb2
from threadkeep.config.v1 import config_service_pb2, entity_pb2
from threadkeep_chassis.canonical import canonical_text, exact_text, parse_json, sha256_hex
from threadkeep_chassis.database.columns import to_microseconds
from threadkeep_chassis.errors import FieldInvalid, ScopeForbidden
from threadkeep_chassis.scope import Scope, check_scope_values
from threadkeep_config import schemas
from threadkeep_config.domain import checks, definitions
from threadkeep_config.domain.redaction import may_hold_secrets, redacted
from threadkeep_config.domain.values import API, Content, Entity, EntityType, Key, Source


def _sorted(value: Any) -> Any:
    if isinstance(value, dict):
        return {name: _sorted(value[name]) for name in sorted(value)}
    return [_sorted(item) for item in value] if isinstance(value, list) else value


# Embedded JSON keeps its numbers exactly as they were written (X8), so its normal form is not the canonical one.
JSON_RULES = checks.JsonRules(
    parse_json, lambda value: exact_text(_sorted(value)), schemas.schema_fault, schemas.bounded_schema_fault
)


def entity_type(number: int, path: str) -> EntityType:
    """The type of the contract's number. Raises FieldInvalid, naming `path`."""
    try:
        return EntityType(number)
    except ValueError as error:
        raise FieldInvalid(path, "is not a type that this server knows") from error


def scope_from(message: payload_pb2.Scope, path: str) -> Scope:
    """The scope of a message. Raises FieldInvalid, naming `path`."""
    values = dict(message.values)
    check_scope_values(values, path)
    return Scope(values)


def target_from(key: config_service_pb2.EntityKey, caller: Scope) -> tuple[Key, Scope]:
    """Which entity a request means, and in which scope. Raises ScopeForbidden for a broader or foreign one (C4)."""
    target = caller
    if key.HasField("target_scope"):
        target = scope_from(key.target_scope, "key.target_scope")
        if not caller.contains(target):
            raise ScopeForbidden("target_scope must hold all keys and values of the caller's scope.")
    return Key(entity_type(key.type, "key.type"), key.name, target.key), target


def content_from(type: EntityType, definition: entity_pb2.Definition, source: Source, prefix: str) -> Content:
    """The content of a definition. Raises FieldInvalid for what breaks a rule; paths begin with `prefix`."""
    if definition.WhichOneof("definition") != type.field:
        raise FieldInvalid(prefix.rstrip("."), f"must be of the key's type: set `{type.field}`")
    try:
        document = json_format.MessageToDict(definition, preserving_proto_field_name=True)
    except (ValueError, json_format.Error) as error:
        # Of our fields only a duration has values without a JSON form.
        raise FieldInvalid(f"{prefix}{type.field}", "holds a duration that is out of range") from error
    text = canonical_text(definitions.checked(type, document, JSON_RULES, prefix))
    return Content(source, text, sha256_hex(text.encode()))


def check_definition(type: EntityType, document: dict[str, Any]) -> None:
    """Raises FieldInvalid if a stored definition breaks a rule of today."""
    definitions.checked(type, document, JSON_RULES, "definition.")


def updated(
    type: EntityType, current: dict[str, Any], definition: entity_pb2.Definition, mask: field_mask_pb2.FieldMask
) -> entity_pb2.Definition:
    """A stored definition with the fields of the mask as `definition` has them. Raises FieldInvalid."""
    message = definition_to(current)
    target: Any = getattr(message, type.field)
    if not mask.paths:
        raise FieldInvalid("update_mask", "must name a field; leave the mask out to replace everything")
    known = target.DESCRIPTOR.fields_by_name
    for index, path in enumerate(mask.paths):
        if not field_mask_pb2.FieldMask(paths=[path]).IsValidForDescriptor(target.DESCRIPTOR):
            raise FieldInvalid(
                f"update_mask.paths[{index}]", "names no field; the fields are " + ", ".join(sorted(known))
            )
    mask.MergeMessage(getattr(definition, type.field), target, replace_message_field=True, replace_repeated_field=True)
    return message


def definition_of(text: str) -> dict[str, Any]:
    """The JSON of a stored definition; empty for a hidden or deleted entity."""
    document: dict[str, Any] = parse_json(text) if text else {}
    return document


def entity_to(entity: Entity) -> entity_pb2.Entity:
    """Renders an entity."""
    text = entity.content.definition
    # What is stored was parsed strictly once, and this is much faster.
    return _render(entity, definition_to(shown(entity.content, json.loads(text))) if text else None)


def shown(content: Content, definition: dict[str, Any]) -> dict[str, Any]:
    """A content's definition for whoever may read it: without secrets that are stored all the same (C8)."""
    # Not by the digest, which whoever wrote past the checks may have left as it was.
    text_hash = hash(content.definition)
    if not may_hold_secrets(definition) or text_hash in _CLEAN:
        return definition
    found = redacted(definition)
    if found != definition:
        return found
    while len(_CLEAN) >= CLEAN_KEPT:
        _CLEAN.pop(next(iter(_CLEAN)))
    _CLEAN[text_hash] = None
    return definition


_CLEAN: dict[int, None] = {}
"""Definitions that were found to hold no secret: looking takes longer than rendering."""
CLEAN_KEPT = 32_768


def entity_summary(entity: Entity) -> entity_pb2.Entity:
    """Renders an entity without its definition."""
    return _render(entity, None)


def definition_to(document: dict[str, Any]) -> entity_pb2.Definition:
    """The message of a definition's JSON. Faster than protobuf's JSON parser, which is left the odd cases."""
    try:
        if "provider" in document and "timeout" in document["provider"]:
            length = duration_pb2.Duration()
            length.FromJsonString(document["provider"]["timeout"])
            document = {"provider": {**document["provider"], "timeout": length}}
        return entity_pb2.Definition(**document)
    except (TypeError, ValueError):
        # A newer server may have written a field that this one does not know.
        return json_format.ParseDict(document, entity_pb2.Definition(), ignore_unknown_fields=True)


def _render(entity: Entity, definition: entity_pb2.Definition | None) -> entity_pb2.Entity:
    key, content = entity.key, entity.content
    return entity_pb2.Entity(
        type=int(key.type),  # type: ignore[arg-type]
        name=key.name,
        scope=_scope_to(entity.scope),
        definition=definition,
        hidden=content.hidden,
        revision=entity.revision,
        digest=content.digest,
        source=_API_SOURCE if content.source is API else _source_to(content.source),
        create_time=_time_to(entity.create_time),
        update_time=_time_to(entity.update_time),
        deleted=entity.deleted,
    )


def _source_to(source: Source) -> entity_pb2.Source:
    return entity_pb2.Source(kind=int(source.kind), path=source.path)  # type: ignore[arg-type]


_API_SOURCE = _source_to(API)


def _time_to(time: datetime) -> timestamp_pb2.Timestamp:
    seconds, microseconds = divmod(to_microseconds(time), 1_000_000)
    return timestamp_pb2.Timestamp(seconds=seconds, nanos=microseconds * 1000)


@lru_cache(maxsize=2048)
def _scope_to(text: str) -> payload_pb2.Scope:
    return payload_pb2.Scope(values=parse_json(text))
