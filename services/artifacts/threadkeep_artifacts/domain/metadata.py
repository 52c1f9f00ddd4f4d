"""What a version's metadata must look like, beyond the field rules that the contract declares."""

from __future__ import annotations

import re
from collections.abc import Mapping

from threadkeep_artifacts.domain.paths import check_path
from threadkeep_artifacts.domain.values import ArtifactMetadata
from threadkeep_artifacts.domain.visibility import Visibility
from threadkeep_chassis.errors import FieldInvalid

MAX_LABELS = 64
MAX_LABEL_CHARACTERS = 256

_CONTROL = re.compile("[\x00-\x1f\x7f-\x9f]")
_TOKEN = r"[A-Za-z0-9][A-Za-z0-9!#$&^_.+-]{0,126}"
# RFC 6838: type and subtype, then parameters, which are the media type's own business.
_MEDIA_TYPE = re.compile(rf"{_TOKEN}/{_TOKEN}(\s*;[^\x00-\x1f\x7f]*)?\Z")


def check_metadata(metadata: ArtifactMetadata, path: str) -> None:
    """Raises FieldInvalid, naming the field below `path`, if the metadata can't be kept."""
    if not metadata.name:
        raise FieldInvalid(f"{path}.name", "is required")
    if _CONTROL.search(metadata.type):
        raise FieldInvalid(f"{path}.type", "has no control characters")
    if metadata.media_type and not _MEDIA_TYPE.match(metadata.media_type):
        raise FieldInvalid(f"{path}.media_type", "is a media type such as text/markdown")
    check_labels(metadata.labels, f"{path}.labels")
    if metadata.path is not None:
        check_path(metadata.path, f"{path}.path")
    if metadata.visibility is Visibility.PRIVATE and metadata.run_id is None:
        raise FieldInvalid(f"{path}.run_id", "is required for what only the run's lease holder may read")
    if metadata.visibility is Visibility.RUN and metadata.session_id is None:
        raise FieldInvalid(f"{path}.session_id", "is required for what only readers of the session may read")


def check_labels(labels: Mapping[str, str], path: str) -> None:
    """Raises FieldInvalid if a label's key or value is too long or holds control characters, or there are too many."""
    if len(labels) > MAX_LABELS:
        raise FieldInvalid(path, f"has at most {MAX_LABELS} entries")
    for key, value in labels.items():
        if not 1 <= len(key) <= MAX_LABEL_CHARACTERS or _CONTROL.search(key):
            raise FieldInvalid(path, f"keys have 1 to {MAX_LABEL_CHARACTERS} characters, no control characters")
        if len(value) > MAX_LABEL_CHARACTERS or _CONTROL.search(value):
            raise FieldInvalid(path, f"values have at most {MAX_LABEL_CHARACTERS} characters, no control characters")
