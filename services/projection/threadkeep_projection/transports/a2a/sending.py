"""What a message does: it opens a task, or it answers what a task asks.

messageId is the request's id, so that a message that is sent again has one effect (X3).
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from a2a.types import a2a_pb2
from google.protobuf import json_format

from threadkeep.common.v1 import content_pb2, payload_pb2
from threadkeep.runtime.v1 import session_service_pb2, task_pb2, task_service_pb2, ticket_pb2, ticket_service_pb2
from threadkeep_chassis.errors import FieldInvalid, ThreadkeepError
from threadkeep_chassis.scope import Call
from threadkeep_projection.domain.errors import TaskNotFound, TicketAmbiguous, UnsupportedOperation
from threadkeep_projection.domain.projector import TERMINAL_TASK_STATES
from threadkeep_projection.transports.a2a.answers import answer_of
from threadkeep_projection.transports.a2a.cards import Cards
from threadkeep_projection.transports.a2a.checks import check_id
from threadkeep_projection.transports.a2a.parts import content_parts, dump
from threadkeep_projection.transports.a2a.peers import Work, session_or_none
from threadkeep_projection.transports.a2a.pushes import Pushes, draft_of, said_of_config
from threadkeep_projection.transports.a2a.tasks import WAITING_STATES, name_of

PUSH = "task_push_notification_config"
TICKET = "ticket_id"
"""The key of a message's metadata that names the ticket which it answers."""

_TICKET_NOT_OPEN = "TICKET_NOT_OPEN"
_CLIENT = payload_pb2.Actor(kind=payload_pb2.ACTOR_KIND_CLIENT)


@dataclass(frozen=True)
class Sent:
    """The task that a message went to, and where its events go on from."""

    task: task_pb2.Task
    sequence: int
    """Of the last event that the message brought about, or had brought about before."""


class Sending:
    """Takes messages."""

    def __init__(self, work: Work, cards: Cards, pushes: Pushes) -> None:
        self._work = work
        self._cards = cards
        self._pushes = pushes

    async def send(self, call: Call, request: a2a_pb2.SendMessageRequest) -> Sent:
        """Raises what the fields' rules say, TaskNotFound, TicketAmbiguous, UnsupportedOperation, AGENT_UNRESOLVED."""
        message = request.message
        check_id("message.message_id", message.message_id, required=True)
        check_id("message.context_id", message.context_id)
        check_id("message.task_id", message.task_id)
        if message.role == a2a_pb2.ROLE_AGENT:
            raise FieldInvalid("message.role", "must be the user's: a client sends no message of the agent")
        if message.task_id:
            return await self._answer(call, request)
        return await self._open(call, request)

    async def _open(self, call: Call, request: a2a_pb2.SendMessageRequest) -> Sent:
        message = request.message
        submission = task_service_pb2.SubmitTaskRequest(
            request_id=message.message_id,
            input=task_pb2.TaskInput(
                messages=task_pb2.InputMessages(
                    messages=[
                        content_pb2.InputMessage(
                            message_id=message.message_id,
                            role=content_pb2.MESSAGE_ROLE_USER,
                            parts=content_parts(message.parts, "message.parts"),
                        )
                    ]
                )
            ),
            metadata=_metadata(request),
            multitask_strategy=task_pb2.MULTITASK_STRATEGY_ENQUEUE,
            actor=_CLIENT,
        )
        agent_name = request.tenant
        if message.context_id:
            submission.session_id = message.context_id
            submission.if_session_missing = task_pb2.IF_SESSION_MISSING_CREATE
            if not agent_name:
                session = await session_or_none(self._work, call, message.context_id)
                agent_name = session.agent_name if session is not None else ""
        else:
            submission.create_session.CopyFrom(session_service_pb2.SessionDraft())
        submission.agent_name = agent_name or await self._cards.only_name(call)
        if request.configuration.HasField(PUSH):
            submission.webhooks.append(draft_of(request.configuration.task_push_notification_config))
        with said_of_config("webhooks[0]", f"configuration.{PUSH}."):
            response = await self._work.submit(call, submission)
        return Sent(response.task, response.receipt.last_event_sequence)

    async def _answer(self, call: Call, request: a2a_pb2.SendMessageRequest) -> Sent:
        message = request.message
        task = await self.known(call, message.task_id, request.tenant)
        if message.context_id not in ("", task.session_id):
            raise FieldInvalid("message.context_id", "must be that of the task")
        tickets = await self._work.tickets(call, task.task_id)
        replayed = await self._replayed(call, message, tickets)
        if replayed is not None:
            return Sent(await self._work.task(call, task.task_id), replayed)
        ticket = _asked(task, message, [one for one in tickets if one.state == ticket_pb2.TICKET_STATE_OPEN])
        answer = answer_of(ticket, message)
        if request.configuration.HasField(PUSH):
            # First, so that what the answer brings about is told.
            await self._pushes.put(call, task.task_id, request.configuration.task_push_notification_config)
        response = await self._work.answer(call, _resolution(ticket, answer, message))
        return Sent(await self._work.task(call, task.task_id), response.receipt.last_event_sequence)

    async def _replayed(self, call: Call, message: a2a_pb2.Message, tickets: Sequence[ticket_pb2.Ticket]) -> int | None:
        """The sequence of the answer that this very message gave before, if it did.

        Only the receipt knows. Asking for it can have no effect: the ticket is not open any more.
        """
        for ticket in tickets:
            if ticket.state != ticket_pb2.TICKET_STATE_RESOLVED:
                continue
            try:
                answer = answer_of(ticket, message)
            except FieldInvalid:
                continue
            if answer != ticket.answer:
                continue
            try:
                response = await self._work.answer(call, _resolution(ticket, answer, message))
            except ThreadkeepError as error:
                if error.reason != _TICKET_NOT_OPEN:
                    raise
            else:
                return int(response.receipt.last_event_sequence)
        return None

    async def known(self, call: Call, task_id: str, tenant: str, path: str = "message.task_id") -> task_pb2.Task:
        """The task, if the tenant (an agent's name; empty: any) does it. Raises TaskNotFound, FieldInvalid."""
        check_id(path, task_id, required=True)
        task = await self._work.task(call, task_id)
        if tenant not in ("", task.agent_name):
            raise TaskNotFound(task_id)
        return task


def _asked(
    task: task_pb2.Task, message: a2a_pb2.Message, open_tickets: Sequence[ticket_pb2.Ticket]
) -> ticket_pb2.Ticket:
    """The ticket that the message answers."""
    state = name_of(task.state)
    if state in TERMINAL_TASK_STATES:
        raise UnsupportedOperation(
            "The task has ended. Send the message with its context alone: it opens the next task."
        )
    named = message.metadata.fields[TICKET].string_value if TICKET in message.metadata.fields else ""
    if named:
        open_tickets = [one for one in open_tickets if one.ticket_id == named]
    if len(open_tickets) > 1:
        raise TicketAmbiguous([one.ticket_id for one in open_tickets])
    if not open_tickets:
        raise UnsupportedOperation(
            "The task has no such open ticket."
            if named and state in WAITING_STATES
            else "The task asks nothing now. Send the message with its context alone: it waits for its turn."
        )
    return open_tickets[0]


def _resolution(
    ticket: ticket_pb2.Ticket, answer: ticket_pb2.TicketAnswer, message: a2a_pb2.Message
) -> ticket_service_pb2.ResolveTicketRequest:
    return ticket_service_pb2.ResolveTicketRequest(
        request_id=message.message_id, ticket_id=ticket.ticket_id, answer=answer, actor=_CLIENT
    )


def _metadata(request: a2a_pb2.SendMessageRequest) -> dict[str, str]:
    """The request's metadata as a task's: texts as they are, anything else as JSON."""
    try:
        given = json_format.MessageToDict(request.metadata)
    except (ValueError, json_format.SerializeToJsonError) as error:
        raise FieldInvalid("metadata", "holds a number that JSON has not") from error
    return {key: value if isinstance(value, str) else dump(value) for key, value in sorted(given.items())}
