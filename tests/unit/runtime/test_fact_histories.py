"""Generated histories of a conversation and its state keys: nothing is lost, nothing comes back (R11, R12).

The model that judges every commit is `tests/support/thread_facts.py`.
"""

import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, precondition, rule

from tests.support.one_thread import OneThread, put
from tests.support.thread_facts import Keys
from threadkeep_chassis.errors import ThreadkeepError
from threadkeep_runtime.domain.commands import Ended
from threadkeep_runtime.domain.errors import LeaseLost, LeaseRequired
from threadkeep_runtime.domain.messages import MessageNotFound, MessageSourceMixed
from threadkeep_runtime.domain.values import LeaseRef

KINDS = st.lists(st.sampled_from(["append", "append", "replace", "remove"]), max_size=5)


class FactHistories(RuleBasedStateMachine):
    """Runs come and go; whoever may, and whoever may not, writes messages and state."""

    def __init__(self) -> None:
        super().__init__()
        self.thread = OneThread()
        self.leases: list[LeaseRef] = []
        self.names = 0
        self.source = ""
        """Where the session's messages come from: what its first commit with any decides, for good (P2)."""

    def name(self) -> str:
        """A new name."""
        self.names += 1
        return f"{self.names:06d}"

    @initialize(at_first=st.one_of(st.just(0), st.integers(0, 300)))
    def begin(self, at_first: int) -> None:
        """A conversation that is short, or close to where its places are written down."""
        self.thread.submit()
        kinds = ["append"] * at_first
        self.source = "FACTS" if kinds else ""
        self.thread.commit(messages=self.thread.conversation.changes(kinds, self.name), state=self.keys.commands(1))

    @property
    def keys(self) -> Keys:
        """The model of the state keys."""
        return self.thread.keys

    @precondition(lambda self: self.thread.open_run is None)
    @rule()
    def submit(self) -> None:
        self.thread.submit()

    @precondition(lambda self: self.thread.open_run is not None and self.thread.open_run.state == "QUEUED")
    @rule()
    def take(self) -> None:
        self.leases.append(self.thread.take())

    @precondition(lambda self: self.thread.lease is not None)
    @rule()
    def finish(self) -> None:
        assert self.thread.lease is not None
        self.thread.commit(LeaseRef(self.thread.lease.run_id, self.thread.lease.epoch), Ended("SUCCEEDED"))

    @rule(index=st.integers(0, 2), kinds=KINDS, add=st.integers(-3, 3), leased=st.booleans(), saves=st.booleans())
    def write(self, index: int, kinds: list[str], add: int, leased: bool, saves: bool) -> None:
        if leased and not self.leases:
            return
        lease = self.leases[-1 - index % len(self.leases)] if leased else None
        held = self.thread.lease
        is_current = held is not None and lease == LeaseRef(held.run_id, held.epoch)
        total = self.keys.values["sum"]
        shown = self.thread.conversation.shown
        changes = self.thread.conversation.changes(kinds, self.name)
        state = self.keys.commands(add, in_run=leased)
        try:
            self.thread.commit(lease, messages=changes, state=state, ops=(put(self.name()),) if saves else ())
        except MessageSourceMixed:
            assert self.source == "CHECKPOINTS"
            assert changes
            assert is_current if leased else held is None
            assert (self.keys.values["sum"], self.thread.conversation.shown) == (total, shown)
            return
        except (LeaseLost, LeaseRequired):
            assert not is_current if leased else held is not None
            assert (self.keys.values["sum"], self.thread.conversation.shown) == (total, shown)
            return
        assert is_current if leased else held is None
        assert self.keys.values["sum"] == total + add
        assert not (changes and self.source == "CHECKPOINTS")
        self.source = self.source or ("FACTS" if changes else "CHECKPOINTS" if saves else "")

    @rule(kinds=KINDS)
    def name_what_is_not_there(self, kinds: list[str]) -> None:
        """A commit with one bad change is refused whole."""
        shown = self.thread.conversation.shown
        changes = self.thread.conversation.changes([*kinds, "zombie"], self.name)
        expected: type[ThreadkeepError] = MessageSourceMixed if self.source == "CHECKPOINTS" else MessageNotFound
        if self.thread.lease is not None:
            expected = LeaseRequired
        with pytest.raises(expected):
            self.thread.commit(messages=changes)
        assert self.thread.conversation.shown == shown


FactHistories.TestCase.settings = settings(max_examples=40, stateful_step_count=30, deadline=None)


@pytest.mark.rule("R11", "R12", "R17", "R3", "P2")
class TestFactHistories(FactHistories.TestCase):
    """See FactHistories."""
