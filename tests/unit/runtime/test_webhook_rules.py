"""Where webhooks may lead, and how they are signed (R16)."""

import base64
import ipaddress

import pytest

from threadkeep_runtime.domain.outbox import pause_seconds
from threadkeep_runtime.domain.webhooks import WebhookRules, origin_problem, secret_bytes, sign
from threadkeep_runtime.loops.outbox_settings import OutboxSettings

EVERY = WebhookRules(["https://*"])


@pytest.mark.rule("R16")
@pytest.mark.case("B91")
@pytest.mark.parametrize(
    "address",
    [
        "127.0.0.1", "127.8.9.1", "0.0.0.0", "10.1.2.3", "172.16.0.1", "192.168.1.1", "169.254.169.254", "100.64.0.1",
        "224.0.0.1", "239.1.1.1", "255.255.255.255", "240.0.0.1", "192.0.2.1", "198.18.0.1",
        "::1", "::", "fe80::1", "fe80::1%eth0", "fc00::1", "fd12::1", "ff02::1", "fec0::1", "::7f00:1", "4000::1",
        "2001:db8::1",
        "::ffff:127.0.0.1", "::ffff:10.0.0.1", "64:ff9b::7f00:1", "64:ff9b::a00:1", "2002:7f00:1::",
        "2002:a00:1::",
    ],
)  # fmt: skip
def test_addresses_that_are_not_public_are_refused(address: str) -> None:
    assert not EVERY.allows(ipaddress.ip_address(address))


@pytest.mark.rule("R16")
def test_public_addresses_and_listed_networks_are_allowed() -> None:
    for address in ("93.184.216.34", "8.8.8.8", "2606:2800:220:1::1", "::ffff:8.8.8.8", "64:ff9b::808:808"):
        assert EVERY.allows(ipaddress.ip_address(address)), address
    local = WebhookRules(["https://*"], [ipaddress.ip_network("127.0.0.0/8")])
    assert local.allows(ipaddress.ip_address("127.0.0.1"))
    assert local.allows(ipaddress.ip_address("::ffff:127.0.0.1"))
    assert not local.allows(ipaddress.ip_address("::1"))
    assert not local.allows(ipaddress.ip_address("10.0.0.1"))


@pytest.mark.rule("R16")
def test_only_listed_origins_are_allowed() -> None:
    rules = WebhookRules(["https://a.example", "https://*.b.example", "https://c.example:8443", "http://d.example:80"])
    for url in (
        "https://a.example", "https://A.EXAMPLE/x?y=1", "https://a.example:443/", "https://x.b.example/",
        "https://y.x.b.example/", "https://c.example:8443/", "http://d.example/",
    ):  # fmt: skip
        assert rules.url_problem(url) is None, url
    for url in (
        "http://a.example/", "https://a.example:444/", "https://b.example/", "https://xb.example/",
        "https://c.example/", "https://d.example/", "http://d.example:81/", "https://a.example.evil/",
        "https://evil/a.example", "https://a.example@evil/", "https://user@a.example/", "https://a.example/#x",
        "https://a.example/ x", "https://a.example\n", "https:///x", "https://a.example:99999/", "", "a.example",
        "https://x.b.example:444/", "https://[::1/", "gopher://a.example/",
    ):  # fmt: skip
        problem = rules.url_problem(url)
        assert problem is not None, url
        assert not url or url not in problem
    assert WebhookRules().url_problem("https://a.example") is not None
    assert EVERY.url_problem("https://anything.example:99/") is None
    assert EVERY.url_problem("http://anything.example/") is not None


@pytest.mark.rule("R16", "X9")
def test_settings_that_allow_what_nobody_meant_are_refused() -> None:
    for origin in ("http://*", "http://*.x", "https://a.*.b", "https://a/b", "a", "https://*x.example", "ftp://a"):
        assert origin_problem(origin) is not None, origin
        with pytest.raises(ValueError, match=r"origin|HTTP|wildcard"):
            OutboxSettings(webhook_origins=[origin])
    for wrong in (
        {"webhook_networks": ["nowhere"]},
        {"webhook_secrets": {"default": "the secret itself"}},
        {"webhook_timeout_seconds": 31.0},
    ):
        with pytest.raises(ValueError) as refusal:
            OutboxSettings(**wrong)  # type: ignore[arg-type]
        assert "must be a reference" in str(refusal.value) or "the secret itself" not in str(refusal.value)


@pytest.mark.rule("R16")
def test_signatures_are_those_of_standard_webhooks() -> None:
    # The example of the specification's reference libraries.
    secret = secret_bytes("whsec_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw\n")
    signed = sign(secret, "msg_p5jXN8AQM9LWM0D4loKWxJek", 1614265330, b'{"test": 2432232314}')
    assert signed == "v1,g0hM9SsE+OTPJTGt/tmIKtSyZlE3uFJELVlNIOLJ1OE="
    assert secret_bytes(" plain ") == b"plain"
    with pytest.raises(ValueError, match=r"base64|padding|character"):
        secret_bytes("whsec_&&&")
    assert base64.b64decode(signed[3:])


@pytest.mark.rule("R16")
def test_pauses_double_up_to_a_bound_and_half_of_each_is_left_to_chance() -> None:
    assert [pause_seconds(n, 1, 20, 1.0) for n in range(1, 8)] == [1, 2, 4, 8, 16, 20, 20]
    assert pause_seconds(3, 1, 20, 0.0) == 2
    assert pause_seconds(5000, 1, 300, 1.0) == 300
