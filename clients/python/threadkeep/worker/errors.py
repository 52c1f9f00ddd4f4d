"""What goes wrong in a worker, beside what the services answer."""

from __future__ import annotations


class AgentBuildError(RuntimeError):
    """The agent can't be built on this worker: a tool, a provider or a graph is missing or not allowed."""


class NoRunContext(RuntimeError):
    """The code does not run inside a run of a worker. There is no anonymous default."""
