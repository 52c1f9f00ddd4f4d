"""`threadkeep sessions`."""

from __future__ import annotations

from typing import Annotated, Any

import typer

from threadkeep.runtime.v1 import message_pb2, session_pb2
from threadkeep_cli.groups.common import (
    AgentOption,
    All,
    ExpectedRevision,
    Limit,
    Metadata,
    RequestId,
    page_size,
    up_to,
)
from threadkeep_cli.output import Column, field, short
from threadkeep_cli.parsing import parse_enum, parse_enums, parse_pairs
from threadkeep_cli.session import Session, command

app = typer.Typer(help="Sessions: the containers of conversations.", no_args_is_help=True)

COLUMNS: tuple[Column, ...] = (
    ("SESSION", field("session_id")),
    ("STATUS", short("status")),
    ("AGENT", field("agent_name")),
    ("TASKS", field("task_count")),
    ("TITLE", field("title")),
    ("LAST ACTIVITY", field("last_activity_time")),
)

Model = Annotated[str | None, typer.Option("--model", help="The model, instead of the agent's.")]
MaxSteps = Annotated[int | None, typer.Option("--max-steps", min=1, help="Most supersteps of one run.")]
Artifacts = Annotated[
    str | None, typer.Option("--artifacts", help="What becomes of its artifacts when it is deleted: delete or keep.")
]


def _settings(model: str | None, max_steps: int | None, artifacts: str | None) -> dict[str, Any] | None:
    policy = None if artifacts is None else _policy(artifacts)
    named = (("model", model), ("max_steps", max_steps), ("artifact_policy", policy))
    return {name: value for name, value in named if value is not None} or None


def _policy(artifacts: str) -> Any:
    return parse_enum(session_pb2.ArtifactPolicy, "ARTIFACT_POLICY", artifacts, "--artifacts")


@command(app)
def create(
    session: Session,
    id_: Annotated[str | None, typer.Option("--id", help="The id. Default: the server assigns one.")] = None,
    title: Annotated[str, typer.Option("--title", help="A title for people.")] = "",
    agent: AgentOption = None,
    metadata: Metadata = None,
    model: Model = None,
    max_steps: MaxSteps = None,
    artifacts: Artifacts = None,
    messages: Annotated[
        str | None,
        typer.Option("--messages", help="Where messages come from: checkpoints or facts. Default: as it turns out."),
    ] = None,
    request_id: RequestId = None,
) -> None:
    """Creates a session."""
    answer = session.client.sessions.create(
        id_,
        title=title,
        agent_name=agent,
        metadata=parse_pairs(metadata or [], "--metadata"),
        settings=_settings(model, max_steps, artifacts),
        message_source=0  # type: ignore[arg-type]
        if messages is None
        else parse_enum(message_pb2.MessageSource, "MESSAGE_SOURCE", messages, "--messages"),
        request_id=request_id,
    )
    session.show.one(answer.session)


@command(app)
def get(session: Session, session_id: Annotated[str, typer.Argument(help="The session's id.")]) -> None:
    """Shows a session."""
    session.show.one(session.client.sessions.get(session_id))


@command(app, "list")
def list_(
    session: Session,
    agent: AgentOption = None,
    status: Annotated[
        list[str] | None, typer.Option("--status", help="idle, queued, running or awaiting. Repeatable.")
    ] = None,
    metadata: Metadata = None,
    limit: Limit = 50,
    everything: All = False,
) -> None:
    """Lists sessions, newest first."""
    found = session.client.sessions.list(
        agent_name=agent,
        statuses=parse_enums(session_pb2.SessionStatus, "SESSION_STATUS", status, "--status"),
        metadata=parse_pairs(metadata or [], "--metadata"),
        page_size=page_size(limit, everything),
    )
    session.show.many(up_to(found, limit, everything), COLUMNS, "no sessions")


@command(app)
def update(
    session: Session,
    session_id: Annotated[str, typer.Argument(help="The session's id.")],
    title: Annotated[str | None, typer.Option("--title", help="The new title.")] = None,
    agent: AgentOption = None,
    metadata: Metadata = None,
    model: Model = None,
    max_steps: MaxSteps = None,
    artifacts: Artifacts = None,
    expected_revision: ExpectedRevision = None,
    request_id: RequestId = None,
) -> None:
    """Changes a session: what is given is replaced whole."""
    answer = session.client.sessions.update(
        session_id,
        title=title,
        agent_name=agent,
        metadata=None if metadata is None else parse_pairs(metadata, "--metadata"),
        settings=_settings(model, max_steps, artifacts),
        expected_revision=expected_revision,
        request_id=request_id,
    )
    session.show.one(answer.session)


@command(app)
def delete(
    session: Session,
    session_id: Annotated[str, typer.Argument(help="The session's id.")],
    artifacts: Annotated[
        str | None, typer.Option("--artifacts", help="delete or keep. Default: what its settings say.")
    ] = None,
    expected_revision: ExpectedRevision = None,
    request_id: RequestId = None,
) -> None:
    """Deletes a session and everything in it, for good. Its id is never used again."""
    answer = session.client.sessions.delete(
        session_id,
        artifact_policy=session_pb2.ARTIFACT_POLICY_UNSPECIFIED if artifacts is None else _policy(artifacts),
        expected_revision=expected_revision,
        request_id=request_id,
    )
    session.show.one(answer.receipt)


@command(app)
def fork(
    session: Session,
    session_id: Annotated[str, typer.Argument(help="The session to fork.")],
    id_: Annotated[str | None, typer.Option("--id", help="The new id. Default: the server assigns one.")] = None,
    commit: Annotated[int | None, typer.Option("--commit", help="After this commit.")] = None,
    checkpoint: Annotated[str | None, typer.Option("--checkpoint", help="At this checkpoint.")] = None,
    title: Annotated[str, typer.Option("--title", help="A title. Default: the source's.")] = "",
    request_id: RequestId = None,
) -> None:
    """Makes a new session that begins as this one was: now, after a commit, or at a checkpoint."""
    answer = session.client.sessions.fork(
        session_id, id_, commit_sequence=commit, checkpoint_id=checkpoint, title=title, request_id=request_id
    )
    session.show.one(answer.session)
