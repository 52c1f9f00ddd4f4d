"""Middleware of agents, by name or entry point, from the worker's allow-list alone."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any

from threadkeep.worker.entry_points import load_entry_point
from threadkeep.worker.errors import AgentBuildError

if TYPE_CHECKING:
    from threadkeep.worker.agents import AgentBuild

MiddlewareFactory = Callable[["AgentBuild", Mapping[str, Any]], Any]
"""Gives an AgentMiddleware for an agent and the options of its definition."""


def build_middleware(build: AgentBuild, definitions: Sequence[Mapping[str, Any]]) -> list[Any]:
    """The middleware of a definition, the outermost first. Raises AgentBuildError."""
    return [_one(build, one) for one in definitions]


def _one(build: AgentBuild, definition: Mapping[str, Any]) -> Any:
    from langchain.agents.middleware import AgentMiddleware

    text = definition.get("options_json", "")
    options = json.loads(text) if text else {}
    name = definition.get("name") or definition.get("entry_point", "")
    if "name" in definition:
        factory = build.policy.middleware.get(name)
        if factory is None:
            raise AgentBuildError(f"this worker has no middleware {name!r}; allow it in its middleware")
        arguments: tuple[tuple[Any, ...], Mapping[str, Any]] = ((build, options), {})
    else:
        factory = load_entry_point(name, build.policy.middleware_modules, "middleware_modules")
        arguments = ((), options)
    try:
        made = factory(*arguments[0], **arguments[1])
    except (TypeError, ValueError) as error:
        raise AgentBuildError(f"middleware {name!r} does not take its options: {error}") from error
    if not isinstance(made, AgentMiddleware):
        raise AgentBuildError(f"middleware {name!r} is no AgentMiddleware")
    return made


def builtin_middleware(*names: str) -> dict[str, MiddlewareFactory]:
    """LangChain's own middleware under our names, for `Worker(middleware=...)`; without names all of them.

    Options are the arguments of their constructors. Raises ValueError for a name that there is not.
    """
    unknown = [name for name in names if name not in _BUILTIN]
    if unknown:
        raise ValueError(f"there is no middleware {', '.join(unknown)}; there are {', '.join(_BUILTIN)}")
    return {name: _BUILTIN[name] for name in names or _BUILTIN}


def _of(class_name: str, *, takes_model: bool = False) -> MiddlewareFactory:
    def factory(build: AgentBuild, options: Mapping[str, Any]) -> Any:
        from langchain.agents import middleware

        model = {"model": build.model()} if takes_model else {}
        return getattr(middleware, class_name)(**model, **options)

    return factory


_BUILTIN: dict[str, MiddlewareFactory] = {
    "context_editing": _of("ContextEditingMiddleware"),
    "model_call_limit": _of("ModelCallLimitMiddleware"),
    "model_retry": _of("ModelRetryMiddleware"),
    "pii": _of("PIIMiddleware"),
    "summarization": _of("SummarizationMiddleware", takes_model=True),
    "todo": _of("TodoListMiddleware"),
    "tool_call_limit": _of("ToolCallLimitMiddleware"),
    "tool_retry": _of("ToolRetryMiddleware"),
    "tool_selection": _of("LLMToolSelectorMiddleware", takes_model=True),
}
