"""ThreadService: the ThreadCommit (R1 to R4), state keys (R11), and the thread as it is or was (R12)."""

from __future__ import annotations

import asyncio
import random
from datetime import datetime
from typing import Any

import grpc

from threadkeep.runtime.v1 import thread_service_pb2, thread_service_pb2_grpc
from threadkeep_chassis.database import Connection, SyncConnection
from threadkeep_chassis.errors import FieldInvalid
from threadkeep_chassis.ids import new_id
from threadkeep_chassis.paging import PageBuilder
from threadkeep_chassis.receipts import idempotent
from threadkeep_chassis.scope import current_call
from threadkeep_runtime.domain.errors import SessionNotFound
from threadkeep_runtime.domain.state import Declaration, declare
from threadkeep_runtime.domain.values import thread_key_of
from threadkeep_runtime.service import parse
from threadkeep_runtime.service.answers import bounded
from threadkeep_runtime.service.audit_convert import record_to_proto, records_of
from threadkeep_runtime.service.calls import CHUNK, answer, fill, origin_of, with_staged
from threadkeep_runtime.service.checkpoint_convert import ops_from_proto
from threadkeep_runtime.service.message_convert import changes_of
from threadkeep_runtime.service.outbox_convert import drafts_of
from threadkeep_runtime.service.render import lease_expire_time_of, run_to_proto
from threadkeep_runtime.service.rooms import Rooms
from threadkeep_runtime.service.state_convert import commands_of, declaration_to_proto, declarations_of
from threadkeep_runtime.service.view_convert import ViewPage, commit_to_proto
from threadkeep_runtime.store import state as stored_state
from threadkeep_runtime.store.apply import Applied
from threadkeep_runtime.store.audit import AuditQuery, list_audit
from threadkeep_runtime.store.reads import find_session
from threadkeep_runtime.store.thread_views import find_moment, list_commits
from threadkeep_runtime.store.verifying import Verified, verify

pb = thread_service_pb2

_FACTS = ("events", "checkpoint_ops", "messages", "state", "outbox", "audit")


class ThreadServicer(thread_service_pb2_grpc.ThreadServiceServicer):
    """Translates; `rooms` is set once the database is open."""

    rooms: Rooms

    async def Commit(self, request: pb.CommitRequest, context: grpc.aio.ServicerContext) -> pb.CommitResponse:
        """Applies one ThreadCommit."""
        call = current_call()
        commit = request.commit
        lease = parse.optional_lease(commit)
        read = bounded(parse.disposition_of, self.rooms.limits["max_schema_steps"])
        if any(draft.HasField("default_answer") for draft in commit.awaiting.tickets):
            # A default is held against its schema: beside the loop, which has other calls to serve meanwhile.
            disposition = await asyncio.to_thread(read, commit, new_id, self.rooms.limits)
        else:
            disposition = read(commit, new_id, self.rooms.limits)
        if disposition is None and not any(getattr(commit, name) for name in _FACTS):
            raise FieldInvalid("commit", f"needs a disposition, or any of {', '.join(_FACTS)}")
        ops = ops_from_proto(commit.checkpoint_ops, "commit.checkpoint_ops", self.rooms.limits)
        rest = {
            "lease": lease,
            "expected_version": commit.expected_thread_version if commit.HasField("expected_thread_version") else None,
            "disposition": disposition,
            "events": parse.events_of(commit.events, new_id, self.rooms.limits, "commit.events"),
            "jitter": random.random(),
            "audit": records_of(commit.audit, new_id, self.rooms.limits, "commit.audit"),
            "messages": changes_of(commit.messages, new_id, self.rooms.limits, "commit.messages"),
            "outbox": drafts_of(commit.outbox, new_id, self.rooms.limits, self.rooms.webhooks, "commit.outbox"),
            "max_pending_deliveries": self.rooms.limits["max_pending_deliveries"],
            "ops": ops,
        }

        def render(applied: Applied) -> bytes:
            decision = applied.decision
            response = pb.CommitResponse(
                receipt=self.rooms.receipts.render(applied),
                ticket_ids=[ticket.ticket_id for ticket in decision.opened_tickets],
                message_ids=() if decision.messages is None else decision.messages.appended_ids,
                outbox_message_ids=decision.outbox_ids,
            )
            if lease is not None and decision.run is not None:
                response.run.CopyFrom(run_to_proto(decision.run, lease_expire_time_of(applied)))
            return response.SerializeToString()

        outcome = await self.rooms.commands.commit(
            with_staged(origin_of(call, request, parse.actor_of(commit.actor, "commit.actor")), ops),
            commit.session_id,
            rest,
            render,
            commands_of(commit.state, "commit.state"),
        )
        return answer(call, outcome, pb.CommitResponse)

    async def GetThreadView(
        self, request: pb.GetThreadViewRequest, context: grpc.aio.ServicerContext
    ) -> pb.GetThreadViewResponse:
        """A page of the thread at one commit. The page token names the commit, so that all pages show one state."""
        call = current_call()
        page = self.rooms.pager.page(call, request)
        thread_key = thread_key_of(call.scope_key, request.session_id)
        wanted = request.commit_sequence if request.HasField("commit_sequence") else None
        sequence, part, after = page.after or (wanted, "", "")
        builder: PageBuilder[Any] = PageBuilder(page)

        def read(connection: SyncConnection) -> ViewPage:
            view = ViewPage(connection, find_moment(connection, thread_key, sequence), tuple(request.state_keys))
            view.fill(builder, part, after)
            return view

        async with self.rooms.database.read(snapshot=True) as connection:
            view = await connection.run(read)
        response = view.response()
        response.next_page_token = builder.token(self.rooms.pager, call, request)
        return response

    async def ListCommits(
        self, request: pb.ListCommitsRequest, context: grpc.aio.ServicerContext
    ) -> pb.ListCommitsResponse:
        """Lists a thread's commits, newest first."""
        call = current_call()
        page = self.rooms.pager.page(call, request)
        thread_key = thread_key_of(call.scope_key, request.session_id)
        before = None if page.after is None else page.after[0]
        builder: PageBuilder[pb.Commit] = PageBuilder(page)
        async with self.rooms.database.read() as connection:
            rows = await connection.run(lambda sync: list_commits(sync, thread_key, before, builder.wanted))
        for row in rows:
            if not builder.add(commit_to_proto(row), (row.sequence,)):
                break
        return pb.ListCommitsResponse(
            commits=builder.items, next_page_token=builder.token(self.rooms.pager, call, request)
        )

    async def VerifyThread(
        self, request: pb.VerifyThreadRequest, context: grpc.aio.ServicerContext
    ) -> pb.VerifyThreadResponse:
        """Recomputes a part of a thread's chain, in one snapshot."""
        call = current_call()
        page = self.rooms.pager.page(call, request)
        most = self.rooms.limits["max_verified_commits"]
        count = min(request.page_size, most) if request.page_size else most
        thread_key = thread_key_of(call.scope_key, request.session_id)
        after = 0 if page.after is None else page.after[0]

        def read(connection: SyncConnection) -> tuple[Verified, int]:
            found = find_session(connection, thread_key)
            if found is None:
                raise SessionNotFound()
            return verify(connection, found.thread, after, count), found.thread.digest_sequence

        async with self.rooms.database.read(snapshot=True) as connection:
            verified, head = await connection.run(read)
        is_last = verified.last_commit >= head
        token = "" if is_last else self.rooms.pager.token(call, request, (verified.last_commit,))
        return pb.VerifyThreadResponse(**verified._asdict(), next_page_token=token)

    async def ListAuditRecords(
        self, request: pb.ListAuditRecordsRequest, context: grpc.aio.ServicerContext
    ) -> pb.ListAuditRecordsResponse:
        """Lists audit records, newest first."""
        call = current_call()
        page = self.rooms.pager.page(call, request)

        def query(count: int, after: tuple[Any, ...] | None) -> AuditQuery:
            return AuditQuery(
                call.scope_key,
                count,
                after,
                parse.session_filter(call.scope_key, request),
                actions=list(request.actions),
                actor_id=request.actor_id if request.HasField("actor_id") else None,
                created_from=_time(request, "created_from"),
                created_before=_time(request, "created_before"),
            )

        builder = await fill(
            self.rooms.database,
            page,
            query,
            list_audit,
            record_to_proto,
            lambda record: (record.create_time, record.audit_id),
        )
        return pb.ListAuditRecordsResponse(
            records=builder.items, next_page_token=builder.token(self.rooms.pager, call, request)
        )

    async def DeclareStateKeys(
        self, request: pb.DeclareStateKeysRequest, context: grpc.aio.ServicerContext
    ) -> pb.DeclareStateKeysResponse:
        """Declares state keys, all or none."""
        call = current_call()
        limits = self.rooms.limits

        async def work(connection: Connection) -> pb.DeclareStateKeysResponse:
            now = await connection.now()
            wanted = declarations_of(request.declarations, now, limits, self.rooms.settings.state_value_bytes)

            def write(sync: SyncConnection) -> list[Declaration]:
                count = stored_state.lock_scope(sync, call.scope_key)
                known = stored_state.load_declarations(sync, {(call.scope_key, one.key) for one in wanted})
                found = [
                    declare(known.get((call.scope_key, one.key)), one, f"declarations[{index}]")
                    for index, one in enumerate(wanted)
                ]
                count += len(wanted) - len(known)
                limits.check("max_state_keys", count)
                changed = [one for one in found if known.get((call.scope_key, one.key)) is not one]
                stored_state.write_declarations(sync, call.scope_key, changed, count)
                return found

            found = await connection.run(write)
            return pb.DeclareStateKeysResponse(keys=[declaration_to_proto(one) for one in found])

        return await idempotent(self.rooms.database, call, request, pb.DeclareStateKeysResponse, work)

    async def ListStateKeys(
        self, request: pb.ListStateKeysRequest, context: grpc.aio.ServicerContext
    ) -> pb.ListStateKeysResponse:
        """Lists the scope's state keys by name."""
        call = current_call()
        page = self.rooms.pager.page(call, request)
        builder: PageBuilder[Any] = PageBuilder(page)
        after = "" if page.after is None else page.after[0]
        while True:
            count = min(CHUNK, builder.wanted - len(builder.items))
            async with self.rooms.database.read() as connection:
                rows = await connection.run(
                    lambda sync, after=after, count=count: stored_state.list_declarations(  # type: ignore[misc]
                        sync, call.scope_key, after, count
                    )
                )
            for row in rows:
                after = row.key
                if not builder.add(declaration_to_proto(row), (row.key,)):
                    break
            if builder.has_more or len(rows) < count:
                break
        return pb.ListStateKeysResponse(
            keys=builder.items, next_page_token=builder.token(self.rooms.pager, call, request)
        )


def _time(request: Any, name: str) -> datetime | None:
    return parse.time_of(getattr(request, name), name) if request.HasField(name) else None
