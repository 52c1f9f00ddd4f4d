"""Directories of definitions as what ApplySet takes. What the files say is the server's to read."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from threadkeep.config.v1 import set_pb2

FOLDERS = (
    *("agents", "tools", "providers", "skills", "mcp_servers", "sandbox_profiles"),
    *("defaults", "custom", "custom_schemas"),
)
"""The folders that definitions lie in."""
ENDINGS = (".yaml", ".yml", ".md")


class NoDefinitions(ValueError):
    """A directory is not there, or has none of the folders."""


def read_directories(directories: Sequence[Path]) -> list[set_pb2.SetFile]:
    """The definition files of one or several directories, of which each is a layer above the one before.

    Raises NoDefinitions, OSError.
    """
    found = []
    for layer, directory in enumerate(directories):
        if not directory.is_dir():
            raise NoDefinitions(f"there is no directory {directory}")
        if not any((directory / folder).is_dir() for folder in FOLDERS):
            raise NoDefinitions(f"{directory} has none of the folders {', '.join(FOLDERS)}")
        for path in _files(directory):
            inside = path.relative_to(directory).as_posix()
            found.append(set_pb2.SetFile(path=inside, content=path.read_bytes(), layer=layer))
    return found


def _files(directory: Path) -> list[Path]:
    found = []
    for folder in FOLDERS:
        for path in sorted((directory / folder).rglob("*")):
            parts = path.relative_to(directory).parts
            # Skills have files of any kind beside them.
            is_wanted = path.suffix in ENDINGS or (folder == "skills" and len(parts) > 2)
            if is_wanted and not any(part.startswith(".") for part in parts) and path.is_file():
                found.append(path)
    return found
