"""Threads with a long history, and what their chains say."""

from typing import Any, NamedTuple

from tests.support.checkpoints import op, put, value, write, writes
from tests.support.descriptors import fresh_id
from tests.support.examples.threads import declaration
from tests.support.messages import append, remove, replace
from tests.support.outbox import to_session
from tests.support.runtime import RUNNING, SUCCEEDED, Runtime, awaiting, event, text
from threadkeep.runtime.v1 import (
    audit_pb2,
    commit_pb2,
    message_pb2,
    session_service_pb2,
    state_pb2,
    thread_service_pb2,
    ticket_pb2,
)


class Life(NamedTuple):
    """A session, and the receipt of its last commit."""

    session_id: str
    last: commit_pb2.CommitReceipt


async def whole_life(runtime: Runtime) -> Life:
    """A thread whose commits have a part of every kind."""
    await runtime.declare(declaration("plan"))
    target = (await runtime.create()).session_id
    facts = session_service_pb2.SessionDraft(message_source=message_pb2.MESSAGE_SOURCE_FACTS)
    held = await runtime.lease(create_session=facts)
    name = held.run.session_id
    await runtime.work(
        held,
        running=RUNNING,
        events=[event("order.placed", event_id="e-1", payload=text(), correlation_id="c"), event("bare")],
        messages=append("m-1", "m-2", "m-3"),
        state=[state_pb2.StateCommand(key="plan", set_json='{"step":1}')],
        audit=[audit_pb2.AuditDraft(action="refund.approved", target="order 7", details=text(b"why"))],
        outbox=[to_session(target, {"n": 1})],
        checkpoint_ops=[op(put(1, value("c", "1"), value("whole", ""))), op(writes(1, write("t", 0), write("t", -1)))],
    )
    question = ticket_pb2.TicketDraft(ticket_id=fresh_id("ticket"), prompt=text(b"go on?"))
    await runtime.work(
        held,
        awaiting=awaiting(question),
        messages=[replace("m-2", "better"), *remove("m-1")],
        state=[state_pb2.StateCommand(key="plan", remove=state_pb2.StateRemove())],
    )
    await runtime.resolve(question.ticket_id)
    again = await runtime.again(held)
    done = await runtime.work(again, ended=SUCCEEDED)
    return Life(name, done.receipt)


async def verified(
    runtime: Runtime, session_id: str, page_size: int = 0
) -> list[thread_service_pb2.VerifyThreadResponse]:
    """What VerifyThread says, page by page."""
    request = thread_service_pb2.VerifyThreadRequest(session_id=session_id, page_size=page_size)
    pages: list[Any] = []
    while True:
        pages.append(await runtime.call("ThreadService.VerifyThread", request))
        if not pages[-1].next_page_token:
            return pages
        request.page_token = pages[-1].next_page_token


async def commits(runtime: Runtime, session_id: str) -> list[thread_service_pb2.Commit]:
    """All commits of a session, newest first."""
    request = thread_service_pb2.ListCommitsRequest(session_id=session_id, page_size=1000)
    return [*(await runtime.call("ThreadService.ListCommits", request)).commits]
