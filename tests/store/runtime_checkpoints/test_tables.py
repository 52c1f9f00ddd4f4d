"""LangGraph's tables on every backend: what is written, read, listed and deleted, and in how many statements (R20)."""

import json

import pytest
import sqlalchemy as sa

from tests.store.runtime_checkpoints.conftest import KEYS, SCOPE_KEY, Tables, put
from threadkeep_runtime.checkpoints import CheckpointQuery, load_checkpoint, load_checkpoints, load_indexes, page_keys
from threadkeep_runtime.domain.checkpoints import ChannelValue, CheckpointChange, CheckpointWrites, PendingWrite
from threadkeep_runtime.tables import checkpoint_blobs, checkpoint_writes, checkpoints

ONE = KEYS["session-1"]


async def head(tables: Tables, ns: str = "", checkpoint_id: str | None = None, session: str = "session-1"):
    found = await tables.read(lambda c: load_checkpoint(c, KEYS[session], ns, checkpoint_id))
    return found.checkpoint


@pytest.mark.rule("R20")
async def test_documents_come_back_byte_for_byte(tables: Tables) -> None:
    raw = b'{"v":4, "id":"1","channel_values":{"a":-0.0,"b":1e22,"c":1.0,"\xc3\xa9":"\\u00e9"}, "channel_versions":{}}'
    metadata = b'{"step": 1.0,  "x": -0.0, "y": 1E+22, "b": 1, "a": 2}'
    await tables.change("session-1", put("1", raw=raw, raw_metadata=metadata))
    found = await head(tables)
    assert (found.checkpoint_json, found.metadata_json) == (raw, metadata)


@pytest.mark.rule("R20")
async def test_values_are_found_by_the_checkpoints_versions_and_shared_between_checkpoints(tables: Tables) -> None:
    a1, a2 = ChannelValue("a", "1", "msgpack", b"a1"), ChannelValue("a", "2", "msgpack", b"a2")
    b1 = ChannelValue("b", "1", "bytes", b"\x00\xff")
    await tables.change("session-1", put("1", a1, b1))
    await tables.change("session-1", put("2", a2, parent="1", document={"channel_versions": {"a": "2", "b": "1"}}))
    await tables.change("session-1", put("3", parent="2", document={"channel_versions": {"a": "2"}}))
    assert set((await head(tables, checkpoint_id="1")).channel_values) == {a1, b1}
    assert set((await head(tables, checkpoint_id="2")).channel_values) == {a2, b1}
    latest = await head(tables)
    assert (latest.checkpoint_id, latest.parent_checkpoint_id, latest.channel_values) == ("3", "2", (a2,))


@pytest.mark.rule("R20")
async def test_numbers_as_versions_and_values_without_one_find_their_values(tables: Tables) -> None:
    seven, own = ChannelValue("n", "7", "msgpack", b"seven"), ChannelValue("u", "", "msgpack", b"own")
    mapped = {"document": {"channel_versions": {"n": 7}}}
    await tables.change("session-1", put("1", seven, own, **mapped, value_versions='{"n":"7","u":"@1"}'))
    await tables.change("session-1", put("2", **mapped, value_versions='{"n":"7"}'))
    assert set((await head(tables, checkpoint_id="1")).channel_values) == {seven, own}
    assert (await head(tables)).channel_values == (seven,)
    again = ChannelValue("u", "", "msgpack", b"again")
    await tables.change("session-1", put("1", again, **mapped, value_versions='{"n":"7","u":"@1"}'))
    assert set((await head(tables, checkpoint_id="1")).channel_values) == {seven, again}


@pytest.mark.rule("R20")
async def test_a_channel_without_a_value_comes_back_as_such(tables: Tables) -> None:
    nothing = ChannelValue("a", "1", "empty", b"")
    await tables.change("session-1", put("1", nothing))
    assert (await head(tables)).channel_values == (nothing,)


@pytest.mark.rule("R20")
@pytest.mark.case("B26")
async def test_an_ordinary_write_stays_and_a_special_one_is_replaced(tables: Tables) -> None:
    first = (
        PendingWrite("t", 0, "c", "msgpack", b"first", "p"),
        PendingWrite("t", -1, "__error__", "msgpack", b"first"),
    )
    second = (PendingWrite("t", 0, "c", "msgpack", b"last"), PendingWrite("t", -1, "__error__", "bytes", b"last"))
    await tables.change("session-1", put("1"), CheckpointWrites("", "1", first))
    await tables.change("session-1", CheckpointWrites("", "1", second))
    assert (await head(tables)).pending_writes == (second[1], first[0])


@pytest.mark.rule("R20")
async def test_writes_come_in_the_order_of_path_task_and_index(tables: Tables) -> None:
    wanted = [
        PendingWrite("b", 0, "c", "msgpack", b"", "~1"),
        PendingWrite("a", 0, "c", "msgpack", b"", "~2"),
        PendingWrite("a", 1, "c", "msgpack", b"", "~2"),
        PendingWrite("b", -3, "__interrupt__", "msgpack", b"", "~2"),
    ]
    await tables.change("session-1", CheckpointWrites("", "1", tuple(reversed(wanted))), put("1"))
    assert list((await head(tables)).pending_writes) == wanted


@pytest.mark.rule("R20")
async def test_writes_wait_for_a_checkpoint_that_comes_later(tables: Tables) -> None:
    early = PendingWrite("t", 0, "c", "msgpack", b"early")
    await tables.change("session-1", CheckpointWrites("", "1", (early,)))
    assert await head(tables) is None
    await tables.change("session-1", put("1"))
    assert (await head(tables)).pending_writes == (early,)


@pytest.mark.rule("R20")
@pytest.mark.case("B28")
async def test_delete_leaves_no_row_of_the_thread_and_none_of_another_is_touched(tables: Tables) -> None:
    value, write = ChannelValue("a", "1", "msgpack", b"x"), PendingWrite("t", 0, "c", "msgpack", b"x")
    for session in ("session-1", "session-2"):
        await tables.change(session, put("1", value), put("2", ns="child"), CheckpointWrites("", "1", (write,)))
    await tables.change("session-1", delete_all=True)
    for table, left in ((checkpoints, 2), (checkpoint_blobs, 1), (checkpoint_writes, 1)):
        counted = await tables.read(
            lambda c, t=table: dict(c.execute(sa.select(t.c.thread_id, sa.func.count()).group_by(t.c.thread_id)).all())
        )
        assert counted == {KEYS["session-2"]: left}


@pytest.mark.rule("R20")
async def test_the_floor_is_told_even_without_a_checkpoint(tables: Tables) -> None:
    found = await tables.read(lambda c: load_checkpoint(c, ONE, "", None))
    assert (found.checkpoint, found.floor) == (None, "9")
    found = await tables.read(lambda c: load_checkpoint(c, "0" * 40, "", None))
    assert (found.checkpoint, found.floor) == (None, "")


@pytest.mark.rule("R20")
async def test_the_index_looks_up_what_is_named_and_the_greatest_where_something_is_missing(tables: Tables) -> None:
    await tables.change("session-1", put("3"), put("5"), put("4", ns="child"))
    found = await tables.read(
        lambda c: load_indexes(
            c, {ONE: {("", "3"), ("", "9"), ("child", "4"), ("new", "1")}, KEYS["session-2"]: {("", "3")}}
        )
    )
    assert found == {
        ONE: (frozenset({("", "3"), ("child", "4")}), {"": "5"}),
        KEYS["session-2"]: (frozenset(), {}),
    }


@pytest.mark.rule("R20")
async def test_ids_sort_by_code_point_on_every_backend(tables: Tables) -> None:
    ids = ["1", "B", "_", "a", "b-1", "b1", "z", "é", "\U0001f600"]
    await tables.change("session-1", *(put(one) for one in ids))
    assert (await head(tables)).checkpoint_id == ids[-1]
    keys = await tables.read(lambda c: page_keys(c, CheckpointQuery(SCOPE_KEY, ONE), None, 100))
    assert [key.checkpoint_id for key in keys] == list(reversed(ids))


@pytest.mark.rule("R20", "X2", "X5")
async def test_pages_follow_one_another_and_stay_in_the_scope(tables: Tables) -> None:
    for number in range(1, 6):
        for session in KEYS:
            await tables.change(session, put(f"{number}"), put(f"{number}", ns="child"))
    query, after, seen = CheckpointQuery(SCOPE_KEY), None, []
    while page := await tables.read(lambda c, after=after: page_keys(c, query, after, 3)):
        seen += page
        after = page[-1]
    assert len(seen) == len(set(seen)) == 20
    assert [key.checkpoint_id for key in seen] == [str(n) for n in (5, 4, 3, 2, 1) for _ in range(4)]
    assert KEYS["foreign"] not in {key.thread_key for key in seen}
    loaded = await tables.read(lambda c: load_checkpoints(c, seen))
    assert [(one.checkpoint_id, one.checkpoint_ns) for one in loaded] == [
        (key.checkpoint_id, key.checkpoint_ns) for key in seen
    ]


@pytest.mark.rule("R20")
@pytest.mark.case("B92")
async def test_a_key_tells_how_large_its_checkpoint_is(tables: Tables) -> None:
    big = ChannelValue("a", "1", "msgpack", b"x" * 100_000)
    await tables.change(
        "session-1", put("1", big), CheckpointWrites("", "1", (PendingWrite("t", 0, "c", "m", b"y" * 50_000),))
    )
    (key,) = await tables.read(lambda c: page_keys(c, CheckpointQuery(SCOPE_KEY, ONE), None, 10))
    assert 150_000 < key.size < 151_000


@pytest.mark.rule("R20")
@pytest.mark.case("B17", "B18", "B37")
@pytest.mark.parametrize(
    ("part", "matches"),
    [
        ({"tenant": "acme"}, {"1"}),
        ({"nokey": 1}, set()),
        ({"n": None}, {"1"}),
        ({"m": {"a": 1}}, {"1"}),
        ({"l": ["a"]}, {"1"}),
        ({"flag": True}, {"1"}),
        ({"flag": "true"}, {"2"}),
        ({"a') OR 1=1 --": 1}, set()),
        ({"step": 9007199254740993}, {"2"}),
        ({"step": 9007199254740992}, set()),
        ({}, {"1", "2"}),
    ],
)
async def test_a_filter_means_containment(tables: Tables, part: dict[str, object], matches: set[str]) -> None:
    await tables.change(
        "session-1",
        put("1", metadata={"tenant": "acme", "n": None, "m": {"a": 1, "b": 2}, "l": ["b", "a"], "flag": True}),
        put("2", metadata={"tenant": "globex", "m": {"b": 2}, "l": ["b"], "flag": "true", "step": 9007199254740993}),
    )
    query = CheckpointQuery(SCOPE_KEY, ONE, metadata_filter=json.dumps(part))
    assert {key.checkpoint_id for key in await tables.read(lambda c: page_keys(c, query, None, 10))} == matches


@pytest.mark.rule("R20")
async def test_a_batch_of_many_threads_takes_a_statement_per_table(tables: Tables) -> None:
    statements: list[str] = []
    value, write = ChannelValue("a", "1", "msgpack", b"x"), PendingWrite("t", 0, "c", "msgpack", b"x")
    changes = [
        CheckpointChange(key, 1, (put("1", value), CheckpointWrites("", "1", (write, write)), put("2", ns="child")))
        for key in KEYS.values()
    ]

    def work(connection: sa.Connection) -> None:
        from threadkeep_runtime.checkpoints import apply_changes

        def note(*arguments: object) -> None:
            statements.append(str(arguments[2]))

        sa.event.listen(connection, "before_cursor_execute", note)
        apply_changes(connection, changes)
        sa.event.remove(connection, "before_cursor_execute", note)

    async with tables.database.write() as connection:
        await connection.run_on_schema(work)
    assert len(statements) == 3, statements
