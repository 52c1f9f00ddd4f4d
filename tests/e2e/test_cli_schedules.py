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
