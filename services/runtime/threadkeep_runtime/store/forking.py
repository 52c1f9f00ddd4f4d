"""Reads what a fork takes over: the source as it was after a commit (R18)."""

from __future__ import annotations

import sqlalchemy as sa
from google.protobuf import json_format
from sqlalchemy.engine import Connection

from threadkeep.runtime.v1 import message_pb2
from threadkeep_chassis.errors import ThreadkeepError
from threadkeep_runtime.checkpoints import load_head
from threadkeep_runtime.domain.checkpoints import ROOT_NAMESPACE
from threadkeep_runtime.domain.commands import ForkSession
from threadkeep_runtime.domain.fork_plan import CheckpointNotFound, ForkedMessage, ForkPlan
from threadkeep_runtime.domain.state import StateValue
from threadkeep_runtime.domain.values import Thread
from threadkeep_runtime.store.messages import messages_at, places_at
from threadkeep_runtime.store.state import view_values
from threadkeep_runtime.store.thread_views import Moment, find_moment
from threadkeep_runtime.tables import checkpoints, message_calls

CHUNK = 500

_C = checkpoints.c
_OF_THREAD = _C.thread_id == sa.bindparam("thread_key")
_RECORDED = sa.select(_C.commit_sequence).where(
    _OF_THREAD, _C.checkpoint_ns == sa.bindparam("ns"), _C.checkpoint_id == sa.bindparam("id")
)
_UPTO = sa.or_(_C.commit_sequence <= sa.bindparam("commit"), _C.commit_sequence.is_(None))
_TOP = sa.select(sa.func.max(_C.checkpoint_id)).where(_OF_THREAD, _C.commit_sequence <= sa.bindparam("commit"))
_ROOT = sa.select(sa.func.max(_C.checkpoint_id)).where(
    _OF_THREAD, _C.checkpoint_ns == ROOT_NAMESPACE, _UPTO, _C.checkpoint_id <= sa.bindparam("top")
)
_CALLS = sa.select(message_calls.c.tool_call_id).where(message_calls.c.thread_key == sa.bindparam("thread_key"))


def load_fork(connection: Connection, source: Thread, command: ForkSession) -> ForkPlan:
    """The plan; one with a refusal if there is no such past."""
    key, wanted, named = source.thread_key, command.commit_sequence, command.checkpoint
    if named is not None:
        row = connection.execute(_RECORDED, {"thread_key": key, "ns": named[0], "id": named[1]}).first()
        if row is None:
            return ForkPlan(refusal=CheckpointNotFound())
        # Another saver's rows don't say when they were recorded: they stand for what is there now.
        wanted = row[0] or source.commit_sequence
    try:
        moment = find_moment(connection, key, wanted)
    except ThreadkeepError as refusal:
        return ForkPlan(refusal=refusal)
    commit = moment.commit.sequence
    top = connection.scalar(_TOP, {"thread_key": key, "commit": commit}) or ""
    if named is not None:
        top = max(top, named[1])
    elif moment.is_head:
        top = max(top, source.root_checkpoint_id or "")
    root = connection.scalar(_ROOT, {"thread_key": key, "commit": commit, "top": top}) if top else None
    messages = _messages(connection, moment)
    return ForkPlan(
        commit,
        top,
        None if root is None else load_head(connection, key, root),
        messages,
        tuple(connection.scalars(_CALLS, {"thread_key": key})) if messages else (),
        _state(connection, source, commit),
    )


def _messages(connection: Connection, moment: Moment) -> tuple[ForkedMessage, ...]:
    if not moment.message_position:
        return ()
    key, commit = moment.thread.thread_key, moment.commit.sequence
    places = list(places_at(connection, key, commit, moment.message_position))
    found: list[ForkedMessage] = []
    after = 0
    while page := messages_at(connection, key, commit, places, after, CHUNK):
        for fact in page:
            draft = message_pb2.MessageDraft.FromString(fact.content)
            shown = json_format.MessageToDict(draft, preserving_proto_field_name=True)
            found.append(ForkedMessage(draft.message_id, fact.content, shown, fact.create_time))
        after = page[-1].position
    return tuple(found)


def _state(connection: Connection, source: Thread, commit: int) -> tuple[StateValue, ...]:
    """Values of the thread's own keys: those of runs end with them."""
    found: list[StateValue] = []
    after = ""
    while page := view_values(connection, source.scope_key, source.thread_key, commit, None, (), after, CHUNK):
        found += page
        after = page[-1].key
    return tuple(found)
