"""A directory of definitions as contents (C7): `agents/NAME.md`, `agents/NAME.yaml`, `tools/NAME.yaml`,
`providers/NAME.yaml`. What becomes of them is decided in `domain.writes`.

A file with faults is reported by path and line, and spares the entity that it is about.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field
from pathlib import PurePosixPath

from google.protobuf import json_format

from threadkeep.config.v1 import entity_pb2
from threadkeep_chassis.errors import FieldInvalid, LimitExceeded
from threadkeep_chassis.limits import Limits
from threadkeep_chassis.validation import Validator
from threadkeep_config import wire
from threadkeep_config.domain.manifest import Reference
from threadkeep_config.domain.values import Content, EntityType, Source, SourceKind
from threadkeep_config.files.shape import Shaped, shape
from threadkeep_config.files.yaml_tree import Tree, YamlFault, read_yaml

_FOLDERS = {"agents": EntityType.AGENT, "tools": EntityType.TOOL, "providers": EntityType.PROVIDER}
MAX_FAULTS = 20
"""How many faults of one file are told: an answer has room for those of many files."""
_FORMS = "agents/NAME.md, agents/NAME.yaml, tools/NAME.yaml and providers/NAME.yaml"
_DESCRIPTORS = {
    EntityType.PROVIDER: entity_pb2.Provider.DESCRIPTOR,
    EntityType.TOOL: entity_pb2.Tool.DESCRIPTOR,
    EntityType.AGENT: entity_pb2.Agent.DESCRIPTOR,
}
_VALIDATOR = Validator()


@dataclass(frozen=True, order=True)
class Problem:
    """A fault in a file. `line` counts from 1; 0 is the whole file."""

    path: str
    line: int
    message: str


@dataclass
class ParsedSet:
    """What a set of files says."""

    contents: dict[Reference, Content] = field(default_factory=dict)
    broken: set[Reference] = field(default_factory=set)
    """What files with faults are about."""
    problems: list[Problem] = field(default_factory=list)


class FileFaults(Exception):
    """What is wrong with one file: (line, message) each."""

    def __init__(self, *faults: tuple[int, str]) -> None:
        super().__init__(len(faults))
        self.faults = faults


def parse_set(files: Iterable[tuple[str, bytes]], limits: Limits) -> ParsedSet:
    """Parses files, given as (path, content). Takes a while for large sets: call it in a thread."""
    parsed = ParsedSet()
    paths: dict[Reference, str] = {}
    for path, content in sorted(files):
        try:
            reference = reference_of(path)
        except FileFaults as error:
            parsed.problems.extend(Problem(path, *fault) for fault in error.faults[:MAX_FAULTS])
            continue
        first = paths.setdefault(reference, path)
        if first != path:
            parsed.problems.append(Problem(path, 0, f"defines the same {reference[0].field} as {first}, which counts"))
            continue
        try:
            found = parse_file(reference[0], path, content)
            limits.check("max_definition_bytes", len(found.definition.encode()))
            parsed.contents[reference] = found
        except FileFaults as error:
            parsed.broken.add(reference)
            parsed.problems.extend(Problem(path, *fault) for fault in error.faults[:MAX_FAULTS])
        except LimitExceeded as error:
            parsed.broken.add(reference)
            parsed.problems.append(Problem(path, 0, error.message))
    parsed.problems.sort()
    return parsed


def reference_of(path: str) -> Reference:
    """What a file is about, by its path. Raises FileFaults."""
    pure = PurePosixPath(path)
    type = _FOLDERS.get(pure.parts[0]) if len(pure.parts) == 2 and str(pure) == path else None
    suffixes = (".yaml", ".md") if type is EntityType.AGENT else (".yaml",)
    if type is None or pure.suffix not in suffixes or pure.stem.startswith(".") or "\\" in path:
        raise FileFaults((0, f"is not the path of a definition: those are {_FORMS}"))
    return type, pure.stem


def parse_file(type: EntityType, path: str, content: bytes) -> Content:
    """The content of one file. Raises FileFaults."""
    try:
        text = content.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        raise FileFaults((content.count(b"\n", 0, error.start) + 1, "is not UTF-8")) from error
    body: str | None = None
    try:
        tree, body = _front_matter(text) if path.endswith(".md") else (read_yaml(text), None)
    except YamlFault as error:
        raise FileFaults((error.line, error.message)) from error
    shaped = Shaped()
    document = shape(tree, _DESCRIPTORS[type], type.field, shaped)
    if body is not None and "system_prompt" in document:
        shaped.faults.append((f"{type.field}.system_prompt", "is the text below the front matter; leave it out there"))
    elif body:
        document["system_prompt"] = body
    if shaped.faults:
        raise _located(shaped.faults, shaped)
    definition = entity_pb2.Definition()
    try:
        json_format.ParseDict({type.field: document}, definition)
        _VALIDATOR.check(definition)
        return wire.content_from(type, definition, Source(SourceKind.FILE, path), "")
    except FieldInvalid as error:
        raise _located(error.violations, shaped) from error


def _front_matter(text: str) -> tuple[Tree, str]:
    """The tree of the YAML between two lines `---` at the top, and the text below it."""
    lines = text.splitlines(keepends=True)
    if not lines or lines[0].rstrip() != "---":
        return Tree(1, {}), text.strip()
    for index in range(1, len(lines)):
        if lines[index].rstrip() == "---":
            return read_yaml("".join(lines[1:index]), 2), "".join(lines[index + 1 :]).strip()
    raise YamlFault(1, "the front matter has no closing line `---`")


def _located(faults: Iterable[tuple[str, str]], shaped: Shaped) -> FileFaults:
    """The faults with their lines, and paths as the file has them."""
    return FileFaults(*((shaped.line_of(path), f"{path.partition('.')[2] or path}: {rule}") for path, rule in faults))
