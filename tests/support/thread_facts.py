"""A model of a thread's conversation and state keys, written apart from the code, that judges commits (R11, R12)."""

from collections.abc import Callable
from datetime import UTC, datetime

from threadkeep_runtime.domain import commands
from threadkeep_runtime.domain.commit import Decision
from threadkeep_runtime.domain.messages import Change, Known, Live, Range
from threadkeep_runtime.domain.state import Command, Commands, Declaration, Held, StateValue
from threadkeep_runtime.domain.values import Thread

EARLY = datetime(2020, 1, 1, tzinfo=UTC)
DECLARED = {
    "sum": Declaration("sum", "THREAD", "COMMUTATIVE", 1, 1000, None, EARLY, EARLY),
    "of_run": Declaration("of_run", "RUN", "COMMUTATIVE", 1, 1000, None, EARLY, EARLY),
}


class Conversation:
    """Which messages a thread has, in their order."""

    def __init__(self) -> None:
        self.live: dict[str, Live] = {}
        self.used: set[str] = set()
        self.thread: Thread | None = None

    @property
    def shown(self) -> list[str]:
        """The ids, in order."""
        return sorted(self.live, key=lambda one: self.live[one].position)

    @property
    def places(self) -> tuple[Range, ...]:
        """Every live place."""
        return tuple((one.position, one.position) for one in sorted(self.live.values()))

    def known(self, command: commands.Command) -> Known:
        """What the store would find for the command."""
        return Known(dict(self.live), frozenset(self.used), frozenset(), self.places)

    def changes(self, kinds: list[str], name: Callable[[], str]) -> tuple[Change, ...]:
        """Changes of these kinds; `zombie` names a message that is not there."""
        left = list(self.shown)
        found = []
        for number, kind in enumerate(kinds):
            path = f"commit.messages[{number}]"
            if kind == "zombie":
                found.append(Change("remove", f"gone-{name()}", True, path))
            elif kind == "append" or not left:
                found.append(Change("append", name(), True, path, b"content", {"message_id": "m"}))
            else:
                found.append(Change(kind, left.pop(), True, path, b"other", {"message_id": "m"}))
        return tuple(found)

    def apply(self, decision: Decision) -> None:
        """Applies what a commit wrote, and checks it."""
        thread, changes = decision.thread, decision.messages
        assert thread is not None
        if changes is not None:
            by_place = {live.position: one for one, live in self.live.items()}
            for closed in changes.closed:
                message_id = by_place[closed.position]
                assert self.live[message_id].from_commit == closed.from_commit, "what ends is what stood"
                if closed.is_removed:
                    del self.live[message_id]
            for row in changes.rows:
                before = self.live.get(row.message_id)
                if before is None:
                    assert row.message_id not in self.used, "an id does not come back"
                    assert row.position > max((one.position for one in self.live.values()), default=0)
                else:
                    assert (row.position, row.create_time) == (before.position, before.create_time)
                self.live[row.message_id] = Live(
                    row.position, thread.commit_sequence, row.run_id, row.task_id, row.create_time
                )
                self.used.add(row.message_id)
            if changes.places is not None:
                listed = [place for first, last in changes.places for place in range(first, last + 1)]
                assert listed == [one.position for one in sorted(self.live.values())]
        assert thread.message_count == len(self.live)
        assert thread.message_position >= max((one.position for one in self.live.values()), default=0)


class Keys:
    """What a thread holds under a sum that lives as long as the thread, and one that lives as long as its run."""

    def __init__(self) -> None:
        self.heads: dict[str, StateValue] = {}
        self.values: dict[str, int] = {}
        self._run: str | None = None

    def held(self, command: commands.Command) -> dict[str, Held]:
        """What the store would find for the command."""
        return {key: Held(declared, self.heads.get(key)) for key, declared in DECLARED.items()}

    def commands(self, add: int, *, in_run: bool = False) -> Commands:
        """Adds to the sums."""
        keys = ["sum", "of_run"] if in_run else ["sum"]
        return Commands(tuple(Command(key, "add", add, "commit.state[0]") for key in keys), dict.fromkeys(DECLARED, 1))

    def apply(self, decision: Decision) -> None:
        """Applies what a commit wrote, and checks that nothing was lost and nothing of another run was kept."""
        for value in decision.state_values:
            before = self.heads.get(value.key)
            if value.key == "of_run":
                assert value.run_id is not None
                if self._run != value.run_id:
                    self._run, before = value.run_id, None
                    self.values.pop(value.key, None)
            assert value.version == (1 if before is None else before.version + 1)
            assert value.value is not None
            self.values[value.key] = int(value.value)
            self.heads[value.key] = value
