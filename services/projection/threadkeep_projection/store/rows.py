"""Between rows and the domain's values."""

from __future__ import annotations

import hashlib
from collections.abc import Mapping
from typing import Any

from threadkeep_chassis.canonical import canonical_digest
from threadkeep_projection.domain.values import Content, Input, Introduction, Message, Poison, Run, Session, Task, Usage
from threadkeep_projection.domain.words import indexed_words, searched_text

Row = dict[str, Any]


def entry_digest(key: str, value: str) -> str:
    """What stands for a metadata entry where it is filtered by."""
    return canonical_digest([key, value])


def word_prefix(scope_key: str, session_id: str) -> str:
    """What stands before a session's words in the index, so that a word costs what it occurs in this session."""
    return hashlib.sha256(f"{scope_key}\x00{session_id}".encode()).hexdigest()[:10]


def usage_of(row: Any) -> Usage:
    """The usage columns."""
    return Usage(row.input_tokens, row.output_tokens, row.total_tokens)


def session_row(scope_key: str, subject: str, session: Session) -> Row:
    """A session's columns, without usage."""
    return {
        "scope_key": scope_key,
        "session_id": session.session_id,
        "subject": subject,
        "title": session.title,
        "agent_name": session.agent_name,
        "metadata": dict(session.metadata),
        "status": session.status,
        "message_count": session.message_count,
        "task_count": session.task_count,
        "run_count": session.run_count,
        "input_count": session.input_count,
        "create_time": session.create_time,
        "update_time": session.update_time,
        "event_sequence": session.event_sequence,
    }


def session_of(row: Any) -> Session:
    """A session."""
    return Session(
        session_id=row.session_id,
        create_time=row.create_time,
        update_time=row.update_time,
        event_sequence=row.event_sequence,
        title=row.title,
        agent_name=row.agent_name,
        metadata=_entries(row.metadata),
        status=row.status,
        message_count=row.message_count,
        task_count=row.task_count,
        run_count=row.run_count,
        input_count=row.input_count,
    )


def task_row(scope_key: str, task: Task) -> Row:
    """A task's columns, without usage."""
    return {
        "scope_key": scope_key,
        "task_id": task.task_id,
        "session_id": task.session_id,
        "agent_name": task.agent_name,
        "state": task.state,
        "run_id": task.run_id,
        "metadata": dict(task.metadata),
        "failure": list(task.failure) if task.failure is not None else None,
        "ticket_count": task.ticket_count,
        "create_time": task.create_time,
        "update_time": task.update_time,
        "end_time": task.end_time,
    }


def task_of(row: Any) -> Task:
    """A task."""
    return Task(
        task_id=row.task_id,
        session_id=row.session_id,
        create_time=row.create_time,
        update_time=row.update_time,
        agent_name=row.agent_name,
        state=row.state,
        run_id=row.run_id,
        metadata=_entries(row.metadata),
        failure=(row.failure[0], row.failure[1]) if row.failure is not None else None,
        ticket_count=row.ticket_count,
        end_time=row.end_time,
    )


def run_row(scope_key: str, run: Run) -> Row:
    """A run's columns, without usage."""
    return {
        "scope_key": scope_key,
        "run_id": run.run_id,
        "task_id": run.task_id,
        "session_id": run.session_id,
        "agent_name": run.agent_name,
        "state": run.state,
        "cause": run.cause,
        "lease_count": run.lease_count,
        "step_count": run.step_count,
        "create_time": run.create_time,
        "start_time": run.start_time,
        "end_time": run.end_time,
    }


def run_of(row: Any) -> Run:
    """A run."""
    return Run(
        run_id=row.run_id,
        task_id=row.task_id,
        session_id=row.session_id,
        create_time=row.create_time,
        agent_name=row.agent_name,
        state=row.state,
        cause=row.cause,
        lease_count=row.lease_count,
        step_count=row.step_count,
        start_time=row.start_time,
        end_time=row.end_time,
    )


def message_row(scope_key: str, session_id: str, message: Message) -> Row:
    """All columns of a message."""
    content, usage, introduction = message.content, message.usage, message.introduction
    searched = searched_text(content) if content is not None else None
    return {
        "scope_key": scope_key,
        "session_id": session_id,
        "message_id": message.message_id,
        "position": message.position,
        "digest": message.digest,
        "content": content.document() if content is not None else None,
        "excerpt": content.excerpt if content is not None else None,
        "is_pending": message.is_pending,
        "parent_message_id": message.parent_message_id,
        "task_id": introduction.task_id,
        "run_id": introduction.run_id,
        "model": message.model,
        "input_tokens": usage.input_tokens if usage is not None else None,
        "output_tokens": usage.output_tokens if usage is not None else None,
        "total_tokens": usage.total_tokens if usage is not None else None,
        "create_time": introduction.time,
        "role": content.role if content is not None else None,
        "searched": searched,
        "words": indexed_words(searched, word_prefix(scope_key, session_id)) if searched is not None else None,
    }


def message_of(row: Any, *, with_content: bool) -> Message:
    """A message; without `with_content` the row need not have that column."""
    content = row.content if with_content else None
    return Message(
        message_id=row.message_id,
        position=row.position,
        digest=row.digest,
        introduction=_introduction(row),
        parent_message_id=row.parent_message_id,
        usage=usage_of(row) if row.total_tokens is not None else None,
        is_pending=row.is_pending,
        content=Content.from_document(content) if content is not None else None,
        model=row.model,
    )


def input_row(scope_key: str, session_id: str, one: Input) -> Row:
    """An input's columns."""
    return {
        "scope_key": scope_key,
        "session_id": session_id,
        "message_id": one.message_id,
        "ordinal": one.ordinal,
        "content": one.content.document(),
        "task_id": one.introduction.task_id,
        "run_id": one.introduction.run_id,
        "create_time": one.introduction.time,
    }


def input_of(row: Any) -> Input:
    """An input."""
    return Input(row.message_id, row.ordinal, Content.from_document(row.content), _introduction(row))


def poison_row(scope_key: str, session_id: str, one: Poison) -> Row:
    """A poison event's columns."""
    return {
        "scope_key": scope_key,
        "session_id": session_id,
        "sequence": one.sequence,
        "type": one.type,
        "reason": one.reason,
        "create_time": one.time,
    }


def _introduction(row: Any) -> Introduction:
    return Introduction(row.create_time, row.task_id, row.run_id)


def _entries(metadata: Mapping[str, str]) -> tuple[tuple[str, str], ...]:
    return tuple(sorted(metadata.items()))
