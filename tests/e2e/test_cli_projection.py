"""`threadkeep projection`, as a script uses it."""

import pytest

from tests.e2e.test_cli import Shell, shell

__all__ = ["shell"]

pytestmark = pytest.mark.suite(backends=["sqlite"], topologies=["split"])


async def test_the_projection_is_looked_after_from_a_script(shell: Shell) -> None:
    await shell.json("sessions", "create", "--id", "s-1", "--title", "Hello")
    (event,) = await shell.json("events", "list", "--session", "s-1")
    await shell.json("messages", "list", "s-1", "--at-least", event["cursor"])
    (share,) = await shell.json("projection", "status")
    assert int(share["applied_count"]) > 0
    assert (await shell.json("projection", "rebuild", "s-1"))["message_count"] == 0
    built = await shell.json("projection", "rebuild")
    assert (built["is_done"], built["session_count"], built["removed_count"]) == (True, 1, 0)
    assert (await shell.fails("projection", "pause"))[1]["reason"] == "SCOPE_FORBIDDEN"
    assert await shell.json("projection", "resume", "--grant", "all") == {"was_paused": False}
    paused = await shell.json("projection", "pause", "--for", "0.001", "--grant", "all")
    assert paused["pause_expire_time"]
    assert await shell.json("projection", "poison") == []
    assert (await shell.json("projection", "poison", "--retry"))["session_count"] == 0


async def test_usage_is_added_up_from_a_script(shell: Shell) -> None:
    await shell.json("sessions", "create", "--id", "s-2", "--title", "Hello")
    (event,) = await shell.json("events", "list", "--session", "s-2")
    await shell.json("messages", "list", "s-2", "--at-least", event["cursor"])
    assert await shell.json("usage", "list", "--by", "day", "--by", "model") == []
    assert await shell.json("usage", "list", "--from", "2026-01-01T00:00:00Z", "--session", "s-2") == []
