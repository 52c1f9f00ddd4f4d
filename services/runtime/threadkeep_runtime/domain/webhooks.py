"""Where webhooks may lead, and how their messages are signed (R16). Pure: posts are made in `loops/`.

An address is judged when it is connected to, not when its name is looked up: a name may resolve to something else
by then.
"""

from __future__ import annotations

import base64
import hashlib
import hmac
import ipaddress
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from urllib.parse import SplitResult, urlsplit

from threadkeep_runtime.domain.outbox import A2A, A2A_JSON
from threadkeep_runtime.domain.values import TaskWebhook

Address = ipaddress.IPv4Address | ipaddress.IPv6Address
Network = ipaddress.IPv4Network | ipaddress.IPv6Network

DEFAULT_SECRET = "default"
_PORTS = {"https": 443, "http": 80}
_GLOBAL_UNICAST = ipaddress.IPv6Network("2000::/3")
_NAT64 = ipaddress.IPv6Network("64:ff9b::/96")


@dataclass(frozen=True, slots=True)
class WebhookRules:
    """What the operator allows.

    An origin is `https://host`, `https://host:port`, `https://*.domain` (every host below it), `https://*` (every
    host), or, for tests, `http://host:port`: plain HTTP is allowed only where it is listed. Networks are those that
    may be connected to though they are not public.
    """

    origins: Sequence[str] = ()
    networks: Sequence[Network] = ()
    secrets: Mapping[str, str] = field(default_factory=dict)
    """References to secrets by name: `env:NAME` or `file:PATH`."""

    def url_problem(self, url: str) -> str | None:
        """What is wrong with a URL, in words that don't quote it, or None."""
        try:
            parts = urlsplit(url)
            port = parts.port
        except ValueError:
            return "must be a URL"
        host = parts.hostname
        if parts.scheme not in _PORTS or not host or any(ord(one) <= 32 or ord(one) == 127 for one in url):
            return "must be an https URL"
        if parts.username is not None or parts.password is not None:
            return "must not hold a user or password"
        if parts.fragment:
            return "must not have a fragment"
        if not any(_covers(origin, parts, port or _PORTS[parts.scheme]) for origin in self.origins):
            return "has an origin that this server does not allow (setting webhook_origins)"
        address = _literal(host)
        if address is not None and not self.allows(address):
            return "leads to an address that this server does not allow (setting webhook_networks)"
        return None

    def allows(self, address: Address) -> bool:
        """True for public unicast addresses and for those in the networks."""
        if any(address.version == network.version and address in network for network in self.networks):
            return True
        inner = _embedded(address)
        if inner is not None:
            return self.allows(inner)
        if isinstance(address, ipaddress.IPv6Address) and address not in _GLOBAL_UNICAST:
            return False
        return address.is_global and not address.is_multicast and not address.is_reserved

    def secret_name(self, named: str | None) -> str | None:
        """The name of the secret that signs; None: none does. Raises LookupError for a name that is not known."""
        if named is None:
            return DEFAULT_SECRET if DEFAULT_SECRET in self.secrets else None
        if named not in self.secrets:
            raise LookupError(named)
        return named


def headers_of(webhook: TaskWebhook) -> list[tuple[str, str]]:
    """The headers that a task's webhook wants beside ours."""
    headers = []
    if webhook.format == A2A:
        headers.append(("content-type", A2A_JSON))
    if webhook.token:
        headers.append(("x-a2a-notification-token", webhook.token))
    if webhook.scheme:
        headers.append(("authorization", f"{webhook.scheme} {webhook.credentials}".rstrip()))
    return headers


def sign(secret: bytes, message_id: str, timestamp: int, body: bytes) -> str:
    """The value of `webhook-signature`, as Standard Webhooks define it."""
    digest = hmac.new(secret, f"{message_id}.{timestamp}.".encode() + body, hashlib.sha256).digest()
    return "v1," + base64.b64encode(digest).decode()


def secret_bytes(text: str) -> bytes:
    """The key of a secret: `whsec_` and base64 as Standard Webhooks write it, or the text itself."""
    text = text.strip()
    if text.startswith("whsec_"):
        return base64.b64decode(text.removeprefix("whsec_"), validate=True)
    return text.encode()


def _covers(origin: str, url: SplitResult, port: int) -> bool:
    allowed = urlsplit(origin)
    if allowed.scheme != url.scheme:
        return False
    host = (url.hostname or "").lower().rstrip(".")
    name = (allowed.hostname or "").lower()
    if name == "*":
        return url.scheme == "https" and allowed.port in (None, port)
    if (allowed.port or _PORTS[allowed.scheme]) != port:
        return False
    if name.startswith("*."):
        return host.endswith(name[1:]) and len(host) > len(name) - 1
    return host == name


def origin_problem(origin: str) -> str | None:
    """What is wrong with an origin of the setting, or None."""
    try:
        parts = urlsplit(origin)
        _ = parts.port
    except ValueError:
        return "is no origin"
    if parts.scheme not in _PORTS or not parts.hostname or parts.path or parts.query or parts.fragment:
        return "is no origin: write https://host or https://host:port"
    if parts.scheme == "http" and "*" in parts.hostname:
        return "allows plain HTTP for many hosts: list them one by one"
    if "*" in parts.hostname.removeprefix("*") or (
        parts.hostname.startswith("*") and parts.hostname[1:2] not in ("", ".")
    ):
        return "has a wildcard elsewhere than in front"
    return None


def _literal(host: str) -> Address | None:
    try:
        return ipaddress.ip_address(host)
    except ValueError:
        return None


def _embedded(address: Address) -> Address | None:
    """The IPv4 address that an IPv6 address stands for, by any of the ways of translation and tunnelling."""
    if isinstance(address, ipaddress.IPv4Address):
        return None
    if address.ipv4_mapped is not None:
        return address.ipv4_mapped
    if address.sixtofour is not None:
        return address.sixtofour
    if address.teredo is not None:
        return address.teredo[1]
    if address in _NAT64:
        return ipaddress.IPv4Address(int(address) & 0xFFFFFFFF)
    return None
