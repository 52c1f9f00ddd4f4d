"""What the config service can be told beyond what every server can."""

from __future__ import annotations

from pydantic import Field, field_validator

from threadkeep_chassis.settings import ServerSettings


class ConfigSettings(ServerSettings):
    """Settings of the config service. Durations in seconds, sizes in bytes."""

    scope_key_precedence: tuple[str, ...] = Field(
        (),
        description="Scope keys, the strongest first: decides between entities of equally many scope keys (C2). "
        "The same in every replica. Keys that are not named follow by name.",
    )
    bookmark_seconds: float = Field(10.0, gt=0, description="How long a watch stays silent before a bookmark.")
    watch_buffer_changes: int = Field(10_000, ge=1, description="Changes that a live watch may have waiting.")
    watch_buffer_bytes: int = Field(16 * 1024 * 1024, ge=1024, description="The same in bytes.")
    resolution_cache_bytes: int = Field(128 * 1024 * 1024, ge=0, description="Resolved entities and manifests kept.")

    @field_validator("scope_key_precedence")
    @classmethod
    def _named_once(cls, keys: tuple[str, ...]) -> tuple[str, ...]:
        if len(set(keys)) != len(keys):
            raise ValueError("names a key twice")
        return keys
