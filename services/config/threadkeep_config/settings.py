"""What the config service can be told beyond what every server can."""

from __future__ import annotations

from pydantic import Field, field_validator, model_validator

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
    history_retention_seconds: float = Field(
        0.0,
        ge=0,
        description="How long superseded revisions are kept for history, rollback and watches. 0: for ever. "
        "At least two times bookmark_seconds: by then each open watch was told to go on after them.",
    )
    compaction_interval_seconds: float = Field(60.0, gt=0, description="How often compacted revisions are removed.")
    resolution_cache_bytes: int = Field(128 * 1024 * 1024, ge=0, description="Resolved entities and manifests kept.")

    @model_validator(mode="after")
    def _bookmarks_come_first(self) -> ConfigSettings:
        if 0 < self.history_retention_seconds < 2 * self.bookmark_seconds:
            raise ValueError("history_retention_seconds must be 0 or at least two times bookmark_seconds")
        return self

    @field_validator("scope_key_precedence")
    @classmethod
    def _named_once(cls, keys: tuple[str, ...]) -> tuple[str, ...]:
        if len(set(keys)) != len(keys):
            raise ValueError("names a key twice")
        return keys
