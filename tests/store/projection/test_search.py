"""The index of words follows the messages' rows, whatever becomes of them."""

import pytest
import sqlalchemy as sa

from tests.store.projection.conftest import SCOPE, TTL, House, Log, cursor
from threadkeep_projection import tables
from threadkeep_projection.domain.words import read_query
from threadkeep_projection.peers import LogFrame
from threadkeep_projection.store.search import search_messages


async def found(house: House, session_id: str, query: str) -> list[str]:
    async with house.databases[0].read() as connection:
        matches = await search_messages(
            connection, SCOPE.key, session_id, read_query(query), (), after=None, newest_first=False, limit=100
        )
    return [one.message_id for one in matches]


@pytest.mark.rule("P3", "R19")
async def test_a_deleted_session_leaves_no_words(house: House, backend: str) -> None:
    log = Log()
    taken = await house.replicas[0].acquire("a", TTL)
    assert taken is not None
    lease, at = taken
    frames = [log.task(session, number) for session in ("s", "t") for number in range(3)]
    at = await house.replicas[0].apply_frames(lease, at, frames)
    assert await found(house, "s", "text") == ["m-0", "m-1", "m-2"]
    assert await found(house, "s", "text 1") == ["m-1"]

    gone = log.event("s", "session.deleted", 9)
    at = await house.replicas[0].apply_frames(lease, at, [LogFrame((gone,), cursor(log.position))])
    assert await found(house, "s", "text") == []
    assert await found(house, "t", "text") == ["m-0", "m-1", "m-2"]
    async with house.databases[0].write() as connection:
        if backend != "postgres":
            # What VACUUM does to row ids of tables that declare none.
            await connection.execute(sa.text("UPDATE messages SET rowid = rowid + 1000"))
            numbers = await connection.scalar(sa.text("SELECT count(*) FROM messages_word_index_keys"))
            assert numbers == 3
    assert await found(house, "t", "tex* -2") == ["m-0", "m-1"]
    async with house.databases[0].write() as connection:
        await connection.execute(sa.delete(tables.messages).where(tables.messages.c.message_id == "m-1"))
        await connection.execute(sa.update(tables.messages).values(words=None).where(_of("m-0")))
    assert await found(house, "t", "text") == ["m-2"]


def _of(message_id: str) -> sa.ColumnElement[bool]:
    return tables.messages.c.message_id == message_id
