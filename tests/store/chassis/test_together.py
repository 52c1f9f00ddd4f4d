"""Writes that travel together do what the same writes do one after the other, on every backend (R1, R22)."""

from collections.abc import AsyncIterator

import pytest
import sqlalchemy as sa

from tests.store.chassis.tables import opened
from threadkeep_chassis.database import Database, Key, SyncConnection, is_unique_violation, write_rows
from threadkeep_chassis.database.plans import Plan
from threadkeep_chassis.database.together import Backlog

METADATA = sa.MetaData()
PARENTS = sa.Table(
    "together_parents", METADATA, sa.Column("id", Key(), primary_key=True), sa.Column("n", sa.BigInteger)
)
CHILDREN = sa.Table(
    "together_children",
    METADATA,
    sa.Column("id", Key(), primary_key=True),
    sa.Column("parent", Key(), sa.ForeignKey("together_parents.id"), nullable=False),
)
OTHERS = sa.Table("together_others", METADATA, sa.Column("id", Key(), primary_key=True))

ADD_PARENT, ADD_CHILD, ADD_OTHER = sa.insert(PARENTS), sa.insert(CHILDREN), sa.insert(OTHERS)
SET_PARENT = sa.update(PARENTS).where(PARENTS.c.id == sa.bindparam("key_id"))
REMOVE_PARENT = sa.delete(PARENTS).where(PARENTS.c.id == sa.bindparam("key_id"))
COUNT_PARENT = (
    sa.update(PARENTS).where(PARENTS.c.id == sa.bindparam("key_id")).values(n=PARENTS.c.n + 1).returning(PARENTS.c.n)
)
ADD_COPY = sa.insert(OTHERS).from_select(["id"], sa.select(PARENTS.c.id).where(PARENTS.c.n == sa.bindparam("n")))
ALL = tuple(sa.select(table.c.id).order_by(table.c.id) for table in (PARENTS, CHILDREN, OTHERS))


def contents(connection: SyncConnection) -> list[list[str]]:
    return [[row.id for row in connection.execute(statement)] for statement in ALL]


@pytest.fixture
async def database(database_url: str) -> AsyncIterator[Database]:
    async with opened(database_url) as made:
        async with made.write() as connection:
            await connection.run_on_schema(METADATA.create_all)
            # What is met for the first time goes through SQLAlchemy: have all of it planned.
            for _ in range(2):
                await connection.run(meet)
        yield made


def meet(connection: SyncConnection) -> None:
    write_rows(connection, ADD_PARENT, [{"id": "met", "n": 7}])
    write_rows(connection, ADD_CHILD, [{"id": "met", "parent": "met"}])
    write_rows(connection, SET_PARENT, [{"key_id": "met", "n": 8}])
    write_rows(connection, ADD_COPY, [{"n": 8}])
    connection.execute(COUNT_PARENT, {"key_id": "met"}).one()
    for table in (CHILDREN, OTHERS):
        connection.execute(sa.delete(table))
    write_rows(connection, REMOVE_PARENT, [{"key_id": "met"}])
    write_rows(connection, ADD_OTHER, [{"id": "met"}])
    connection.execute(sa.delete(OTHERS))


@pytest.mark.rule("R1", "R22")
async def test_what_was_written_is_there_for_the_next_statement(database: Database) -> None:
    def work(connection: SyncConnection) -> tuple[int, list[list[str]]]:
        write_rows(connection, ADD_PARENT, [{"id": "p", "n": 1}])
        write_rows(connection, ADD_CHILD, [{"id": "c", "parent": "p"}])
        write_rows(connection, ADD_OTHER, [{"id": "o"}])
        counted = connection.execute(COUNT_PARENT, {"key_id": "p"}).scalar_one()
        write_rows(connection, ADD_OTHER, [{"id": "after"}])
        return counted, contents(connection)

    async with database.write() as connection:
        assert await connection.run(work) == (2, [["p"], ["c"], ["after", "o"]])


@pytest.mark.rule("R1", "R22")
async def test_writes_of_one_table_keep_their_order(database: Database) -> None:
    def work(connection: SyncConnection) -> int:
        write_rows(connection, ADD_PARENT, [{"id": "p", "n": 1}])
        write_rows(connection, REMOVE_PARENT, [{"key_id": "p"}])
        write_rows(connection, ADD_PARENT, [{"id": "p", "n": 2}])
        write_rows(connection, SET_PARENT, [{"key_id": "p", "n": 3}])
        write_rows(connection, SET_PARENT, [{"key_id": "p", "n": 4}])
        # It reads what was written just now, in a statement that looks at another table.
        write_rows(connection, ADD_COPY, [{"n": 4}])
        return int(connection.execute(COUNT_PARENT, {"key_id": "p"}).scalar_one())

    async with database.write() as connection:
        assert await connection.run(work) == 5
        assert await connection.run(contents) == [["p"], [], ["p"]]


@pytest.mark.rule("R1")
async def test_what_nothing_follows_is_sent_before_the_commit(database: Database) -> None:
    async with database.write() as connection:
        await connection.run(lambda sync: write_rows(sync, ADD_PARENT, [{"id": "p", "n": 1}]))
        await connection.run(lambda sync: write_rows(sync, ADD_CHILD, [{"id": "1", "parent": "p"}]))
        many = [{"id": str(number), "parent": "p"} for number in range(2, 6)]
        await connection.run(lambda sync: write_rows(sync, ADD_CHILD, many))
        await connection.run(lambda sync: write_rows(sync, ADD_OTHER, []))
    async with database.read() as connection:
        assert await connection.run(contents) == [["p"], ["1", "2", "3", "4", "5"], []]


@pytest.mark.rule("R1")
@pytest.mark.parametrize("last", ["parent", "other"])
async def test_one_that_fails_takes_all_with_it(database: Database, last: str) -> None:
    async with database.write() as connection:
        await connection.run(lambda sync: write_rows(sync, ADD_PARENT, [{"id": "taken", "n": 1}]))

    def work(connection: SyncConnection) -> None:
        write_rows(connection, ADD_OTHER, [{"id": "o"}])
        write_rows(connection, ADD_PARENT, [{"id": "taken", "n": 2}])
        if last == "other":
            write_rows(connection, ADD_CHILD, [{"id": "c", "parent": "taken"}])

    with pytest.raises(Exception) as caught:
        async with database.write() as connection:
            await connection.run(work)
    assert is_unique_violation(caught.value)
    async with database.read() as connection:
        assert await connection.run(contents) == [["taken"], [], []]


def test_a_backlog_is_one_statement_whose_parameters_follow_each_other() -> None:
    def plan(sql: str, names: list[str], *tables: str) -> Plan:
        return Plan(sql, [(name, -1, -1, None, None) for name in names], None, (), frozenset(tables))

    first = plan("INSERT INTO a (x, y) VALUES ($1::INTEGER, $2::INTEGER)", ["x", "y"], "a")
    second = plan("UPDATE b SET z=$1::INTEGER WHERE b.k = $2::INTEGER OR b.l = $1::INTEGER", ["z", "k"], "b")
    third = plan("DELETE FROM c WHERE c.k IN (SELECT d.k FROM d WHERE d.v = $1::INTEGER)", ["v"], "c", "d")
    backlog = Backlog()
    assert not backlog
    for each, row in ((first, {"x": 1, "y": 2}), (second, {"z": 3, "k": 4}), (third, {"v": 5})):
        assert backlog.takes(each)
        backlog.add(each, row)
        assert not backlog.takes(each)
    assert not backlog.takes(plan("SELECT d.k FROM d", [], "d"))
    sql, arguments = backlog.take()
    assert sql == (
        "WITH w0 AS (INSERT INTO a (x, y) VALUES ($1::INTEGER, $2::INTEGER)), "
        "w1 AS (UPDATE b SET z=$3::INTEGER WHERE b.k = $4::INTEGER OR b.l = $3::INTEGER) "
        "DELETE FROM c WHERE c.k IN (SELECT d.k FROM d WHERE d.v = $5::INTEGER)"
    )
    assert arguments == [1, 2, 3, 4, 5]
    assert not backlog
    backlog.add(first, {"x": 6, "y": 7})
    assert backlog.take() == (first.sql, [6, 7])
