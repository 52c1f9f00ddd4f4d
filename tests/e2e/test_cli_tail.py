"""`threadkeep tail`: a session as it happens, as a person reads it and as a script does."""

import json
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest
from langchain_core.messages import AIMessage, HumanMessage, ToolMessage

from tests.conformance.projection.conftest import SERVICES
from tests.e2e.test_cli import SOURCES, Shell
from tests.support.examples.world import World, json_payload
from tests.support.processes import BIN, Process, Processes
from tests.support.projection import Talk
from tests.support.suite import Suite
from tests.support.waiting import eventually
from threadkeep.runtime.v1 import event_pb2, worker_service_pb2

pytestmark = pytest.mark.suite(backends=["sqlite"], topologies=["split"], services=SERVICES)


class Reader:
    """Runs the command against a suite, in a world's scope."""

    def __init__(self, suite: Suite, talk: Talk, processes: Processes) -> None:
        target = ",".join(f"{name}={address}" for name, address in suite.addresses.items())
        self._env = {**SOURCES, "THREADKEEP_TARGET": target, "THREADKEEP_SCOPE": json.dumps(dict(talk.world.values))}
        self._talk, self._processes = talk, processes

    async def tail(self, *more: str) -> Process:
        """Starts `threadkeep tail`."""
        return await self._processes.start(BIN / "threadkeep", "tail", self._talk.session_id, *more, env=self._env)


def lines(output: str) -> list[str]:
    """What was printed, without times and ids."""
    known = [line[10:].rstrip() for line in output.splitlines() if "threadkeep:" not in line]
    return [" ".join(line.split()[:2]) if line.startswith("·") else line for line in known]


async def publish(talk: Talk, *chunks: dict[str, Any], until: Any) -> None:
    async def observations() -> AsyncIterator[worker_service_pb2.PublishLiveRequest]:
        some = [
            event_pb2.LiveObservation(
                kind=event_pb2.LIVE_KIND_TOKEN,
                index=index,
                payload=json_payload(json.dumps(chunk).encode()),
                message_id="a-1",
            )
            for index, chunk in enumerate(chunks, 1)
        ]
        yield worker_service_pb2.PublishLiveRequest(lease=talk.lease, observations=some)
        await eventually(until)

    await talk.world.bind("WorkerService.PublishLive")(observations(), metadata=talk.world.metadata, timeout=60)


@pytest.mark.rule("P6", "R14")
@pytest.mark.case("B97")
async def test_a_task_is_watched_from_its_start_to_its_end_through_a_restart(
    suite: Suite, processes: Processes
) -> None:
    talk = await Talk.begin(World(suite))
    task = await talk.submit(("in", "What is 2 + 2?"))
    process = await Reader(suite, talk, processes).tail("--task", task.task_id)
    await talk.work()
    await process.printed("task.working")
    chunks = [
        {"content": "Let me ", "type": "AIMessageChunk"},
        {"content": [{"type": "text", "text": "add\x1b[31m."}]},
        {"content": "", "tool_call_chunks": [{"name": "add", "args": "", "id": "c-1"}]},
    ]
    await publish(talk, *chunks, until=lambda: "calls add" in process.output())
    await suite.rehost("projection")
    asked = HumanMessage("What is 2 + 2?", id="in")
    call = {"name": "add", "args": {"a": 2}, "id": "c-1"}
    answer = AIMessage("Let me add\x1b[31m.", id="a-1", tool_calls=[call])
    result = ToolMessage("4", id="t-1", name="add", tool_call_id="c-1")
    await talk.step(asked, answer)
    await talk.step(asked, answer, result)
    await talk.step(asked, answer, result, AIMessage("It is 4.", id="a-2"))
    await talk.finish()
    assert await process.wait() == 0
    assert lines(process.output()) == [
        "· session.created",
        "· task.submitted",
        "user       What is 2 + 2?",
        "· run.queued",
        "· run.leased",
        "· task.working",
        "assistant  Let me add\ufffd[31m.",
        "~ calls add",
        'assistant  calls add({"a":2})',
        "tool add   4",
        "assistant  It is 4.",
        "· run.ended",
        "· task.completed",
    ]


@pytest.mark.rule("P6")
async def test_the_past_reads_as_it_happened_and_a_script_gets_lines_of_json(
    suite: Suite, processes: Processes, tmp_path: Path
) -> None:
    talk = await Talk.begin(World(suite))
    await talk.submit(("in", "x"))
    await talk.work()
    asked = HumanMessage("x", id="in")
    await talk.step(asked)
    draft = event_pb2.EventDraft(type="order.placed", payload=json_payload(b'{"order":"o-1"}'))
    await talk.world.commit(session_id=talk.session_id, events=[draft])
    await talk.step(asked, AIMessage("y", id="a-1"))
    await talk.finish()
    shell = Shell(suite, tmp_path)
    shell.env["THREADKEEP_SCOPE"] = json.dumps(dict(talk.world.values))
    run = ("tail", talk.session_id, "--run", talk.run_ids[0])
    code, output, _ = await shell.run(*run)
    assert code == 0
    assert "order.placed" in output
    assert '{"order": "o-1"}' in output
    assert [one for one in lines(output) if not one.startswith("· ") or "order" in one] == [
        "user       x",
        "· order.placed",
        "assistant  y",
    ]
    code, output, _ = await shell.run(*run, "--kind", "messages", "--kind", "custom")
    assert lines(output) == [
        "· task.submitted",
        "user       x",
        "· order.placed",
        "assistant  y",
        "· run.ended",
    ]
    code, output, _ = await shell.run(*run, "--kind", "custom", "-o", "json")
    placed, ended = (json.loads(line) for line in output.splitlines())
    assert (placed["type"], placed["payload"]["json"]) == ("order.placed", {"order": "o-1"})
    assert ended["type"] == "threadkeep.run.ended"
    code, output, _ = await shell.run(*run, "--after", placed["cursor"])
    assert lines(output)[-2:] == ["assistant  y", "· run.ended"]
    for words, expected in (
        (("tail", "never-used"), 3),
        (("tail", talk.session_id, "--kind", "noise"), 2),
        (("tail", talk.session_id, "--task", "a", "--run", "b"), 2),
    ):
        code, output, _ = await shell.run(*words)
        assert (code, output) == (expected, "")
