"""Sandboxes: where an agent's tools run. A worker has a factory per kind of profile, or it does not run such agents."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from contextlib import AbstractAsyncContextManager
from dataclasses import dataclass
from typing import Any, Protocol

from langchain_core.tools import BaseTool

from threadkeep.worker.context import RunContext
from threadkeep.worker.errors import AgentBuildError
from threadkeep.worker.policy import Policy


@dataclass(frozen=True)
class SandboxProfile:
    """A SandboxProfile as a worker's factory gets it, variables filled in."""

    name: str
    kind: str
    image: str
    allowed_hosts: Sequence[str]
    cpus: float | None
    memory_bytes: int | None
    lifetime_seconds: float | None
    environment: Mapping[str, str]
    options_json: str
    """More options; a JSON object, or empty."""


class Sandbox(Protocol):
    """What a factory gives. Runs share graphs; what a run needs for itself lies between the ends of `run`."""

    def tools(self, tools: Sequence[BaseTool]) -> Sequence[BaseTool]:
        """The agent's tools as they run in the sandbox: it may wrap them, leave some out, and add its own.

        A tool finds its run with `current_run()`.
        """

    def run(self, context: RunContext) -> AbstractAsyncContextManager[None]:
        """What is there while one run is at work."""


SandboxFactory = Callable[[SandboxProfile], Sandbox]


def build_sandbox(part: Mapping[str, Any], policy: Policy) -> Sandbox:
    """The sandbox of a manifest's part. Raises AgentBuildError where the worker has no factory for its kind."""
    body = part["definition"]["sandbox_profile"]
    kind = body.get("kind", "")
    factory = policy.sandboxes.get(kind)
    if factory is None:
        raise AgentBuildError(f"this worker has no sandbox of kind {kind!r}, and runs nothing outside of one")
    return factory(
        SandboxProfile(
            name=part["name"],
            kind=kind,
            image=policy.fill(body.get("image", "")),
            allowed_hosts=tuple(body.get("allowed_hosts", ())),
            cpus=body.get("cpus"),
            memory_bytes=int(body["memory_bytes"]) if "memory_bytes" in body else None,
            lifetime_seconds=float(body["lifetime"].removesuffix("s")) if "lifetime" in body else None,
            environment=policy.fill_all(body.get("environment", {})),
            options_json=body.get("options_json", ""),
        )
    )
