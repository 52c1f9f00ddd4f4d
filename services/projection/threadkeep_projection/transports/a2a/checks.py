"""What A2A's descriptors don't say of their fields: which texts are ids."""

from __future__ import annotations

from threadkeep_chassis.errors import FieldInvalid

_MOST_CHARACTERS = 256


def check_id(path: str, value: str, *, required: bool = False) -> None:
    """Raises FieldInvalid for what is no id."""
    if required and not value:
        raise FieldInvalid(path, "is required")
    if len(value) > _MOST_CHARACTERS or any(ord(one) < 32 or 127 <= ord(one) < 160 for one in value):
        raise FieldInvalid(path, f"has at most {_MOST_CHARACTERS} characters, none of them a control character")
