"""Joins a server to the other replicas of its database, for live observations (R15)."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Any

from prometheus_client import CollectorRegistry

from threadkeep_chassis.database import Database
from threadkeep_chassis.postgres_bus import PostgresBus
from threadkeep_runtime.feeds.feeds import Feeds
from threadkeep_runtime.feeds.peers import LivePeers


def join_replicas(
    feeds: Feeds,
    database: Database,
    read: Callable[[bytes], Any],
    *,
    direct_url: str | None,
    registry: CollectorRegistry,
) -> PostgresBus | None:
    """The bus between the replicas, to be started; None where a database has one server only.

    `read` parses an observation.
    """
    if database.postgres is None:
        return None
    settings = feeds.settings
    peers = LivePeers(
        time.monotonic,
        feeds.live.show,
        feeds.live.show_gap,
        read,
        max_items=settings.live_peer_items,
        max_bytes=settings.live_peer_bytes,
        announce_seconds=settings.live_announce_seconds,
        registry=registry,
    )
    bus = PostgresBus(
        database,
        "live",
        pull=peers.pull,
        received=peers.received,
        missed=peers.missed,
        direct_url=direct_url,
        heartbeat_seconds=settings.live_announce_seconds,
    )
    peers.wake, peers.forget = bus.wake, bus.forget
    feeds.live.peers = peers
    return bus
