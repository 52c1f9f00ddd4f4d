"""Statements that are compiled once give what SQLAlchemy itself gives, on every backend (R22)."""

import gc
from collections.abc import AsyncIterator
from datetime import UTC, datetime

import pytest
import sqlalchemy as sa

from tests.store.chassis.tables import opened
from threadkeep_chassis.database import (
    Bytes,
    Connection,
    Database,
    JsonText,
    Key,
    SyncConnection,
    UtcTimestamp,
    insert_or_ignore,
    is_unique_violation,
)
from threadkeep_chassis.database.plans import Plans

METADATA = sa.MetaData()
THINGS = sa.Table(
    "plan_probes",
    METADATA,
    sa.Column("owner", Key(), primary_key=True),
    sa.Column("name", Key(), primary_key=True),
    sa.Column("number", sa.BigInteger, nullable=False),
    sa.Column("weight", sa.Double, nullable=False),
    sa.Column("is_kept", sa.Boolean, nullable=False),
    sa.Column("body", Bytes()),
    sa.Column("document", JsonText(), nullable=False),
    sa.Column("time", UtcTimestamp(), nullable=False),
)
TIME = datetime(2026, 3, 4, 5, 6, 7, 89, tzinfo=UTC)

INSERT = sa.insert(THINGS)
ONE = sa.select(THINGS).where(THINGS.c.owner == sa.bindparam("owner"), THINGS.c.name == sa.bindparam("name"))
NAMED = sa.select(THINGS.c.name).where(THINGS.c.name.in_(sa.bindparam("names", expanding=True))).order_by(THINGS.c.name)
PAIRS = (
    sa.select(THINGS.c.owner, THINGS.c.name)
    .where(sa.tuple_(THINGS.c.owner, THINGS.c.name).in_(sa.bindparam("pairs", expanding=True)))
    .order_by(THINGS.c.owner, THINGS.c.name)
)
RAISE = (
    sa.update(THINGS)
    .where(THINGS.c.owner == sa.bindparam("key_owner"), THINGS.c.number < 100)
    .values(number=THINGS.c.number + sa.bindparam("by"))
)
RAISE_AND_TELL = RAISE.returning(THINGS.c.name, (THINGS.c.number * 2).label("twice"))
IGNORE = insert_or_ignore(THINGS, ["owner", "name"])
ALIKE = sa.select(sa.literal("x").label("same"), sa.bindparam("value", type_=sa.Text).label("value"))


def thing(owner: str, name: str, number: int = 0) -> dict[str, object]:
    return {
        "owner": owner,
        "name": name,
        "number": number,
        "weight": 0.5,
        "is_kept": number % 2 == 0,
        "body": b"\x00\xff",
        "document": {"a": [1, -0.0, None]},
        "time": TIME,
    }


@pytest.fixture
async def database(database_url: str) -> AsyncIterator[Database]:
    async with opened(database_url) as made:
        async with made.write() as connection:
            await connection.run_on_schema(METADATA.create_all)
            await connection.execute(INSERT, [thing("a", name, place) for place, name in enumerate("pqrs")])
        yield made


async def planned(connection: Connection, statement: sa.Executable, parameters: object) -> list[tuple[object, ...]]:
    """The rows, three times: by SQLAlchemy, by the new plan, by the plan again. They must be the same."""
    answers = [
        [tuple(row) for row in await connection.execute(statement, parameters)]  # type: ignore[var-annotated]
        for _ in range(3)
    ]
    assert answers[0] == answers[1] == answers[2]
    return answers[0]


@pytest.mark.rule("R22")
async def test_rows_and_their_types_are_the_same_with_and_without_a_plan(database: Database) -> None:
    async with database.read() as connection:
        rows = await planned(connection, ONE, {"owner": "a", "name": "q"})
        assert rows == [tuple(thing("a", "q", 1).values())]
        assert [type(value) for value in rows[0]] == [str, str, int, float, bool, bytes, dict, datetime]
        assert str(rows[0][6]) == "{'a': [1, -0.0, None]}"
        assert await planned(connection, ONE, {"owner": "a", "name": "nobody"}) == []
        assert await planned(connection, ALIKE, {"value": "\u00fc'\"\\"}) == [("x", "\u00fc'\"\\")]
        row = (await connection.execute(ONE, {"owner": "a", "name": "q"})).mappings().one()
        assert (row["number"], "weight" in row, "nothing" in row) == (1, True, False)


@pytest.mark.rule("R22")
@pytest.mark.parametrize("names", [["p"], ["p", "s", "s"], ["x"], [], list("pqrs") * 3])
async def test_lists_of_any_length_are_bound(database: Database, names: list[str]) -> None:
    pairs = [("a", name) for name in names]
    async with database.read() as connection:
        assert await planned(connection, NAMED, {"names": names}) == [(name,) for name in "pqrs" if name in names]
        assert await planned(connection, PAIRS, {"pairs": pairs}) == [("a", name) for name in "pqrs" if name in names]


@pytest.mark.rule("R22", "X4")
async def test_writes_count_their_rows(database: Database) -> None:
    async with database.write() as connection:
        for number in (1, 2, 3):
            assert (await connection.execute(RAISE, {"key_owner": "a", "by": 1})).rowcount == 4
            assert (await connection.execute(RAISE, {"key_owner": "b", "by": 1})).rowcount == 0
            told = await connection.execute(RAISE_AND_TELL, {"key_owner": "a", "by": 0})
            assert sorted(tuple(row) for row in told) == [(name, 2 * (n + number)) for n, name in enumerate("pqrs")]


@pytest.mark.rule("R22")
async def test_many_sets_of_parameters_are_many_rows(database: Database) -> None:
    async with database.write() as connection:
        for owner in "bcd":
            await connection.execute(INSERT, [thing(owner, name) for name in "xyz"])
            await connection.execute(INSERT, [thing(owner, "single")])
            await connection.execute(IGNORE, [thing(owner, name) for name in "wxyz"])
        counted = await connection.scalar(sa.select(sa.func.count()).select_from(THINGS))
    assert counted == 4 + 3 * 5


@pytest.mark.rule("R22")
async def test_plain_functions_use_plans_as_well(database: Database) -> None:
    def work(connection: SyncConnection) -> list[object]:
        found = [connection.scalar(NAMED, {"names": ["r"]}) for _ in range(3)]
        return [*found, *connection.scalars(NAMED, {"names": ["p", "q"]})]

    async with database.read() as connection:
        assert await connection.run(work) == ["r", "r", "r", "p", "q"]


@pytest.mark.rule("R22")
async def test_a_taken_key_is_seen_with_a_plan_too(database: Database) -> None:
    for _ in range(3):
        with pytest.raises(Exception) as caught:
            async with database.write() as connection:
                await connection.execute(INSERT, thing("a", "p"))
        assert is_unique_violation(caught.value)
    with pytest.raises(ValueError, match="time zone"):
        async with database.write() as connection:
            await connection.execute(INSERT, thing("a", "t") | {"time": datetime(2026, 1, 1)})


@pytest.mark.rule("X9")
async def test_statements_that_are_made_for_one_call_leave_nothing_behind(database: Database) -> None:
    async with database.read() as connection:
        plans: Plans = connection._session.plans
        before = len(plans)
        for number in range(50):
            await connection.scalar(sa.select(THINGS.c.number).where(THINGS.c.number == number))
        gc.collect()
        # SQLAlchemy keeps one of them in its own cache.
        assert len(plans) < before + 5
        constant = sa.select(THINGS.c.name).where(THINGS.c.name.in_(sa.bindparam("names", expanding=True)))
        for length in range(1, 200):
            await connection.execute(constant, {"names": ["p"] * length})
        assert plans.size(constant) == 64
