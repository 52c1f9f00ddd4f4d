"""A skill's folder as a content: SKILL.md in the form of the open Agent Skills format, and the files beside it."""

from __future__ import annotations

import base64
from collections.abc import Mapping
from typing import Any

from threadkeep_config.domain.values import Content, EntityType, Source, SourceKind
from threadkeep_config.files.reading import DESCRIPTORS, FileFaults, Layers, is_hidden, read_layers, to_content
from threadkeep_config.files.shape import Shaped, shape
from threadkeep_config.files.yaml_tree import Tree

SKILL_FILE = "SKILL.md"


def parse_skill(name: str, files: Mapping[str, Layers]) -> Content:
    """The content of `skills/NAME/...`, path to bytes. Faults are those of SKILL.md. Raises FileFaults."""
    folder = f"skills/{name}/"
    path = folder + SKILL_FILE
    if path not in files:
        raise FileFaults((0, f"is missing beside {min(files)}"))
    tree, body = read_layers(path, files[path])
    if is_hidden(tree):
        return Content(Source(SourceKind.FILE, path), hidden=True)
    shaped = Shaped()
    document = shape(_as_fields(tree, name, shaped), DESCRIPTORS[EntityType.SKILL], "skill", shaped)
    for field in ("instructions", "files"):
        if field in document:
            shaped.faults.append((f"skill.{field}", "is what lies below the front matter, and beside the file"))
    if body:
        document["instructions"] = body
    beside = [
        {"path": one.removeprefix(folder), "content": base64.b64encode(layers[max(layers)]).decode()}
        for one, layers in sorted(files.items())
        if one != path
    ]
    if beside:
        document["files"] = beside
    return to_content(EntityType.SKILL, path, document, shaped)


def _as_fields(tree: Tree, name: str, shaped: Shaped) -> Tree:
    """The front matter with the contract's names: `allowed-tools` is a text with spaces there, `name` the folder's."""
    if not isinstance(tree.value, dict):
        return tree
    fields: dict[str, Any] = {}
    lines: dict[str, int] = {}
    for key, value in tree.value.items():
        if key == "name":
            if value.value != name:
                shaped.lines["skill.name"] = tree.key_lines[key]
                shaped.faults.append(("skill.name", "must be the name of the folder"))
            continue
        field = key.replace("-", "_")
        if field == "allowed_tools" and isinstance(value.value, str):
            value = Tree(value.line, [Tree(value.line, one) for one in value.value.replace(",", " ").split()])
        fields[field], lines[field] = value, tree.key_lines[key]
    return Tree(tree.line, fields, lines)
