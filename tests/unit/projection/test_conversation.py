"""A conversation is what its checkpoint's channel says, and each message stays the one that was introduced (P2)."""

from collections.abc import Iterable
from datetime import UTC, datetime, timedelta

import pytest

from threadkeep_projection.domain.conversation import known_id, settle, take_channel, take_inputs
from threadkeep_projection.domain.values import Content, Entry, Introduction, Message, Part, Removal

START = datetime(2026, 1, 1, tzinfo=UTC)
REMOVE_ALL = Removal("__remove_all__", removes_all=True)


def said(text: str) -> Content:
    return Content("USER", (Part(text),))


def entry(message_id: str | None, text: str = "") -> Entry:
    return Entry(said(text or message_id or ""), message_id)


def at(minute: int, task_id: str = "task", run_id: str = "run") -> Introduction:
    return Introduction(START + timedelta(minutes=minute), task_id, run_id)


class Conversation:
    """Keeps messages as a store would."""

    def __init__(self) -> None:
        self.messages: dict[str, Message] = {}

    def checkpoint(self, *items: Entry | Removal, minute: int = 0) -> None:
        self._take(take_channel(self.messages, settle("s", items), at(minute)))

    def submit(self, *ids: str, minute: int = 0) -> None:
        self._take(take_inputs(self.messages, [(one, said(one)) for one in ids], at(minute)))

    def _take(self, changed: Iterable[Message]) -> None:
        for message in changed:
            self.messages[message.message_id] = message

    @property
    def order(self) -> list[str]:
        live = sorted((m for m in self.messages.values() if m.position), key=lambda m: m.position or 0)
        assert [m.position for m in live] == list(range(1, len(live) + 1)), "positions are dense from 1"
        return [m.message_id for m in live]


@pytest.mark.case("B101")
def test_after_the_sentinel_the_last_of_one_id_wins_and_tombstones_apply() -> None:
    settled = settle("s", (entry("0"), REMOVE_ALL, entry("1", "a"), entry("2"), entry("1", "b"), Removal("2")))
    assert settled == [("1", said("b"))]


@pytest.mark.case("B100")
def test_messages_without_ids_get_the_same_ids_at_every_reading() -> None:
    channel = (entry(None, "a"), entry(None, "a"), entry(None, "b"))
    first, second = settle("s", channel), settle("s", channel)
    assert first == second
    assert len({message_id for message_id, _ in first}) == 3
    assert {one for one, _ in settle("other", channel)}.isdisjoint({one for one, _ in first})


@pytest.mark.parametrize("wild", ["a\x00b", "x" * 257, "line\nbreak"])
def test_an_id_that_is_no_identifier_here_is_replaced_by_a_stable_one(wild: str) -> None:
    assert known_id("s", wild) == known_id("s", wild) != wild
    assert settle("s", (entry(wild), Removal(wild))) == []


@pytest.mark.rule("P2")
def test_a_message_keeps_the_introduction_of_its_first_commit() -> None:
    talk = Conversation()
    talk.checkpoint(entry("a"), minute=1)
    talk.checkpoint(entry("a", "changed"), entry("b"), minute=2)
    assert talk.messages["a"].introduction == at(1)
    assert talk.messages["a"].content == said("changed")
    assert talk.messages["b"].introduction == at(2)
    assert talk.messages["b"].parent_message_id == "a"


@pytest.mark.rule("P2")
def test_an_input_is_shown_at_once_and_its_checkpoint_copy_replaces_it_in_place() -> None:
    talk = Conversation()
    talk.checkpoint(entry("a"), minute=1)
    talk.submit("in", minute=2)
    assert talk.order == ["a", "in"]
    talk.checkpoint(entry("a"), entry("in", "as the graph saw it"), entry("answer"), minute=3)
    assert talk.order == ["a", "in", "answer"]
    assert talk.messages["in"].introduction == at(2)
    assert talk.messages["in"].content == said("as the graph saw it")


def test_an_input_that_no_checkpoint_held_yet_stays_behind_what_it_followed() -> None:
    talk = Conversation()
    talk.checkpoint(entry("a"), entry("b"))
    talk.submit("in")
    talk.checkpoint(entry("a"), entry("b"), entry("c"))
    assert talk.order == ["a", "b", "in", "c"]
    talk.checkpoint(entry("summary"))
    assert talk.order == ["summary", "in"], "all before it is gone: it is what comes next"


def test_an_input_that_opens_the_conversation_stays_first() -> None:
    talk = Conversation()
    talk.submit("in")
    talk.checkpoint(entry("answer"))
    assert talk.order == ["in", "answer"]


def test_an_input_that_a_checkpoint_held_goes_when_the_channel_drops_it() -> None:
    talk = Conversation()
    talk.submit("in")
    talk.checkpoint(entry("in"), entry("a"))
    talk.checkpoint(entry("a"))
    assert talk.order == ["a"]
    assert talk.messages["in"].content is None, "what it said is not kept"


def test_a_message_that_comes_back_is_the_message_of_then() -> None:
    talk = Conversation()
    talk.checkpoint(entry("a"), entry("b"), minute=1)
    talk.checkpoint(entry("a"), minute=2)
    assert talk.order == ["a"]
    talk.checkpoint(entry("a"), entry("b"), minute=3)
    assert talk.messages["b"].introduction == at(1)


def test_only_what_changed_is_written() -> None:
    talk = Conversation()
    talk.checkpoint(*(entry(str(n)) for n in range(100)))
    grown = settle("s", tuple(entry(str(n)) for n in range(101)))
    assert [one.message_id for one in take_channel(talk.messages, grown, at(1))] == ["100"]
