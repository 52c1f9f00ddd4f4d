"""`threadkeep.testing`: one line in somebody's conftest.py gives their tests a suite, and leaves nothing behind."""

import asyncio
import os
import signal
import subprocess
import sys
import textwrap
from pathlib import Path

import psutil
import pytest

from tests.support.waiting import eventually
from threadkeep.testing import running_suite

CONFTEST = "from threadkeep.testing import threadkeep_client, threadkeep_scope, threadkeep_suite  # noqa: F401\n"
TESTS = """
import asyncio
from typing import Annotated, TypedDict
import operator

from langgraph.graph import START, StateGraph
from threadkeep import AsyncClient
from threadkeep.langgraph import ThreadkeepSaver, ThreadkeepStore


class Log(TypedDict):
    log: Annotated[list[str], operator.add]


def graph(client):
    builder = StateGraph(Log).add_node("a", lambda state: {"log": ["a"]}).add_edge(START, "a")
    return builder.compile(checkpointer=ThreadkeepSaver(client), store=ThreadkeepStore(client))


CONFIG = {"configurable": {"thread_id": "same-name"}}


def test_one(threadkeep_client):
    assert graph(threadkeep_client).invoke({"log": ["in"]}, CONFIG) == {"log": ["in", "a"]}


def test_another_sees_nothing_of_it(threadkeep_client):
    assert graph(threadkeep_client).get_state(CONFIG).values == {}


def test_asyncio(threadkeep_suite, threadkeep_scope):
    async def main():
        async with threadkeep_suite.async_client(threadkeep_scope) as client:
            return await graph(client).ainvoke({"log": []}, CONFIG)
    assert asyncio.run(main()) == {"log": ["a"]}
"""


@pytest.mark.rule("R20", "R22")
async def test_one_line_gives_a_suite_to_somebody_elses_tests(tmp_path: Path) -> None:
    (tmp_path / "conftest.py").write_text(CONFTEST)
    (tmp_path / "test_theirs.py").write_text(TESTS)
    run = await asyncio.create_subprocess_exec(
        sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", str(tmp_path),
        stdout=asyncio.subprocess.PIPE, stderr=asyncio.subprocess.STDOUT, cwd=tmp_path,
        env={**os.environ, "THREADKEEP_DATA_DIR": "/nowhere", "THREADKEEP_TARGET": "nowhere:1"},
    )  # fmt: skip
    output, _ = await asyncio.wait_for(run.communicate(), 120)
    assert run.returncode == 0, output.decode()
    assert b"3 passed" in output


@pytest.mark.rule("R22")
async def test_the_suite_ends_with_whoever_started_it(tmp_path: Path) -> None:
    program = """
        import sys, time
        from threadkeep.testing import running_suite
        with running_suite() as suite:
            print(suite.target, flush=True)
            time.sleep(600)
        """
    owner = subprocess.Popen([sys.executable, "-c", textwrap.dedent(program)], stdout=subprocess.PIPE)
    assert owner.stdout is not None
    assert await asyncio.to_thread(owner.stdout.readline)
    (daemon,) = psutil.Process(owner.pid).children()
    owner.send_signal(signal.SIGKILL)
    owner.wait()
    owner.stdout.close()
    await eventually(lambda: not daemon.is_running() or daemon.status() == psutil.STATUS_ZOMBIE, timeout=60)


@pytest.mark.rule("R22")
def test_data_in_a_directory_outlives_the_suite(tmp_path: Path) -> None:
    scope = {"tenant": "kept"}
    with running_suite(tmp_path / "data") as suite, suite.client(scope) as client:
        client.sessions.create(session_id="kept")
    with running_suite(tmp_path / "data", {"lease_ttl_seconds": 2}) as suite, suite.client(scope) as client:
        assert client.sessions.get("kept").session_id == "kept"


def test_a_suite_that_can_not_start_says_why(tmp_path: Path) -> None:
    with (
        pytest.raises(RuntimeError, match="no service here has a setting named nonsense"),
        running_suite(settings={"nonsense": 1}),
    ):
        pass
