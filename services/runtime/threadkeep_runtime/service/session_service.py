"""SessionService: create, fork, read, list, change, delete (R18, R19, R23)."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import grpc

from threadkeep.runtime.v1 import session_pb2, session_service_pb2, session_service_pb2_grpc
from threadkeep_chassis.errors import FieldInvalid
from threadkeep_chassis.ids import new_id
from threadkeep_chassis.scope import Call, current_call
from threadkeep_runtime.domain.errors import SessionNotFound
from threadkeep_runtime.domain.values import thread_key_of
from threadkeep_runtime.service import parse
from threadkeep_runtime.service.calls import answer, fill, is_operator, origin_of
from threadkeep_runtime.service.render import session_to_proto
from threadkeep_runtime.service.rooms import Rooms
from threadkeep_runtime.store import reads
from threadkeep_runtime.store.apply import Applied
from threadkeep_runtime.store.reads import ListQuery

pb = session_service_pb2


class SessionServicer(session_service_pb2_grpc.SessionServiceServicer):
    """Translates; `rooms` is set once the database is open."""

    rooms: Rooms

    async def CreateSession(
        self, request: pb.CreateSessionRequest, context: grpc.aio.ServicerContext
    ) -> pb.CreateSessionResponse:
        """Creates a session."""
        call = current_call()
        draft = parse.session_draft_of(request.session, "session")
        session_id = request.session.session_id if request.session.HasField("session_id") else new_id()

        def render(applied: Applied) -> bytes:
            thread = applied.decision.thread
            assert thread is not None
            return pb.CreateSessionResponse(
                session=session_to_proto(thread, None), receipt=self.rooms.receipts.render(applied)
            ).SerializeToString()

        outcome = await self.rooms.commands.create_session(origin_of(call, request), session_id, draft, render)
        response = answer(call, outcome, pb.CreateSessionResponse)
        show_key(call, response.session)
        return response

    async def GetSession(
        self, request: pb.GetSessionRequest, context: grpc.aio.ServicerContext
    ) -> pb.GetSessionResponse:
        """Reads a session."""
        call = current_call()
        key = thread_key_of(call.scope_key, request.session_id)
        async with self.rooms.database.read() as connection:
            found = await connection.run(lambda sync: reads.find_session(sync, key))
        if found is None:
            raise SessionNotFound()
        return pb.GetSessionResponse(session=session_to_proto(*found, for_operator=is_operator(call)))

    async def ListSessions(
        self, request: pb.ListSessionsRequest, context: grpc.aio.ServicerContext
    ) -> pb.ListSessionsResponse:
        """Lists sessions, newest first."""
        call = current_call()
        page = self.rooms.pager.page(call, request)
        states = [
            parse.enum_name(session_pb2.SessionStatus, status, "SESSION_STATUS_", f"statuses[{index}]")
            for index, status in enumerate(request.statuses)
        ]
        for_operator = is_operator(call)

        def query(count: int, after: tuple[Any, ...] | None) -> ListQuery:
            return ListQuery(
                call.scope_key,
                count,
                after,
                agent_name=request.agent_name if request.HasField("agent_name") else None,
                states=states,
                metadata=dict(request.metadata),
            )

        builder = await fill(
            self.rooms.database,
            page,
            query,
            reads.list_sessions,
            lambda row: session_to_proto(*row, for_operator=for_operator),
            lambda row: (row.thread.create_time, row.thread.session_id),
        )
        return pb.ListSessionsResponse(
            sessions=builder.items, next_page_token=builder.token(self.rooms.pager, call, request)
        )

    async def UpdateSession(
        self, request: pb.UpdateSessionRequest, context: grpc.aio.ServicerContext
    ) -> pb.UpdateSessionResponse:
        """Changes what its owner decides about a session."""
        call = current_call()
        if not request.session.HasField("session_id"):
            raise FieldInvalid("session.session_id", "is required")
        changes = _changes(request)
        expected = request.expected_revision if request.HasField("expected_revision") else None

        def render(applied: Applied) -> bytes:
            thread = applied.decision.thread
            assert thread is not None
            return pb.UpdateSessionResponse(
                session=session_to_proto(thread, applied.decision.run), receipt=self.rooms.receipts.render(applied)
            ).SerializeToString()

        outcome = await self.rooms.commands.update_session(
            origin_of(call, request), request.session.session_id, changes, expected, render
        )
        response = answer(call, outcome, pb.UpdateSessionResponse)
        show_key(call, response.session)
        return response

    async def ForkSession(
        self, request: pb.ForkSessionRequest, context: grpc.aio.ServicerContext
    ) -> pb.ForkSessionResponse:
        """A commit of the new session."""
        call = current_call()
        draft = parse.session_draft_of(request.session, "session")
        session_id = request.session.session_id if request.session.HasField("session_id") else new_id()
        if session_id == request.session_id:
            raise FieldInvalid("session.session_id", "must be another session than the source")
        at = request.WhichOneof("at")
        if request.checkpoint_ns and at != "checkpoint_id":
            raise FieldInvalid("checkpoint_ns", "needs a checkpoint_id")

        def render(applied: Applied) -> bytes:
            thread = applied.decision.thread
            assert thread is not None
            return pb.ForkSessionResponse(
                session=session_to_proto(thread, None), receipt=self.rooms.receipts.render(applied)
            ).SerializeToString()

        outcome = await self.rooms.commands.fork_session(
            origin_of(call, request),
            request.session_id,
            session_id,
            draft,
            request.commit_sequence if at == "commit_sequence" else None,
            (request.checkpoint_ns, request.checkpoint_id) if at == "checkpoint_id" else None,
            render,
        )
        response = answer(call, outcome, pb.ForkSessionResponse)
        show_key(call, response.session)
        return response

    async def DeleteSession(
        self, request: pb.DeleteSessionRequest, context: grpc.aio.ServicerContext
    ) -> pb.DeleteSessionResponse:
        """Deletes a session and everything of its thread."""
        call = current_call()
        policy = parse.artifact_policy_of(request.artifact_policy, "artifact_policy")
        expected = request.expected_revision if request.HasField("expected_revision") else None

        def render(applied: Applied) -> bytes:
            return pb.DeleteSessionResponse(receipt=self.rooms.receipts.render(applied)).SerializeToString()

        outcome = await self.rooms.commands.delete_session(
            origin_of(call, request), request.session_id, policy, expected, render
        )
        return answer(call, outcome, pb.DeleteSessionResponse)


def show_key(call: Call, session: session_pb2.Session) -> None:
    """Adds the internal key for operators: a stored response has none, since another caller may get it again."""
    if is_operator(call):
        session.internal_thread_key = thread_key_of(call.scope_key, session.session_id)


def _changes(request: pb.UpdateSessionRequest) -> Mapping[str, Any]:
    """The fields of the mask with their new values."""
    draft = parse.session_draft_of(request.session, "session")
    values = {
        "title": draft.title,
        "agent_name": draft.agent_name,
        "metadata": draft.metadata,
        "settings": draft.settings,
    }
    if not request.update_mask.paths:
        raise FieldInvalid("update_mask", "is required")
    for path in request.update_mask.paths:
        if path not in values:
            raise FieldInvalid("update_mask", f"knows {', '.join(values)}")
    return {path: values[path] for path in request.update_mask.paths}
