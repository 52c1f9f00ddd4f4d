"""Compares two versions of a text."""

from __future__ import annotations

import asyncio

from threadkeep_artifacts.commands.downloads import Downloads
from threadkeep_artifacts.domain.differences import MAX_CONTEXT_LINES, Difference, difference, to_lines
from threadkeep_artifacts.domain.visibility import Reader
from threadkeep_chassis.errors import FieldInvalid
from threadkeep_chassis.limits import Limits


class Comparing:
    """Reads both and compares, in a thread."""

    def __init__(self, downloads: Downloads, limits: Limits) -> None:
        self._downloads = downloads
        self._limits = limits

    async def compare(
        self, scope_key: str, reader: Reader, artifact_id: str, from_version: int, to_version: int, context_lines: int
    ) -> Difference:
        """The difference. Raises ArtifactNotFound, FieldInvalid, LimitExceeded, ContentNotText, CorruptContent."""
        if from_version == 0:
            raise FieldInvalid("from_version", "is required")
        if context_lines > MAX_CONTEXT_LINES:
            raise FieldInvalid("context_lines", f"is at most {MAX_CONTEXT_LINES}")
        texts, names = [], []
        for version in (from_version, to_version):
            found, plan = await self._downloads.open(scope_key, reader, artifact_id, version, 0, 0)
            self._limits.check("max_diff_bytes", found.size)
            content = b"".join([chunk async for chunk in self._downloads.read(scope_key, found, plan)])
            lines = to_lines(content)
            self._limits.check("max_diff_lines", len(lines))
            texts.append(lines)
            # Without control characters, as names are.
            names.append(f"{found.metadata.name} (version {found.version})")
        before, after = texts
        return await asyncio.to_thread(difference, before, after, (names[0], names[1]), context_lines)
