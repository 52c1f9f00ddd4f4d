"""Graphs of agents: a factory registered in the worker under the agent's name, or its manifest."""

from __future__ import annotations

import asyncio
import contextlib
import hashlib
import inspect
import time
from collections import OrderedDict
from collections.abc import AsyncIterator, Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

from langchain_core.language_models import BaseChatModel
from langchain_core.tools import BaseTool
from langgraph.pregel import Pregel

from threadkeep.worker.context import RunContext
from threadkeep.worker.entry_points import load_entry_point
from threadkeep.worker.errors import AgentBuildError
from threadkeep.worker.manifest import Manifest
from threadkeep.worker.middleware import build_middleware
from threadkeep.worker.models import build_model, check_endpoints, is_cut
from threadkeep.worker.policy import Policy
from threadkeep.worker.sandbox import Sandbox, build_sandbox
from threadkeep.worker.secrets import Secrets
from threadkeep.worker.skills import skills_prompt
from threadkeep.worker.subagents import delegate_tool
from threadkeep.worker.tools import build_tool, build_tools, reviews

__all__ = ["AgentBuild", "Agents", "BuiltAgent", "GraphFactory", "build_agent", "build_tool", "load_entry_point"]

CUT_RETRIES = 2
"""How often a model call that broke off is made again, where the provider says nothing."""
KEPT = 64
IDLE_SECONDS = 900.0


@dataclass(frozen=True)
class AgentBuild:
    """What a registered factory gets: the pinned manifest, and the parts that it may build from it."""

    manifest: Manifest
    model_name: str
    """The model that counts for this session; may be empty."""
    policy: Policy
    sandbox: Sandbox | None = None
    """Where the tools run, if the manifest has a sandbox profile."""
    models: list[BaseChatModel] = field(default_factory=list, repr=False)
    """The models that were built; the worker closes those that can be closed."""
    sandboxes: list[Sandbox] = field(default_factory=list, repr=False)
    """All sandboxes of the agent and of its sub-agents."""

    @property
    def secrets(self) -> Secrets:
        """Resolves references to secrets."""
        return self.policy.secrets

    def model(self) -> BaseChatModel:
        """The chat model of the manifest's provider. Raises AgentBuildError, SecretUnavailable."""
        if not self.manifest.provider:
            raise AgentBuildError(f"agent {self.manifest.name!r} names no provider")
        check_endpoints(self.manifest.provider, self.policy)
        model = build_model(self.manifest.provider, self.model_name, self.secrets)
        self.models.append(model)
        return model

    async def tools(self) -> list[BaseTool]:
        """The manifest's tools, in the agent's order; in its sandbox, if it has one. Raises AgentBuildError."""
        tools = await build_tools(self.manifest, self.policy)
        return tools if self.sandbox is None else [*self.sandbox.tools(tools)]

    async def subagents(self) -> dict[str, Any]:
        """The compiled graphs of the sub-agents, by name. Raises AgentBuildError, SecretUnavailable."""
        return {one.name: await build_agent(self.of(one)) for one in self.manifest.subagents}

    def of(self, manifest: Manifest) -> AgentBuild:
        """The same for a sub-agent."""
        manifest = filled(manifest, self.policy)
        sandbox = build_sandbox(manifest.sandbox_profile, self.policy) if manifest.sandbox_profile is not None else None
        if sandbox is not None:
            self.sandboxes.append(sandbox)
        return replace(self, manifest=manifest, model_name=manifest.model, sandbox=sandbox)


GraphFactory = Callable[[AgentBuild], Any]
"""Gives a compiled graph, or a StateGraph that is compiled here; it may be a coroutine. The worker binds the saver."""


@dataclass
class BuiltAgent:
    """A compiled graph, and what lives as long as it."""

    graph: Pregel
    models: Sequence[BaseChatModel] = ()
    sandboxes: Sequence[Sandbox] = ()
    users: int = 0
    """Runs that use it now."""
    used_at: float = 0.0

    @contextlib.asynccontextmanager
    async def running(self, context: RunContext) -> AsyncIterator[None]:
        """What is there while one run is at work: its sandboxes."""
        async with contextlib.AsyncExitStack() as stack:
            for sandbox in self.sandboxes:
                await stack.enter_async_context(sandbox.run(context))
            yield

    async def close(self) -> None:
        """Closes the connections of the models."""
        for model in self.models:
            close = getattr(model, "aclose", None)
            if close is not None:
                await close()


class Agents:
    """Builds graphs, and keeps them by manifest digest and model while they may be of use.

    A graph that no run uses goes after `idle_seconds`, or when more than `kept` are there; a task that comes later has
    it built again from its pinned manifest.
    """

    def __init__(
        self,
        graphs: Mapping[str, GraphFactory],
        policy: Policy,
        *,
        kept: int = KEPT,
        idle_seconds: float = IDLE_SECONDS,
    ) -> None:
        self._graphs, self._policy, self._kept, self._idle_seconds = dict(graphs), policy, kept, idle_seconds
        self._built: OrderedDict[tuple[str, str, str], BuiltAgent] = OrderedDict()
        self._looking: asyncio.Task[None] | None = None
        self._building: dict[tuple[str, str, str], asyncio.Lock] = {}

    def __len__(self) -> int:
        return len(self._built)

    @contextlib.asynccontextmanager
    async def lease(self, manifest: Manifest, model_override: str = "") -> AsyncIterator[BuiltAgent]:
        """The agent's graph, without a saver, while one run uses it. Raises AgentBuildError, SecretUnavailable."""
        built = await self._find(manifest, model_override)
        built.users += 1
        try:
            yield built
        finally:
            built.users -= 1
            built.used_at = time.monotonic()
            await self._drop_unused()
            self._look_later()

    async def close(self) -> None:
        """Closes the connections of the models that were built."""
        if self._looking is not None:
            self._looking.cancel()
            await asyncio.wait({self._looking})
        built = [*self._built.values()]
        self._built.clear()
        for one in built:
            await one.close()

    async def _find(self, manifest: Manifest, model_override: str) -> BuiltAgent:
        manifest = filled(manifest, self._policy)
        model_name = model_override or manifest.model
        key = (manifest.digest, model_name, self._secret_digest(manifest))
        # One that takes long to build, because its MCP server does not answer, holds up nobody but itself.
        lock = self._building.setdefault(key, asyncio.Lock())
        try:
            async with lock:
                built = self._built.get(key)
                if built is None:
                    built = self._built[key] = await self._build(manifest, model_name)
        finally:
            self._building.pop(key, None)
        self._built.move_to_end(key)
        built.used_at = time.monotonic()
        return built

    def _secret_digest(self, manifest: Manifest) -> str:
        """A rotated secret builds a new model: the key holds its digest, not its value."""
        digest = hashlib.sha256()
        for one in manifest.all():
            reference = one.provider.get("api_key_reference", "")
            value = self._policy.secrets.resolve(reference) if reference else ""
            digest.update(hashlib.sha256(value.encode()).digest())
        return digest.hexdigest()

    async def _build(self, manifest: Manifest, model_name: str) -> BuiltAgent:
        # Checked for every agent, whoever builds its graph: nothing runs outside of the sandbox that it is to run in.
        sandbox = (
            build_sandbox(manifest.sandbox_profile, self._policy) if manifest.sandbox_profile is not None else None
        )
        build = AgentBuild(manifest, model_name, self._policy, sandbox)
        if sandbox is not None:
            build.sandboxes.append(sandbox)
        factory = self._graphs.get(manifest.name, build_agent)
        try:
            graph = factory(build)
            if inspect.isawaitable(graph):
                graph = await graph
            return BuiltAgent(_checked(graph, manifest.name), build.models, build.sandboxes)
        except BaseException:
            await BuiltAgent(None, build.models).close()  # type: ignore[arg-type]
            raise

    def _look_later(self) -> None:
        """The last run's graph goes too, though no other run ends after it."""
        if self._built and (self._looking is None or self._looking.done()):
            self._looking = asyncio.create_task(self._look_until_none_is_idle(), name="idle graphs")

    async def _look_until_none_is_idle(self) -> None:
        while any(built.users == 0 for built in self._built.values()):
            await asyncio.sleep(self._idle_seconds + 0.01)
            await self._drop_unused()

    async def _drop_unused(self) -> None:
        now = time.monotonic()
        for key, built in [*self._built.items()]:
            is_spare = len(self._built) > self._kept or now - built.used_at >= self._idle_seconds
            if built.users == 0 and is_spare:
                del self._built[key]
                await built.close()


def filled(manifest: Manifest, policy: Policy) -> Manifest:
    """The manifest with the variables of its provider filled in. Raises AgentBuildError."""
    names = ("model", "endpoint", "region", "role")
    found = {name: policy.fill(manifest.provider[name]) for name in names if manifest.provider.get(name)}
    return replace(manifest, provider={**manifest.provider, **found})


def _checked(graph: Any, name: str) -> Pregel:
    if not isinstance(graph, Pregel) and callable(getattr(graph, "compile", None)):
        graph = graph.compile()
    if not isinstance(graph, Pregel):
        raise AgentBuildError(f"the factory of agent {name!r} gave no LangGraph graph")
    if graph.interrupt_before_nodes or graph.interrupt_after_nodes:
        raise AgentBuildError(
            f"the graph of agent {name!r} has static breakpoints, which have no answer; "
            "call interrupt() in a node instead"
        )
    return graph


async def build_agent(build: AgentBuild) -> Any:
    """LangChain's agent from a manifest: tools, skills, sub-agents, middleware, and what a person decides about.

    Raises AgentBuildError, SecretUnavailable.
    """
    from langchain.agents import create_agent
    from langchain.agents.middleware import HumanInTheLoopMiddleware, ModelRetryMiddleware

    manifest = build.manifest
    tools = await build.tools()
    if manifest.subagents:
        tools.append(delegate_tool(manifest.subagents, await build.subagents()))
    reviewed = reviews(manifest, tools)
    tries = int(manifest.provider.get("max_retries", CUT_RETRIES))
    prompt = [manifest.system_prompt, skills_prompt(manifest.skills) if manifest.skills else ""]
    schema = manifest.response_schema
    return create_agent(
        build.model(),
        tools,
        system_prompt="\n\n".join(part for part in prompt if part) or None,
        middleware=[
            *build_middleware(build, manifest.agent.get("middleware", ())),
            *_limits(manifest),
            # A provider's own client retries refusals, but not an answer that broke off in the middle.
            ModelRetryMiddleware(max_retries=tries, retry_on=is_cut, on_failure="error", initial_delay=0.2),
            *([HumanInTheLoopMiddleware(interrupt_on=reviewed)] if reviewed else []),
        ],
        response_format=dict(schema) if schema is not None else None,
        context_schema=RunContext,
        name=manifest.name,
    )


def _limits(manifest: Manifest) -> list[Any]:
    from langchain.agents.middleware import ModelCallLimitMiddleware, ToolCallLimitMiddleware

    made: list[Any] = []
    if "max_model_calls" in manifest.agent:
        made.append(ModelCallLimitMiddleware(run_limit=int(manifest.agent["max_model_calls"]), exit_behavior="error"))
    if "max_tool_calls" in manifest.agent:
        made.append(ToolCallLimitMiddleware(run_limit=int(manifest.agent["max_tool_calls"]), exit_behavior="error"))
    return made
