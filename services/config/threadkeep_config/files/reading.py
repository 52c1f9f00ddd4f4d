"""One file as a content: YAML fields, or front matter and a text. Faults are told by line."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

from google.protobuf import json_format

from threadkeep.config.v1 import definition_pb2, entity_pb2
from threadkeep_chassis.errors import FieldInvalid
from threadkeep_chassis.validation import Validator
from threadkeep_config import wire
from threadkeep_config.domain.values import Content, EntityType, Source, SourceKind
from threadkeep_config.files.shape import Shaped, shape
from threadkeep_config.files.yaml_tree import Line, Tree, YamlFault, read_yaml

DESCRIPTORS = {
    EntityType.PROVIDER: entity_pb2.Provider.DESCRIPTOR,
    EntityType.TOOL: entity_pb2.Tool.DESCRIPTOR,
    EntityType.AGENT: entity_pb2.Agent.DESCRIPTOR,
    EntityType.SKILL: definition_pb2.Skill.DESCRIPTOR,
    EntityType.MCP_SERVER: definition_pb2.McpServer.DESCRIPTOR,
    EntityType.SANDBOX_PROFILE: definition_pb2.SandboxProfile.DESCRIPTOR,
    EntityType.DEFAULTS: definition_pb2.Defaults.DESCRIPTOR,
    EntityType.CUSTOM: definition_pb2.Custom.DESCRIPTOR,
    EntityType.CUSTOM_SCHEMA: definition_pb2.CustomSchema.DESCRIPTOR,
}
_VALIDATOR = Validator()


class FileFaults(Exception):
    """What is wrong with one file: (line, message) each."""

    def __init__(self, *faults: tuple[int, str]) -> None:
        super().__init__(len(faults))
        self.faults = faults


def read_text(content: bytes) -> str:
    """The text of a file. Raises FileFaults."""
    try:
        return content.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        raise FileFaults((content.count(b"\n", 0, error.start) + 1, "is not UTF-8")) from error


Layers = Mapping[int, bytes]
"""One file's bytes by layer. The highest wins."""


def parse_file(type: EntityType, path: str, layers: Layers) -> tuple[Content, Shaped]:
    """The content of one file, and where in it things are. Raises FileFaults."""
    tree, body = read_layers(path, layers)
    shaped = Shaped()
    if is_hidden(tree):
        if body:
            raise FileFaults((tree.key_lines["hidden"], "hidden: must stand alone, without a text below"))
        return Content(Source(SourceKind.FILE, path), hidden=True), shaped
    document = shape(tree, DESCRIPTORS[type], type.field, shaped)
    if body is not None and "system_prompt" in document:
        shaped.faults.append((f"{type.field}.system_prompt", "is the text below the front matter; leave it out there"))
    elif body:
        document["system_prompt"] = body
    return to_content(type, path, document, shaped), shaped


def read_layers(path: str, layers: Layers) -> tuple[Tree, str | None]:
    """The merged tree of a file's layers, and for Markdown the text of the highest that has one. Raises FileFaults."""
    merged, body = Tree(Line(1, min(layers)), {}), None
    for layer, content in sorted(layers.items()):
        try:
            text = read_text(content)
            tree, own = front_matter(text, layer) if path.endswith(".md") else (read_yaml(text, layer=layer), None)
        except YamlFault as error:
            raise FileFaults((Line(error.line, layer), error.message)) from error
        except FileFaults as error:
            raise FileFaults(*((Line(line, layer), message) for line, message in error.faults)) from error
        # To hide is to say nothing of what lies below.
        hides = isinstance(tree.value, dict) and "hidden" in tree.value
        merged = tree if hides or (isinstance(merged.value, dict) and "hidden" in merged.value) else merged.below(tree)
        body = own if hides or own or body is None else body
    return merged, body


def is_hidden(tree: Tree) -> bool:
    """True for `hidden: true` alone, which hides what the scope would inherit. Raises FileFaults if it is not alone."""
    found = tree.value.get("hidden") if isinstance(tree.value, dict) else None
    if found is None or found.value is not True:
        return False
    if len(tree.value) > 1:
        raise FileFaults((tree.key_lines["hidden"], "hidden: must stand alone: what is hidden has no definition"))
    return True


def to_content(type: EntityType, path: str, document: dict[str, Any], shaped: Shaped) -> Content:
    """The content of a definition's JSON that `shape` made. Raises FileFaults."""
    if shaped.faults:
        raise located(shaped.faults, shaped)
    definition = entity_pb2.Definition()
    try:
        json_format.ParseDict({type.field: document}, definition)
        _VALIDATOR.check(definition)
        return wire.content_from(type, definition, Source(SourceKind.FILE, path), "")
    except FieldInvalid as error:
        raise located(error.violations, shaped) from error


def front_matter(text: str, layer: int = 0) -> tuple[Tree, str]:
    """The tree of the YAML between two lines `---` at the top, and the text below it. Raises YamlFault."""
    lines = text.splitlines(keepends=True)
    if not lines or lines[0].rstrip() != "---":
        return Tree(Line(1, layer), {}), text.strip()
    for index in range(1, len(lines)):
        if lines[index].rstrip() == "---":
            return read_yaml("".join(lines[1:index]), 2, layer), "".join(lines[index + 1 :]).strip()
    raise YamlFault(1, "the front matter has no closing line `---`")


def located(faults: Iterable[tuple[str, str]], shaped: Shaped) -> FileFaults:
    """The faults with their lines, and paths as the file has them."""
    return FileFaults(*(fault_line(path, rule, shaped) for path, rule in faults))


def fault_line(path: str, rule: str, shaped: Shaped) -> tuple[int, str]:
    """The line and the text of a fault."""
    return shaped.line_of(path), f"{path.partition('.')[2] or path}: {rule}"
