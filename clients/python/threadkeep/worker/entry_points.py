"""Code that definitions name: imported from modules that the worker lists, and from nowhere else."""

from __future__ import annotations

import importlib
from collections.abc import Sequence
from typing import Any

from threadkeep.worker.errors import AgentBuildError


def load_entry_point(entry_point: str, allowed_modules: Sequence[str], setting: str = "tool_modules") -> Any:
    """The object that `package.module:attribute` names. Only modules that the worker allows are imported: those named,
    and those inside them. Raises AgentBuildError."""
    module_name, _, attribute = entry_point.partition(":")
    if not module_name or not attribute:
        raise AgentBuildError(f"{entry_point!r} is no entry point; write package.module:attribute")
    if not any(module_name == one or module_name.startswith(f"{one}.") for one in allowed_modules):
        raise AgentBuildError(f"this worker does not import {module_name!r}; allow it in its {setting}")
    try:
        found: Any = importlib.import_module(module_name)
        for part in attribute.split("."):
            found = getattr(found, part)
    except (ImportError, AttributeError) as error:
        raise AgentBuildError(f"{entry_point} can't be loaded: {error}") from error
    return found
