"""Sessions."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from google.protobuf import field_mask_pb2

from threadkeep._api.values import given, to_settings
from threadkeep._rpc.method import Call, PagedCall, method, new_request_id, whole
from threadkeep.runtime.v1 import session_pb2, session_service_pb2
from threadkeep.runtime.v1.message_pb2 import MessageSource
from threadkeep.runtime.v1.session_pb2 import Session, SessionSettings

_CREATE = method(session_service_pb2, "SessionService", "CreateSession")
_GET = method(session_service_pb2, "SessionService", "GetSession")
_LIST = method(session_service_pb2, "SessionService", "ListSessions")
_UPDATE = method(session_service_pb2, "SessionService", "UpdateSession")
_FORK = method(session_service_pb2, "SessionService", "ForkSession")
_DELETE = method(session_service_pb2, "SessionService", "DeleteSession")


def draft(
    session_id: str | None = None,
    *,
    title: str = "",
    agent_name: str | None = None,
    metadata: Mapping[str, str] | None = None,
    settings: Mapping[str, Any] | SessionSettings | None = None,
    message_source: MessageSource.ValueType = MessageSource.MESSAGE_SOURCE_UNSPECIFIED,
) -> session_service_pb2.SessionDraft:
    """What a caller decides about a new session. Without a session_id the server assigns one; without a message_source
    the first commit that carries messages or checkpoints decides."""
    return session_service_pb2.SessionDraft(
        title=title,
        metadata=dict(metadata or {}),
        message_source=message_source,
        **given(session_id=session_id, agent_name=agent_name, settings=to_settings(settings)),
    )


def create(
    session_id: str | None = None,
    *,
    title: str = "",
    agent_name: str | None = None,
    metadata: Mapping[str, str] | None = None,
    settings: Mapping[str, Any] | SessionSettings | None = None,
    message_source: MessageSource.ValueType = MessageSource.MESSAGE_SOURCE_UNSPECIFIED,
    request_id: str | None = None,
) -> Call[session_service_pb2.CreateSessionResponse]:
    """Creates a session; gives `session` and `receipt`. Raises IdTaken."""
    session = draft(
        session_id,
        title=title,
        agent_name=agent_name,
        metadata=metadata,
        settings=settings,
        message_source=message_source,
    )
    request = session_service_pb2.CreateSessionRequest(request_id=request_id or new_request_id(), session=session)
    return Call(_CREATE, request, whole)


def get(session_id: str) -> Call[Session]:
    """Reads a session. Raises SessionNotFound."""
    return Call(_GET, session_service_pb2.GetSessionRequest(session_id=session_id), lambda response: response.session)


def list(
    *,
    metadata: Mapping[str, str] | None = None,
    statuses: Sequence[session_pb2.SessionStatus.ValueType] = (),
    agent_name: str | None = None,
    page_size: int = 0,
) -> PagedCall[Session]:
    """Sessions of the scope, newest first: those that have all of `metadata`, are in one of `statuses`, and whose agent
    is `agent_name`. Pages are fetched as the iteration needs them."""
    request = session_service_pb2.ListSessionsRequest(
        page_size=page_size, metadata=dict(metadata or {}), statuses=statuses, **given(agent_name=agent_name)
    )
    return PagedCall(Call(_LIST, request, whole), lambda page: page.sessions)


def update(
    session_id: str,
    *,
    title: str | None = None,
    agent_name: str | None = None,
    metadata: Mapping[str, str] | None = None,
    settings: Mapping[str, Any] | SessionSettings | None = None,
    expected_revision: int | None = None,
    request_id: str | None = None,
) -> Call[session_service_pb2.UpdateSessionResponse]:
    """Changes what is given; metadata and settings are replaced whole. Raises SessionNotFound, RevisionConflict."""
    changed = given(title=title, agent_name=agent_name, metadata=metadata, settings=to_settings(settings))
    request = session_service_pb2.UpdateSessionRequest(
        request_id=request_id or new_request_id(),
        session=session_service_pb2.SessionDraft(session_id=session_id, **changed),
        update_mask=field_mask_pb2.FieldMask(paths=sorted(changed)),
        **given(expected_revision=expected_revision),
    )
    return Call(_UPDATE, request, whole)


def fork(
    session_id: str,
    new_session_id: str | None = None,
    *,
    commit_sequence: int | None = None,
    checkpoint_id: str | None = None,
    checkpoint_ns: str = "",
    title: str = "",
    agent_name: str | None = None,
    metadata: Mapping[str, str] | None = None,
    settings: Mapping[str, Any] | SessionSettings | None = None,
    request_id: str | None = None,
) -> Call[session_service_pb2.ForkSessionResponse]:
    """Makes a new session that begins as this one was: now, after a commit, or at a checkpoint. What is not given is as
    in the source. Gives `session`, `receipt`. Raises SessionNotFound, CommitCompacted, CheckpointNotFound, IdTaken."""
    new = draft(new_session_id, title=title, agent_name=agent_name, metadata=metadata, settings=settings)
    request = session_service_pb2.ForkSessionRequest(
        request_id=request_id or new_request_id(),
        session_id=session_id,
        checkpoint_ns=checkpoint_ns,
        session=new,
        **given(commit_sequence=commit_sequence, checkpoint_id=checkpoint_id),
    )
    return Call(_FORK, request, whole)


def delete(
    session_id: str,
    *,
    artifact_policy: session_pb2.ArtifactPolicy.ValueType = session_pb2.ARTIFACT_POLICY_UNSPECIFIED,
    expected_revision: int | None = None,
    request_id: str | None = None,
) -> Call[session_service_pb2.DeleteSessionResponse]:
    """Deletes a session and everything of its thread; its id is never used again. `artifact_policy` says what becomes
    of its artifacts, else its settings do. Gives `receipt`. Raises SessionNotFound, RevisionConflict."""
    request = session_service_pb2.DeleteSessionRequest(
        request_id=request_id or new_request_id(),
        session_id=session_id,
        artifact_policy=artifact_policy,
        **given(expected_revision=expected_revision),
    )
    return Call(_DELETE, request, whole)
