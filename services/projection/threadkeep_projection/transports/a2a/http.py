"""Agent cards over HTTP, where clients of A2A look for them: `/.well-known/agent-card.json` below an agent's address.

`/agents/NAME` is the address of an agent; at the root stands the card of the only one that the scope has.
"""

from __future__ import annotations

import json

import structlog
from google.protobuf.json_format import MessageToDict
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route

from threadkeep_chassis.errors import FieldInvalid, ThreadkeepError
from threadkeep_chassis.logs import fault_facts
from threadkeep_projection.domain.errors import UnsupportedOperation
from threadkeep_projection.metrics import ProjectionMetrics
from threadkeep_projection.transports.a2a import SERVICE
from threadkeep_projection.transports.a2a.cards import Cards
from threadkeep_projection.transports.a2a.checks import check_id
from threadkeep_projection.transports.sse.answers import NO_STORE, refusal
from threadkeep_projection.transports.sse.requests import Requests

METHOD = f"/{SERVICE}/GetExtendedAgentCard"

_WELL_KNOWN = "/.well-known/agent-card.json"
_IDENTITY = ("scope", "grant")
_log = structlog.get_logger("threadkeep.http")


class CardsOverHttp:
    """Answers requests for cards."""

    def __init__(self, requests: Requests, cards: Cards, metrics: ProjectionMetrics) -> None:
        self._requests = requests
        self._cards = cards
        self._metrics = metrics

    @property
    def routes(self) -> list[Route]:
        """Where cards are."""
        # A name may hold a slash, which arrives decoded.
        paths = (_WELL_KNOWN, f"/agents/{{agent:path}}{_WELL_KNOWN}")
        return [Route(path, self.answer, methods=["GET"]) for path in paths]

    async def answer(self, request: Request) -> Response:
        """The card, or why there is none."""
        call = self._requests.call(request, METHOD)
        try:
            self._requests.identify(request, call)
            unknown = [name for name in request.query_params if name not in _IDENTITY]
            if unknown:
                raise FieldInvalid(unknown[0][:64], "is no parameter; there are scope and grant")
            name = request.path_params.get("agent", "")
            check_id("agent", name)
            card = await self._cards.card(call, name)
            body = json.dumps(MessageToDict(card), ensure_ascii=False, separators=(",", ":")).encode()
            response = Response(body, headers=NO_STORE, media_type="application/json")
        except Exception as error:
            if not isinstance(error, ThreadkeepError):
                _log.error("request failed", trace_id=call.trace.trace_id, **fault_facts(error))
            # There is nothing at an address whose agent is not there.
            status = 404 if isinstance(error, UnsupportedOperation) else None
            response = refusal(error, call.trace.trace_id, status)
        self._metrics.http_requests.labels(str(response.status_code)).inc()
        return response
