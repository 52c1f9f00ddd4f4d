"""Applies a thread's events, and sets aside those that can't be projected: the rest goes on (P1).

Following live and rebuilding both go through here, so that they leave out the same events (P3).
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace

from threadkeep_projection.domain.projector import Draft, Unprojectable, apply
from threadkeep_projection.domain.values import Channel, Event, Poison, Session


def apply_all(
    draft: Draft, pairs: Sequence[tuple[Event, Channel | None]], known: Mapping[int, str] | None = None
) -> tuple[Draft, int]:
    """The draft with the events applied, and how many were new; the given one may be used up.

    `known`: events, by sequence, that turned out to be unstorable, with the reason. An event that fails leaves no trace
    but a row in `poison`: the others are then applied again to what was before.
    """
    poison: dict[int, Poison] = {}
    for event, _ in pairs:
        if known is not None and event.sequence in known:
            poison[event.sequence] = _poison(event, known[event.sequence])
    before = copy_of(draft)
    while True:
        count = 0
        for event, channel in pairs:
            if event.sequence in poison:
                count += _skip(draft, poison[event.sequence])
                continue
            try:
                count += apply(draft, event, channel)
            except Exception as error:
                poison[event.sequence] = _poison(event, _reason(error))
                draft = copy_of(before)
                break
        else:
            return draft, count


def copy_of(draft: Draft) -> Draft:
    """A copy that can be changed alone."""
    return replace(
        draft,
        tasks=dict(draft.tasks),
        runs=dict(draft.runs),
        messages=dict(draft.messages),
        inputs=dict(draft.inputs),
        task_usage=dict(draft.task_usage),
        run_usage=dict(draft.run_usage),
        poison=dict(draft.poison),
    )


def _skip(draft: Draft, poison: Poison) -> bool:
    session = draft.session or Session(draft.session_id, create_time=poison.time, update_time=poison.time)
    if poison.sequence <= session.event_sequence:
        return False
    draft.session = replace(session, event_sequence=poison.sequence)
    draft.poison[poison.sequence] = poison
    return True


def _poison(event: Event, reason: str) -> Poison:
    return Poison(event.sequence, event.type, event.time, reason)


def _reason(error: Exception) -> str:
    return str(error) if isinstance(error, Unprojectable) else type(error).__name__
