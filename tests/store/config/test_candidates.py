"""What counts is chosen by rows without their texts; only the texts that count are read, if they are not too many."""

from collections.abc import AsyncIterator

import pytest
import sqlalchemy as sa

from tests.support.config import config_database
from tests.support.databases import Databases
from threadkeep_chassis.database import Connection, Database
from threadkeep_chassis.errors import LimitExceeded
from threadkeep_chassis.limits import Limits
from threadkeep_chassis.migrations import prepare
from threadkeep_config.domain import writes
from threadkeep_config.domain.values import API, Content, EntityType, Key
from threadkeep_config.domain.views import View
from threadkeep_config.server import MIGRATIONS
from threadkeep_config.store import entities
from threadkeep_config.store.candidates import read_counting
from threadkeep_config.tables import entities as table

STRONG, WEAK, FOREIGN = ("s" * 64, "w" * 64, "f" * 64)
VIEW = View((STRONG, WEAK), STRONG)
TOOL, DEFAULTS = EntityType.TOOL, EntityType.DEFAULTS


@pytest.fixture
async def database(databases: Databases, backend: str) -> AsyncIterator[Database]:
    made = await Database.open(await config_database(databases, backend), "config")
    try:
        await prepare(made, MIGRATIONS)
        yield made
    finally:
        await made.close()


async def put(database: Database, type: EntityType, name: str, scope_key: str, text: str, hidden: bool = False) -> None:
    async def work(connection: Connection) -> None:
        current = await entities.lock_or_make(connection, Key(type, name, scope_key), "{}")
        change = writes.put(current, Content(API, text, text, hidden), None)
        assert change is not None
        await entities.write(connection, [change])

    await database.retrying(work)


async def counting(database: Database, limit: int, *references: tuple[EntityType, str]) -> dict[str, list[str]]:
    limits = Limits(values={"max_message_bytes": limit})
    async with database.read(snapshot=True) as connection:
        _, found = await read_counting(
            connection, VIEW, references, lambda size: limits.check("max_message_bytes", size)
        )
    return {name: [one.content.definition for one in each] for (_, name), each in found.items()}


@pytest.mark.rule("C2", "X9")
async def test_only_what_counts_is_read(database: Database) -> None:
    for scope_key, text in ((WEAK, "weak"), (STRONG, "str\u00f6ng"), (FOREIGN, "foreign")):
        await put(database, TOOL, "both", scope_key, text)
        await put(database, DEFAULTS, "merged", scope_key, text)
    await put(database, TOOL, "inherited", WEAK, "inherited")
    await put(database, TOOL, "hidden", WEAK, "behind")
    await put(database, TOOL, "hidden", STRONG, "", hidden=True)
    wanted = [(TOOL, "both"), (DEFAULTS, "merged"), (TOOL, "inherited"), (TOOL, "hidden"), (TOOL, "nothing")]
    # 7 bytes of each of the two strong ones, 9 of the inherited.
    for limit in (23, 1000):
        assert await counting(database, limit, *wanted) == {
            "both": ["str\u00f6ng"],
            "merged": ["str\u00f6ng", "weak"],
            "inherited": ["inherited"],
        }
    with pytest.raises(LimitExceeded):
        await counting(database, 22, *wanted)
    assert await counting(database, 0, (TOOL, "nothing")) == {}


@pytest.mark.rule("X9")
async def test_the_limit_is_held_against_sizes_before_texts_are_read(database: Database) -> None:
    await put(database, TOOL, "large", STRONG, "x")
    await put(database, TOOL, "large", WEAK, "loser")
    grow = sa.update(table).values(definition_bytes=10**9)

    async def of_scope(scope_key: str) -> None:
        async with database.write() as connection:
            await connection.execute(grow.where(table.c.scope_key == scope_key))

    await of_scope(WEAK)
    assert await counting(database, 10, (TOOL, "large")) == {"large": ["x"]}
    await of_scope(STRONG)
    with pytest.raises(LimitExceeded):
        await counting(database, 10, (TOOL, "large"))
