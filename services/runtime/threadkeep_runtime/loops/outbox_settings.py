"""Bounds of the outbox, with the defaults (X9), and what operators allow webhooks. Durations in seconds."""

from __future__ import annotations

import ipaddress
from typing import Self

from pydantic import BaseModel, ConfigDict, Field, field_validator, model_validator

from threadkeep_runtime.domain.webhooks import WebhookRules, origin_problem


class OutboxSettings(BaseModel):
    """How the outbox is delivered."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    max_attempts: int = Field(default=10, ge=1, le=1000, description="Attempts before a message is a dead letter.")
    first_pause_seconds: float = Field(
        default=1.0, gt=0, description="Pause after the first failure; twice as long each time."
    )
    longest_pause_seconds: float = Field(default=300.0, gt=0, description="Longest pause between two attempts.")
    claim_seconds: float = Field(
        default=60.0, gt=0, description="How long a replica that died keeps a target's messages from the others."
    )
    max_lines: int = Field(default=32, ge=1, description="Targets that one server delivers to at once.")
    max_in_turn: int = Field(default=100, ge=1, description="Messages of one target before the others have their turn.")
    delivered_ttl_seconds: float = Field(
        default=7 * 24 * 3600.0,
        ge=0,
        description="How long delivered messages, and with them their dedupe keys, are kept.",
    )
    webhook_origins: list[str] = Field(
        default_factory=list,
        description="Where webhooks may lead: https://host[:port], https://*.domain, https://*; http://host:port for "
        "tests. Empty: nowhere.",
    )
    webhook_networks: list[str] = Field(
        default_factory=list,
        description="Networks (CIDR) that webhooks may reach though they are loopback, link-local or private.",
    )
    webhook_secrets: dict[str, str] = Field(
        default_factory=dict,
        description="References to signing secrets by name: env:NAME or file:PATH. `default` signs if none is named.",
    )
    webhook_timeout_seconds: float = Field(default=10.0, gt=0, description="Longest attempt to post to a webhook.")
    webhook_ca_file: str | None = Field(
        default=None, description="Certificates that are trusted instead of the system's."
    )

    @field_validator("webhook_origins")
    @classmethod
    def _origins(cls, origins: list[str]) -> list[str]:
        for origin in origins:
            if (problem := origin_problem(origin)) is not None:
                raise ValueError(f"{origin} {problem}")
        return origins

    @field_validator("webhook_networks")
    @classmethod
    def _networks(cls, networks: list[str]) -> list[str]:
        for network in networks:
            ipaddress.ip_network(network)
        return networks

    @field_validator("webhook_secrets")
    @classmethod
    def _secrets(cls, secrets: dict[str, str]) -> dict[str, str]:
        for name, reference in secrets.items():
            if not reference.startswith(("env:", "file:")):
                # The value may be a secret: it stays out of the message (X11).
                raise ValueError(f"secret {name} must be a reference: env:NAME or file:PATH")
        return secrets

    @model_validator(mode="after")
    def _times(self) -> Self:
        if self.webhook_timeout_seconds > self.claim_seconds / 2:
            raise ValueError("webhook_timeout_seconds is at most half of claim_seconds")
        return self

    def rules(self) -> WebhookRules:
        """What operators allow webhooks."""
        networks = tuple(ipaddress.ip_network(network) for network in self.webhook_networks)
        return WebhookRules(tuple(self.webhook_origins), networks, dict(self.webhook_secrets))
