"""`threadkeep`, the command line, as real processes against a running suite: JSON for scripts, exit codes, advice."""

import asyncio
import json
import os
import signal
import sys
import uuid
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest

from tests.support.processes import BIN, Processes
from tests.support.suite import HOOKS, Suite
from tests.support.waiting import eventually
from threadkeep import AsyncClient
from threadkeep.runtime.v1 import commit_pb2

pytestmark = pytest.mark.suite(backends=["sqlite"], topologies=["split"])

ROOT = Path(__file__).resolve().parents[2]
SOURCES = {name: value for name, value in os.environ.items() if name == "PYTHONPATH"}
USAGE, NOT_FOUND, WAIT_TIMEOUT, CONFLICT, UNAVAILABLE, FORBIDDEN, ENDED_BADLY, INPUT_REQUIRED = range(2, 10)


class Shell:
    """Runs commands in a scope of its own."""

    def __init__(self, suite: Suite, folder: Path) -> None:
        self.folder = folder
        target = ",".join(f"{name}={address}" for name, address in suite.addresses.items())
        self.env = {"THREADKEEP_TARGET": target, "THREADKEEP_SCOPE": f"tenant={uuid.uuid4().hex}"}

    async def run(self, *words: str, stdin: bytes = b"", env: Mapping[str, str] | None = None) -> tuple[int, str, str]:
        """Runs a command; gives exit code, standard output and standard error."""
        child = await asyncio.create_subprocess_exec(
            BIN / "threadkeep",
            *words,
            stdin=asyncio.subprocess.PIPE,
            stdout=asyncio.subprocess.PIPE,
            stderr=asyncio.subprocess.PIPE,
            cwd=self.folder,
            env={"PATH": f"{BIN}:/usr/bin:/bin", "COLUMNS": "300", **SOURCES, **self.env, **(env or {})},
        )
        output, errors = await asyncio.wait_for(child.communicate(stdin), 120)
        assert "Traceback" not in errors.decode(), errors.decode()
        return child.returncode or 0, output.decode(), errors.decode()

    async def json(self, *words: str, stdin: bytes = b"", code: int = 0) -> Any:
        """Runs a command with --output json; gives its one document."""
        ended, output, errors = await self.run(*words, "--output", "json", stdin=stdin)
        assert ended == code, (ended, output, errors)
        return json.loads(output)

    async def fails(self, *words: str) -> tuple[int, dict[str, Any]]:
        """Runs a command that must be refused; gives the exit code and the error."""
        ended, output, errors = await self.run(*words, "-o", "json")
        assert ended != 0, output
        error: dict[str, Any] = json.loads(errors)["error"]
        return ended, error


@pytest.fixture
def shell(shared_suite: Suite, tmp_path: Path) -> Shell:
    """A shell of a running suite."""
    return Shell(shared_suite, tmp_path)


async def test_sessions_and_tasks_from_a_script(shell: Shell) -> None:
    (shell.folder / "agent.yaml").write_text("description: greets\nsystem_prompt: Be brief.\n")
    put = await shell.json("config", "put", "agent", "greeter", "--file", "agent.yaml")
    assert (put["type"], put["name"]) == ("ENTITY_TYPE_AGENT", "greeter")
    session = await shell.json("sessions", "create", "--id", "s-1", "--title", "Hello", "-m", "topic=ships")
    assert session["metadata"] == {"topic": "ships"}
    updated = await shell.json("sessions", "update", "s-1", "--title", "Changed", "--expected-revision", "1")
    assert updated["title"] == "Changed"
    assert [one["session_id"] for one in await shell.json("sessions", "list", "-m", "topic=ships")] == ["s-1"]
    task = await shell.json("tasks", "submit", "-", "--agent", "greeter", "--session", "s-1", stdin=b"from a pipe")
    assert task["state"] == "TASK_STATE_SUBMITTED"
    assert task["input"]["messages"]["messages"][0]["parts"] == [{"text": "from a pipe"}]
    assert (await shell.json("runs", "get", task["run_id"]))["task_id"] == task["task_id"]
    assert (await shell.fails("tasks", "wait", task["task_id"], "--for", "0.2"))[0] == WAIT_TIMEOUT
    hook = await shell.json("tasks", "webhooks", "put", task["task_id"], f"{HOOKS}/a", "--id", "w", "--format", "a2a")
    assert (hook["webhook_id"], hook["format"]) == ("w", "TASK_WEBHOOK_FORMAT_A2A")
    assert await shell.json("tasks", "webhooks", "list", task["task_id"]) == [hook]
    await shell.json("tasks", "webhooks", "delete", task["task_id"], "w")
    busy, error = await shell.fails("tasks", "submit", "again", "--agent", "greeter", "--session", "s-1")
    assert (busy, error["reason"]) == (1, "SESSION_BUSY")
    assert "threadkeep tasks list" in error["advice"]
    assert (await shell.json("tasks", "cancel", task["task_id"]))["state"] == "TASK_STATE_CANCELED"
    assert (await shell.run("tasks", "wait", task["task_id"]))[0] == ENDED_BADLY
    retried = await shell.json("tasks", "retry", task["task_id"], "--not-before", "1h")
    assert (retried["retry_of"], retried["state"]) == (task["task_id"], "TASK_STATE_SUBMITTED")
    assert "run_id" not in retried
    assert (await shell.json("tasks", "cancel", "--session", task["session_id"]))["task_count"] == 1
    listed = await shell.json("tasks", "list", "--state", "canceled")
    assert [one["task_id"] for one in listed] == [retried["task_id"], task["task_id"]]
    events = await shell.json("events", "list", "--session", "s-1", "--type", "threadkeep.task.*")
    assert [one["type"].rpartition(".")[2] for one in events][:1] == ["submitted"]
    messages = await shell.json("messages", "list", "s-1", "--at-least", events[-1]["cursor"])
    assert messages[0]["parts"] == [{"text": "from a pipe"}]


async def test_a_task_worked_on_by_a_worker_of_the_command_line(shell: Shell, processes: Processes) -> None:
    """With a tool that needs approval: the whole life of a task from one shell."""
    definitions = shell.folder / "definitions"
    for name, text in {
        "agents/clerk.md": "---\nprovider: script\ntools: [stamp]\n---\nStamp it.\n",
        "tools/stamp.yaml": "python: {entry_point: 'stamps:stamp'}\napproval_required: true\n",
        "providers/script.yaml": (
            "type: scripted\noptions:\n  script:\n"
            "    - tool_calls: [{name: stamp, args: {text: '{{input}}'}}]\n"
            "    - text: 'Stamped: {{tool.stamp}}'\n"
        ),
    }.items():
        (definitions / name).parent.mkdir(parents=True, exist_ok=True)
        (definitions / name).write_text(text)
    (shell.folder / "stamps.py").write_text(
        'def stamp(text: str) -> str:\n    """Stamps."""\n    return text.upper()\n'
    )
    dry = await shell.json("config", "apply", "definitions", "--dry-run")
    assert {change["action"] for change in dry["changes"]} == {"SET_ACTION_CREATED"}
    await shell.json("config", "apply", "definitions")
    again = await shell.json("config", "apply", "definitions")
    assert {change["action"] for change in again["changes"]} == {"SET_ACTION_UNCHANGED"}
    worker = await processes.start(
        sys.executable, "-m", "threadkeep_cli.main", "worker", "run", "--tool-module", "stamps",
        env={**shell.env, "PYTHONPATH": str(shell.folder)},
    )  # fmt: skip
    await worker.printed("takes runs")
    task = await shell.json("tasks", "submit", "hello", "--agent", "clerk", "--wait", "60", code=INPUT_REQUIRED)
    (ticket,) = await shell.json("tickets", "list", "--task", task["task_id"], "--state", "open")
    assert "approve" in ticket["allowed_decisions"]
    code, error = await shell.fails("tickets", "resolve", ticket["ticket_id"], "--decision", "perhaps")
    assert (code, error["reason"]) == (USAGE, "TICKET_ANSWER_INVALID")
    assert "tickets get" in error["advice"]
    resolved = await shell.json("tickets", "resolve", ticket["ticket_id"], "--decision", "approve")
    assert resolved["state"] == "TICKET_STATE_RESOLVED"
    done = await shell.json("tasks", "wait", task["task_id"], "--for", "60")
    assert done["result"]["json"]["text"] == "Stamped: HELLO"
    followed = await shell.run("events", "list", "--task", task["task_id"], "--follow", "-o", "json")
    lines = [json.loads(line) for line in followed[1].splitlines()]
    assert lines[-1]["type"] == "threadkeep.task.completed", "a feed of a task ends with it"
    worker.signal(signal.SIGTERM)
    assert await worker.wait(60) == 0


async def test_dead_letters_are_shown_requeued_and_purged(shell: Shell, shared_suite: Suite) -> None:
    scope = {"tenant": shell.env["THREADKEEP_SCOPE"].partition("=")[2]}
    async with AsyncClient(shared_suite.addresses, scope=scope) as client:
        session_id = (await client.sessions.create()).session.session_id
        drafts = [client.outbox.message("order.placed", {"n": 1}, to_session="nobody")]
        await client.threads.commit(commit_pb2.ThreadCommit(session_id=session_id, outbox=drafts))

    async def dead() -> Any:
        return await shell.json("outbox", "dead", "--payload")

    (one,) = await eventually(dead)
    assert (one["target_session_id"], one["last_error"], one["payload"]["json"]) == (
        "nobody",
        "SESSION_NOT_FOUND",
        {"n": 1},
    )
    assert (await shell.json("outbox", "requeue", one["message_id"]))["requeued_count"] == 1
    assert await eventually(dead)
    assert [row["state"] for row in await shell.json("outbox", "list", "--state", "dead")] == [one["state"]]
    assert (await shell.run("outbox", "purge"))[0] == USAGE
    assert (await shell.json("outbox", "purge", "--all"))["purged_count"] == 1
    assert await shell.json("outbox", "list") == []


async def test_config_is_put_explained_rolled_back_hidden_and_watched(shell: Shell) -> None:
    (shell.folder / "p.json").write_text('{"type": "scripted", "options": {"script": []}}')
    (shell.folder / "q.yaml").write_text("type: scripted\nmodel: second\n")
    first = await shell.json("config", "put", "provider", "p", "-f", "p.json", "--expected-revision", "0")
    assert first["definition"]["provider"]["options_json"] == {"script": []}
    second = await shell.json("config", "put", "provider", "p", "-f", "q.yaml")
    changes = await shell.json("config", "diff", "provider", "p", str(first["revision"]))
    assert "provider.model" in {change["path"] for change in changes}
    await shell.json("config", "put", "provider", "p", "-f", "p.json", "--only", "model")
    back = await shell.json("config", "rollback", "provider", "p", str(first["revision"]))
    assert back["digest"] == first["digest"]
    assert len(await shell.json("config", "history", "provider", "p")) == 4
    explained = await shell.json("config", "explain", "provider", "p")
    assert [one["winner"] for one in explained["candidates"]] == [True]
    code, error = await shell.fails("config", "put", "provider", "p", "-f", "q.yaml", "--expected-revision", "0")
    assert (code, error["reason"]) == (CONFLICT, "REVISION_CONFLICT")
    assert error["metadata"]["current_revision"] == str(back["revision"])
    code, output, _ = await shell.run("config", "watch", "--once", "-o", "json")
    frames = [json.loads(line) for line in output.splitlines()]
    assert frames[-1]["synced"] is True
    assert len(frames) == 2
    assert (await shell.json("config", "delete", "provider", "p"))["deleted"] is True
    assert (await shell.fails("config", "get", "provider", "p"))[0] == NOT_FOUND
    assert second["revision"] > first["revision"]


async def test_a_faulty_file_is_told_by_line_and_the_others_are_applied(shell: Shell) -> None:
    folder = shell.folder / "defs" / "agents"
    folder.mkdir(parents=True)
    (folder / "good.yaml").write_text("description: fine\n")
    (folder / "bad.yaml").write_text("description: fine\nnonsense: 1\n")
    code, output, _ = await shell.run("config", "apply", "defs")
    assert code == USAGE
    assert "agents/bad.yaml:2" in output
    assert (await shell.json("config", "get", "agent", "good"))["name"] == "good"


@pytest.mark.rule("C7")
async def test_a_directory_is_compared_applied_pruned_and_exported(shell: Shell) -> None:
    folder = shell.folder / "defs" / "agents"
    folder.mkdir(parents=True)
    (folder / "a.md").write_text("One.\nTwo.\nThree.")
    (folder / "b.md").write_text("B.")
    await shell.run("config", "apply", "defs")
    (folder / "a.md").write_text("One.\n2.\nThree.")
    (folder / "b.md").unlink()
    code, output, _ = await shell.run("config", "apply", "defs", "--prune", "--dry-run")
    assert code == 0
    lines = [line.strip() for line in output.splitlines()]
    assert lines[0].split() == ["~", "updated", "agent", "a"]
    assert lines[1] == "agent.system_prompt"
    assert {"-Two.", "+2."} <= set(lines)
    assert any(line.split() == ["-", "deleted", "agent", "b"] for line in lines)
    code, output, _ = await shell.run("config", "apply", "defs")
    assert "kept" in output
    assert (await shell.json("config", "get", "agent", "b"))["name"] == "b"
    await shell.run("config", "apply", "defs", "--prune")
    assert (await shell.fails("config", "get", "agent", "b"))[0] == NOT_FOUND
    exported = await shell.json("config", "export", "out")
    assert exported == {"files": ["agents/a.md"], "problems": []}
    assert (shell.folder / "out" / "agents" / "a.md").read_text().endswith("One.\n2.\nThree.\n")
    assert (await shell.run("config", "export", "out"))[0] == USAGE
    assert (await shell.run("config", "export", "out", "--force"))[0] == 0


@pytest.mark.rule("X4")
async def test_an_entity_is_edited_in_the_editor(shell: Shell) -> None:
    def editor(command: str) -> dict[str, str]:
        return {"EDITOR": f"sh -c '{command}' --"}

    new = editor('printf "system_prompt: Be brief.\\nresponse_schema: {type: object}\\n" >> "$1"')
    code, output, errors = await shell.run("config", "edit", "agent", "clerk", env=new)
    assert code == 0, (output, errors)
    first = await shell.json("config", "get", "agent", "clerk")
    assert first["definition"]["agent"]["response_schema_json"] == {"type": "object"}
    code, output, _ = await shell.run("config", "edit", "agent", "clerk", env=editor("true"))
    assert (code, "nothing changed" in output) == (0, True)
    await shell.run("config", "edit", "agent", "clerk", env=editor('sed -i s/brief/long/ "$1"'))
    changed = await shell.json("config", "get", "agent", "clerk")
    assert changed["definition"]["agent"]["system_prompt"] == "Be long."
    assert changed["definition"]["agent"]["response_schema_json"] == {"type": "object"}
    code, output, _ = await shell.run("config", "edit", "agent", "clerk", env=editor('echo "colour: red" >> "$1"'))
    assert (code, "kept in" in output) == (USAGE, True)
    code, output, _ = await shell.run("config", "diff", "agent", "clerk", str(first["revision"]))
    assert output.splitlines()[0] == "agent.system_prompt"
    assert {"-Be brief.", "+Be long."} <= {line.strip() for line in output.splitlines()}


async def test_artifacts_go_in_and_come_out(shell: Shell) -> None:
    content = bytes(range(256)) * 20_000
    (shell.folder / "data.bin").write_bytes(content)
    first = await shell.json("artifacts", "put", "data.bin", "--label", "kind=test", "--session", "s-9")
    assert (first["size"], first["metadata"]["labels"]) == (len(content), {"kind": "test"})
    second = await shell.json(
        "artifacts", "put", "-", "--name", "notes.txt", "--id", first["artifact_id"], stdin=b"from a pipe"
    )
    assert (second["version"], second["metadata"]["media_type"]) == (2, "text/plain")
    code, output, _ = await shell.run("artifacts", "get", first["artifact_id"])
    assert (code, output) == (0, "from a pipe")
    await shell.json("artifacts", "get", first["artifact_id"], "--version", "1", "--to", "copy.bin")
    assert (shell.folder / "copy.bin").read_bytes() == content
    assert len(await shell.json("artifacts", "versions", first["artifact_id"])) == 2
    assert [one["version"] for one in await shell.json("artifacts", "list", "--name", "notes.txt")] == [2]
    assert (await shell.json("artifacts", "show", first["artifact_id"], "--version", "1"))["version"] == 1
    mine = first["artifact_id"]
    code, output, _ = await shell.run("artifacts", "cat", mine)
    assert (code, output) == (0, "from a pipe")
    await shell.json("artifacts", "put", "-", "--name", "notes.txt", "--id", mine, "--path", "/n", stdin=b"changed")
    code, output, _ = await shell.run("artifacts", "diff", mine, "2")
    assert "-from a pipe" in output
    assert "+changed" in output
    assert [one["version"] for one in await shell.json("artifacts", "list", "--path", "/")] == [3]
    assert (await shell.json("artifacts", "delete", mine, "--version", "3"))["latest"]["version"] == 2
    assert (await shell.json("artifacts", "restore", mine, "--version", "3"))["version"] == 3
    assert (await shell.json("artifacts", "usage"))["version_count"] == 3
    assert (await shell.json("artifacts", "delete", first["artifact_id"]))["version_count"] == 3
    assert (await shell.json("artifacts", "restore", mine))["version"] == 3
    await shell.json("artifacts", "delete", mine)
    assert (await shell.fails("artifacts", "get", first["artifact_id"]))[0] == NOT_FOUND


async def test_the_same_request_id_has_one_effect(shell: Shell) -> None:
    await shell.json("sessions", "create", "--id", "gone", "--artifacts", "keep")
    assert (await shell.json("sessions", "fork", "gone", "--id", "kept"))["forked_from_session_id"] == "gone"
    assert (await shell.json("sessions", "delete", "gone", "--artifacts", "delete"))["commit_sequence"] == 2
    assert (await shell.fails("sessions", "get", "gone"))[0] == NOT_FOUND
    policy = await shell.json("retention", "set", "--tasks", "age=30d,keep=2", "--receipts", "7d")
    assert (policy["tasks"], policy["revision"]) == ({"max_age": "2592000s", "keep_latest": 2}, 1)
    assert await shell.json("retention", "get") == policy
    assert not any((await shell.json("retention", "purge")).values())
    assert (await shell.run("retention", "set", "--tasks", "age=soon"))[0] == USAGE
    command = ("sessions", "create", "--title", "once", "--request-id", "r-1")
    assert await shell.json(*command) == await shell.json(*command)
    code, error = await shell.fails("sessions", "create", "--title", "other", "--request-id", "r-1")
    assert (code, error["reason"]) == (CONFLICT, "REQUEST_ID_REUSED")


@pytest.mark.rule("X1", "X13")
async def test_scope_and_grant_are_named_or_asked_for(shell: Shell) -> None:
    code, output, errors = await shell.run("sessions", "list", env={"THREADKEEP_SCOPE": ""})
    assert code == FORBIDDEN, output
    assert "SCOPE_REQUIRED" in errors
    assert "--scope" in errors
    assert (await shell.fails("sessions", "list", "--scope", "{}"))[0] == FORBIDDEN
    assert await shell.json("sessions", "list", "--scope", "{}", "--grant", "all") == []
    await shell.json("sessions", "create", "--id", "mine")
    other = await shell.fails("--scope", "tenant=another", "sessions", "get", "mine")
    assert (other[0], other[1]["reason"]) == (NOT_FOUND, "SESSION_NOT_FOUND")


async def test_a_server_out_of_reach_is_said_soon_and_how_to_start_one(shell: Shell) -> None:
    code, _, errors = await shell.run("info", "--target", "127.0.0.1:1")
    assert code == UNAVAILABLE
    assert "threadkeepd up" in errors


@pytest.mark.parametrize(
    "words",
    [
        ("tasks", "submit"),
        ("tasks", "submit", "x", "--session", "a", "--new-session", "b"),
        ("tasks", "list", "--state", "nonsense"),
        ("tickets", "resolve", "t"),
        ("artifacts", "put", "no such file"),
        ("config", "apply", "no such directory"),
        ("config", "put", "nonsense", "x", "-f", "/dev/null"),
        ("events", "list", "--after", "?"),
        ("sessions", "list", "--scope", "nonsense"),
        ("sessions", "get", ""),
    ],
)
async def test_what_can_not_be_followed_is_a_usage_error(shell: Shell, words: tuple[str, ...]) -> None:
    code, _, errors = await shell.run(*words)
    assert code == USAGE
    assert errors.strip()


async def test_tables_are_for_people(shell: Shell) -> None:
    await shell.json("sessions", "create", "--id", "s-1", "--title", "[bold]plain[/bold]")
    code, output, _ = await shell.run("sessions", "list")
    assert code == 0
    assert output.splitlines()[0].split()[:2] == ["SESSION", "STATUS"]
    assert "[bold]plain[/bold]" in output
    info = (await shell.run("info", "--service", "artifacts"))[1]
    assert "max_artifact_bytes" in info
    help_text = (await shell.run("--help"))[1]
    assert "Exit codes" in help_text


@pytest.mark.rule("R21")
async def test_the_store_from_the_command_line(shell: Shell) -> None:
    (shell.folder / "value.json").write_text('{"text": "likes tea", "score": 10}')
    put = await shell.json("store", "put", "users.ada", "1", "@value.json")
    assert (put["namespace"], put["key"], put["value"]) == (["users", "ada"], "1", {"text": "likes tea", "score": 10})
    await shell.json("store", "put", "users.bob", "1", '{"text": "likes rum", "score": 9}', "--ttl-minutes", "60")
    assert "expire_time" in await shell.json("store", "get", "users.bob", "1")
    assert (await shell.run("store", "get", "users.eve", "1"))[0] == NOT_FOUND
    assert [one["namespace"] for one in await shell.json("store", "list")] == [["users", "bob"], ["users", "ada"]]
    assert len(await shell.json("store", "list", "users", "--limit", "1", "--offset", "1")) == 1
    (found,) = await shell.json("store", "search", "users", "--filter", '{"score": {"$gte": 10}}')
    assert found["value"]["text"] == "likes tea"
    # Without vectors nothing is near; what has none comes last.
    assert len(await shell.json("store", "search", "--embedding", "[1, 0]")) == 2
    names = await shell.json("store", "namespaces", "--prefix", "users.*", "--depth", "2")
    assert names == [{"namespace": ["users", "ada"]}, {"namespace": ["users", "bob"]}]
    _, table, _ = await shell.run("store", "search", "users.ada")
    assert "users.ada" in table
    assert "likes tea" in table
    await shell.run("store", "delete", "users.ada", "1")
    assert len(await shell.json("store", "list")) == 1
    for words in (("put", "a", "k", "[]"), ("search", "--filter", "[]"), ("search", "--embedding", "{}")):
        assert (await shell.run("store", *words))[0] == USAGE
    code, error = await shell.fails("store", "get", "a..b", "k")
    assert (code, error["reason"]) == (USAGE, "FIELD_INVALID")
