"""What a worker lets definitions do: which code it imports, whom it calls, what it starts. Nothing else."""

from __future__ import annotations

import os
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any
from urllib.parse import urlsplit

from threadkeep.worker.errors import AgentBuildError
from threadkeep.worker.secrets import Secrets

if TYPE_CHECKING:
    from threadkeep.worker.middleware import MiddlewareFactory
    from threadkeep.worker.sandbox import SandboxFactory

_VARIABLE = re.compile(r"\$(?:\$\{|\{(?P<name>[A-Za-z_][A-Za-z0-9_]{0,254})(?::-(?P<default>[^}]*))?\})")
ANY = "*"


@dataclass(frozen=True)
class Policy:
    """The worker's allow-lists. Definitions come from whoever may write config: what is not listed fails the run."""

    tool_modules: Sequence[str] = ()
    """Python modules that tools may come from, with the modules inside them."""
    middleware: Mapping[str, MiddlewareFactory] = field(default_factory=dict)
    """Middleware by name; `builtin_middleware(...)` has LangChain's own."""
    middleware_modules: Sequence[str] = ()
    """Python modules that middleware may come from, with the modules inside them."""
    http_origins: Sequence[str] = ()
    """Origins that HTTP tools and MCP servers may be at, such as `https://api.example:8443`; `*` for every one."""
    provider_origins: Sequence[str] = ()
    """Origins that providers' endpoints may be at; `*` for every one. A provider without an endpoint needs none."""
    mcp_commands: Sequence[str] = ()
    """Commands that MCP servers may be started with, word for word."""
    variables: Sequence[str] = ()
    """Environment variables that `${NAME}` in definitions may read; `*` for every one."""
    sandboxes: Mapping[str, SandboxFactory] = field(default_factory=dict)
    """Factories of sandboxes by the kind of their profiles."""
    secrets: Secrets = field(default_factory=Secrets, repr=False)

    def check_origin(self, url: str) -> None:
        """Raises AgentBuildError unless the URL's origin is listed."""
        _check_listed(url, self.http_origins, "http_origins")

    def check_endpoint(self, url: str) -> None:
        """Raises AgentBuildError unless the origin of a provider's endpoint is listed."""
        _check_listed(url, self.provider_origins, "provider_origins")

    def fill(self, text: str) -> str:
        """The text with `${NAME}` and `${NAME:-default}` filled in; `$${` is `${`. Raises AgentBuildError."""

        def filled(found: re.Match[str]) -> str:
            name = found["name"]
            if name is None:
                return "${"
            if name not in self.variables and ANY not in self.variables:
                raise AgentBuildError(f"this worker does not fill in {name}; allow it in its variables")
            value = os.environ.get(name) or found["default"]
            if value is None:
                raise AgentBuildError(f"the environment of this worker has no {name}, and there is no default")
            return value

        return _VARIABLE.sub(filled, text)

    def fill_all(self, texts: Mapping[str, str]) -> dict[str, str]:
        """The same of the values of a map."""
        return {name: self.fill(text) for name, text in texts.items()}

    def headers(self, part: Mapping[str, Any]) -> dict[str, str]:
        """The headers of an endpoint or MCP server, secrets resolved. Raises AgentBuildError, SecretUnavailable."""
        found = self.fill_all(part.get("headers", {}))
        for name, reference in part.get("header_references", {}).items():
            found[name] = self.secrets.resolve(reference)
        if part.get("bearer_token_reference"):
            found["Authorization"] = f"Bearer {self.secrets.resolve(part['bearer_token_reference'])}"
        return found


def _check_listed(url: str, origins: Sequence[str], setting: str) -> None:
    if ANY in origins or origin_of(url) in {origin_of(one) for one in origins}:
        return
    raise AgentBuildError(f"this worker does not call {origin_of(url)}; allow it in its {setting}")


def origin_of(url: str) -> str:
    """Scheme, host and port of a URL, the usual port left out. Raises AgentBuildError."""
    try:
        parts = urlsplit(url)
        port = parts.port
    except ValueError:
        raise AgentBuildError("a definition holds a URL that is none once its variables are filled in") from None
    if parts.scheme not in ("http", "https") or not parts.hostname or parts.username is not None:
        raise AgentBuildError(
            "a definition holds a URL that is not plain http or https once its variables are filled in"
        )
    host = f"[{parts.hostname}]" if ":" in parts.hostname else parts.hostname
    usual = {"http": 80, "https": 443}[parts.scheme]
    return f"{parts.scheme}://{host}" + (f":{port}" if port not in (None, usual) else "")


def seconds(part: Mapping[str, Any], default: float) -> float:
    """The `timeout` of a definition in seconds."""
    return float(str(part["timeout"]).removesuffix("s")) if "timeout" in part else default
