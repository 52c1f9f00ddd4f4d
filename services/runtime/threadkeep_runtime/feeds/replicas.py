"""Joins a server to the other replicas of its database, for live observations (R15)."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Any

from prometheus_client import CollectorRegistry

from threadkeep_chassis.bus import Bus, bus_for
from threadkeep_chassis.database import Database
from threadkeep_runtime.feeds.feeds import Feeds
from threadkeep_runtime.feeds.peers import LivePeers


def join_replicas(
    feeds: Feeds,
    database: Database,
    read: Callable[[bytes], Any],
    *,
    direct_url: str | None,
    registry: CollectorRegistry,
) -> Bus | None:
    """The bus between the replicas, to be started; None where a database has one server only.

    `read` parses an observation.
    """
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
    bus = bus_for(
        database,
        "live",
        pull=peers.pull,
        received=peers.received,
        missed=peers.missed,
        direct_url=direct_url,
        heartbeat_seconds=settings.live_announce_seconds,
    )
    if bus is None:
        return None
    peers.wake, peers.forget = bus.wake, bus.forget
    feeds.live.peers = peers
    return bus
