"""References to secrets, resolved on the worker's side, while it holds a lease: `env:NAME`, `file:/path` (C8).

Values go into a model's client and nowhere else: no log, no error and no checkpoint carries them.
"""

from __future__ import annotations

import os
from collections.abc import Sequence
from pathlib import Path


class SecretUnavailable(RuntimeError):
    """A reference can't be resolved on this worker. Names the reference, never a value."""


class Secrets:
    """Resolves references. `allowed` lists those that this worker resolves (`env:OPENAI_API_KEY`, or
    `file:/run/secrets/` for all that begin so); None: every reference."""

    def __init__(self, allowed: Sequence[str] | None = None) -> None:
        self._allowed = None if allowed is None else tuple(allowed)

    def resolve(self, reference: str) -> str:
        """The value of a reference. Raises SecretUnavailable."""
        if self._allowed is not None and not any(_matches(reference, one) for one in self._allowed):
            raise SecretUnavailable(f"this worker may not resolve {reference!r}")
        kind, _, name = reference.partition(":")
        if kind == "env":
            value = os.environ.get(name)
            if not value:
                raise SecretUnavailable(f"the environment of this worker has no {name}")
            return value
        if kind == "file":
            try:
                return Path(name).read_text(encoding="utf-8").strip()
            except OSError as error:
                raise SecretUnavailable(f"{reference} can't be read: {error.strerror}") from None
        raise SecretUnavailable(f"{reference!r} is no reference; there are env:NAME and file:/path")


def _matches(reference: str, allowed: str) -> bool:
    if ".." in Path(reference).parts:
        return False
    return reference == allowed or (allowed.endswith("/") and reference.startswith(allowed))
