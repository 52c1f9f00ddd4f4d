"""Threads of LangGraph's PostgreSQL saver, copied: equal, upgraded, and safe to copy again."""

import asyncio
import operator
import uuid
from collections.abc import AsyncIterator
from typing import Annotated, Any, TypedDict

import psycopg
import pytest
from langgraph.checkpoint.postgres import PostgresSaver
from langgraph.checkpoint.serde.jsonplus import JsonPlusSerializer
from langgraph.checkpoint.serde.types import TASKS
from langgraph.graph import START, StateGraph
from langgraph.types import Command, Send, interrupt
from psycopg.rows import dict_row
from psycopg.types.json import Jsonb

from tests.support.databases import Databases
from tests.support.suite import Suite
from threadkeep import AsyncClient, Client
from threadkeep.langgraph import ThreadkeepSaver, importing
from threadkeep.langgraph.__main__ import main
from threadkeep.langgraph.importing import Importer, ImportRefused, Report

pytestmark = [pytest.mark.rule("R20"), pytest.mark.suite(topologies=["split"])]

SERDE = JsonPlusSerializer()


class _Log(TypedDict):
    log: Annotated[list[Any], operator.add]


class Source:
    """A database that the stock saver wrote."""

    def __init__(self, url: str) -> None:
        self.url = url
        self.connection: Any = psycopg.connect(url, autocommit=True, prepare_threshold=0, row_factory=dict_row)
        self.saver = PostgresSaver(self.connection)
        self.saver.setup()

    def graph(self, saver: Any) -> Any:
        """A graph with a subgraph, branches that ask side by side, and values that JSON can't hold."""

        def ask(state: Any) -> Any:
            return {"log": [f"{state['name']}: {interrupt(state['name'])}", b"\x00"]}

        inner = StateGraph(_Log).add_node("in", lambda _: {"log": [{1, 2}, 2**62, "in"]}).add_edge(START, "in")
        builder = StateGraph(_Log).add_node("inner", inner.compile()).add_node("ask", ask)
        builder.add_edge(START, "inner")
        builder.add_conditional_edges("inner", lambda _: [Send("ask", {"name": name}) for name in "ab"], ["ask"])
        return builder.compile(checkpointer=saver)

    def talk(self, thread_id: str) -> None:
        """A thread that waits for two answers, of which it has one."""
        graph, config = self.graph(self.saver), _config(thread_id)
        state = graph.invoke({"log": ["hi"]}, config)
        first = next(one for one in state["__interrupt__"] if one.value == "a")
        graph.invoke(Command(resume={first.id: "A"}), config)

    def old(
        self, thread_id: str, sends: list[tuple[str, bytes]], version: Any = "00000000000000000000000000000001.5"
    ) -> None:
        """A checkpoint of format version 3, whose parent's writes hold its `Send`s."""
        insert = "INSERT INTO checkpoints (thread_id, checkpoint_id, parent_checkpoint_id, checkpoint, metadata)"
        for number, parent in (("1", None), ("2", "1")):
            document = {"v": 3, "id": number, "ts": "", "channel_versions": {"a": version}, "versions_seen": {}}
            row = (thread_id, number, parent, Jsonb({**document, "channel_values": {"b": 1}}), Jsonb({"step": 1}))
            self.connection.execute(insert + " VALUES (%s, %s, %s, %s, %s)", row)
        text = version if isinstance(version, str) else str(version)
        self.connection.execute(
            "INSERT INTO checkpoint_blobs VALUES (%s, '', 'a', %s, %s, %s)",
            (thread_id, text, *SERDE.dumps_typed(["value"])),
        )
        for index, (kind, blob) in enumerate(sends):
            self.connection.execute(
                "INSERT INTO checkpoint_writes (thread_id, checkpoint_id, task_id, idx, channel, type, blob)"
                " VALUES (%s, '1', 't', %s, %s, %s, %s)",
                (thread_id, index, TASKS, kind, blob),
            )


def _config(thread_id: str, **more: Any) -> Any:
    return {"configurable": {"thread_id": thread_id, **more}}


def _plain(listed: Any) -> list[Any]:
    """Tuples for comparison, in one order."""
    found = [
        (one.config, one.checkpoint, one.metadata, one.parent_config, sorted(one.pending_writes, key=repr))
        for one in listed
    ]
    return sorted(found, key=lambda one: str(one[0]))


@pytest.fixture
async def source(databases: Databases) -> AsyncIterator[Source]:
    """An empty source."""
    url = await databases.postgres.empty_database()
    made = Source(url)
    yield made
    made.connection.close()
    await databases.drop(url)


@pytest.fixture
def target(client: AsyncClient) -> ThreadkeepSaver:
    """A saver on the target; its values are all LangGraph's own types."""
    return ThreadkeepSaver(client)


def run_import(source: Source, saver: ThreadkeepSaver, *thread_ids: str) -> Report:
    importer = Importer(source.connection, saver._sync)
    return importer.run(thread_ids or importer.thread_ids())


async def test_copied_threads_are_equal_and_go_on(source: Source, target: ThreadkeepSaver) -> None:
    def work() -> None:
        for thread_id in ("one", "ünï %_\\"):
            source.talk(thread_id)
        report = run_import(source, target)
        assert (report.threads, report.copied, report.upgraded, report.refused) == (2, 2, 0, {})
        for thread_id in ("one", "ünï %_\\"):
            theirs = _plain(source.saver.list(_config(thread_id)))
            assert len(theirs) == report.checkpoints / 2 > 4
            assert _plain(target.list(_config(thread_id))) == theirs
            theirs_last = source.graph(source.saver).invoke(Command(resume="B"), _config(thread_id))
            assert source.graph(target).invoke(Command(resume="B"), _config(thread_id)) == theirs_last
            assert theirs_last["log"][-4:] == ["a: A", b"\x00", "b: B", b"\x00"]

    await asyncio.to_thread(work)


@pytest.mark.parametrize("version", ["00000000000000000000000000000001.5", 7])
@pytest.mark.parametrize("kinds", [["msgpack"], ["msgpack"] * 20, ["json"] * 2, ["json", "msgpack"]])
async def test_old_checkpoints_get_their_sends_as_the_stock_saver_reads_them(
    source: Source, target: ThreadkeepSaver, kinds: list[str], version: Any
) -> None:
    def dump(number: int, kind: str) -> tuple[str, bytes]:
        return ("json", b'{"n": %d}' % number) if kind == "json" else SERDE.dumps_typed(Send("node", {"n": number}))

    def work() -> None:
        source.old("old", [dump(number, kind) for number, kind in enumerate(kinds)], version)
        assert run_import(source, target).upgraded == 1
        theirs = source.saver.get_tuple(_config("old"))
        ours = target.get_tuple(_config("old"))
        assert theirs is not None
        assert ours is not None
        assert len(ours.checkpoint["channel_values"][TASKS]) == len(kinds)
        assert ours.checkpoint["channel_values"] == theirs.checkpoint["channel_values"]
        # The greatest version, as the next step counts on.
        following = [
            saver.get_next_version(max(one.checkpoint["channel_versions"].values()), None)
            for saver, one in ((target, ours), (source.saver, theirs))
        ]
        assert following[0].split(".")[0] == str(following[1]).split(".")[0]
        assert ours.checkpoint["v"] == 3

    await asyncio.to_thread(work)


async def test_a_second_import_copies_only_what_came_since(source: Source, target: ThreadkeepSaver) -> None:
    def commits() -> int:
        events = target._sync.events.list(session_id="one")
        return len({one.commit_sequence for one in events})

    def work() -> None:
        source.talk("one")
        assert run_import(source, target).copied == 1
        before = commits()
        again = run_import(source, target)
        assert (again.copied, again.checkpoints, commits()) == (0, 0, before)
        source.graph(source.saver).invoke(Command(resume="B"), _config("one"))
        source.talk("two")
        assert run_import(source, target).copied == 2
        for thread_id in ("one", "two"):
            assert _plain(target.list(_config(thread_id))) == _plain(source.saver.list(_config(thread_id)))

    await asyncio.to_thread(work)


async def test_an_import_that_broke_off_goes_on(
    source: Source, target: ThreadkeepSaver, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(importing, "COMMIT_OPS", 2)
    monkeypatch.setattr(importing, "AT_ONCE", 2)

    def work() -> None:
        source.talk("one")
        importer = Importer(source.connection, target._sync)
        for survived in range(1, 4):
            commit, left = importer._commit, iter(range(survived))

            def breaks(thread_id: str, batch: Any, commit: Any = commit, left: Any = left) -> None:
                if next(left, None) is None:
                    raise KeyboardInterrupt
                commit(thread_id, batch)

            monkeypatch.setattr(importer, "_commit", breaks)
            with pytest.raises(KeyboardInterrupt):
                importer.run(["one"])
            monkeypatch.undo()
            importer = Importer(source.connection, target._sync)
            monkeypatch.setattr(importing, "COMMIT_OPS", 2)
        assert importer.run(["one"]).copied == 1
        assert _plain(target.list(_config("one"))) == _plain(source.saver.list(_config("one")))

    await asyncio.to_thread(work)


async def test_a_thread_that_went_on_at_the_target_is_left_alone(source: Source, target: ThreadkeepSaver) -> None:
    def work() -> None:
        source.talk("one")
        run_import(source, target)
        source.graph(source.saver).invoke(Command(resume="theirs"), _config("one"))
        source.graph(target).invoke(Command(resume="ours"), _config("one"))
        before = _plain(target.list(_config("one")))
        source.talk("two")
        report = run_import(source, target)
        assert (report.copied, list(report.refused)) == (1, ["one"])
        assert "gone on here" in report.refused["one"]
        assert target.get_tuple(_config("two")) is not None
        after = _plain(target.list(_config("one")))
        assert [one[:3] for one in after] == [one[:3] for one in before]

    await asyncio.to_thread(work)


@pytest.mark.suite(backends=["sqlite"], topologies=["split"])
async def test_the_command_says_what_it_did(
    source: Source, shared_suite: Suite, capsys: pytest.CaptureFixture[str]
) -> None:
    tenant = uuid.uuid4().hex
    address = ["--target", shared_suite.addresses["runtime"], "--scope", f"tenant={tenant}"]

    def work() -> None:
        source.talk("one")
        source.old("old", [SERDE.dumps_typed(Send("node", 1))])
        source.old("sealed", [("msgpack+aes", b"?")])
        assert main(["import", source.url, *address]) == 1
        printed = capsys.readouterr()
        assert printed.out.startswith("2 of 3 threads copied: ")
        assert "1 of them upgraded" in printed.out
        assert "sealed: `Send`s of an old checkpoint can't be decoded" in printed.err
        assert "3/3 threads" in printed.err
        assert main(["import", source.url, *address, "--thread", "one", "--thread", "none"]) == 0
        assert capsys.readouterr().out.startswith("0 of 2 threads copied")
        with Client(shared_suite.addresses, scope={"tenant": tenant}) as client:
            found = ThreadkeepSaver(client).get_tuple(_config("old"))
        assert found is not None
        source.connection.execute("CREATE SCHEMA nothing")
        joint = "&" if "?" in source.url else "?"
        assert main(["import", f"{source.url}{joint}options=-csearch_path%3Dnothing", *address]) == 1
        assert "no tables of LangGraph's PostgresSaver" in capsys.readouterr().err

    await asyncio.to_thread(work)


@pytest.mark.suite(backends=["sqlite"], topologies=["split"])
async def test_a_layout_without_paths_is_read_too(source: Source, target: ThreadkeepSaver) -> None:
    def work() -> None:
        source.talk("one")
        source.connection.execute("ALTER TABLE checkpoint_writes DROP COLUMN task_path")
        assert run_import(source, target).copied == 1
        source.connection.execute("ALTER TABLE checkpoint_writes ADD COLUMN task_path TEXT NOT NULL DEFAULT ''")
        assert _plain(target.list(_config("one"))) == _plain(source.saver.list(_config("one")))
        source.connection.execute("ALTER TABLE checkpoints DROP COLUMN checkpoint_id CASCADE")
        with pytest.raises(ImportRefused, match="no tables"):
            Importer(source.connection, target._sync)

    await asyncio.to_thread(work)
