"""What a fork takes over, as it was found under the source's lock (R18). Pure."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime
from typing import Any, NamedTuple

from threadkeep_chassis.errors import NotFound, ThreadkeepError
from threadkeep_runtime.domain.checkpoints import Head
from threadkeep_runtime.domain.state import StateValue


class CheckpointNotFound(NotFound):
    """No such checkpoint in the session."""

    reason = "CHECKPOINT_NOT_FOUND"
    default_message = "There is no such checkpoint in this session."


class ForkedMessage(NamedTuple):
    """A message that was in the conversation."""

    message_id: str
    content: bytes
    shown: Mapping[str, Any]
    """As it goes into the event: proto3 JSON."""
    create_time: datetime


@dataclass(frozen=True, slots=True)
class ForkPlan:
    """The source after a commit."""

    commit_sequence: int = 0
    checkpoint_top: str = ""
    """The greatest checkpoint id that comes along, in any namespace; '' if none does."""
    head: Head | None = None
    """The root's greatest checkpoint that comes along."""
    messages: tuple[ForkedMessage, ...] = ()
    calls: tuple[str, ...] = ()
    """Tool calls that the messages asked for."""
    state: tuple[StateValue, ...] = ()
    refusal: ThreadkeepError | None = None
    """Why there is no fork."""
