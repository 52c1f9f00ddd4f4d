"""Graphs of agents: a factory registered in the worker under the agent's name, or its manifest."""

from __future__ import annotations

import hashlib
import importlib
from collections import OrderedDict
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from langchain_core.language_models import BaseChatModel
from langchain_core.tools import BaseTool, StructuredTool
from langgraph.pregel import Pregel

from threadkeep.worker.context import RunContext
from threadkeep.worker.errors import AgentBuildError
from threadkeep.worker.manifest import Manifest, ToolSpec
from threadkeep.worker.models import build_model, is_cut
from threadkeep.worker.secrets import Secrets


@dataclass(frozen=True)
class AgentBuild:
    """What a registered factory gets: the pinned manifest, and the parts that it may build from it."""

    manifest: Manifest
    model_name: str
    """The model that counts for this session; may be empty."""
    secrets: Secrets = field(repr=False)
    tool_modules: Sequence[str] = ()

    models: list[BaseChatModel] = field(default_factory=list, repr=False)
    """The models that were built; the worker closes those that can be closed."""

    def model(self) -> BaseChatModel:
        """The chat model of the manifest's provider. Raises AgentBuildError, SecretUnavailable."""
        if not self.manifest.provider:
            raise AgentBuildError(f"agent {self.manifest.name!r} names no provider")
        model = build_model(self.manifest.provider, self.model_name, self.secrets)
        self.models.append(model)
        return model

    def tools(self) -> list[BaseTool]:
        """The manifest's tools, in the agent's order. Raises AgentBuildError."""
        return [build_tool(spec, self.tool_modules) for spec in self.manifest.tools]


CUT_RETRIES = 2
"""How often a model call that broke off is made again, where the provider says nothing."""

GraphFactory = Callable[[AgentBuild], Any]
"""Gives a compiled graph, or a StateGraph that is compiled here. The worker binds the saver."""


class Agents:
    """Builds graphs and keeps the last ones, by manifest digest and model."""

    def __init__(
        self,
        graphs: Mapping[str, GraphFactory],
        tool_modules: Sequence[str],
        secrets: Secrets,
        kept: int = 64,
    ) -> None:
        self._graphs, self._tool_modules, self._secrets, self._kept = dict(graphs), tuple(tool_modules), secrets, kept
        self._built: OrderedDict[tuple[str, str, str], Pregel] = OrderedDict()
        self._models: list[BaseChatModel] = []

    def graph(self, manifest: Manifest, model_override: str = "") -> Pregel:
        """The graph of an agent, without a saver. Raises AgentBuildError, SecretUnavailable."""
        model_name = model_override or manifest.model
        # A rotated secret builds a new model; the key holds its digest, not its value.
        reference = manifest.provider.get("api_key_reference", "")
        secret = hashlib.sha256(self._secrets.resolve(reference).encode()).hexdigest() if reference else ""
        key = (manifest.digest, model_name, secret)
        graph = self._built.get(key)
        if graph is None:
            build = AgentBuild(manifest, model_name, self._secrets, self._tool_modules)
            graph = self._built[key] = self._build(build)
            self._models += build.models
        self._built.move_to_end(key)
        while len(self._built) > self._kept:
            self._built.popitem(last=False)
        return graph

    async def close(self) -> None:
        """Closes the connections of the models that were built."""
        models, self._models = self._models, []
        self._built.clear()
        for model in models:
            close = getattr(model, "aclose", None)
            if close is not None:
                await close()

    def _build(self, build: AgentBuild) -> Pregel:
        factory = self._graphs.get(build.manifest.name, build_agent)
        graph = factory(build)
        if not isinstance(graph, Pregel) and callable(getattr(graph, "compile", None)):
            graph = graph.compile()
        if not isinstance(graph, Pregel):
            raise AgentBuildError(f"the factory of agent {build.manifest.name!r} gave no LangGraph graph")
        if graph.interrupt_before_nodes or graph.interrupt_after_nodes:
            raise AgentBuildError(
                f"the graph of agent {build.manifest.name!r} has static breakpoints, which have no answer; "
                "call interrupt() in a node instead"
            )
        return graph


def build_agent(build: AgentBuild) -> Any:
    """LangChain's agent from a manifest. Tools that need approval ask a person before each call."""
    _refuse_what_is_not_built(build.manifest)
    from langchain.agents import create_agent
    from langchain.agents.middleware import HumanInTheLoopMiddleware, ModelRetryMiddleware

    reviewed: dict[str, Any] = {
        spec.name: {"allowed_decisions": ["approve", "edit", "reject"]}
        for spec in build.manifest.tools
        if spec.approval_required
    }
    tries = int(build.manifest.provider.get("max_retries", CUT_RETRIES))
    # A provider's own client retries refusals, but not an answer that broke off in the middle.
    retry = ModelRetryMiddleware(max_retries=tries, retry_on=is_cut, on_failure="error", initial_delay=0.2)
    return create_agent(
        build.model(),
        build.tools(),
        system_prompt=build.manifest.system_prompt or None,
        middleware=[retry, *([HumanInTheLoopMiddleware(interrupt_on=reviewed)] if reviewed else [])],
        context_schema=RunContext,
        name=build.manifest.name,
    )


_NOT_BUILT = ("middleware", "response_schema_json", "interrupt_rules", "max_model_calls", "max_tool_calls")


def _refuse_what_is_not_built(manifest: Manifest) -> None:
    """An agent is built as its definition says, or not at all."""
    found = sorted({*manifest.others, *(name for name in _NOT_BUILT if name in manifest.agent)})
    found += [name for name in ("region", "role") if name in manifest.provider]
    found += [f"the tool {spec.name}" for spec in manifest.tools if not spec.entry_point]
    if found:
        raise AgentBuildError(f"this worker can't build {', '.join(found)}; register a graph for {manifest.name!r}")


def build_tool(spec: ToolSpec, allowed_modules: Sequence[str]) -> BaseTool:
    """LangChain's tool of a specification: name, description and arguments as config says. Raises AgentBuildError."""
    implementation = load_entry_point(spec.entry_point, allowed_modules)
    if isinstance(implementation, BaseTool):
        changed: dict[str, Any] = {"name": spec.name}
        if spec.description:
            changed["description"] = spec.description
        if spec.args_schema is not None:
            changed["args_schema"] = dict(spec.args_schema)
        return implementation.model_copy(update=changed)
    if not callable(implementation):
        raise AgentBuildError(f"{spec.entry_point} is neither a tool nor callable")
    import inspect

    target = implementation if inspect.isroutine(implementation) else type(implementation).__call__
    kind = "coroutine" if inspect.iscoroutinefunction(target) else "func"
    arguments: dict[str, Any] = {kind: implementation}
    if spec.args_schema is not None:
        arguments["args_schema"] = dict(spec.args_schema)
    description = spec.description or inspect.getdoc(implementation) or spec.name
    return StructuredTool.from_function(name=spec.name, description=description, **arguments)


def load_entry_point(entry_point: str, allowed_modules: Sequence[str]) -> Any:
    """The object that `package.module:attribute` names. Only modules that the worker allows are imported: those named,
    and those inside them. Raises AgentBuildError."""
    module_name, _, attribute = entry_point.partition(":")
    if not module_name or not attribute:
        raise AgentBuildError(f"{entry_point!r} is no entry point; write package.module:attribute")
    if not any(module_name == one or module_name.startswith(f"{one}.") for one in allowed_modules):
        raise AgentBuildError(f"this worker does not import {module_name!r}; allow it in its tool_modules")
    try:
        found: Any = importlib.import_module(module_name)
        for part in attribute.split("."):
            found = getattr(found, part)
    except (ImportError, AttributeError) as error:
        raise AgentBuildError(f"{entry_point} can't be loaded: {error}") from error
    return found
