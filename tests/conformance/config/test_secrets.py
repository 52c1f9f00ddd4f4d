"""Secrets (C8, X11): config holds references only, and what looks like a secret is refused without being quoted."""

import json

import pytest
import sqlalchemy as sa
from google.protobuf import field_mask_pb2

from tests.support.calls import refused
from tests.support.config import AGENT, PROVIDER, Caller, agent, config_database, config_server, provider
from tests.support.databases import Databases
from threadkeep_chassis.database import Database
from threadkeep_config.tables import entities, revisions

SECRET = "sk-proj-0123456789abcdefghijklmnop"


@pytest.mark.rule("C8")
@pytest.mark.parametrize("reference", ["env:OPENAI_API_KEY", "env:_k", "file:/run/secrets/key", "file:/a b/ü.txt"])
async def test_a_reference_is_kept_as_it_is(acme: Caller, reference: str) -> None:
    await acme.put(PROVIDER, "main", provider(api_key_reference=reference))
    assert (await acme.get(PROVIDER, "main")).definition.provider.api_key_reference == reference


@pytest.mark.rule("C8", "X11")
@pytest.mark.parametrize(
    "value",
    [
        *(SECRET, f"env:{SECRET}", "env:", "env:A B", "env:1A", "ENV:A", " env:KEY", "${KEY}"),
        *("file:relative", "file:", "file:/", "file:/a/../b", "file:/a\x00b", "vault:secret/x", "https://example/key"),
    ],
)
async def test_what_is_no_reference_is_refused_without_being_quoted(acme: Caller, value: str) -> None:
    details = await refused(acme.put(PROVIDER, "main", provider(api_key_reference=value)))
    assert details.reason == "FIELD_INVALID"
    assert list(details.violations) == ["definition.provider.api_key_reference"]
    assert SECRET not in details.message
    assert SECRET.encode() not in details.raw
    assert await acme.list_all() == []


@pytest.mark.rule("C8", "X11")
@pytest.mark.parametrize(
    ("options", "path"),
    [
        ({"api_key": SECRET}, "api_key"),
        ({"default_headers": {"Authorization": SECRET}}, "default_headers.Authorization"),
        ({"default_headers": {"X-Api-Key": SECRET}}, "default_headers.X-Api-Key"),
        ({"list": [{"accessToken": SECRET}]}, "list[0].accessToken"),
        ({"password": SECRET}, "password"),
        ({"aws_secret_access_key": SECRET}, "aws_secret_access_key"),
        ({"openai_api_key": SECRET}, "openai_api_key"),
        ({"headers": {"x": f"Bearer {SECRET}"}}, "headers.x"),
        ({"harmless": [SECRET]}, "harmless[0]"),
    ],
)
async def test_options_hold_no_secret(acme: Caller, options: object, path: str) -> None:
    details = await refused(acme.put(PROVIDER, "main", provider(options_json=json.dumps(options))))
    assert list(details.violations) == [f"definition.provider.options_json.{path}"]
    assert SECRET.encode() not in details.raw
    files = await acme.apply({"providers/main.yaml": f"type: openai\noptions: {json.dumps(options)}\n"})
    assert len(files.problems) == 1
    assert files.problems[0].line == 2
    assert SECRET not in files.problems[0].message
    assert await acme.list_all() == []


@pytest.mark.rule("C8")
async def test_options_that_only_resemble_secrets_are_accepted(acme: Caller) -> None:
    options = {
        "max_tokens": 100,
        "max_completion_tokens": 10,
        "eos_token": "</s>",
        "tokenizer": "x",
        "keys": ["a"],
        "monkey": 1,
        "response_format": {"type": "json"},
        "skip": "sky-blue",
    }
    assert (await acme.put(PROVIDER, "main", provider(options_json=json.dumps(options)))).changed


@pytest.mark.rule("C8")
@pytest.mark.parametrize("endpoint", ["https://u:p@x/v1", "https://x/v1?api_key=1", f"https://x/v1?q={SECRET}"])
async def test_an_endpoint_holds_no_secret(acme: Caller, endpoint: str) -> None:
    details = await refused(acme.put(PROVIDER, "main", provider(endpoint=endpoint)))
    assert list(details.violations) == ["definition.provider.endpoint"]
    assert SECRET.encode() not in details.raw


@pytest.mark.rule("C8", "C9")
async def test_a_manifest_names_the_reference(acme: Caller) -> None:
    await acme.put(PROVIDER, "main", provider(api_key_reference="file:/run/secrets/key"))
    await acme.apply({"agents/clerk.yaml": "provider: main"})
    manifest = json.loads((await acme.manifest("clerk")).manifest_json)
    assert manifest["provider"]["definition"]["provider"]["api_key_reference"] == "file:/run/secrets/key"


@pytest.mark.rule("C8", "X11")
@pytest.mark.suite(backends=["sqlite", "postgres"])
async def test_a_secret_that_an_older_release_stored_is_shown_by_no_read(databases: Databases, backend: str) -> None:
    """Somebody wrote it past the checks; reads, manifests, differences, exports and watches mark it."""
    url = await config_database(databases, backend)
    async with config_server(url) as server:
        acme = server.caller()
        options = '{"note":"hello"}'
        first = (await acme.put(PROVIDER, "p", provider(options_json=options))).entity.revision
        await acme.put(AGENT, "a", agent(provider="p"))
    database = await Database.open(url, "config")
    async with database.write() as connection:
        for table in (entities, revisions):
            text = '{"provider":{"options_json":"{\\"api_key\\":\\"hunter2\\"}","type":"scripted"}}'
            rows = sa.update(table).where(table.c.name == "p").values(definition=text, definition_bytes=len(text))
            await connection.execute(rows)
    await database.close()
    async with config_server(url) as server:
        acme = server.caller(**acme.values)
        last = await acme.put(
            PROVIDER, "p", provider(), update_mask=field_mask_pb2.FieldMask(paths=["model", "options_json"])
        )
        assert last.changed
        watch = acme.watch(after=first - 1)
        shown: list[object] = [
            await acme.history(PROVIDER, "p"),
            await acme.diff(PROVIDER, "p", first),
            await watch.changes(3),
        ]
        watch.cancel()
        await acme.roll_back(AGENT, "a", first + 1)
        assert "[redacted]" in str(shown[0])
        assert "[redacted]" in str(shown[1])
        assert "[redacted]" in str(shown[2])
        assert "hunter2" not in str(shown)
        refusal = await refused(acme.roll_back(PROVIDER, "p", first))
        assert refusal.reason == "FIELD_INVALID"
        assert "hunter2" not in str(refusal)
    await databases.drop(url)
