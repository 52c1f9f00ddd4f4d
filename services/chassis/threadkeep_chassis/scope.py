"""Scope, grant and the call's context: who calls, and in which scope the work is done (X1, X2, X13).

The values come from trusted metadata only, never from a request body. `interceptors` builds one Call per RPC;
servicers read it with `current_call()`.
"""

from __future__ import annotations

import asyncio
import re
import time
from collections.abc import Callable, Iterable, Mapping
from contextvars import ContextVar
from dataclasses import dataclass, field
from functools import cached_property, lru_cache
from types import MappingProxyType
from typing import Any

from threadkeep_chassis.canonical import JsonInvalid, canonical_json, parse_json, sha256_hex
from threadkeep_chassis.errors import FieldInvalid, ScopeForbidden, ScopeRequired

SCOPE_HEADER = "threadkeep-scope-bin"
GRANT_HEADER = "threadkeep-grant-bin"
SCOPE_TEXT_HEADER = "threadkeep-scope"
GRANT_TEXT_HEADER = "threadkeep-grant"
"""The same as JSON in ASCII, for clients of other protocols, which send text only."""
REPLAY_TRAILER = "threadkeep-replay"

MAX_SCOPE_KEYS = 8
MAX_SCOPE_VALUE_CHARACTERS = 256
MAX_GRANT_SCOPES = 256

_KEY = re.compile(r"[a-z][a-z0-9_]{0,31}\Z")
_CONTROL = re.compile("[\x00-\x1f\x7f-\x9f]")


@dataclass(frozen=True, eq=False)
class Scope:
    """One scope: up to 8 keys, each with a value of 1 to 256 characters. Equal scopes have equal keys."""

    values: Mapping[str, str]

    def __post_init__(self) -> None:
        check_scope_values(self.values, SCOPE_HEADER)
        object.__setattr__(self, "values", MappingProxyType(dict(sorted(self.values.items()))))

    @cached_property
    def canonical(self) -> bytes:
        """RFC 8785 JSON in UTF-8."""
        return canonical_json(dict(self.values))

    @cached_property
    def key(self) -> str:
        """The scope key: SHA-256, hexadecimal, of the canonical form. The only form of a scope that logs see."""
        return sha256_hex(self.canonical)

    @property
    def is_empty(self) -> bool:
        """True for the empty scope."""
        return not self.values

    def contains(self, other: Scope) -> bool:
        """True if `other` is this scope or a narrower one: it has all keys and values of this scope."""
        return all(other.values.get(key) == value for key, value in self.values.items())

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Scope) and dict(self.values) == dict(other.values)

    def __hash__(self) -> int:
        return hash(self.key)

    def __repr__(self) -> str:
        # Scope values stay out of logs and tracebacks (X11).
        return f"Scope(key={self.key[:12]})"


def check_scope_values(values: Mapping[str, Any], path: str) -> None:
    """Raises FieldInvalid, naming `path`, when the map is no legal scope."""
    if len(values) > MAX_SCOPE_KEYS:
        raise FieldInvalid(path, f"a scope has at most {MAX_SCOPE_KEYS} keys")
    for key, value in values.items():
        if not isinstance(key, str) or not _KEY.match(key):
            raise FieldInvalid(path, "scope keys match [a-z][a-z0-9_]{0,31}")
        if not isinstance(value, str) or not 1 <= len(value) <= MAX_SCOPE_VALUE_CHARACTERS:
            raise FieldInvalid(path, f"scope values have 1 to {MAX_SCOPE_VALUE_CHARACTERS} characters")
        if _CONTROL.search(value):
            raise FieldInvalid(path, "scope values have no control characters")


EMPTY_SCOPE = Scope({})


@dataclass(frozen=True)
class Grant:
    """What a caller may reach: every scope, or exactly the listed ones."""

    all: bool = False
    scopes: tuple[Scope, ...] = ()

    @classmethod
    def of(cls, scopes: Iterable[Scope]) -> Grant:
        """The grant of exactly these scopes."""
        return cls(scopes=tuple(scopes))

    def covers(self, scope: Scope) -> bool:
        """True if work in the scope is allowed. The empty scope needs the grant over all."""
        return self.all or (not scope.is_empty and scope.key in self._keys)

    @property
    def scope_keys(self) -> frozenset[str] | None:
        """The keys of the listed scopes (the empty one is never among them), or None for all."""
        return None if self.all else self._keys

    @cached_property
    def _keys(self) -> frozenset[str]:
        return frozenset(scope.key for scope in self.scopes if not scope.is_empty)

    @cached_property
    def key(self) -> str:
        """A SHA-256 that stands for the grant where a scope key is needed (receipts of calls without a scope)."""
        body = {"all": True} if self.all else {"scopes": sorted(self._keys)}
        return sha256_hex(b"grant\x00" + canonical_json(body))

    def encode(self) -> bytes:
        """The metadata's form."""
        return canonical_json({"all": True} if self.all else {"scopes": [dict(s.values) for s in self.scopes]})


ALL_SCOPES = Grant(all=True)


@lru_cache(maxsize=4096)
def parse_scope(header: bytes, name: str = SCOPE_HEADER) -> Scope:
    """Reads `threadkeep-scope-bin`, or what stands for it under another name. Raises FieldInvalid, which names it.

    The scopes of recent calls are remembered with their keys.
    """
    value = _parse(header, name)
    check_scope_values(value, name)
    return Scope(value)


@lru_cache(maxsize=256)
def parse_grant(header: bytes, name: str = GRANT_HEADER) -> Grant:
    """Reads `threadkeep-grant-bin`, or what stands for it: {"all":true} or {"scopes":[...]}. Raises FieldInvalid."""
    value = _parse(header, name)
    if value.get("all") is True and len(value) == 1:
        return ALL_SCOPES
    listed = value.get("scopes")
    if set(value) != {"scopes"} or not isinstance(listed, list):
        raise FieldInvalid(name, 'must be {"all":true} or {"scopes":[...]}')
    if not 1 <= len(listed) <= MAX_GRANT_SCOPES:
        raise FieldInvalid(name, f"lists 1 to {MAX_GRANT_SCOPES} scopes")
    scopes = []
    for entry in listed:
        if not isinstance(entry, dict):
            raise FieldInvalid(name, "each scope is a JSON object")
        check_scope_values(entry, name)
        scopes.append(Scope(entry))
    return Grant.of(scopes)


def _parse(header: bytes, name: str) -> dict[str, Any]:
    try:
        value = parse_json(header)
    except JsonInvalid as error:
        raise FieldInvalid(name, str(error)) from error
    if not isinstance(value, dict):
        raise FieldInvalid(name, "must be a JSON object")
    return value


@dataclass(frozen=True)
class Trace:
    """W3C trace context of the call: what goes into rows and on to peers."""

    trace_id: str
    traceparent: str
    tracestate: str = ""


NO_TRACE = Trace("", "")


class Drain:
    """Tells streams that the server is stopping. Set once, never cleared."""

    def __init__(self) -> None:
        self._event = asyncio.Event()
        self._callbacks: set[Callable[[], None]] = set()

    def begin(self) -> None:
        """Starts the drain."""
        self._event.set()
        for callback in list(self._callbacks):
            callback()

    def attach(self, callback: Callable[[], None]) -> None:
        """Calls `callback` when the drain begins, at once if it has."""
        self._callbacks.add(callback)
        if self._event.is_set():
            callback()

    def detach(self, callback: Callable[[], None]) -> None:
        """Forgets it."""
        self._callbacks.discard(callback)

    @property
    def is_set(self) -> bool:
        """True once the server is stopping."""
        return self._event.is_set()

    async def wait(self) -> None:
        """Returns when the server is stopping."""
        await self._event.wait()


@dataclass
class Call:
    """One RPC as its handler sees it."""

    method: str
    """Full name, such as `/threadkeep.runtime.v1.TaskService/SubmitTask`."""
    named_scope: Scope | None = None
    named_grant: Grant | None = None
    metadata: Mapping[str, str | bytes] = field(default_factory=dict)
    trace: Trace = NO_TRACE
    deadline: float | None = None
    """When the caller gives up, in `time.monotonic()` seconds; None if it never does."""
    draining: Drain = field(default_factory=Drain)
    trailing: dict[str, str] = field(default_factory=dict)

    @property
    def scope(self) -> Scope:
        """The one scope of the call. Raises ScopeRequired if it names none."""
        if self.named_scope is None:
            raise ScopeRequired()
        return self.named_scope

    @property
    def scope_key(self) -> str:
        """The key of the call's scope. Raises ScopeRequired."""
        return self.scope.key

    @property
    def reach(self) -> frozenset[str] | None:
        """The scope keys that this call reads from: its scope if it names one, else those of its grant; None is all.

        For methods of SCOPE_RULE_GRANT. Raises ScopeRequired if the call names neither.
        """
        if self.named_scope is not None:
            return frozenset((self.named_scope.key,))
        if self.named_grant is not None:
            return self.named_grant.scope_keys
        raise ScopeRequired()

    @property
    def receipt_key(self) -> str:
        """What receipts of this call are keyed by: the scope key, or for a call without scope the grant's key."""
        if self.named_scope is not None:
            return self.named_scope.key
        if self.named_grant is not None:
            return self.named_grant.key
        raise ScopeRequired()

    def check(self) -> None:
        """Raises ScopeForbidden if the named scope lies outside the grant; without a grant it is exactly the scope."""
        if self.named_scope is None:
            return
        if self.named_grant is None:
            if self.named_scope.is_empty:
                raise ScopeForbidden("The empty scope needs the grant over all scopes.")
            return
        if not self.named_grant.covers(self.named_scope):
            raise ScopeForbidden()

    @property
    def seconds_left(self) -> float | None:
        """Seconds until the caller gives up; None if it never does."""
        return None if self.deadline is None else max(0.0, self.deadline - time.monotonic())

    def mark_replay(self) -> None:
        """Marks the answer as a replay in the trailing metadata (X3)."""
        self.trailing[REPLAY_TRAILER] = "1"


_CALL: ContextVar[Call] = ContextVar("threadkeep_call")


def current_call() -> Call:
    """The call that this task serves. Raises LookupError outside of one (background loops have none)."""
    return _CALL.get()


def enter_call(call: Call) -> None:
    """Makes `call` the current one of this task. The interceptor does it; tests of servicers may."""
    _CALL.set(call)
