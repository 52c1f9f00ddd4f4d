"""Searches the messages of a session: an index of words gives candidates, comparing their text decides."""

from __future__ import annotations

from collections.abc import Sequence

import sqlalchemy as sa

from threadkeep_chassis.database import Connection, contains_text, has_words
from threadkeep_projection.domain.values import Message
from threadkeep_projection.domain.words import Query, index_terms
from threadkeep_projection.store import rows
from threadkeep_projection.tables import SHOWN_MESSAGE, messages

_FEW = 500
"""So many candidates are looked at one by one."""


async def search_messages(
    connection: Connection,
    scope_key: str,
    session_id: str,
    query: Query,
    roles: Sequence[str],
    *,
    after: int | None,
    newest_first: bool,
    limit: int,
) -> list[Message]:
    """Messages that answer the query, in the order of the conversation or backwards, behind the position `after`."""
    if not query:
        return []
    position, searched = messages.c.position, messages.c.searched
    statement = sa.select(*SHOWN_MESSAGE).where(
        messages.c.scope_key == scope_key, messages.c.session_id == session_id, position.is_not(None)
    )
    indexed = index_terms(query, rows.word_prefix(scope_key, session_id))
    if indexed:
        known = has_words(messages.c.words, indexed)
        some = sa.select(messages.c.message_id).where(
            messages.c.scope_key == scope_key, messages.c.session_id == session_id, known
        )
        few = [row.message_id for row in await connection.execute(some.limit(_FEW + 1))]
        # Few are looked at one by one. Of many, some are soon met on the way through the conversation.
        statement = statement.where(messages.c.message_id.in_(few) if len(few) <= _FEW else known)
    for term in query:
        is_there = contains_text(searched, term.pattern)
        statement = statement.where(sa.not_(is_there) if term.is_excluded else is_there)
    if roles:
        statement = statement.where(messages.c.role.in_(list(roles)))
    if after is not None:
        statement = statement.where(position < after if newest_first else position > after)
    statement = statement.order_by(position.desc() if newest_first else position).limit(limit)
    return [rows.message_of(row, with_content=True) for row in await connection.execute(statement)]
