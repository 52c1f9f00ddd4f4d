"""Sets of files (C7): a directory becomes entities, whole and again and again, and faults are told by line."""

import asyncio

import grpc
import pytest

from tests.support.calls import refused
from tests.support.config import AGENT, PROVIDER, TOOL, Caller, agent, provider, tool
from tests.support.descriptors import fresh_id
from threadkeep.config.v1 import config_service_pb2 as pb
from threadkeep.config.v1 import entity_pb2, set_pb2

CREATED, UPDATED = set_pb2.SET_ACTION_CREATED, set_pb2.SET_ACTION_UPDATED
DELETED, UNCHANGED, SHADOWED = set_pb2.SET_ACTION_DELETED, set_pb2.SET_ACTION_UNCHANGED, set_pb2.SET_ACTION_SHADOWED

FILES = {
    "providers/main.yaml": "type: scripted\nmodel: m\ntimeout: 1.5\noptions:\n  script: [{text: hello}]\n",
    "tools/reader.yaml": "description: Reads.\npython:\n  entry_point: tools.files:read\n",
    "agents/clerk.md": "---\nprovider: main\ntools:\n  - reader\n---\n\nYou are a clerk.\n\nBe brief.\n",
}


def actions(answer: pb.ApplySetResponse) -> dict[str, int]:
    """Name to action."""
    return {change.entity.name: change.action for change in answer.changes}


def problems(answer: pb.ApplySetResponse) -> list[tuple[str, int]]:
    """Path and line of each problem."""
    return [(problem.path, problem.line) for problem in answer.problems]


@pytest.mark.rule("C7")
async def test_a_set_becomes_entities_that_show_their_files(acme: Caller) -> None:
    answer = await acme.apply(FILES)
    assert actions(answer) == {"main": CREATED, "reader": CREATED, "clerk": CREATED}
    assert [change.entity.type for change in answer.changes] == [PROVIDER, TOOL, AGENT]
    assert not answer.problems
    clerk, main = await acme.get(AGENT, "clerk"), await acme.get(PROVIDER, "main")
    assert clerk.definition == agent("You are a clerk.\n\nBe brief.", provider="main", tools=["reader"])
    assert clerk.source == entity_pb2.Source(kind=entity_pb2.SOURCE_KIND_FILE, path="agents/clerk.md")
    assert main.definition == provider(
        model="m", timeout={"seconds": 1, "nanos": 500_000_000}, options_json='{"script":[{"text":"hello"}]}'
    )
    assert answer.config_revision >= max(clerk.revision, main.revision)
    assert {change.entity.revision for change in answer.changes} >= {clerk.revision, main.revision}


@pytest.mark.rule("C7", "C5")
async def test_a_set_that_did_not_change_makes_no_revision(acme: Caller) -> None:
    await acme.apply(FILES)
    before = await acme.list_all()
    written_otherwise = "# The same.\nmodel: m\n" + FILES["providers/main.yaml"].replace("model: m\n", "")
    again = await acme.apply(dict(reversed(FILES.items())) | {"providers/main.yaml": written_otherwise})
    assert set(actions(again).values()) == {UNCHANGED}
    assert await acme.list_all() == before


@pytest.mark.rule("C7")
async def test_changed_added_and_removed_files_become_revisions(acme: Caller) -> None:
    first = await acme.apply(FILES)
    files = dict(FILES)
    del files["tools/reader.yaml"]
    files["tools/writer.yaml"] = FILES["tools/reader.yaml"]
    files["agents/clerk.md"] = "Be long."
    second = await acme.apply(files)
    assert actions(second) == {"main": UNCHANGED, "reader": DELETED, "writer": CREATED, "clerk": UPDATED}
    gone = next(change.entity for change in second.changes if change.action == DELETED)
    assert gone.deleted
    assert gone.revision > first.config_revision
    assert (await refused(acme.get(TOOL, "reader"))).reason == "ENTITY_NOT_FOUND"
    assert [entity.deleted for entity in await acme.history(TOOL, "reader")] == [True, False]
    assert actions(await acme.apply({})) == {"main": DELETED, "writer": DELETED, "clerk": DELETED}
    assert await acme.list_all() == []
    assert actions(await acme.apply(FILES)) == {"main": CREATED, "reader": CREATED, "clerk": CREATED}


@pytest.mark.rule("C7")
async def test_a_moved_file_shows_its_new_path(acme: Caller) -> None:
    await acme.apply({"agents/clerk.md": "Be brief."})
    moved = await acme.apply({"agents/clerk.yaml": "system_prompt: Be brief."})
    assert actions(moved) == {"clerk": UPDATED}
    assert (await acme.get(AGENT, "clerk")).source.path == "agents/clerk.yaml"


@pytest.mark.rule("C7")
async def test_a_dry_run_says_what_would_change_and_changes_nothing(acme: Caller) -> None:
    await acme.apply(FILES)
    before = await acme.list_all()
    files = {"tools/writer.yaml": FILES["tools/reader.yaml"], "agents/clerk.md": "Be long.", "tools/x.yaml": "a: 1"}
    dry = await acme.apply(files, dry_run=True)
    assert actions(dry) == {"main": DELETED, "reader": DELETED, "writer": CREATED, "clerk": UPDATED}
    assert problems(dry) == [("tools/x.yaml", 1)]
    assert not any(change.entity.deleted for change in dry.changes), "the entity that would go, not its tombstone"
    assert await acme.list_all() == before
    wet = await acme.apply(files)
    assert actions(wet) == actions(dry)
    assert [change.entity.digest for change in wet.changes] == [
        "" if change.action == DELETED else change.entity.digest for change in dry.changes
    ]


@pytest.mark.rule("C7")
async def test_a_file_with_faults_is_told_by_line_and_the_rest_applies(acme: Caller) -> None:
    await acme.apply(FILES)
    files = dict(FILES)
    files["providers/main.yaml"] = "type: scripted\nmodel: [m]\nretries: 3\n"
    files["tools/new.yaml"] = "python:\n  entry_point: a.b:c\n"
    answer = await acme.apply(files)
    assert problems(answer) == [("providers/main.yaml", 2), ("providers/main.yaml", 3)]
    assert "model" in answer.problems[0].message
    assert "retries" in answer.problems[1].message
    assert actions(answer) == {"reader": UNCHANGED, "new": CREATED, "clerk": UNCHANGED}
    kept = await acme.get(PROVIDER, "main")
    assert kept.definition.provider.model == "m", "what a broken file was about stays as it was"


@pytest.mark.rule("C7")
async def test_the_api_may_not_change_what_a_file_manages(acme: Caller) -> None:
    await acme.apply(FILES)
    revision = (await acme.get(AGENT, "clerk")).revision
    for call in (
        acme.put(AGENT, "clerk", agent("mine")),
        acme.put(AGENT, "clerk", hidden=True),
        acme.delete(AGENT, "clerk"),
        acme.roll_back(AGENT, "clerk", revision),
    ):
        details = await refused(call)
        assert (details.code, details.reason) == (grpc.StatusCode.FAILED_PRECONDITION, "FILE_MANAGED")
    override = await acme.within(project="p").put(AGENT, "clerk", agent("mine"))
    assert override.changed, "only the file's own row is locked"


@pytest.mark.rule("C7")
async def test_an_entity_of_the_api_shadows_its_file_until_it_is_deleted(acme: Caller) -> None:
    mine = (await acme.put(AGENT, "clerk", agent("mine"))).entity
    answer = await acme.apply(FILES)
    assert actions(answer) == {"main": CREATED, "reader": CREATED, "clerk": SHADOWED}
    assert await acme.get(AGENT, "clerk") == mine
    assert actions(await acme.apply({})) == {"main": DELETED, "reader": DELETED}, "what the API put stays"
    await acme.delete(AGENT, "clerk")
    assert actions(await acme.apply(FILES))["clerk"] == CREATED
    assert (await acme.get(AGENT, "clerk")).source.kind == entity_pb2.SOURCE_KIND_FILE
    assert actions(await acme.apply({}))["clerk"] == DELETED
    assert (await acme.put(AGENT, "clerk", agent("mine"))).changed, "the file is gone, and with it its lock"


@pytest.mark.rule("C7", "X2")
async def test_a_set_is_about_its_own_scope_alone(acme: Caller, globex: Caller) -> None:
    inner = acme.within(project="p")
    await acme.apply(FILES)
    await globex.apply(FILES)
    await inner.apply({"tools/reader.yaml": "description: mine\npython: {entry_point: 'a:b'}"})
    await acme.apply({})
    assert [entity.name for entity in await inner.list_all(include_inherited=True)] == ["reader"]
    assert len(await globex.list_all()) == 3


@pytest.mark.rule("C7")
async def test_sets_applied_at_once_leave_one_of_them_whole(acme: Caller) -> None:
    def files(n: int) -> dict[str, str]:
        python = "python: {entry_point: 'a:b'}"
        return {f"tools/{n}-{i}.yaml": python for i in range(5)} | {
            f"tools/shared-{i}.yaml": f"description: '{n}'\n{python}" for i in range(5)
        }

    await asyncio.gather(*(acme.apply(files(n)) for n in range(6)))
    names = {entity.name: entity.definition.tool.description for entity in await acme.list_all()}
    winner = names["shared-0"]
    assert names == {f"{winner}-{i}": "" for i in range(5)} | {f"shared-{i}": winner for i in range(5)}


@pytest.mark.rule("X8")
async def test_a_path_twice_in_a_request_is_refused(acme: Caller) -> None:
    files = [set_pb2.SetFile(path="tools/a.yaml", content=b""), set_pb2.SetFile(path="tools/a.yaml", content=b"")]
    request = pb.ApplySetRequest(request_id=fresh_id(), files=files)
    assert "files[1].path" in (await refused(acme.stub.ApplySet(request, metadata=acme.metadata))).violations


@pytest.mark.rule("C7")
async def test_a_set_of_a_thousand_files_applies_at_once(acme: Caller) -> None:
    files = {f"tools/t{n:04}.yaml": f"description: d{n}\npython: {{entry_point: 'a:b'}}" for n in range(1000)}
    answer = await acme.apply(files)
    assert set(actions(answer).values()) == {CREATED}
    revisions = [change.entity.revision for change in answer.changes]
    assert revisions == list(range(revisions[0], revisions[0] + 1000)), "in the order of their names"
    assert [entity.name for entity in await acme.list_all(300)] == [f"t{n:04}" for n in range(1000)]
    assert set(actions(await acme.apply(files)).values()) == {UNCHANGED}
    assert (await acme.put(TOOL, "own", tool())).changed
