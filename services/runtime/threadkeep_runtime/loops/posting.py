"""Posts messages to webhooks (R16): one request, signed, without redirects, proxies or cookies.

Where a name leads is judged on the addresses that are connected to, in the same step: a name that resolves to
something else a moment later gains nothing (B91).
"""

from __future__ import annotations

import asyncio
import ipaddress
import os
import socket
import ssl
import time
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any

import httpcore

from threadkeep_runtime.domain.outbox import OutboxMessage
from threadkeep_runtime.domain.webhooks import WebhookRules, secret_bytes, sign
from threadkeep_runtime.store.relay import DEAD, DELIVERED, PENDING, Settlement

CONNECT_SECONDS = 5.0
MAX_ANSWER_BYTES = 64 * 1024
"""What is read of an answer, so that its connection can be used again; a longer one costs the connection."""


class TargetForbidden(Exception):
    """The name leads to an address that is not allowed."""


class _SecretUnknown(Exception):
    pass


class _Checked(httpcore.AsyncNetworkBackend):
    """Connects only to allowed addresses."""

    def __init__(self, rules: WebhookRules) -> None:
        self._rules = rules
        self._inner = httpcore.AnyIOBackend()

    async def connect_tcp(
        self,
        host: str,
        port: int,
        timeout: float | None = None,
        local_address: str | None = None,
        socket_options: Iterable[Any] | None = None,
    ) -> httpcore.AsyncNetworkStream:
        """Resolves, judges every address, and connects to one of those. Raises TargetForbidden, ConnectError."""
        found = await asyncio.get_running_loop().getaddrinfo(host, port, type=socket.SOCK_STREAM)
        addresses = list(dict.fromkeys(str(sockaddr[0]) for *_, sockaddr in found))
        if not addresses or not all(self._rules.allows(ipaddress.ip_address(address)) for address in addresses):
            raise TargetForbidden()
        last: Exception | None = None
        for address in addresses:
            try:
                return await self._inner.connect_tcp(address, port, timeout, local_address, socket_options)
            except (httpcore.ConnectError, httpcore.ConnectTimeout) as error:
                last = error
        assert last is not None
        raise last

    async def connect_unix_socket(self, *_args: Any, **_kwargs: Any) -> httpcore.AsyncNetworkStream:
        """Never."""
        raise TargetForbidden()

    async def sleep(self, seconds: float) -> None:
        """Sleeps."""
        await self._inner.sleep(seconds)


class Poster:
    """Posts. One per server."""

    def __init__(self, rules: WebhookRules, *, seconds: float, ca_file: str | None = None) -> None:
        """`seconds` bounds a whole attempt. `ca_file` names certificates that are trusted instead of the system's."""
        self._rules = rules
        self._seconds = seconds
        self._pool = httpcore.AsyncConnectionPool(
            ssl_context=ssl.create_default_context(cafile=ca_file),
            max_connections=100,
            max_keepalive_connections=20,
            keepalive_expiry=5.0,
            network_backend=_Checked(rules),
        )

    async def post(self, message: OutboxMessage, body: bytes, more: Sequence[tuple[str, str]] = ()) -> Settlement:
        """Makes one attempt, and says what it came to. The pause before another one is left to the caller.

        `more` are further headers; one that is there already is replaced.
        """
        if self._rules.url_problem(message.target) is not None:
            # The operator allows less than when it was sent.
            return Settlement(DEAD, "target_forbidden")
        try:
            names = {name for name, _ in more}
            headers = [*(pair for pair in self._headers(message, body) if pair[0] not in names), *more]
            async with asyncio.timeout(self._seconds):
                status = await self._send(message.target, headers, body)
        except _SecretUnknown:
            return Settlement(PENDING, "secret_unknown")
        except TargetForbidden:
            return Settlement(DEAD, "target_forbidden")
        except (TimeoutError, httpcore.TimeoutException):
            return Settlement(PENDING, "timeout")
        except (OSError, ssl.SSLError, httpcore.NetworkError, httpcore.ProtocolError, httpcore.UnsupportedProtocol):
            return Settlement(PENDING, "unreachable")
        if 200 <= status < 300:
            return Settlement(DELIVERED, status=status)
        if 300 <= status < 400:
            return Settlement(DEAD, "redirect", status)
        # The endpoint says that it is gone for good.
        return Settlement(DEAD if status == 410 else PENDING, "status", status)

    async def close(self) -> None:
        """Closes the connections."""
        await self._pool.aclose()

    async def _send(self, url: str, headers: list[tuple[str, str]], body: bytes) -> int:
        timeout = {"connect": min(CONNECT_SECONDS, self._seconds), "read": self._seconds, "write": self._seconds}
        async with self._pool.stream(
            "POST", url, headers=headers, content=body, extensions={"timeout": {**timeout, "pool": self._seconds}}
        ) as response:
            status: int = response.status
            size = 0
            async for part in response.aiter_stream():
                size += len(part)
                if size > MAX_ANSWER_BYTES:
                    break
            return status

    def _headers(self, message: OutboxMessage, body: bytes) -> list[tuple[str, str]]:
        timestamp = int(time.time())
        headers = [
            ("content-type", "application/json"),
            ("content-length", str(len(body))),
            ("user-agent", "threadkeep"),
            ("webhook-id", message.message_id),
            ("webhook-timestamp", str(timestamp)),
        ]
        try:
            name = self._rules.secret_name(message.secret)
            if name is not None:
                secret = resolve_secret(self._rules.secrets[name])
                headers.append(("webhook-signature", sign(secret, message.message_id, timestamp, body)))
        except (LookupError, OSError, ValueError) as error:
            raise _SecretUnknown from error
        return headers


def resolve_secret(reference: str) -> bytes:
    """The key behind `env:NAME` or `file:PATH`, read anew each time, so that it can be changed. Raises LookupError,
    OSError, ValueError (empty, or not base64 behind `whsec_`)."""
    kind, _, name = reference.partition(":")
    text = os.environ[name] if kind == "env" else Path(name).read_text(encoding="utf-8")
    secret = secret_bytes(text)
    if not secret:
        raise ValueError("the secret is empty")
    return secret
