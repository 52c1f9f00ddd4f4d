"""`threadkeep thread` and `threadkeep state`, as real processes against a running suite."""

import pytest

from tests.e2e.test_cli import NOT_FOUND, Shell, pytestmark, shell

__all__ = ["pytestmark", "shell"]


@pytest.mark.rule("R11", "R12")
async def test_a_thread_and_its_state_keys_are_shown(shell: Shell) -> None:
    declared = await shell.json("state", "declare", "plan", "--merge", "disjoint", "--schema", '{"type": "string"}')
    assert declared["declaration"]["merge"] == "STATE_MERGE_DISJOINT"
    code, output, _ = await shell.run("state", "list")
    assert (code, output.splitlines()[1].split()[:3]) == (0, ["plan", "thread", "disjoint"])
    await shell.json("sessions", "create", "--id", "s-1")
    view = await shell.json("thread", "view", "s-1")
    assert (view["commit_sequence"], view["state"], view["tickets"]) == (1, [], [])
    await shell.json("sessions", "update", "s-1", "--title", "later")
    assert (await shell.json("thread", "view", "s-1", "--at", "1"))["commit_sequence"] == 1
    kinds = [one["kind"] for one in await shell.json("thread", "commits", "s-1")]
    assert kinds == ["update_session", "create_session"]
    verified = await shell.json("thread", "verify", "s-1")
    assert (verified["first_commit"], verified["last_commit"], len(verified["digest"])) == (1, 2, 64)
    assert await shell.json("thread", "audit", "s-1") == []
    assert (await shell.fails("thread", "view", "s-2"))[0] == NOT_FOUND
