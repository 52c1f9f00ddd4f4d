"""What goes wrong in a worker, beside what the services answer."""

from __future__ import annotations

from langchain_core.exceptions import ModelConnectionError


class AgentBuildError(RuntimeError):
    """The agent can't be built on this worker: a tool, a provider or a graph is missing or not allowed."""


class StreamCut(ModelConnectionError):
    """A model's answer broke off. Nothing of it counts; the call is made again."""


class NoRunContext(RuntimeError):
    """The code does not run inside a run of a worker. There is no anonymous default."""
