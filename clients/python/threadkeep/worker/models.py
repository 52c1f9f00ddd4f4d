"""Chat models from provider definitions: `scripted`, `openai_compatible`, and what init_chat_model knows."""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from typing import Any

from langchain_core.exceptions import ModelConnectionError, ModelTimeoutError
from langchain_core.language_models import BaseChatModel

from threadkeep.worker.errors import AgentBuildError
from threadkeep.worker.policy import Policy
from threadkeep.worker.secrets import Secrets

NO_KEY = "not-needed"
"""What a compatible endpoint gets as key when its provider names none: the client insists on one."""


def build_model(provider: Mapping[str, Any], model: str, secrets: Secrets) -> BaseChatModel:
    """The chat model of a Provider definition (proto3 JSON). `model` may be empty: the provider's own counts then.

    Raises AgentBuildError, SecretUnavailable.
    """
    kind = provider.get("type", "")
    name = model or provider.get("model", "")
    options = _options(provider)
    if kind == "scripted":
        from threadkeep.worker.scripted import ScriptedChatModel

        return ScriptedChatModel(**{"model_name": name or "scripted", **options})
    if not name:
        raise AgentBuildError(f"neither the agent nor its provider ({kind}) names a model")
    settings = {**options, **_settings(provider)}
    reference = provider.get("api_key_reference", "")
    if reference:
        settings["api_key"] = secrets.resolve(reference)
    if kind == "openai_compatible":
        from threadkeep.worker.compatible import CompatibleChatModel

        # Compatible endpoints speak the chat completions API, whatever a model is called.
        return CompatibleChatModel.of(**{"model": name, "api_key": NO_KEY, "use_responses_api": False, **settings})
    from langchain.chat_models import init_chat_model

    try:
        return init_chat_model(name, model_provider=kind, **settings)
    except (ImportError, ValueError) as error:
        raise AgentBuildError(f"provider type {kind!r} can't be used on this worker: {error}") from error


def check_endpoints(provider: Mapping[str, Any], policy: Policy) -> None:
    """Raises AgentBuildError if the policy does not list where a Provider definition has its model called."""
    for url in ([provider["endpoint"]] if provider.get("endpoint") else []) + _addresses(_options(provider)):
        policy.check_endpoint(url)


_ADDRESS = re.compile(r"(url|uri|endpoint|host|proxy|proxies|api_base)$", re.IGNORECASE)
"""How the constructors of models call an address."""


def _addresses(options: Mapping[str, Any]) -> list[str]:
    """The addresses among options, on any level."""
    found = []
    for name, value in options.items():
        if isinstance(value, Mapping):
            if _ADDRESS.search(name):
                found += [one for one in value.values() if isinstance(one, str)]
            found += _addresses(value)
        elif isinstance(value, str) and value and _ADDRESS.search(name):
            found.append(value)
    return list(dict.fromkeys(found))


def is_cut(error: Exception) -> bool:
    """True if a model's answer broke off, or its endpoint was out of reach: the same call may succeed."""
    return isinstance(error, ModelConnectionError | ModelTimeoutError)


_REGION = {"bedrock": "region_name", "bedrock_converse": "region_name", "google_vertexai": "location"}
"""What the constructors of these types call a region."""


def _client_in_role(role: str, region: str | None) -> Any:
    """A client of the model service in a role, which it takes on again before that ends. Raises AgentBuildError."""
    try:
        import boto3
        from botocore.credentials import (
            AssumeRoleCredentialFetcher,
            DeferredRefreshableCredentials,
        )
        from botocore.session import get_session
    except ImportError as error:
        raise AgentBuildError("a provider's role needs boto3 on this worker") from error
    session = get_session()
    fetcher = AssumeRoleCredentialFetcher(
        session.create_client, session.get_credentials(), role, extra_args={"RoleSessionName": "threadkeep"}
    )
    session._credentials = DeferredRefreshableCredentials(fetcher.fetch_credentials, "assume-role")
    return boto3.Session(botocore_session=session).client("bedrock-runtime", region_name=region)


def _options(provider: Mapping[str, Any]) -> dict[str, Any]:
    text = provider.get("options_json", "")
    options = json.loads(text) if text else {}
    if not isinstance(options, dict):
        raise AgentBuildError("a provider's options are a JSON object")
    return options


def _settings(provider: Mapping[str, Any]) -> dict[str, Any]:
    settings: dict[str, Any] = {}
    if provider.get("endpoint"):
        settings["base_url"] = provider["endpoint"]
    if provider.get("region"):
        settings[_REGION.get(provider.get("type", ""), "region")] = provider["region"]
    if provider.get("role"):
        settings["client"] = _client_in_role(provider["role"], provider.get("region"))
    if "max_retries" in provider:
        settings["max_retries"] = int(provider["max_retries"])
    if "timeout" in provider:
        # A duration in proto3 JSON: "1.5s".
        settings["timeout"] = float(str(provider["timeout"]).removesuffix("s"))
    return settings
