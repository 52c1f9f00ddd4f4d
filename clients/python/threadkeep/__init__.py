"""threadkeep's Python client: `Client` and `AsyncClient` for all four services, typed errors in `errors`.

`threadkeep.langgraph` is the checkpoint saver, `threadkeep.worker` runs agents. Generated stubs live in
threadkeep.<service>.v1. Names load when they are first used, so that importing stubs costs nothing else.
"""

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from threadkeep._rpc.context import CallOptions, RetryPolicy
    from threadkeep.client import AsyncClient, Client
    from threadkeep.errors import ThreadkeepError

__all__ = ["AsyncClient", "CallOptions", "Client", "RetryPolicy", "ThreadkeepError"]

_HOMES = {
    "AsyncClient": "threadkeep.client",
    "CallOptions": "threadkeep._rpc.context",
    "Client": "threadkeep.client",
    "RetryPolicy": "threadkeep._rpc.context",
    "ThreadkeepError": "threadkeep.errors",
}


def __getattr__(name: str) -> Any:
    if name not in _HOMES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    import importlib

    value = globals()[name] = getattr(importlib.import_module(_HOMES[name]), name)
    return value


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})
