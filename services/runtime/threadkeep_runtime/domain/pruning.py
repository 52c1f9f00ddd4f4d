"""Which checkpoints a prune keeps: each namespace's latest, and what delta channels need of its ancestors (B33)."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Set
from dataclasses import dataclass, field

Name = tuple[str, str]
"""(checkpoint_ns, checkpoint_id)."""


@dataclass(slots=True)
class Kept:
    """A checkpoint as a prune sees it."""

    parent_checkpoint_id: str | None
    stored: set[str] = field(default_factory=set)
    """Channels that have a value here, inline or not."""
    written: set[str] = field(default_factory=set)
    """Channels that its pending writes go to."""


def beyond(names: Iterable[Name], keep_latest: int, is_due: Callable[[Name, int], bool]) -> tuple[set[Name], set[Name]]:
    """(kept, due): what a rule says of each namespace's checkpoints, whatever these need of each other.

    `is_due` is asked with a checkpoint and its rank, the newest is 0; not for the newest `keep_latest`, nor for a
    namespace's latest.
    """
    kept: set[Name] = set()
    due: set[Name] = set()
    ranks: dict[str, int] = {}
    for name in sorted(names, reverse=True):
        rank = ranks.get(name[0], 0)
        ranks[name[0]] = rank + 1
        (due if rank >= max(keep_latest, 1) and is_due(name, rank) else kept).add(name)
    return kept, due


def latest(names: Iterable[Name]) -> dict[str, str]:
    """The greatest id of each namespace."""
    found: dict[str, str] = {}
    for namespace, checkpoint_id in names:
        found[namespace] = max(checkpoint_id, found.get(namespace, ""))
    return found


def keep_latest(checkpoints: Mapping[Name, Kept]) -> set[Name]:
    """Each namespace's latest, and what it needs."""
    return keep(checkpoints, latest(checkpoints).items())


def keep(checkpoints: Mapping[Name, Kept], wanted: Iterable[Name]) -> set[Name]:
    """The wanted checkpoints, and those that they need.

    A delta channel's history is the writes of a checkpoint's ancestors, back to one that stores the channel whole. The
    server can't tell a delta channel from another, so that every channel counts that has no value at the wanted
    checkpoint, and that an ancestor's writes go to.
    """
    kept: set[Name] = set()
    for namespace, head in wanted:
        chain = _ancestors(checkpoints, namespace, head)
        needed = _needed(chain, checkpoints, set(checkpoints[namespace, head].stored))
        kept.add((namespace, head))
        kept.update(chain[:needed])
    return kept


def _ancestors(checkpoints: Mapping[Name, Kept], namespace: str, head: str) -> list[Name]:
    chain: list[Name] = []
    seen = {head}
    at = checkpoints[namespace, head].parent_checkpoint_id
    while at is not None and at not in seen and (namespace, at) in checkpoints:
        seen.add(at)
        chain.append((namespace, at))
        at = checkpoints[namespace, at].parent_checkpoint_id
    return chain


def _needed(chain: list[Name], checkpoints: Mapping[Name, Kept], resolved: Set[str]) -> int:
    """How many ancestors, the nearest first, some channel's history needs."""
    needed = 0
    open_: set[str] = set()
    known = set(resolved)
    for place, name in enumerate(chain, start=1):
        ancestor = checkpoints[name]
        wanted = {channel for channel in ancestor.written if not _is_internal(channel)} - known
        open_ |= wanted
        if wanted or open_ & ancestor.stored:
            needed = place
        open_ -= ancestor.stored
        known |= ancestor.stored
    return needed


def _is_internal(channel: str) -> bool:
    """Channels of LangGraph's own, which hold what the next step consumes."""
    return channel.startswith(("__", "branch:"))
