"""What bounds a feed, with the defaults and why (X9). Durations in seconds, sizes in bytes."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class FeedSettings:
    """One for all feeds of a server."""

    frame_events: int = 256
    """Most events in one frame. Frames that carry many make catching up cheap."""
    frame_bytes: int = 1024 * 1024
    """Size at which a frame is full; a single larger event travels alone."""
    queue_events: int = 1024
    """How many live events wait for one reader before it is sent back to the log, which costs it no event."""
    queue_bytes: int = 2 * 1024 * 1024
    live_queue_items: int = 256
    """How many live observations wait for one reader before they are dropped, with a gap to show for it."""
    live_queue_bytes: int = 1024 * 1024
    live_peer_items: int = 4096
    """How many live observations wait for another replica before they are dropped, with a gap that says so."""
    live_peer_bytes: int = 4 * 1024 * 1024
    live_announce_seconds: float = 5.0
    """How often a replica tells the others all that its readers look at; changes it tells at once. One that was not
    heard for three times as long is gone."""
    tail_events: int = 512
    """How many events the tail of a partition reads at once."""
    tail_linger_seconds: float = 30.0
    """How long a tail that nobody follows goes on, so that short subscriptions don't start it anew each time."""
    window_positions: int = 20_000
    """How far one read of a filtered feed looks ahead: bookmarks come that often."""
    bookmark_seconds: float = 10.0
    """How soon a reader to whom nothing was sent learns that its cursor moved."""
    slow_consumer_seconds: float = 30.0
    """How long one frame may wait for its reader before the subscription ends with SLOW_CONSUMER."""
    start_timeout_seconds: float = 10.0
    """How long a subscription waits for the database before it gives up with DATABASE_UNAVAILABLE."""
    live_lease_check_seconds: float = 1.0
    """How long a publisher of live observations may go on before its lease is looked at again."""
