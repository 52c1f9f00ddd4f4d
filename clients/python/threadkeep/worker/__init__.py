"""Workers: they lease runs, run their agents' graphs on LangGraph, and commit every superstep.

`python -m threadkeep.worker` is one as a process of its own.
"""

from threadkeep.worker.agents import AgentBuild, GraphFactory, build_agent
from threadkeep.worker.context import RunArtifacts, RunContext, current_run
from threadkeep.worker.errors import AgentBuildError, NoRunContext
from threadkeep.worker.execution import ExecutionSettings
from threadkeep.worker.manifest import Manifest, ToolSpec
from threadkeep.worker.middleware import MiddlewareFactory, builtin_middleware
from threadkeep.worker.policy import Policy
from threadkeep.worker.sandbox import Sandbox, SandboxFactory, SandboxProfile
from threadkeep.worker.secrets import SecretUnavailable
from threadkeep.worker.worker import Worker

__all__ = [
    "AgentBuild",
    "AgentBuildError",
    "ExecutionSettings",
    "GraphFactory",
    "Manifest",
    "MiddlewareFactory",
    "NoRunContext",
    "Policy",
    "RunArtifacts",
    "RunContext",
    "Sandbox",
    "SandboxFactory",
    "SandboxProfile",
    "SecretUnavailable",
    "ToolSpec",
    "Worker",
    "build_agent",
    "builtin_middleware",
    "current_run",
]
