"""The page for LangGraph users: its Python runs as it stands and prints what it says, its commands exist."""

import asyncio
import contextlib
import io
import re
import shlex
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest

import threadkeep.testing
from tests.support.suite import Suite
from threadkeep.langgraph.__main__ import _arguments as langgraph_arguments
from threadkeep.worker.__main__ import _arguments as worker_arguments

PAGE = (Path(__file__).resolve().parents[2] / "clients/python/LANGGRAPH.md").read_text()
BLOCK = re.compile(r"^```(python|sh)?\n(.*?)^```$", re.MULTILINE | re.DOTALL)


def blocks() -> list[tuple[str, str]]:
    """(kind, text) of the page's blocks; what a Python block prints has no kind."""
    return [(kind, text) for kind, text in BLOCK.findall(PAGE)]


@pytest.mark.rule("R20", "R21")
@pytest.mark.suite(backends=["sqlite", "postgres"], topologies=["embedded"])
async def test_the_pages_code_prints_what_the_page_says(shared_suite: Suite, monkeypatch: pytest.MonkeyPatch) -> None:
    module = ModuleType("the_page")
    monkeypatch.setitem(__import__("sys").modules, "the_page", module)
    namespace: dict[str, Any] = module.__dict__

    def work() -> None:
        printed = ""
        for kind, text in blocks():
            if kind == "python":
                output = io.StringIO()
                code = text.replace("127.0.0.1:7433", shared_suite.addresses["runtime"])
                with contextlib.redirect_stdout(output):
                    exec(compile(code, "LANGGRAPH.md", "exec"), namespace)
                assert not printed, f"the page does not say that this is printed: {printed}"
                printed = output.getvalue()
            elif not kind:
                assert printed == text
                printed = ""
        assert not printed
        namespace["client"].close()

    await asyncio.to_thread(work)


@pytest.mark.rule("R20")
def test_the_pages_commands_exist() -> None:
    commands = [line for kind, text in blocks() if kind == "sh" for line in text.splitlines()]
    known = {"threadkeep.langgraph": langgraph_arguments, "threadkeep.worker": worker_arguments}
    parsed = []
    for command in commands:
        python, _, module, *words = shlex.split(command)
        assert python == "python"
        parsed.append(known[module](words))
    assert [getattr(one, "source", None) for one in parsed] == ["postgresql://user@db/app", None]


def test_the_line_for_tests_names_every_fixture() -> None:
    (line,) = [text for kind, text in blocks() if kind == "python" and "threadkeep.testing" in text]
    fixtures = {name for name in threadkeep.testing.__all__ if name.startswith("threadkeep_")}
    assert fixtures == set(re.findall(r"threadkeep_\w+", line))
