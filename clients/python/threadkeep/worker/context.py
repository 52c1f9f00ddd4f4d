"""What a tool or node knows about the run that it works for: scope, ids, and artifacts of its run.

@tool
def save(text: str) -> str:
    return current_run().artifacts.save("notes.txt", text).artifact_id
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from threadkeep.worker.artifacts import RunArtifacts
from threadkeep.worker.errors import NoRunContext

__all__ = ["RunArtifacts", "RunContext", "current_run"]


@dataclass(frozen=True)
class RunContext:
    """The run that code works for. LangGraph's runtime carries it: `runtime.context`, or `current_run()`."""

    scope: Mapping[str, str]
    session_id: str
    task_id: str
    run_id: str
    epoch: int
    """The lease's epoch. It grows with every lease of the run."""
    agent_name: str
    manifest_digest: str
    artifacts: RunArtifacts = field(repr=False, compare=False)


def current_run() -> RunContext:
    """The run that the calling tool or node works for. Raises NoRunContext outside of one."""
    from langgraph.runtime import get_runtime

    try:
        runtime = get_runtime(RunContext)
    except RuntimeError:
        raise NoRunContext("current_run() was called outside of a graph") from None
    context = getattr(runtime, "context", None)
    if not isinstance(context, RunContext):
        raise NoRunContext("the graph was not started by a threadkeep worker")
    return context
