"""A directory of definitions as contents (C7): `agents/NAME.md`, `skills/NAME/SKILL.md` with the files beside it, and
`FOLDER/NAME.yaml` for every type. What becomes of them is decided in `domain.writes`.

A file with faults is reported by path and line, and spares the entity that it is about.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import PurePosixPath

from threadkeep_chassis.errors import LimitExceeded
from threadkeep_chassis.limits import Limits
from threadkeep_config.domain.manifest import Reference
from threadkeep_config.domain.values import Content, Entity, EntityType
from threadkeep_config.files.export import export_entities
from threadkeep_config.files.reading import FileFaults, Layers, fault_line, parse_file
from threadkeep_config.files.shape import Shaped
from threadkeep_config.files.skills import SKILL_FILE, parse_skill

FOLDERS = {
    "agents": EntityType.AGENT,
    "tools": EntityType.TOOL,
    "providers": EntityType.PROVIDER,
    "skills": EntityType.SKILL,
    "mcp_servers": EntityType.MCP_SERVER,
    "sandbox_profiles": EntityType.SANDBOX_PROFILE,
    "defaults": EntityType.DEFAULTS,
    "custom": EntityType.CUSTOM,
    "custom_schemas": EntityType.CUSTOM_SCHEMA,
}
MAX_FAULTS = 20
"""How many faults of one file are told: an answer has room for those of many files."""
_FORMS = f"agents/NAME.md, skills/NAME/{SKILL_FILE}, or NAME.yaml in {', '.join(FOLDERS)}"


@dataclass(frozen=True, order=True)
class Problem:
    """A fault in a file. `line` counts from 1; 0 is the whole file."""

    path: str
    line: int
    message: str

    @property
    def layer(self) -> int:
        """The layer of the file."""
        return getattr(self.line, "layer", 0)


@dataclass
class ParsedSet:
    """What a set of files says."""

    contents: dict[Reference, Content] = field(default_factory=dict)
    broken: set[Reference] = field(default_factory=set)
    """What files with faults are about."""
    problems: list[Problem] = field(default_factory=list)
    lines: dict[Reference, Shaped] = field(default_factory=dict)
    """Where things are in the files of documents, which may yet turn out to break their schemas."""

    def located(self, faults: Mapping[Reference, tuple[str, str]]) -> Iterator[Problem]:
        """Faults that were found later, (path of the field, rule) each, as problems."""
        for reference, (path, rule) in faults.items():
            yield Problem(self.contents[reference].source.path, *fault_line(path, rule, self.lines[reference]))


def parse_set(files: Iterable[tuple[str, bytes] | tuple[str, bytes, int]], limits: Limits) -> ParsedSet:
    """Parses files, given as (path, content), perhaps with their layer. It takes a while: call it in a thread."""
    parsed = ParsedSet()
    groups: dict[Reference, dict[str, dict[int, bytes]]] = {}
    for path, content, *layer in sorted(files):
        try:
            reference, inside = reference_of(path)
        except FileFaults as error:
            parsed.problems.extend(Problem(path, *fault) for fault in error.faults[:MAX_FAULTS])
            continue
        group = groups.setdefault(reference, {})
        first = next(iter(group), path)
        if group and first != path and not (inside and _is_in_folder(first)):
            parsed.problems.append(Problem(path, 0, f"defines the same {reference[0].field} as {first}, which counts"))
        else:
            group.setdefault(path, {})[layer[0] if layer else 0] = content
    for reference, group in groups.items():
        _parse_one(reference, group, limits, parsed)
    parsed.problems.sort()
    return parsed


def _parse_one(reference: Reference, group: Mapping[str, Layers], limits: Limits, parsed: ParsedSet) -> None:
    path = next(iter(group))
    try:
        if _is_in_folder(path):
            path = f"skills/{reference[1]}/{SKILL_FILE}"
            found, shaped = parse_skill(reference[1], group), Shaped()
        else:
            found, shaped = parse_file(reference[0], path, group[path])
        limits.check("max_definition_bytes", len(found.definition.encode()))
        parsed.contents[reference] = found
        if reference[0] is EntityType.CUSTOM:
            parsed.lines[reference] = shaped
    except FileFaults as error:
        parsed.broken.add(reference)
        parsed.problems.extend(Problem(path, *fault) for fault in error.faults[:MAX_FAULTS])
    except LimitExceeded as error:
        parsed.broken.add(reference)
        parsed.problems.append(Problem(path, 0, error.message))


def reference_of(path: str) -> tuple[Reference, str]:
    """What a file is about, by its path; and for a file of a skill's folder its path in there. Raises FileFaults."""
    pure = PurePosixPath(path)
    type = FOLDERS.get(pure.parts[0]) if len(pure.parts) > 1 and str(pure) == path and "\\" not in path else None
    if (
        type is EntityType.SKILL
        and len(pure.parts) > 2
        and not pure.parts[1].startswith(".")
        and ".." not in pure.parts
    ):
        return (type, pure.parts[1]), "/".join(pure.parts[2:])
    suffixes = (".yaml", ".md") if type is EntityType.AGENT else (".yaml",)
    if type is None or len(pure.parts) != 2 or pure.suffix not in suffixes or pure.stem.startswith("."):
        raise FileFaults((0, f"is not the path of a definition: those are {_FORMS}"))
    return (type, pure.stem), ""


@dataclass
class ExportedSet:
    """Entities as files: (path, bytes), and what no file can hold."""

    files: list[tuple[str, bytes]]
    problems: list[Problem]


def export_set(entities: Iterable[Entity]) -> ExportedSet:
    """The files that `parse_set` would make the entities from. Takes a while: call it in a thread."""
    exported = export_entities(entities, {type: folder for folder, type in FOLDERS.items()})
    return ExportedSet(exported.files, [Problem(path, 0, message) for path, message in exported.problems])


def _is_in_folder(path: str) -> bool:
    """True for a file of a skill's folder."""
    return path.count("/") > 1
