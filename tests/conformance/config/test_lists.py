"""Lists: in order, in pages that are bounded by number and bytes (X5, X9)."""

import grpc
import pytest

from tests.support.calls import refused
from tests.support.config import AGENT, PROVIDER, TOOL, Caller, agent, provider, tool
from threadkeep.config.v1 import config_service_pb2 as pb

CODE = grpc.StatusCode


@pytest.mark.rule("X5")
async def test_a_list_is_paged_by_type_name_and_scope_and_survives_deletes(acme: Caller) -> None:
    for type, definition in ((PROVIDER, provider()), (TOOL, tool()), (AGENT, agent())):
        for name in ("b", "a", "c", "Z", "ä", "_", "%"):
            await acme.put(type, name, definition)
    await acme.delete(TOOL, "c")
    wanted = [
        (type, name)
        for type in (PROVIDER, TOOL, AGENT)
        for name in ("%", "Z", "_", "a", "b", "c", "ä")
        if (type, name) != (TOOL, "c")
    ]
    for size in (1, 3, 0, 1000, 10**6):
        assert [(entity.type, entity.name) for entity in await acme.list_all(size)] == wanted
    assert [entity.name for entity in await acme.list_all(types=[TOOL])] == ["%", "Z", "_", "a", "b", "ä"]

    page = await acme.stub.ListEntities(pb.ListEntitiesRequest(page_size=2), metadata=acme.metadata)
    await acme.delete(PROVIDER, page.entities[-1].name)
    following = pb.ListEntitiesRequest(page_size=1, page_token=page.next_page_token)
    assert (await acme.stub.ListEntities(following, metadata=acme.metadata)).entities[0].name == "_"


@pytest.mark.rule("X5")
async def test_a_foreign_or_edited_page_token_is_refused(acme: Caller, globex: Caller) -> None:
    for name in ("a", "b"):
        await acme.put(TOOL, name, tool())
    token = (await acme.stub.ListEntities(pb.ListEntitiesRequest(page_size=1), metadata=acme.metadata)).next_page_token
    asked = [
        (acme, pb.ListEntitiesRequest(page_token=token[:-2])),
        (acme, pb.ListEntitiesRequest(page_token="?")),
        (acme, pb.ListEntitiesRequest(page_token=token, types=[TOOL])),
        (acme, pb.ListEntitiesRequest(page_token=token, include_inherited=True)),
        (globex, pb.ListEntitiesRequest(page_token=token)),
    ]
    for caller, request in asked:
        details = await refused(caller.stub.ListEntities(request, metadata=caller.metadata))
        assert (details.code, details.reason) == (CODE.INVALID_ARGUMENT, "PAGE_TOKEN_INVALID")
    negative = await refused(acme.stub.ListEntities(pb.ListEntitiesRequest(page_size=-1), metadata=acme.metadata))
    assert "page_size" in negative.violations


@pytest.mark.rule("X5", "X9")
async def test_a_page_is_bounded_by_bytes(acme: Caller) -> None:
    for n in range(5):
        await acme.put(AGENT, f"big-{n}", agent(str(n) * 1_000_000))
    page = await acme.stub.ListEntities(pb.ListEntitiesRequest(page_size=1000), metadata=acme.metadata)
    assert 1 <= len(page.entities) < 5
    assert page.ByteSize() < 4 * 1024 * 1024
    assert [entity.name for entity in await acme.list_all()] == [f"big-{n}" for n in range(5)]
    for n in range(5):
        await acme.put(AGENT, "big-0", agent(str(n + 1) * 1_000_000))
    assert len(await acme.history(AGENT, "big-0")) == 6


@pytest.mark.rule("X9")
async def test_a_definition_that_is_too_large_is_refused_with_the_way_out(acme: Caller) -> None:
    details = await refused(acme.put(AGENT, "huge", agent("ü" * 1_048_576, description="d" * 65_536)))
    assert (details.code, details.reason) == (CODE.RESOURCE_EXHAUSTED, "LIMIT_EXCEEDED")
    assert details.metadata["limit"] == "max_definition_bytes"
    assert details.metadata["advice"]


@pytest.mark.rule("C2", "C3")
async def test_a_list_with_what_is_inherited_shows_all_that_can_count(acme: Caller, globex: Caller) -> None:
    inner = acme.within(project="p")
    await acme.put(TOOL, "outer", tool())
    await acme.put(TOOL, "both", tool("outer"))
    await inner.put(TOOL, "both", tool("inner"))
    await inner.put(TOOL, "hidden", hidden=True)
    await acme.put(AGENT, "exact", agent())
    await acme.apply({"agents/shared.md": "Hi."})
    await globex.put(TOOL, "foreign", tool())
    await acme.within(project="q").put(TOOL, "sideways", tool())
    seen = [(entity.name, len(entity.scope.values)) for entity in await inner.list_all(1, include_inherited=True)]
    assert [name for name, _ in seen] == ["both", "both", "hidden", "outer", "shared"]
    assert sorted(size for name, size in seen if name == "both") == [1, 2]
    assert [entity.name for entity in await inner.list_all()] == ["both", "hidden"]
