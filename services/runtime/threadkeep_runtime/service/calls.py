"""What every servicer does with a call: where a mutation comes from, how its answer is marked, how lists are filled."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import replace
from typing import Any, TypeVar

from google.protobuf.message import Message

from threadkeep_chassis.database import Database
from threadkeep_chassis.paging import Page, PageBuilder
from threadkeep_chassis.receipts import fingerprint
from threadkeep_chassis.scope import Call
from threadkeep_runtime.commands import Origin
from threadkeep_runtime.domain.checkpoints import CheckpointOp, staged_values
from threadkeep_runtime.domain.values import NOBODY, Actor
from threadkeep_runtime.pipeline import Outcome, Request
from threadkeep_runtime.store.reads import ListQuery

ResponseT = TypeVar("ResponseT", bound=Message)
ItemT = TypeVar("ItemT", bound=Message)
QueryT = TypeVar("QueryT", bound=ListQuery)

CHUNK = 64
"""Rows read at a time while a page is filled: rows can be large, and the page is bounded by bytes too."""


def request_of(call: Call, request: Any) -> Request:
    """The request as receipts know it."""
    return Request(call.receipt_key, request.request_id, call.method, fingerprint(call.method, request))


def origin_of(call: Call, request: Any, actor: Actor = NOBODY) -> Origin:
    """Where a mutation comes from."""
    return Origin(call.scope, call.named_grant, request_of(call, request), call.trace, actor, request.ByteSize())


def with_staged(origin: Origin, ops: Iterable[CheckpointOp]) -> Origin:
    """The same, its size with the staged values that the operations name: a large commit goes alone."""
    return replace(origin, size=origin.size + sum(value.size for value in staged_values(ops)))


def answer(call: Call, outcome: Outcome, response_type: type[ResponseT]) -> ResponseT:
    """The response; a replay is marked in the trailing metadata, and in the receipt where there is one (X3)."""
    response = response_type.FromString(outcome.response)
    if outcome.replayed:
        call.mark_replay()
        if "receipt" in response.DESCRIPTOR.fields_by_name and response.HasField("receipt"):
            response.receipt.replay = True  # type: ignore[attr-defined]
    return response


def is_operator(call: Call) -> bool:
    """True for a caller with the operator grant."""
    return call.named_grant is not None and call.named_grant.all


async def fill(
    database: Database,
    page: Page,
    query: Callable[[int, tuple[Any, ...] | None], QueryT],
    select: Callable[[Any, QueryT], Sequence[Any]],
    render: Callable[[Any], ItemT],
    key_of: Callable[[Any], tuple[Any, ...]],
) -> PageBuilder[ItemT]:
    """Fills a page chunk by chunk until it is full by count or by bytes, or the list ends.

    `query` gets a count and the key behind which to start.
    """
    builder: PageBuilder[ItemT] = PageBuilder(page)
    after = page.after
    while True:
        wanted = query(min(CHUNK, builder.wanted - len(builder.items)), after)
        async with database.read() as connection:
            rows = await connection.run(lambda sync, wanted=wanted: select(sync, wanted))  # type: ignore[misc]
        for row in rows:
            after = key_of(row)
            if not builder.add(render(row), after):
                return builder
        if len(rows) < wanted.count:
            return builder
