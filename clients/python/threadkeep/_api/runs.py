"""Runs."""

from __future__ import annotations

from collections.abc import Sequence

from threadkeep._api.values import given
from threadkeep._rpc.method import Call, PagedCall, method, whole
from threadkeep.runtime.v1 import run_pb2, run_service_pb2
from threadkeep.runtime.v1.run_pb2 import Run

_GET = method(run_service_pb2, "RunService", "GetRun")
_LIST = method(run_service_pb2, "RunService", "ListRuns")


def get(run_id: str) -> Call[Run]:
    """Reads a run. Raises RunNotFound."""
    return Call(_GET, run_service_pb2.GetRunRequest(run_id=run_id), lambda response: response.run)


def list(
    *,
    session_id: str | None = None,
    task_id: str | None = None,
    states: Sequence[run_pb2.RunState.ValueType] = (),
    page_size: int = 0,
) -> PagedCall[Run]:
    """Runs of the scope, newest first."""
    request = run_service_pb2.ListRunsRequest(
        page_size=page_size, states=states, **given(session_id=session_id, task_id=task_id)
    )
    return PagedCall(Call(_LIST, request, whole), lambda page: page.runs)
