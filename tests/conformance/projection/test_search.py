"""Search in the messages of a session: one answer on every backend (P2, P3)."""

from typing import Any

import pytest
from langchain_core.messages import AIMessage, HumanMessage, RemoveMessage, ToolMessage

from tests.conformance.projection.conftest import SERVICES
from tests.support.calls import refused
from tests.support.descriptors import fresh_id
from tests.support.examples.world import World
from tests.support.projection import Talk, fresh
from tests.support.suite import Suite
from threadkeep.common.v1 import content_pb2
from threadkeep.projection.v1 import admin_service_pb2
from threadkeep.projection.v1 import message_service_pb2 as pb

pytestmark = pytest.mark.suite(services=SERVICES, topologies=["embedded"])

TEXTS = {
    "greeting": "Hello, World! It's a fine day.",
    "german": "Die Straße nach GROẞENHAIN, über Döbeln",
    "french": "Un café crème, s'il vous plaît. NAÏVE",
    "decomposed": "Cafe\u0301 au lait",
    "greek": "Ο Σίσυφος και η πέτρα ΣΊΣΥΦΟΣ",
    "turkish": "İstanbul ve ıspanak",
    "russian": "Ёлка и ежик: МОСКВА",
    "chinese": "我爱北京天安门",
    "japanese": "東京タワーへ行く。ﾃｽﾄ",
    "korean": "한국어 검색",
    "thai": "ภาษาไทย",
    "hindi": "हिन्दी में खोज",
    "arabic": "السَّلامُ عليكم",
    "hebrew": "שָׁלוֹם עולם",
    "forms": "ﬁnal ①② ＦＵＬＬ ½",
    "mail": "write to ann.lee+x@example.com or call foo_bar(1, 2)",
    "sql": "'; DROP TABLE messages; -- \" OR 1=1 \x00 \\ % _",
    "emoji": "ship it 🚀🚀 now 👩‍👩‍👧",
    "long": "x" * 40 + "y and " + "x" * 40 + "z",
    "numbers": "version 3.14 of 2024-05-06",
    "parts": "one two",
}

# (query, who answers, in the order of the conversation)
CASES: tuple[tuple[str, str], ...] = (
    ("hello", "greeting"),
    ("HELLO world", "greeting"),
    ("world hello", "greeting"),
    ('"hello world"', "greeting"),
    ('"world hello"', ""),
    ("hello -world", ""),
    ("hello -moon", "greeting"),
    ("it's", "greeting"),
    ("hel", ""),
    ("hel*", "greeting"),
    ("ello*", ""),
    ('"hello wor"*', "greeting"),
    ('"hello wor"', ""),
    ("strasse", "german"),
    ("STRASSE grossenhain", "german"),
    ("uber dobeln", "german"),
    ("cafe", "french decomposed"),
    ("café", "french decomposed"),
    ("CAFÉ -lait", "french"),
    ("naive plait creme", "french"),
    ("σισυφοσ", "greek"),
    ("Σίσυφος ΠΕΤΡΑ", "greek"),
    ("istanbul", "turkish"),
    ("İSTANBUL", "turkish"),
    ("ispanak", ""),
    ("елка ёжик москва", "russian"),
    ("北京", "chinese"),
    ("京北", ""),
    ("北 门", "chinese"),
    ("京", "chinese japanese"),
    ("テスト", "japanese"),
    ("ﾀﾜｰ", "japanese"),
    ("검색", "korean"),
    ("검*", "korean"),
    ("ไทย", "thai"),
    ("हिन्दी", "hindi"),
    ("हिन", ""),
    ("السلام", "arabic"),
    ("שלום", "hebrew"),
    ("final", "forms"),
    ("1 2 full", "forms"),
    ("ann.lee+x@example.com", "mail"),
    ("ann.example", ""),
    ("ann example", "mail"),
    ("foo_bar", "mail"),
    ('"call foo bar 1 2"', "mail"),
    ("drop table", "sql"),
    ("'; DROP TABLE messages; --", "sql"),
    ("messages)", "sql"),
    ("🚀", ""),
    ("🚀 ship", "emoji"),
    ("x" * 40 + "y", "long"),
    ("x" * 40 + "w", ""),
    ("x" * 40 + "*", "long"),
    ("x" * 32 + "*", "long"),
    ("x" * 32, ""),
    ('"' + "x" * 40 + "y and " + "x" * 39 + '"*', "long"),
    ("3.14", "numbers"),
    ("14.3", ""),
    ("2024-05-06", "numbers"),
    ("2024 -05", ""),
    ("two three", "parts"),
    ('"two three"', ""),
    ("AND", "long"),
    ("hello OR fine", ""),
    ("NEAR(hello)", ""),
    ("words:hello", ""),
    ("hello:*", "greeting"),
    ("^hello", "greeting"),
    ("(hello", "greeting"),
    ("hello &", "greeting"),
    ("hello | !", "greeting"),
    ("hello <-> world", "greeting"),
    ('"hello', "greeting"),
    ("'hello'", "greeting"),
    ("hello\tworld\x7f", "greeting"),
    ("\\hello%", "greeting"),
    ("*", ""),
    ("-", ""),
    ('""', ""),
    ('-"', ""),
    (" . ", ""),
    ("-*", ""),
    ("-hello two three", "parts"),
    ("-" + " -".join(name for name in ("hello", "die", "cafe", "sisuphos")) + " straße", ""),
    ('"' * 101, ""),
    ("a " * 2000, "greeting"),
)


async def search(
    world: World, session_id: str, query: str, *, page_size: int = 0, **more: Any
) -> list[pb.MessageMatch]:
    """Every match, page by page."""
    request = pb.SearchMessagesRequest(session_id=session_id, query=query, page_size=page_size, **more)
    found: list[pb.MessageMatch] = []
    while True:
        page = await world.call("MessageService.SearchMessages", request)
        found += page.matches
        if not page.next_page_token:
            return found
        request.page_token = page.next_page_token


async def names(world: World, session_id: str, query: str, **more: Any) -> str:
    """The ids of the messages that answer."""
    return " ".join(one.message.message_id for one in await search(world, session_id, query, **more))


@pytest.mark.rule("P2", "P3", "X2", "X8")
async def test_a_query_finds_the_same_on_every_backend(shared_suite: Suite) -> None:
    world = World(shared_suite)
    talk, other = await Talk.begin(world), await Talk.begin(world)
    said: list[Any] = [HumanMessage(text, id=name) for name, text in TEXTS.items() if name != "parts"]
    said.append(HumanMessage(["one two", {"type": "text", "text": "three four"}], id="parts"))
    await talk.put(*said)
    await other.put(HumanMessage("hello hello", id="elsewhere"))

    found = {query: await names(world, talk.session_id, query, freshness=fresh(talk.receipt)) for query, _ in CASES}
    assert found == dict(CASES)
    await world.call(
        "ProjectionAdminService.RebuildSession",
        admin_service_pb2.RebuildSessionRequest(request_id=fresh_id(), session_id=talk.session_id),
    )
    assert {query: await names(world, talk.session_id, query) for query, _ in CASES} == dict(CASES)
    without = set((await names(world, talk.session_id, "-hello -cafe")).split())
    assert without == set(TEXTS) - {"greeting", "french", "decomposed"}


@pytest.mark.rule("P2", "P3", "P5", "X5", "X2")
async def test_matches_come_in_pages_and_follow_what_is_said(shared_suite: Suite) -> None:
    world = World(shared_suite)
    talk = await Talk.begin(world)
    said = [HumanMessage(f"apple {n} " + "filler " * 60 + f"Ünder {n}", id=f"m{n}") for n in range(5)]
    said.append(AIMessage("apple pie", id="ai"))
    said.append(ToolMessage("apple cake", id="tool", tool_call_id="call"))
    await talk.submit(("first", "an apple a day"))
    await talk.work()
    await talk.step(HumanMessage("an apple a day", id="first"), *said)
    at = fresh(talk.receipt)
    everyone = "first m0 m1 m2 m3 m4 ai tool"
    session = talk.session_id
    assert await names(world, session, "apple", freshness=at) == everyone
    assert await names(world, session, "apple", page_size=3) == everyone
    backwards = " ".join(everyone.split()[::-1])
    assert await names(world, session, "apple", page_size=3, newest_first=True) == backwards
    speakers = [content_pb2.MESSAGE_ROLE_ASSISTANT, content_pb2.MESSAGE_ROLE_TOOL]
    assert await names(world, session, "apple", roles=speakers) == "ai tool"
    assert await names(world, session, "apple -cake", roles=speakers[1:]) == ""

    (match,) = await search(world, session, '"under 3"')
    piece, spans = match.excerpt.text, match.excerpt.matches
    assert (match.excerpt.part, len(piece)) == (0, 160)
    assert [piece[span.start : span.end] for span in spans] == ["Ünder 3"]
    (unmarked,) = await search(world, session, "-filler -pie -cake")
    assert (unmarked.message.message_id, unmarked.HasField("excerpt")) == ("first", False)

    request = pb.SearchMessagesRequest(session_id=session, query="apple", page_size=2)
    token = (await world.call("MessageService.SearchMessages", request)).next_page_token
    for changed in (
        pb.SearchMessagesRequest(session_id=session, query="pie", page_token=token),
        pb.SearchMessagesRequest(session_id=session, query="apple", roles=speakers, page_token=token),
    ):
        refusal = await refused(world.call("MessageService.SearchMessages", changed))
        assert refusal.reason == "PAGE_TOKEN_INVALID"
    # The page goes on where it stopped, though that message is gone and another says something else now.
    changed_m2 = HumanMessage("pear", id="m2")
    await talk.step(HumanMessage("an apple a day", id="first"), *said[1:2], changed_m2, *said[3:])
    request.page_token, request.page_size = token, 0
    request.freshness.CopyFrom(fresh(talk.receipt))
    page = await world.call("MessageService.SearchMessages", request)
    assert [one.message.message_id for one in page.matches] == ["m1", "m3", "m4", "ai", "tool"]
    assert await names(world, session, "pear") == "m2"
    assert await names(world, session, "filler") == "m1 m3 m4"
    # What comes back is found again; what was never there in another scope is not.
    await talk.step(*said, RemoveMessage("ai"))
    assert await names(world, session, "filler", freshness=fresh(talk.receipt)) == "m0 m1 m2 m3 m4"
    assert await names(world, session, "pear") == ""
    stranger = World(shared_suite)
    assert (await refused(search(stranger, session, "apple"))).reason == "SESSION_NOT_FOUND"
    for query in ("", "x" * 5000, "app\x00le"):
        assert (await refused(search(world, session, query))).reason in ("FIELD_INVALID", "LIMIT_EXCEEDED")
