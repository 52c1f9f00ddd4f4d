"""Workers that die, stop, stall or lose their lease: every effect once, nothing of a zombie, no answer astray."""

import asyncio
import json
import signal
import time
import uuid
from typing import Any

import pytest
from langgraph.checkpoint.base import empty_checkpoint

from tests.support.suite import Suite
from tests.support.waiting import eventually
from tests.support.worker_graphs import GRAPHS
from threadkeep import errors
from threadkeep.langgraph import ThreadkeepSaver, codec
from threadkeep.langgraph.commit_queue import CommitQueue
from threadkeep.langgraph.io_loop import IoLoop
from threadkeep.langgraph.run_saver import RunSaver
from threadkeep.langgraph.serde import StrictSerializer
from threadkeep.runtime.v1 import checkpoint_pb2, commit_pb2, run_pb2, task_pb2
from threadkeep.worker import ExecutionSettings

ONE = pytest.mark.suite(backends=["sqlite"], topologies=["split"])
BOTH = pytest.mark.suite(backends=["sqlite", "postgres"], topologies=["split"])
"""Processes take their time; what the database decides is tried on both."""

SHORT = ("--lease-ttl", "2")


async def _wrote(site: Any, task: task_pb2.Task, channel_value: str) -> bool:
    """True once a pending write of the head holds this value."""
    stored = (await site.client.checkpoints.get(task.session_id)).checkpoint
    return any(channel_value.encode() in one.data for one in stored.pending_writes)


@pytest.mark.rule("R7", "R20")
@pytest.mark.case("B25")
@BOTH
async def test_after_sigkill_each_nodes_effect_happened_once(site: Any) -> None:
    site.folder.hold("c")
    first = await site.worker_process(*SHORT)
    task = await site.submit("steps")
    await eventually(lambda: site.folder.has_entered("c"))
    await first.kill()
    site.folder.leave("c")
    await site.worker_process(*SHORT)
    await eventually(lambda: site.folder.has_entered("c"))
    site.folder.free("c")
    assert await site.completed(task) == {"log": ["a", "b", "c", "d"]}
    assert site.folder.effects() == ["a", "b", "c", "d"]
    run = await site.client.runs.get(task.run_id)
    assert (run.epoch, run.crash_count) == (2, 1)
    assert "run.lease_expired" in await site.event_types(task)


@pytest.mark.rule("R7", "R20")
@ONE
async def test_what_a_finished_sibling_did_survives_the_crash(site: Any) -> None:
    site.folder.hold("slow")
    first = await site.worker_process(*SHORT)
    task = await site.submit("fan")
    await eventually(lambda: site.folder.has_entered("slow"))
    # It waits for nobody: it is durable while its sibling still runs.
    await eventually(lambda: _wrote(site, task, "quick"))
    await first.kill()
    site.folder.leave("slow")
    await site.worker_process(*SHORT)
    await eventually(lambda: site.folder.has_entered("slow"))
    site.folder.free("slow")
    result = await site.completed(task)
    assert sorted(result["log"]) == ["last", "quick", "slow"]
    assert sorted(site.folder.effects()) == ["last", "quick", "slow"]


@pytest.mark.rule("R7", "R20")
@ONE
async def test_a_graph_inside_a_graph_goes_on_where_it_was(site: Any) -> None:
    site.folder.hold("c")
    first = await site.worker_process(*SHORT)
    task = await site.submit("nested")
    await eventually(lambda: site.folder.has_entered("c"))
    await first.kill()
    site.folder.leave("c")
    await site.worker_process(*SHORT)
    await eventually(lambda: site.folder.has_entered("c"))
    site.folder.free("c")
    result = await site.completed(task)
    assert result["log"][-1] == "d"
    assert site.folder.effects() == ["a", "b", "c", "d"]


@pytest.mark.rule("R10")
@BOTH
async def test_a_crash_never_hands_an_answer_to_the_next_question(site: Any) -> None:
    site.folder.hold("between")
    first = await site.worker_process(*SHORT)
    task = await site.submit("questions")
    (one,) = await site.asked(task)
    await site.client.tickets.resolve(one.ticket_id, "first answer")
    await eventually(lambda: site.folder.has_entered("between"))
    # The answer is consumed, the next question not yet asked.
    await first.kill()
    site.folder.leave("between")
    await site.worker_process(*SHORT)
    await eventually(lambda: site.folder.has_entered("between"))
    site.folder.free("between")
    (two,) = await site.asked(task)
    assert json.loads(two.prompt.data) == {"question": 2}
    await site.client.tickets.resolve(two.ticket_id, "second answer")
    assert await site.completed(task) == {"log": ["first answer", "second answer"]}


@pytest.mark.rule("R8")
@ONE
async def test_sigterm_gives_the_run_back_and_spends_no_budget(site: Any) -> None:
    site.folder.hold("b")
    first = await site.worker_process("--drain-timeout", "60")
    task = await site.submit("steps", max_attempts=1)
    await eventually(lambda: site.folder.has_entered("b"))
    first.signal(signal.SIGTERM)
    second = await site.worker_process()
    # The superstep ends in peace; the next one is the other worker's.
    site.folder.free("b")
    assert await first.wait() == 0
    assert await site.completed(task) == {"log": ["a", "b", "c", "d"]}
    assert site.folder.effects() == ["a", "b", "c", "d"]
    run = await site.client.runs.get(task.run_id)
    assert (run.epoch, run.crash_count) == (2, 0)
    assert "run.released" in await site.event_types(task)
    assert await second.stop() == 0


@pytest.mark.rule("R8")
@ONE
async def test_a_node_that_outlasts_the_drain_runs_again_elsewhere(site: Any) -> None:
    site.folder.hold("b")
    first = await site.worker_process("--drain-timeout", "0.2")
    task = await site.submit("steps", max_attempts=1)
    await eventually(lambda: site.folder.has_entered("b"))
    assert await first.stop() == 0
    site.folder.leave("b")
    await site.worker_process()
    await eventually(lambda: site.folder.has_entered("b"))
    site.folder.free("b")
    assert await site.completed(task) == {"log": ["a", "b", "c", "d"]}
    assert site.folder.effects() == ["a", "b", "c", "d"]


@pytest.mark.rule("R3", "R8")
@pytest.mark.case("B60")
@ONE
async def test_a_stopped_worker_that_wakes_up_adds_nothing(site: Any) -> None:
    site.folder.hold("b")
    first = await site.worker_process(*SHORT)
    task = await site.submit("steps")
    await eventually(lambda: site.folder.has_entered("b"))
    first.signal(signal.SIGSTOP)
    site.folder.leave("b")
    second = await site.worker_process(*SHORT)
    await eventually(lambda: site.folder.has_entered("b"))
    site.folder.free("b")
    assert await site.completed(task) == {"log": ["a", "b", "c", "d"]}
    events = await site.event_types(task)
    first.signal(signal.SIGCONT)
    await first.printed("is not ours any more")
    assert await site.event_types(task) == events
    await second.stop()
    await first.stop()


@pytest.mark.rule("R8")
@ONE
async def test_work_stops_when_the_lease_can_not_be_renewed(site: Any) -> None:
    site.folder.hold("b")
    # This worker never renews: its own clock must stop it before the server gives the run away.
    silent = ExecutionSettings(heartbeat_interval=60, stop_grace=2.0)
    worker = site.worker(lease_ttl=1.0, settings=silent)
    task = await site.submit("steps")
    await eventually(lambda: site.folder.has_entered("b"))
    worker.stop()  # so that the run goes to the other one
    site.folder.leave("b")
    other = site.worker()
    await eventually(lambda: site.folder.has_entered("b"))
    site.folder.free("b")
    assert await site.completed(task) == {"log": ["a", "b", "c", "d"]}
    assert site.folder.effects() == ["a", "b", "c", "d"]
    await site.stop(other)


class _Bound:
    """A run leased by hand, with its saver."""

    def __init__(self, site: Any, acquired: Any) -> None:
        self.acquired, self.io = acquired, IoLoop()
        self.sync = site.client.to_sync()
        self.queue = CommitQueue(site.client, acquired.run.session_id, acquired.lease, self.io)
        self.saver = RunSaver(self.queue, site.client, self.sync, durability="sync")

    async def close(self) -> None:
        await asyncio.to_thread(self.io.close)
        self.sync.close()


async def _lease(site: Any, ttl: float = 30.0) -> _Bound:
    answer = await site.client.worker.acquire("by hand", wait=20, lease_ttl=ttl)
    return _Bound(site, answer.acquired)


@pytest.mark.rule("R3", "R1")
@pytest.mark.case("B60")
@BOTH
async def test_a_zombies_checkpoint_is_refused_and_leaves_nothing(site: Any) -> None:
    task = await site.submit("steps")
    zombie = await _lease(site, ttl=1.0)
    config: Any = {"configurable": {"thread_id": task.session_id, "checkpoint_ns": ""}}

    def checkpoint() -> Any:
        return {**empty_checkpoint(), "channel_values": {"log": ["z"]}, "channel_versions": {"log": "1"}}

    plain = ThreadkeepSaver(site.client)
    with pytest.raises(errors.LeaseRequired):
        await plain.aput(config, checkpoint(), {"step": 0}, {"log": "1"})
    stored = await zombie.saver.aput(config, checkpoint(), {"step": 0}, {"log": "1"})
    successor = await _lease(site)
    assert successor.acquired.lease.epoch == 2
    before = await site.event_types(task)
    await zombie.saver.aput_writes(stored, [("log", ["late"])], "task")
    with pytest.raises(errors.LeaseLost):
        await zombie.saver.aput(stored, checkpoint(), {"step": 1}, {"log": "1"})
    # The first failed commit fails every later call.
    with pytest.raises(errors.LeaseLost):
        await zombie.saver.aput_writes(stored, [("log", ["later"])], "task")
    with pytest.raises(errors.LeaseLost):
        await zombie.saver.aget_tuple(config)
    assert await site.event_types(task) == before
    head = await successor.saver.aget_tuple(config)
    assert head is not None
    assert (head.config, head.pending_writes) == (stored, [])
    for bound in (zombie, successor):
        await bound.close()


@pytest.mark.rule("R10", "R20")
@ONE
async def test_a_question_waits_for_its_ticket_and_is_read_meanwhile(site: Any) -> None:
    task = await site.submit("steps")
    bound = await _lease(site)
    config: Any = {"configurable": {"thread_id": task.session_id, "checkpoint_ns": ""}}
    stored = await bound.saver.aput(config, empty_checkpoint(), {"step": 0}, {})
    await bound.saver.aput_writes(stored, [("__interrupt__", ["?"])], "task", "~p")
    await bound.saver.aput_writes(stored, [("log", ["done"])], "other", "~a")
    await eventually(lambda: _wrote(site, task, "done"))
    # Stored are the other task's writes alone; the saver itself sees both, in LangGraph's order.
    head = (await site.client.checkpoints.get(task.session_id)).checkpoint
    assert [one.channel for one in head.pending_writes] == ["log"]
    seen = await bound.saver.aget_tuple(config)
    assert seen is not None
    assert seen.pending_writes == [("other", "log", ["done"]), ("task", "__interrupt__", ["?"])]
    listed = [one async for one in bound.saver.alist(config)]
    assert [one.pending_writes for one in listed] == [seen.pending_writes]
    # A checkpoint of another namespace does not let it go; one of its own does.
    inner: Any = {"configurable": {"thread_id": task.session_id, "checkpoint_ns": "inner"}}
    await bound.saver.aput(inner, empty_checkpoint(), {"step": 0}, {})
    assert bound.saver.asks
    await bound.saver.aput(stored, empty_checkpoint(), {"step": 1}, {})
    assert not bound.saver.asks
    await bound.close()


@pytest.mark.rule("R10")
@BOTH
async def test_open_questions_without_a_ticket_get_tickets_before_any_node_runs(site: Any) -> None:
    """A worker of another make recorded a question, and stopped before it asked anybody."""
    task = await site.submit("questions")
    bound = await _lease(site)
    graph = GRAPHS["questions"](None).compile(checkpointer=bound.saver)
    config: Any = {"configurable": {"thread_id": task.session_id}, "metadata": {"run_id": task.run_id}}
    await graph.ainvoke({"log": []}, config, durability="sync")
    ops = [checkpoint_pb2.CheckpointOp(writes=one) for one in bound.queue.held()]
    commit = commit_pb2.ThreadCommit(session_id=task.session_id, lease=bound.acquired.lease, checkpoint_ops=ops)
    await site.client.threads.commit(commit)
    await site.client.worker.release(bound.acquired.lease)
    await bound.close()
    head = (await site.client.checkpoints.get(task.session_id)).checkpoint
    site.worker()
    (ticket,) = await site.asked(task)
    (asked,) = codec.from_writes(head.pending_writes, StrictSerializer())
    assert ticket.interrupt_id == asked[2][0].id
    now = (await site.client.checkpoints.get(task.session_id)).checkpoint
    # No node ran: the head and its writes are as they were.
    assert now == head
    await site.client.tickets.resolve(ticket.ticket_id, "late, but answered")
    (second,) = await site.asked(task)
    await site.client.tickets.resolve(second.ticket_id, 2)
    assert await site.completed(task) == {"log": ["late, but answered", 2]}


@pytest.mark.rule("X7", "R7")
@pytest.mark.suite(backends=["sqlite", "postgres"], topologies=["embedded"])
async def test_a_restart_of_the_suite_costs_a_run_nothing(
    suite: Suite, processes: Any, tmp_path: Any, monkeypatch: Any
) -> None:
    from tests.e2e.conftest import Site
    from tests.support.worker_graphs import Folder

    monkeypatch.setenv("FOLDER", str(tmp_path))
    site = Site(suite, Folder(tmp_path), processes)
    await site.agent("steps")
    site.folder.hold("b")
    site.worker()
    task = await site.submit("steps")
    await eventually(lambda: site.folder.has_entered("b"))
    await suite.restart(grace_seconds=0.2)
    site.folder.free("b")
    assert await site.completed(task) == {"log": ["a", "b", "c", "d"]}
    assert site.folder.effects() == ["a", "b", "c", "d"]
    assert (await site.client.runs.get(task.run_id)).state == run_pb2.RUN_STATE_ENDED
    await site.close()


@pytest.mark.rule("X3")
@ONE
async def test_a_lease_whose_answer_was_lost_is_given_by_the_replay(site: Any) -> None:
    task = await site.submit("steps")
    request_id, began = uuid.uuid4().hex, time.monotonic()
    first, again = [(await site.client.worker.acquire("w", wait=20, request_id=request_id)).acquired for _ in range(2)]
    assert first.lease == again.lease
    assert first.run.run_id == task.run_id
    assert time.monotonic() - began < 20
    await site.client.worker.release(first.lease)
