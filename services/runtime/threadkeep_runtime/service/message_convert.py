"""Message facts between messages of the contract and domain values, with the shape that they must have (P2)."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from google.protobuf import json_format

from threadkeep.common.v1 import content_pb2
from threadkeep.runtime.v1 import message_pb2
from threadkeep_chassis.errors import FieldInvalid
from threadkeep_chassis.limits import Limits
from threadkeep_runtime.domain.messages import Change
from threadkeep_runtime.service.parse import check_parts, enum_name
from threadkeep_runtime.store.messages import MessageFact

TOOL, ASSISTANT = content_pb2.MESSAGE_ROLE_TOOL, content_pb2.MESSAGE_ROLE_ASSISTANT


def changes_of(
    messages: Sequence[message_pb2.MessageChange], new_id: Callable[[], str], limits: Limits, path: str
) -> tuple[Change, ...]:
    """A commit's changes of the conversation. Raises FieldInvalid, LimitExceeded."""
    return tuple(_change_of(message, new_id, limits, f"{path}[{index}]") for index, message in enumerate(messages))


def _change_of(message: message_pb2.MessageChange, new_id: Callable[[], str], limits: Limits, path: str) -> Change:
    which = message.WhichOneof("change")
    if which is None:
        raise FieldInvalid(path, "needs append, replace or remove")
    path = f"{path}.{which}"
    if which == "remove":
        return Change("remove", message.remove, True, path)
    draft = message_pb2.MessageDraft()
    draft.CopyFrom(message.append if which == "append" else message.replace)
    limits.check("max_message_fact_bytes", draft.ByteSize())
    _check_shape(draft, path)
    is_named = draft.HasField("message_id")
    if not is_named:
        if which == "replace":
            raise FieldInvalid(f"{path}.message_id", "is required")
        draft.message_id = new_id()
    return Change(
        which,
        draft.message_id,
        is_named,
        path,
        draft.SerializeToString(deterministic=True),
        json_format.MessageToDict(draft, preserving_proto_field_name=True),
        tuple(call.tool_call_id for call in draft.tool_calls),
        draft.tool_call_id if draft.HasField("tool_call_id") else None,
    )


def _check_shape(draft: message_pb2.MessageDraft, path: str) -> None:
    enum_name(content_pb2.MessageRole, draft.role, "MESSAGE_ROLE_", f"{path}.role")
    if draft.role == content_pb2.MESSAGE_ROLE_UNSPECIFIED:
        raise FieldInvalid(f"{path}.role", "is required")
    if not draft.parts and not draft.tool_calls:
        raise FieldInvalid(f"{path}.parts", "is required, unless the message asks for tool calls")
    check_parts(draft.parts, path)
    if draft.tool_calls and draft.role != ASSISTANT:
        raise FieldInvalid(f"{path}.tool_calls", "go with the role ASSISTANT only")
    seen: set[str] = set()
    for number, call in enumerate(draft.tool_calls):
        if not call.args_json.lstrip().startswith("{"):
            raise FieldInvalid(f"{path}.tool_calls[{number}].args_json", "must be a JSON object")
        if call.tool_call_id in seen:
            raise FieldInvalid(f"{path}.tool_calls[{number}].tool_call_id", "must be unique in its message")
        seen.add(call.tool_call_id)
    if draft.HasField("tool_call_id") != (draft.role == TOOL):
        raise FieldInvalid(f"{path}.tool_call_id", "is required with the role TOOL, and goes with no other")


def fact_to_proto(fact: MessageFact) -> message_pb2.MessageFact:
    """A message of a view."""
    return message_pb2.MessageFact(
        message=message_pb2.MessageDraft.FromString(fact.content),
        position=fact.position,
        commit_sequence=fact.commit_sequence,
        run_id=fact.run_id,
        task_id=fact.task_id,
        create_time=fact.create_time,  # type: ignore[arg-type]
    )
