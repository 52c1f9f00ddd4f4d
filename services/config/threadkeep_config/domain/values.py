"""What config talks about: keys, contents, entities. Frozen values without behaviour beyond reading as truth."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime
from enum import IntEnum


class EntityType(IntEnum):
    """The types, with the contract's numbers, which rows hold too."""

    PROVIDER = 1
    TOOL = 2
    AGENT = 3
    SKILL = 4
    MCP_SERVER = 5
    SANDBOX_PROFILE = 6
    DEFAULTS = 7
    CUSTOM = 8
    CUSTOM_SCHEMA = 9

    @property
    def field(self) -> str:
        """The name of the type's field in a definition, and in texts for people: `provider`, `mcp_server`."""
        return self.name.lower()


class SourceKind(IntEnum):
    """Where an entity was defined, with the contract's numbers."""

    API = 1
    FILE = 2


@dataclass(frozen=True)
class Source:
    """Where an entity was defined; `path` is the file's, empty for API."""

    kind: SourceKind
    path: str = ""

    @property
    def is_file(self) -> bool:
        """True for what was applied from a file."""
        return self.kind is SourceKind.FILE


API = Source(SourceKind.API)


@dataclass(frozen=True, order=True)
class Key:
    """Names one entity. Keys sort as lists do, and as locks are taken."""

    type: EntityType
    name: str
    scope_key: str


@dataclass(frozen=True)
class Content:
    """What an entity says. Two equal contents make no revision (C5)."""

    source: Source
    definition: str = ""
    """Canonical JSON of the definition, such as `{"tool":{...}}`. Empty when hidden, and in a tombstone."""
    digest: str = ""
    """SHA-256 of `definition`. Empty like it."""
    hidden: bool = False


@dataclass(frozen=True)
class Entity:
    """An entity at one revision; a tombstone when `deleted`."""

    key: Key
    scope: str
    """Canonical JSON of the scope that it is defined in."""
    content: Content
    revision: int
    """The service's revision at which this content was written. 0: a row that was never written."""
    deleted: bool
    create_time: datetime
    update_time: datetime

    @property
    def exists(self) -> bool:
        """True unless it is a tombstone, or was never written."""
        return not self.deleted and self.revision > 0
