"""Sets and scopes as files (C7): kept, fields that change, layers, exports; several resolutions at once (C2)."""

import json

import pytest

from tests.conformance.config.test_kinds import KINDS
from tests.conformance.config.test_sets import FILES, actions
from tests.support.calls import refused
from tests.support.config import AGENT, DEFAULTS, TOOL, Caller, agent, defined, tool
from threadkeep.config.v1 import set_pb2

KEPT, UPDATED, DELETED = set_pb2.SET_ACTION_KEPT, set_pb2.SET_ACTION_UPDATED, set_pb2.SET_ACTION_DELETED


@pytest.mark.rule("C7")
async def test_what_is_missing_is_kept_on_request(acme: Caller) -> None:
    await acme.apply(FILES)
    answer = await acme.apply({"agents/clerk.md": "Be long."}, keep_missing=True)
    assert actions(answer) == {"main": KEPT, "reader": KEPT, "clerk": UPDATED}
    assert (await acme.get(TOOL, "reader")).source.path == "tools/reader.yaml"
    assert actions(await acme.apply({"agents/clerk.md": "Be long."}))["reader"] == DELETED


@pytest.mark.rule("C7")
async def test_a_set_says_on_request_which_fields_change(acme: Caller) -> None:
    await acme.apply(FILES)
    files = {"agents/clerk.md": "Be long.", "tools/reader.yaml": FILES["tools/reader.yaml"]}
    answer = await acme.apply(files, with_fields=True, dry_run=True)
    fields = {change.entity.name: {one.path: one for one in change.fields} for change in answer.changes}
    assert set(fields["clerk"]) == {"agent.provider", "agent.system_prompt", "agent.tools"}
    prompt = fields["clerk"]["agent.system_prompt"]
    assert (json.loads(prompt.old_json), json.loads(prompt.new_json)) == ("You are a clerk.\n\nBe brief.", "Be long.")
    assert not fields["clerk"]["agent.provider"].HasField("new_json")
    assert fields["reader"] == {}
    assert "provider.model" in fields["main"]
    assert not any(change.fields for change in (await acme.apply(files)).changes)


@pytest.mark.rule("C7", "X9")
async def test_fields_that_do_not_fit_into_an_answer_are_left_out(acme: Caller) -> None:
    await acme.apply({f"agents/a{n}.md": "x" for n in range(5)})
    answer = await acme.apply({f"agents/a{n}.md": "y" * 900_000 for n in range(5)}, with_fields=True, dry_run=True)
    assert answer.ByteSize() < 4 * 1024 * 1024
    assert [change.fields_left_out for change in answer.changes] == [False] * 3 + [True] * 2


@pytest.mark.rule("C7")
async def test_layers_become_one_set(acme: Caller) -> None:
    files = [
        set_pb2.SetFile(path="providers/main.yaml", content=b"type: scripted\nmodel: m\n"),
        set_pb2.SetFile(path="providers/main.yaml", content=b"model: top\n", layer=1),
        set_pb2.SetFile(path="tools/x.yaml", content=b"a: 1\n", layer=1),
    ]
    answer = await acme.apply_files(files)
    assert [(one.path, one.line, one.layer) for one in answer.problems] == [("tools/x.yaml", 1, 1)]
    assert (await acme.get(1, "main")).definition.provider.model == "top"
    details = await refused(acme.apply_files([files[0], files[0]]))
    assert list(details.violations) == ["files[1].path"]


@pytest.mark.rule("C7")
async def test_what_a_scope_exports_makes_the_same_scope_elsewhere(acme: Caller, globex: Caller) -> None:
    for type, definition in KINDS:
        await acme.put(type, "x", definition)
    await acme.put(AGENT, "odd", agent(" --- \n\n", description="yes"))
    await acme.put(TOOL, "gone", hidden=True)
    await acme.put(TOOL, "a/b", tool())
    await acme.apply(FILES)
    files, problems = await acme.export(page_size=3)
    assert (files, problems) == await acme.export()
    assert problems == ["tools/a/b.yaml"]
    assert not (await globex.apply(files)).problems
    exported = {(one.type, one.name, one.digest, one.hidden) for one in await acme.list_all() if one.name != "a/b"}
    assert {(one.type, one.name, one.digest, one.hidden) for one in await globex.list_all()} == exported
    assert await acme.within(user="u").export() == ({}, [])


@pytest.mark.rule("C2")
async def test_several_are_resolved_in_order_and_as_of_one_revision(acme: Caller, globex: Caller) -> None:
    inner = acme.within(user="u")
    await acme.put(TOOL, "t", tool("outer"))
    narrower = (await inner.put(TOOL, "t", tool("inner"))).entity
    await acme.put(TOOL, "hidden", tool())
    await inner.put(TOOL, "hidden", hidden=True)
    await acme.put(DEFAULTS, "d", defined(defaults={"model": "m"}))
    last = (await inner.put(DEFAULTS, "d", defined(defaults={"max_steps": 1}))).entity
    await globex.put(TOOL, "foreign", tool())
    wanted = [(TOOL, "hidden"), (DEFAULTS, "d"), (TOOL, "t"), (TOOL, "foreign"), (TOOL, "t"), (AGENT, "t")]
    for _ in range(2):
        answer = await inner.resolve_many(*wanted)
        found = [one.entity if one.HasField("entity") else None for one in answer.resolutions]
        assert [one and one.name for one in found] == [None, "d", "t", None, "t", None]
        assert found[2] == found[4] == narrower
        assert found[1].definition == defined(defaults={"model": "m", "max_steps": 1})
        assert found[1] == (await inner.resolve(DEFAULTS, "d")).entity
        assert answer.config_revision >= last.revision
    changed = (await inner.put(TOOL, "t", tool("again"))).entity
    assert (await inner.resolve_many((TOOL, "t"))).resolutions[0].entity == changed
    assert (await refused(inner.resolve_many())).reason == "FIELD_INVALID"
    assert (await refused(inner.resolve_many(*[(TOOL, "t")] * 101))).reason == "FIELD_INVALID"
