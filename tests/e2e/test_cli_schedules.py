"""`threadkeep schedules`, as a script uses it."""

import pytest

from tests.e2e.test_cli import NOT_FOUND, USAGE, Shell, shell

__all__ = ["shell"]

pytestmark = pytest.mark.suite(backends=["sqlite"], topologies=["split"])


async def test_schedules_from_a_script(shell: Shell) -> None:
    (shell.folder / "agent.yaml").write_text("description: greets\nsystem_prompt: Be brief.\n")
    await shell.json("config", "put", "agent", "greeter", "--file", "agent.yaml")
    words = ("schedules", "create", "0 8 * * MON-FRI", "Good morning", "--agent", "greeter", "--id", "morning")
    made = await shell.json(*words, "--zone", "Europe/Berlin", "--if-missed", "once", "--backoff", "2")
    assert (made["missed_fire_policy"], made["time_zone"]) == ("MISSED_FIRE_POLICY_ONCE", "Europe/Berlin")
    assert made["task"]["retry_policy"]["initial_backoff"] == "2s"
    assert (await shell.json("schedules", "pause", "morning"))["paused"]
    assert "next_fire_time" not in await shell.json("schedules", "get", "morning")
    assert (await shell.json("schedules", "resume", "morning"))["next_fire_time"]
    assert (await shell.json("schedules", "update", "morning", "--cron", "0 9 * * *"))["cron"] == "0 9 * * *"
    assert [one["schedule_id"] for one in await shell.json("schedules", "list", "--active")] == ["morning"]
    assert (await shell.fails("schedules", "update", "morning", "--cron", "never"))[0] == USAGE
    assert (await shell.run("schedules", "delete", "morning"))[0] == 0
    assert (await shell.fails("schedules", "get", "morning"))[0] == NOT_FOUND


async def test_an_update_changes_what_a_schedules_tasks_are_and_leaves_the_rest(shell: Shell) -> None:
    (shell.folder / "agent.yaml").write_text("description: greets\nsystem_prompt: Be brief.\n")
    for agent in ("greeter", "writer"):
        await shell.json("config", "put", "agent", agent, "--file", "agent.yaml")
    words = ("schedules", "create", "0 8 * * *", "Good morning", "--agent", "greeter", "--id", "morning")
    first = (await shell.json(*words, "--backoff", "2", "--session", "s-1", "--create-missing", "-m", "a=1"))["task"]
    said = await shell.json("schedules", "update", "morning", "Good night", "--max-attempts", "4", "--priority", "7")
    assert said["task"] == {
        **first,
        "input": said["task"]["input"],
        "retry_policy": {**first["retry_policy"], "max_attempts": 4},
        "priority": 7,
    }
    assert "Good night" in str(said["task"]["input"])
    assert "Good morning" not in str(said["task"]["input"])
    more = ("--input-json", "[1]", "--agent", "writer", "--new-sessions", "-m", "b=2", "--priority", "0")
    changed = (await shell.json("schedules", "update", "morning", *more, "--if-busy", "enqueue"))["task"]
    assert (changed["agent_name"], changed["metadata"]) == ("writer", {"b": "2"})
    assert changed["multitask_strategy"] == "MULTITASK_STRATEGY_ENQUEUE"
    assert "session_id" not in changed
    assert (changed["if_session_missing"], changed["priority"]) == ("IF_SESSION_MISSING_UNSPECIFIED", 0)
    assert changed["retry_policy"] == said["task"]["retry_policy"]
    # Only when it fires: the task stays.
    assert (await shell.json("schedules", "update", "morning", "--cron", "0 9 * * *"))["task"] == changed
    for wrong in (("x", "--input-json", "1"), ("--session", "s", "--new-sessions")):
        assert (await shell.run("schedules", "update", "morning", *wrong))[0] == USAGE
