"""Virtual paths of artifacts: names in a tree that lies in no file system (A8)."""

from __future__ import annotations

import re

from threadkeep_chassis.errors import FieldInvalid

MAX_PATH_BYTES = 1024
"""In UTF-8: an index holds the path beside other names."""
MAX_SEGMENT_CHARACTERS = 255

_CONTROL = re.compile("[\x00-\x1f\x7f-\x9f]")


def check_path(path: str, field: str) -> None:
    """Raises FieldInvalid, naming the field, unless it is an absolute path in its only spelling."""
    if not path.startswith("/") or len(path) < 2:
        raise FieldInvalid(field, "is absolute, such as /notes/plan.md")
    if len(path.encode()) > MAX_PATH_BYTES:
        raise FieldInvalid(field, f"has at most {MAX_PATH_BYTES} bytes in UTF-8")
    if _CONTROL.search(path):
        raise FieldInvalid(field, "has no control characters")
    for segment in path[1:].split("/"):
        if segment in ("", ".", ".."):
            raise FieldInvalid(field, "has no empty, . or .. segments")
        if len(segment) > MAX_SEGMENT_CHARACTERS:
            raise FieldInvalid(field, f"segments have at most {MAX_SEGMENT_CHARACTERS} characters")
