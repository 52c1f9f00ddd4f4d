"""Structured logs with trace ids (X15), without payloads and scope values (X11)."""

from __future__ import annotations

import logging
import sys
import traceback
from collections.abc import MutableMapping
from typing import Any

import structlog

from threadkeep_chassis.scope import current_call

_show_text = False


def configure_logs(level: str = "INFO", *, json: bool = True, exception_text: bool = False) -> None:
    """Sets up structlog for this process, to stderr. `exception_text` also logs what unexpected exceptions say."""
    global _show_text
    _show_text = exception_text
    renderer: Any = structlog.processors.JSONRenderer() if json else structlog.dev.ConsoleRenderer()
    structlog.configure(
        processors=[
            structlog.contextvars.merge_contextvars,
            _name_the_call,
            structlog.processors.add_log_level,
            structlog.processors.TimeStamper(fmt="iso", utc=True),
            renderer,
        ],
        wrapper_class=structlog.make_filtering_bound_logger(logging.getLevelNamesMapping()[level.upper()]),
        logger_factory=structlog.PrintLoggerFactory(sys.stderr),
        cache_logger_on_first_use=True,
    )


def _name_the_call(_: Any, __: str, event: MutableMapping[str, Any]) -> MutableMapping[str, Any]:
    """Adds the trace id and the scope key of the call that this task serves, if it serves one."""
    try:
        call = current_call()
    except LookupError:
        return event
    event.setdefault("trace_id", call.trace.trace_id)
    if call.named_scope is not None:
        event.setdefault("scope_key", call.named_scope.key)
    return event


def fault_facts(error: BaseException) -> dict[str, Any]:
    """What may be logged of an unexpected exception: types, SQLSTATE and the stack; its text only where allowed."""
    facts: dict[str, Any] = {"error": _chain(error)}
    state = getattr(getattr(error, "orig", error), "sqlstate", None)
    if state:
        facts["sqlstate"] = state
    frames = traceback.extract_tb(error.__traceback__)
    facts["frames"] = [f"{frame.filename}:{frame.lineno} {frame.name}" for frame in frames][-25:]
    if _show_text:
        facts["text"] = str(error)
    return facts


def _chain(error: BaseException) -> str:
    names: list[str] = []
    current: BaseException | None = error
    while current is not None and len(names) < 6:
        names.append(type(current).__name__)
        current = current.__cause__
    return " from ".join(names)
