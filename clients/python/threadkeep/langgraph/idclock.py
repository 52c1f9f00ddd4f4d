"""Keeps new checkpoint ids above those of a thread, however slow this machine's clock is.

LangGraph takes ids from a process-wide UUIDv6 clock that never goes back. Raising its last reading makes every later id
sort above a given one.
"""

from __future__ import annotations

import threading
import uuid
from typing import Any, cast

from langgraph.checkpoint.base import id as clock

_lock = threading.Lock()


def raise_above(*checkpoint_ids: str) -> None:
    """Makes later ids sort above these. Ids that are no UUIDv6 have no place on this clock and are passed over."""
    highest = max((_timestamp(one) for one in checkpoint_ids), default=0)
    if not highest:
        return
    module = cast(Any, clock)
    with _lock:
        last = module._last_v6_timestamp
        if last is None or last < highest:
            module._last_v6_timestamp = highest


def _timestamp(checkpoint_id: str) -> int:
    """The 60-bit timestamp of a UUIDv6; 0 for anything else."""
    try:
        value = uuid.UUID(checkpoint_id)
    except ValueError:
        return 0
    if value.int >> 76 & 0xF != 6 or value.int >> 62 & 0b11 != 0b10:
        return 0
    return value.int >> 80 << 12 | value.int >> 64 & 0x0FFF
