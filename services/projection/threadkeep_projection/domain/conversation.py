"""How a conversation changes: inputs are shown at once, then the checkpoint's channel is the truth (P2).

A message keeps the introduction (time, task, run, parent) of the commit that first brought it, whatever happens later.
"""

from __future__ import annotations

import hashlib
import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace

from threadkeep_projection.domain.values import Channel, Content, Entry, Input, Introduction, Message, Removal

MAX_ID_CHARACTERS = 256
_CONTROL = re.compile("[\x00-\x1f\x7f-\x9f]")

_UNFIT = re.compile("[\x00-\x1f\x7f-\x9f\ud800-\udfff]")
"""What a column of names does not hold."""

Messages = Mapping[str, Message]
"""Every message that a session ever had, by id, those taken out included."""


def settle(session_id: str, channel: Channel) -> list[tuple[str, Content]]:
    """The channel's value as the conversation it stands for: (id, content), each id once.

    A channel normally holds plain messages. Where a reducer left tombstones or doubles in it, they take effect here: a
    removal takes its message out, the sentinel takes out all before it, and of two with one id the last one counts, in
    the place of the first (B101). A message without an id gets one from the session, its place and its content (B100).
    """
    settled: dict[str, Content] = {}
    for index, item in enumerate(channel):
        if isinstance(item, Removal):
            if item.removes_all:
                settled.clear()
            else:
                settled.pop(known_id(session_id, item.message_id), None)
        else:
            settled[_id_of(session_id, index, item)] = item.content
    return list(settled.items())


def known_id(session_id: str, message_id: str) -> str:
    """The id as the projection knows it: the message's own, or a digest of one that is no identifier here."""
    if 0 < len(message_id) <= MAX_ID_CHARACTERS and not _CONTROL.search(message_id):
        return message_id
    return _derived(session_id, "id", message_id)


def _id_of(session_id: str, index: int, entry: Entry) -> str:
    if entry.message_id:
        return known_id(session_id, entry.message_id)
    return _derived(session_id, str(index), entry.content.digest)


def _derived(*parts: str) -> str:
    return "msg-" + hashlib.sha256("\x00".join(parts).encode("utf-8", "surrogatepass")).hexdigest()[:40]


def take_channel(
    messages: Messages, channel: Sequence[tuple[str, Content]], introduction: Introduction
) -> list[Message]:
    """The messages that change when a checkpoint's channel becomes the conversation.

    What the channel lacks is taken out, save for inputs that no checkpoint has held yet: each stays behind the message
    that it followed.
    """
    contents = dict(channel)
    order = _with_pending(messages, list(contents))
    changed: list[Message] = []
    for index, message_id in enumerate(order):
        before = messages.get(message_id)
        content = contents.get(message_id)
        if before is None:
            assert content is not None
            parent = order[index - 1] if index else None
            after = Message(message_id, index + 1, content.digest, introduction, parent, content.usage, False, content)
        elif content is None:
            after = before if before.position == index + 1 else replace(before, position=index + 1)
        elif before.digest == content.digest and before.position == index + 1 and not before.is_pending:
            # Most of a conversation is as it was.
            continue
        else:
            after = replace(
                before,
                position=index + 1,
                digest=content.digest,
                usage=content.usage,
                is_pending=False,
                content=content,
            )
        if after != before:
            changed.append(after)
    kept = set(order)
    changed += [
        replace(message, position=None, is_pending=False, content=None)
        for message in messages.values()
        if message.position is not None and message.message_id not in kept
    ]
    return changed


def take_inputs(messages: Messages, inputs: Iterable[tuple[str, Content]], introduction: Introduction) -> list[Message]:
    """The messages that change when a task's submission brings inputs: they follow the last message."""
    last = max(_live(messages), key=_position, default=None)
    position = last.position if last is not None and last.position is not None else 0
    parent = last.message_id if last is not None else None
    changed: dict[str, Message] = {}
    for message_id, content in inputs:
        before = changed.get(message_id) or messages.get(message_id)
        if before is not None and before.position is not None:
            # The id is in the conversation already; what it says now is what was submitted now.
            after = replace(before, digest=content.digest, usage=content.usage, content=content)
        else:
            position += 1
            if before is None:
                after = _input(message_id, position, content, introduction, parent)
            else:
                after = replace(
                    before,
                    position=position,
                    digest=content.digest,
                    usage=content.usage,
                    is_pending=True,
                    content=content,
                )
            parent = message_id
        if after != before:
            changed[message_id] = after
    return list(changed.values())


def without_checkpoints(inputs: Iterable[Input]) -> list[Message]:
    """The conversation when the thread's checkpoints are gone: the inputs of the open tasks, in their order (P3).

    Whether a checkpoint had held them is not asked: after the deletion nobody could tell any more.
    """
    messages: list[Message] = []
    parent: str | None = None
    for position, one in enumerate(sorted(inputs, key=lambda one: one.ordinal), start=1):
        messages.append(_input(one.message_id, position, one.content, one.introduction, parent))
        parent = one.message_id
    return messages


def rolled_back(
    messages: Messages, channel: Sequence[tuple[str, Content]], inputs: Iterable[Input], introduction: Introduction
) -> list[Message]:
    """The conversation after a rollback: what the head that stays holds, then the open tasks' inputs that it lacks.

    Whatever else there was is forgotten: a rebuild finds no trace of it. Messages that nobody knew get `introduction`.
    """
    left: list[Message] = []
    for message_id, content in channel:
        before = messages.get(message_id)
        parent = left[-1].message_id if left else None
        left.append(
            Message(
                message_id,
                len(left) + 1,
                content.digest,
                before.introduction if before is not None else introduction,
                before.parent_message_id if before is not None else parent,
                content.usage,
                False,
                content,
            )
        )
    held = {message_id for message_id, _ in channel}
    for one in sorted(inputs, key=lambda one: one.ordinal):
        if one.message_id not in held:
            parent = left[-1].message_id if left else None
            left.append(_input(one.message_id, len(left) + 1, one.content, one.introduction, parent))
    return left


def with_model(message: Message) -> Message:
    """The message with the model that its content names, if that is at hand."""
    if message.content is None:
        return message
    model = _UNFIT.sub("", message.content.model or "")[:MAX_ID_CHARACTERS] or None
    return message if model == message.model else replace(message, model=model)


def _input(message_id: str, position: int, content: Content, introduction: Introduction, parent: str | None) -> Message:
    return Message(message_id, position, content.digest, introduction, parent, content.usage, True, content)


def _with_pending(messages: Messages, order: list[str]) -> list[str]:
    """The channel's order, with the pending inputs that it lacks behind the message that each followed."""
    in_channel = set(order)
    live = sorted(_live(messages), key=_position)
    if not any(message.is_pending and message.message_id not in in_channel for message in live):
        return order
    first: list[str] = []
    last: list[str] = []
    following: dict[str, list[str]] = {}
    anchor: str | None = None
    is_first = True
    for message in live:
        if message.message_id in in_channel:
            anchor = message.message_id
        elif message.is_pending:
            # Nothing was before it: it opens the conversation. All before it is gone: it is what comes next.
            place = first if is_first else last
            (place if anchor is None else following.setdefault(anchor, [])).append(message.message_id)
            continue
        is_first = False
    merged = first
    for message_id in order:
        merged.append(message_id)
        merged += following.get(message_id, ())
    return merged + last


def _live(messages: Messages) -> Iterable[Message]:
    return (message for message in messages.values() if message.position is not None)


def _position(message: Message) -> int:
    return message.position or 0
