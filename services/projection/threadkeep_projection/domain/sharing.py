"""How many shares each replica follows: as many as any other, or one more. Pure."""

from __future__ import annotations

from collections.abc import Sequence


def portion(share_count: int, replicas: Sequence[str], replica: str) -> int:
    """How many of the shares are this replica's, of replicas in an order that all know; 0 if it is none of them.

    The portions of all replicas make up the shares, so each share is somebody's.
    """
    if replica not in replicas:
        return 0
    whole, rest = divmod(share_count, len(replicas))
    return whole + (replicas.index(replica) < rest)
