"""Who calls, and with how much patience: scope, grant, timeout and retries of a client."""

from __future__ import annotations

import json
import random
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from typing import Literal

from threadkeep import errors
from threadkeep._errors import ThreadkeepError, Unavailable

SCOPE_KEY = "threadkeep-scope-bin"
GRANT_KEY = "threadkeep-grant-bin"
READER_KEY = "threadkeep-reader-bin"

Scope = Mapping[str, str]
Grant = Literal["all"] | Sequence[Scope]
Metadata = tuple[tuple[str, str | bytes], ...]


@dataclass(frozen=True)
class Reader:
    """Who reads artifacts: a reader of a session, the holder of a run's lease, or both."""

    session_id: str | None = None
    run_id: str | None = None
    epoch: int | None = None
    """The lease's; together with run_id."""

    @property
    def claims(self) -> Mapping[str, str | int]:
        """What is said, by name."""
        named = {"session_id": self.session_id, "run_id": self.run_id, "epoch": self.epoch}
        return {name: value for name, value in named.items() if value is not None}


@dataclass(frozen=True)
class CallContext:
    """The scope that calls work in, and the grant that they act under.

    `scope` None: calls that need one are refused by the server. `grant` None: exactly the scope; "all": the operator's
    grant, which the empty scope needs; else the listed scopes. `reader`: as whom artifacts are read.
    """

    scope: Scope | None = None
    grant: Grant | None = None
    reader: Reader | None = None

    @cached_property
    def metadata(self) -> Metadata:
        """Call metadata with the scope and the grant, each at most once."""
        return self._scope_named + self._grant_named + self._reader_named

    @cached_property
    def grant_metadata(self) -> Metadata:
        """Call metadata with the grant alone; with the scope where there is no grant to name."""
        return self._grant_named or self._scope_named

    @property
    def _scope_named(self) -> Metadata:
        return () if self.scope is None else ((SCOPE_KEY, _json(dict(self.scope))),)

    @property
    def _grant_named(self) -> Metadata:
        if self.grant is None:
            return ()
        value = {"all": True} if self.grant == "all" else {"scopes": [dict(scope) for scope in self.grant]}
        return ((GRANT_KEY, _json(value)),)

    @property
    def _reader_named(self) -> Metadata:
        return () if self.reader is None else ((READER_KEY, _json(self.reader.claims)),)


def _json(value: object) -> bytes:
    return json.dumps(value, ensure_ascii=False, separators=(",", ":")).encode()


RETRYABLE: tuple[type[ThreadkeepError], ...] = (
    errors.CommitUnknown,
    errors.Contention,
    errors.ShuttingDown,
    errors.DatabaseUnavailable,
    errors.PeerUnavailable,
    errors.ContentStoreUnavailable,
)


@dataclass(frozen=True)
class RetryPolicy:
    """How a call is tried again while its timeout lasts. Delays are in seconds, doubled each time, with full jitter."""

    first_delay: float = 0.05
    largest_delay: float = 2.0
    random: random.Random = field(default_factory=random.Random, compare=False)

    def retries(self, error: ThreadkeepError) -> bool:
        """True if the same request may succeed when it is sent again. Mutations are idempotent by request_id."""
        if isinstance(error, RETRYABLE):
            return True
        # No reason of ours: the connection broke, or nobody listens yet.
        return not error.reason and (isinstance(error, Unavailable) or "RST_STREAM" in error.message)

    def delay(self, attempt: int, error: ThreadkeepError) -> float:
        """Seconds to wait after failed attempt number `attempt` (from 1), never less than the server asked for."""
        ceiling = min(self.largest_delay, self.first_delay * 2 ** min(attempt - 1, 16))
        return (error.retry_after or 0.0) + self.random.uniform(ceiling / 4, ceiling)


@dataclass(frozen=True)
class CallOptions:
    """How long a logical call may take, retries included, and how it is retried. `timeout` is in seconds."""

    timeout: float = 30.0
    retry: RetryPolicy | None = field(default_factory=RetryPolicy)
