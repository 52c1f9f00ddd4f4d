"""The chain of commits: the shared vectors, and what a digest depends on (R17)."""

import hashlib
import json
from pathlib import Path
from typing import Any

import pytest

from tests.support.one_thread import OneThread, event, put
from threadkeep_chassis.canonical import canonical_json
from threadkeep_chassis.scope import Scope
from threadkeep_runtime.domain import chain
from threadkeep_runtime.domain.values import Event, Payload, Trace

VECTORS: dict[str, Any] = json.loads(
    (Path(__file__).resolve().parents[3] / "clients/vectors/commit_chain.json").read_text("utf-8")
)


@pytest.mark.rule("R17")
def test_the_vectors_hold_with_nothing_but_canonical_json_and_sha256() -> None:
    """What any language's client does."""
    assert Scope(VECTORS["scope"]).key == VECTORS["scope_key"]
    start = canonical_json([VECTORS["version"], VECTORS["scope_key"], VECTORS["session_id"]])
    previous = hashlib.sha256(start).digest()
    assert previous.hex() == VECTORS["genesis"]
    hashes = []
    for commit in VECTORS["commits"]:
        assert canonical_json(json.loads(commit["canonical"])).decode() == commit["canonical"]
        previous = hashlib.sha256(previous + commit["canonical"].encode()).digest()
        assert previous.hex() == commit["digest"]
        hashes += [part[2] for part in json.loads(commit["canonical"])[-1]]
    assert hashes == [part["sha256"] for part in VECTORS["parts"]]
    for part in VECTORS["parts"]:
        assert hashlib.sha256(canonical_json(part["fields"])).hexdigest() == part["sha256"]
        if part["content"] is not None:
            digest = hashlib.sha256(part["content"].encode()).hexdigest()
            assert digest in json.dumps(part["fields"])


@pytest.mark.rule("R17")
def test_our_encoder_makes_the_vectors() -> None:
    assert chain.genesis(VECTORS["scope_key"], VECTORS["session_id"]).hex() == VECTORS["genesis"]
    payload = Payload("application/json", b'{"n":1}', {"b": "2", "a": "1"})
    one = Event("e-1", True, "order.placed", 2, "r-1", "t-1", payload, 1, "cause", None)
    trace = Trace("00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01", "")
    assert chain.event_hash(one, trace) == VECTORS["parts"][0]["sha256"]


@pytest.mark.rule("R17")
def test_the_same_commit_in_another_history_has_another_digest() -> None:
    one, other = OneThread(), OneThread()
    for thread in (one, other):
        thread.commit(ops=(put("000001"),))
    assert one.thread is not None
    assert other.thread is not None
    assert one.thread.digest == other.thread.digest
    one.commit(events=(event("e", type="a"),))
    other.commit(events=(event("e", type="b"),))
    assert one.thread.digest != other.thread.digest
    for thread in (one, other):
        thread.commit(events=(event("f"),))
    assert one.thread.digest != other.thread.digest
