"""Settings that every server has: environment (THREADKEEP_...), a `.env`-style file, or arguments.

A service subclasses ServerSettings with its own fields. Secrets don't belong here beyond the database address.
"""

from __future__ import annotations

from pydantic import Field
from pydantic_settings import BaseSettings, SettingsConfigDict

from threadkeep_chassis.database import DatabaseSettings


class ServerSettings(BaseSettings):
    """What any threadkeep server can be told. Durations in seconds, sizes in bytes."""

    model_config = SettingsConfigDict(
        env_prefix="THREADKEEP_", env_file=None, extra="ignore", env_nested_delimiter="__", frozen=True
    )

    database_url: str = Field(default="memory:", description="memory:, sqlite:///file or postgresql://...", repr=False)
    database_direct_url: str | None = Field(
        default=None,
        description="Straight to PostgreSQL, where database_url leads to a transaction pooler.",
        repr=False,
    )
    database_pool_size: int = Field(
        default=10, ge=1, description="Database sessions per service; --processes share them."
    )

    listen: str = Field(
        default="127.0.0.1:0", description="Address of the gRPC server: host:port or unix:/path. Port 0: any."
    )
    reuse_port: bool = Field(default=False, description="SO_REUSEPORT: several processes share one port.")
    metrics_listen: str | None = Field(
        default=None, description="host:port of the HTTP endpoint /metrics; None for none."
    )
    grace_seconds: float = Field(default=5.0, ge=0, description="What a stop leaves to calls under way.")

    health_check_seconds: float = Field(default=2.0, gt=0, description="How often health asks for PostgreSQL.")
    unhealthy_after_seconds: float = Field(
        default=10.0, ge=0, description="Without its database for so long, a service is NOT_SERVING."
    )

    max_message_bytes: int = Field(default=16 * 1024 * 1024, ge=1024, description="Largest message received.")
    max_metadata_bytes: int = Field(default=64 * 1024, ge=1024, description="Largest call metadata received.")
    max_concurrent_rpcs: int = Field(default=2000, ge=1, description="Calls at once; more are RESOURCE_EXHAUSTED.")
    limits: dict[str, int] = Field(default_factory=dict, description="Limits by name, as GetServerInfo shows them.")

    receipt_ttl_seconds: float = Field(default=24 * 3600, ge=0, description="How long idempotency receipts are kept.")
    signal_poll_seconds: float = Field(default=2.0, gt=0, description="Upper bound of what a lost signal costs.")

    peers: dict[str, str] = Field(default_factory=dict, description="Addresses of other services, by name.")

    log_level: str = Field(default="INFO", description="DEBUG, INFO, WARNING or ERROR.")
    log_json: bool = Field(default=True, description="JSON lines; false for people.")
    log_exception_text: bool = Field(
        default=False, description="Log texts of unexpected exceptions, which may quote stored data. For development."
    )

    def database_settings(self) -> DatabaseSettings:
        """The part that the database takes."""
        return DatabaseSettings(pool_size=self.database_pool_size)
