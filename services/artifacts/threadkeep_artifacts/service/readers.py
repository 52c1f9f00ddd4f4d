"""Who a call reads as: its metadata `threadkeep-reader-bin`, its grant, and the runtime's word on a lease (A6)."""

from __future__ import annotations

from functools import lru_cache
from typing import NamedTuple

from threadkeep_artifacts.domain.visibility import OPERATOR, Reader
from threadkeep_artifacts.peers import Leases
from threadkeep_chassis.canonical import JsonInvalid, parse_json
from threadkeep_chassis.errors import FieldInvalid
from threadkeep_chassis.scope import Call

READER_HEADER = "threadkeep-reader-bin"

_MAX_ID_CHARACTERS = 256


class _Claim(NamedTuple):
    session_id: str | None
    run_id: str | None
    epoch: int


async def reader_of(call: Call, leases: Leases) -> Reader:
    """Who reads. Raises FieldInvalid for metadata that says nothing legal, PeerUnavailable."""
    if call.named_grant is not None and call.named_grant.all:
        return OPERATOR
    header = call.metadata.get(READER_HEADER)
    if header is None:
        return Reader()
    claim = _parse(header if isinstance(header, bytes) else header.encode())
    sessions = frozenset() if claim.session_id is None else frozenset((claim.session_id,))
    if claim.run_id is None:
        return Reader(session_ids=sessions)
    lease = await leases.held(call, claim.run_id, claim.epoch)
    if lease is None:
        # A lease that was lost opens nothing any more.
        return Reader(session_ids=sessions)
    return Reader(session_ids=sessions | {lease.session_id}, run_id=lease.run_id)


@lru_cache(maxsize=4096)
def _parse(header: bytes) -> _Claim:
    try:
        value = parse_json(header)
    except JsonInvalid as error:
        raise FieldInvalid(READER_HEADER, str(error)) from error
    if not isinstance(value, dict) or not set(value) <= {"session_id", "run_id", "epoch"}:
        raise FieldInvalid(READER_HEADER, "is a JSON object of session_id, run_id and epoch")
    for name in ("session_id", "run_id"):
        text = value.get(name)
        if text is not None and (not isinstance(text, str) or not 1 <= len(text) <= _MAX_ID_CHARACTERS):
            raise FieldInvalid(READER_HEADER, f"{name} is a text of 1 to {_MAX_ID_CHARACTERS} characters")
    epoch = value.get("epoch")
    if ("run_id" in value) != ("epoch" in value) or (epoch is not None and not isinstance(epoch, int)):
        raise FieldInvalid(READER_HEADER, "run_id and epoch (a number) come together")
    return _Claim(value.get("session_id"), value.get("run_id"), epoch or 0)
