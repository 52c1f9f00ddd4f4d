"""Entities as files that ApplySet would make them from: readable YAML and Markdown, and never another content.

Whatever is written is read again before it is given out: what does not come back as it was is written more plainly.
"""

from __future__ import annotations

import base64
import io
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from typing import Any

from google.protobuf.descriptor import Descriptor, FieldDescriptor
from ruamel.yaml import YAML
from ruamel.yaml.scalarstring import LiteralScalarString

from threadkeep_chassis.canonical import parse_json
from threadkeep_config.domain.redaction import redacted
from threadkeep_config.domain.values import Content, Entity, EntityType
from threadkeep_config.files.reading import DESCRIPTORS, FileFaults, parse_file
from threadkeep_config.files.shape import holds_json
from threadkeep_config.files.skills import SKILL_FILE, parse_skill

Files = list[tuple[str, bytes]]


@dataclass
class Exported:
    """What entities are as files."""

    files: Files = field(default_factory=list)
    problems: list[tuple[str, str]] = field(default_factory=list)
    """(path that comes nearest, why no file can hold the entity)."""


def export_entity(entity: Entity, folder: str) -> Files | None:
    """The files of one entity, or None if no file can hold it. Takes a while: call it in a thread."""
    for files in _forms(entity, folder):
        if _reads_as(files, entity):
            return files
    return None


def _forms(entity: Entity, folder: str) -> Iterator[Files]:
    """Ways to write an entity, the most readable first."""
    type, name = entity.key.type, entity.key.name
    path = f"{folder}/{name}"
    if entity.content.hidden:
        yield [(f"{path}.yaml", b"hidden: true\n")]
        return
    body: dict[str, Any] = redacted(parse_json(entity.content.definition))[type.field]
    descriptor = DESCRIPTORS[type]
    if type is EntityType.SKILL:
        for is_open in (True, False):
            yield _skill(path, name, body, descriptor, is_open)
    for is_open in (True, False):
        fields = _readable(body, descriptor, is_open)
        if type is EntityType.AGENT and "system_prompt" in fields:
            prompt = fields.pop("system_prompt")
            yield [(f"{path}.md", _markdown(fields, str(prompt)))]
            fields["system_prompt"] = prompt
        yield [(f"{path}.yaml", _yaml(fields).encode())]


def _skill(path: str, name: str, body: dict[str, Any], descriptor: Descriptor, is_open: bool) -> Files:
    fields = _readable(
        {key: one for key, one in body.items() if key not in ("files", "instructions")}, descriptor, is_open
    )
    if "allowed_tools" in fields:
        fields["allowed-tools"] = fields.pop("allowed_tools")
    text = _markdown({"name": name, **fields}, str(body.get("instructions", "")))
    beside = [(f"{path}/{one['path']}", base64.b64decode(one.get("content", ""))) for one in body.get("files", ())]
    return [(f"{path}/{SKILL_FILE}", text), *beside]


def _markdown(fields: dict[str, Any], text: str) -> bytes:
    front = f"---\n{_yaml(fields)}---\n\n" if fields else "---\n---\n\n"
    return f"{front}{text}\n".encode()


def _readable(body: dict[str, Any], descriptor: Descriptor, is_open: bool) -> dict[str, Any]:
    """The fields of a message as YAML has them: in the contract's order, JSON written out if `is_open`."""
    fields: dict[str, Any] = {}
    for one in descriptor.fields:
        if one.name not in body:
            continue
        value = body[one.name]
        if is_open and holds_json(one):
            fields[one.name.removesuffix("_json")] = _plain(parse_json(value))
        elif isinstance(value, list):
            fields[one.name] = [_single(one, item, is_open) for item in value]
        else:
            fields[one.name] = _single(one, value, is_open)
    return fields


def _single(one: FieldDescriptor, value: Any, is_open: bool) -> Any:
    inner = one.message_type
    if inner is not None and isinstance(value, dict) and not inner.GetOptions().map_entry:
        fields = _readable(value, inner, is_open)
        only = inner.fields[0]
        # A message that exists to make a list optional is written as the list.
        return fields.get(only.name, []) if len(inner.fields) == 1 and only.is_repeated else fields
    if one.type == FieldDescriptor.TYPE_INT64:
        return int(value)
    return _plain(value)


def _plain(value: Any) -> Any:
    if isinstance(value, dict):
        return {name: _plain(inner) for name, inner in value.items()}
    if isinstance(value, list):
        return [_plain(inner) for inner in value]
    if isinstance(value, str) and "\n" in value:
        return LiteralScalarString(value)
    # Numbers may be of a class that remembers how they were written.
    if isinstance(value, float):
        return float(value)
    return int(value) if isinstance(value, int) and not isinstance(value, bool) else value


def _yaml(fields: dict[str, Any]) -> str:
    if not fields:
        return ""
    yaml = YAML()
    yaml.allow_unicode = True
    yaml.width = 1_000_000
    yaml.default_flow_style = False
    out = io.StringIO()
    yaml.dump(fields, out)
    return out.getvalue()


def _reads_as(files: Files, entity: Entity) -> bool:
    """True if the files make exactly this content."""
    from threadkeep_config.files import reference_of

    wanted = (entity.key.type, entity.key.name)
    try:
        if any(len(path) > 256 or reference_of(path)[0] != wanted for path, _ in files):
            return False
        layers = {path: {0: content} for path, content in files}
        first = files[0][0]
        found: Content
        if first.endswith(f"/{SKILL_FILE}"):
            found = parse_skill(entity.key.name, layers)
        else:
            found, _ = parse_file(entity.key.type, first, layers[first])
    except (FileFaults, UnicodeError):
        return False
    return (found.definition, found.hidden) == (entity.content.definition, entity.content.hidden)


def export_entities(entities: Iterable[Entity], folders: dict[EntityType, str]) -> Exported:
    """Several entities."""
    exported = Exported()
    for entity in entities:
        folder = folders[entity.key.type]
        try:
            files = export_entity(entity, folder)
        except (ValueError, TypeError):
            files = None
        if files is None:
            path = f"{folder}/{entity.key.name}.yaml"
            exported.problems.append(
                (path, "no file of a set can hold this entity: its name or its content has no form")
            )
        else:
            exported.files += files
    return exported
