"""One trace from the application through client and services to the database (X15)."""

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

RUNTIME = "threadkeep.runtime.v1"


@pytest.mark.rule("X15", "X11")
def test_a_call_is_one_trace_from_the_client_through_services_to_the_database() -> None:
    done = subprocess.run(
        [sys.executable, "-m", "tests.support.traced"],
        cwd=Path(__file__).parents[2], capture_output=True, text=True, check=True, timeout=120,
    )  # fmt: skip
    seen = json.loads(done.stdout.splitlines()[-1])
    spans: list[dict[str, Any]] = seen["spans"]

    def trace_of(name: str) -> list[dict[str, Any]]:
        (root,) = [one for one in spans if one["name"] == name]
        return [one for one in spans if one["trace"] == root["trace"]]

    def below(trace: list[dict[str, Any]], parent: dict[str, Any]) -> dict[tuple[str, str], dict[str, Any]]:
        return {(one["kind"], one["name"]): one for one in trace if one["parent"] == parent["id"]}

    # The application's span, the client's call, the server's, and below it the peer that it asked and its database.
    trace = trace_of("submits")
    (root,) = [one for one in trace if one["name"] == "submits"]
    sent = below(trace, root)["CLIENT", f"{RUNTIME}.TaskService/SubmitTask"]
    served = below(trace, sent)["SERVER", f"{RUNTIME}.TaskService/SubmitTask"]
    found = below(trace, served)
    asked = found["SERVER", "threadkeep.config.v1.ConfigService/ResolveManifest"]
    assert any(kind == "CLIENT" and name.startswith("db.") for kind, name in below(trace, asked))
    written = found["CLIENT", "db.write"]
    assert written["attributes"] == {"db.system.name": "memory", "threadkeep.batch.commits": 1}

    # A refusal is an error of the client's, by its reason, and none of the server's.
    trace = trace_of("misses")
    (root,) = [one for one in trace if one["name"] == "misses"]
    missed = below(trace, root)["CLIENT", f"{RUNTIME}.TaskService/GetTask"]
    assert (missed["status"], missed["attributes"]["error.type"]) == ("ERROR", "TASK_NOT_FOUND")
    assert below(trace, missed)["SERVER", f"{RUNTIME}.TaskService/GetTask"]["status"] == "UNSET"

    # A stream is one span as long as it lasts, a blocking call like any other.
    for name, method in (("follows", "EventService/SubscribeEvents"), ("blocks", "TaskService/GetTask")):
        trace = trace_of(name)
        (root,) = [one for one in trace if one["name"] == name]
        assert ("SERVER", f"{RUNTIME}.{method}") in below(trace, below(trace, root)["CLIENT", f"{RUNTIME}.{method}"])

    # Logs name the traces; neither they nor the spans have values of scopes.
    calls = [line for line in seen["logs"] if line.get("event") == "call"]
    logged = {line["trace_id"] for line in calls if line["method"].endswith("/SubmitTask")}
    assert logged == {served["trace"]}
    assert "acme-corp" not in json.dumps(seen)
