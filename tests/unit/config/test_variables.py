"""Variables in definitions: what they may look like, and what is checked of a text that has them (C8)."""

from typing import Any

import pytest

from tests.unit.config.test_definitions import content
from threadkeep_chassis.errors import FieldInvalid
from threadkeep_config.domain.variables import fault, sample, sample_url


@pytest.mark.rule("C7", "C8")
@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("plain $HOME $ {x}", "plain $HOME $ {x}"),
        ("${A}", "x"),
        ("a${A:-b}c${D:-}e", "abce"),
        ("$${A}", "${A}"),
        ("$$${A:-b}", "$b"[:1] + "b"),
        ("${A:-http://x:1/y}", "http://x:1/y"),
    ],
)
def test_a_sample_has_the_defaults(text: str, expected: str) -> None:
    if text == "$$${A:-b}":
        # `$$${` is `$` and the characters `${`.
        expected = "$${A:-b}"
    assert fault(text) is None
    assert sample(text) == expected


@pytest.mark.rule("C7")
@pytest.mark.parametrize("text", ["${", "${}", "${1}", "${A", "${A-b}", "x ${A:b}"])
def test_what_begins_no_variable_is_a_fault(text: str) -> None:
    assert fault(text) is not None


@pytest.mark.rule("C7", "C8")
@pytest.mark.parametrize(
    ("url", "expected"),
    [
        ("${BASE}/v1", "http://x/v1"),
        ("${BASE:-https://a}/v1", "https://a/v1"),
        ("http://${HOST}:${PORT:-80}", "http://x:80"),
    ],
)
def test_a_url_may_begin_with_a_variable(url: str, expected: str) -> None:
    assert sample_url(url) == expected
    assert content("provider", {"type": "openai", "endpoint": url}).definition.count(url) == 1, "stored as it is"


@pytest.mark.rule("C8")
@pytest.mark.parametrize(
    ("kind", "body", "path"),
    [
        ("provider", {"type": "openai", "endpoint": "${A:-ftp://x}"}, "provider.endpoint"),
        ("provider", {"type": "openai", "endpoint": "${A"}, "provider.endpoint"),
        ("provider", {"type": "openai", "api_key_reference": "${A:-env:B}"}, "provider.api_key_reference"),
        ("provider", {"type": "openai", "model": "${"}, "provider.model"),
        ("mcp_server", {"http": {"url": "http://x", "headers": {"a": "${B:-sk-x}"}}}, "mcp_server.http.headers.a"),
        ("mcp_server", {"stdio": {"command": "x", "arguments": ["${"]}}, "mcp_server.stdio.arguments[0]"),
    ],
)
def test_what_a_variable_may_become_is_checked(kind: str, body: dict[str, Any], path: str) -> None:
    with pytest.raises(FieldInvalid) as caught:
        content(kind, body)
    assert [field for field, _ in caught.value.violations] == [path]
