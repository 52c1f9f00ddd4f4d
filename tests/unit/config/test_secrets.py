"""Names and values that look like secrets (C8)."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from threadkeep_config.domain.secrets import is_reference, looks_like_a_secret, names_a_secret, secrets_in


@pytest.mark.rule("C8")
@pytest.mark.parametrize(
    "name",
    [
        *("api_key", "apiKey", "API-KEY", "apikey", "openai_api_key", "X-Api-Key", "access_key_id", "private_key"),
        *("secret", "clientSecret", "SECRET", "password", "db.passwd", "passphrase", "Authorization", "bearer"),
        *("token", "access_token", "refreshToken", "X-Auth-Token", "credentials", "cookie", "Set-Cookie", "pwd"),
    ],
)
def test_a_name_of_a_secret_is_recognised(name: str) -> None:
    assert names_a_secret(name)


@pytest.mark.rule("C8")
@pytest.mark.parametrize(
    "name",
    [
        *("max_tokens", "maxTokens", "token_limit", "tokenizer", "eos_token", "stop_token", "key", "keys", "monkey"),
        *("keyboard", "primary_key", "model", "temperature", "author", "", "secretary", "top_k", "sort-key", "日本"),
    ],
)
def test_another_name_is_not(name: str) -> None:
    assert not names_a_secret(name)


@pytest.mark.rule("C8")
@pytest.mark.parametrize(
    "value",
    [
        *("sk-abc123", "Bearer abc", "bearer x", "Basic dXNlcjpwdw==", "ghp_0123456789", "AKIAIOSFODNN7EXAMPLE"),
        *(
            "xoxb-1-2",
            "-----BEGIN RSA PRIVATE KEY-----",
            "eyJhbGciOi.eyJzdWIi.x",
            "glpat-x",
            "AIzaSyA0123456789abcdefghij",
        ),
    ],
)
def test_a_value_in_the_form_of_a_secret_is_recognised(value: str) -> None:
    assert looks_like_a_secret(value)
    assert not looks_like_a_secret(f"the word {value[:2]}")


@pytest.mark.rule("C8", "X11")
@given(st.recursive(st.text(max_size=20), lambda inner: st.dictionaries(st.text(max_size=12), inner) | st.lists(inner)))
def test_what_is_told_never_quotes_a_value(document: object) -> None:
    marked = {"password": "hunter2hunter2", "more": document}
    told = list(secrets_in(marked, "options"))
    assert told
    assert all("hunter2" not in path + rule for path, rule in told)


@pytest.mark.rule("C8")
@given(st.text())
def test_a_reference_is_env_or_an_absolute_file(text: str) -> None:
    if is_reference(text):
        assert text.startswith(("env:", "file:/"))
        assert "\n" not in text
