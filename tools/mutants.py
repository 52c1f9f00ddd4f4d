"""Removes the check behind a rule in a copy of a package, and tells whether the test that proves the rule notices.

A rule whose check can be deleted without a test failing is not proven. `python -m tools.mutants` runs them all.
"""

import os
import re
import shutil
import subprocess
import sys
import tempfile
from dataclasses import dataclass
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
RUNTIME = Path("services/runtime/threadkeep_runtime")
GENERATED = "tests/conformance/test_generated.py::"
COMMITS = "tests/conformance/runtime/test_commits.py::"
EVENTS = "tests/conformance/runtime/test_events.py::"


@dataclass(frozen=True)
class Edit:
    """One passage of a file (below the package) that is replaced; it stands there exactly once."""

    file: str
    old: str
    new: str


@dataclass(frozen=True)
class Mutant:
    """What is taken away, and the test that must fail then."""

    rule: str
    removes: str
    edits: tuple[Edit, ...]
    test: str
    package: Path = RUNTIME

    @property
    def name(self) -> str:
        """For people and for test ids."""
        return f"{self.rule}: {self.removes}"


MUTANTS = (
    Mutant(
        "R2",
        "the comparison of expected_thread_version",
        (
            Edit(
                "domain/thread_commit.py",
                "if command.expected_version is not None and command.expected_version != version:",
                "if False:",
            ),
        ),
        COMMITS + "test_of_many_commits_on_one_version_one_wins[memory-embedded]",
    ),
    Mutant(
        "R3",
        "the comparison of the lease's epoch",
        (Edit("domain/runs.py", " or view.named_run.epoch != lease.epoch", ""),),
        "tests/conformance/runtime/test_checkpoints_fenced.py::"
        "test_a_stale_lease_leaves_no_checkpoint_behind[memory-embedded]",
    ),
    Mutant(
        "R5",
        "the look for an open run",
        (
            Edit(
                "domain/tasks.py",
                'if view.run is not None and command.strategy == "REJECT" and not',
                "if False and not",
            ),
        ),
        "tests/conformance/runtime/test_tasks.py::test_a_busy_session_refuses_a_second_task[memory-embedded]",
    ),
    Mutant(
        "R14",
        "the exclusion of the cursor's own event",
        (Edit("store/events_read.py", "e.position > after, ", "e.position >= after, "),),
        EVENTS + "test_resuming_is_exclusive[memory-embedded]",
    ),
    Mutant(
        "R14",
        "the order of positions within a commit",
        (
            Edit(
                "store/apply.py",
                '"position": position + index + 1,',
                '"position": position + len(decision.events) - index,',
            ),
        ),
        EVENTS + "test_every_cursor_goes_on_just_behind_its_event[memory-embedded]",
    ),
    Mutant(
        "R14",
        "the lock of the partition's counter: positions come from a sequence object, whoever commits first",
        (
            Edit(
                "migrations/versions/0001_first.py",
                "    _checkpoints()\n",
                "    _checkpoints()\n    op.execute('CREATE SEQUENCE positions')\n",
            ),
            Edit(
                "store/apply.py",
                'connection.execute(_COUNT_EVENTS, {"key_partition": partition, "count": count}).one()',
                "connection.execute(\n"
                "            sa.text(\"SELECT nextval('positions'), min(incarnation), '' FROM log_partitions\")\n"
                "        ).one()",
            ),
            Edit(
                "store/events_read.py",
                "_HEAD = sa.select(log_partitions.c.position)",
                "_HEAD = sa.select(sa.select(sa.func.coalesce(sa.func.max(events.c.position), 0)).scalar_subquery())",
            ),
            Edit(
                "store/events_read.py",
                "_HEADS = sa.select(log_partitions.c.incarnation, log_partitions.c.position)",
                "_HEADS = sa.select(\n"
                "    log_partitions.c.incarnation,\n"
                "    sa.select(sa.func.coalesce(sa.func.max(events.c.position), 0)).label('position'),\n"
                ")",
            ),
        ),
        "tests/store/runtime_feeds/test_commit_order.py::"
        "test_who_takes_a_position_first_commits_first_and_the_reader_misses_neither[postgres]",
    ),
    Mutant(
        "X2",
        "the scope in the reading of a task",
        (Edit("store/reads.py", '_TASKS.where(tasks.c.scope_key == sa.bindparam("scope_key"), ', "_TASKS.where("),),
        GENERATED
        + "test_a_foreign_id_answers_like_one_that_was_never_used[memory-embedded-TaskService.GetTask-task_id]",
    ),
    Mutant(
        "X3",
        "the comparison of fingerprints",
        (
            Edit("pipeline/transaction.py", "if fingerprint != request.fingerprint:", "if False:"),
            Edit("commands/base.py", "if found[0] != request.fingerprint:", "if False:"),
        ),
        GENERATED + "test_a_request_id_is_not_used_for_another_request[memory-embedded-TaskService.SubmitTask]",
    ),
    Mutant(
        "X3",
        "the look for a receipt inside the transaction",
        (
            Edit(
                "pipeline/transaction.py",
                "found = answered.get((request.receipt_key, request.request_id))",
                "found = None",
            ),
        ),
        GENERATED + "test_a_mutation_sent_twice_at_once_has_one_effect[memory-embedded-SessionService.UpdateSession]",
    ),
)


def missing(mutant: Mutant) -> list[str]:
    """The edits of a mutant that no longer fit the sources: the table above must follow them."""
    return [
        f"{mutant.package / edit.file}: {edit.old}"
        for edit in mutant.edits
        if (ROOT / mutant.package / edit.file).read_text().count(edit.old) != 1
    ]


def run(mutant: Mutant) -> tuple[bool, str]:
    """Runs the mutant's test against it; gives whether the test failed, as it must, and what pytest said."""
    with tempfile.TemporaryDirectory(prefix="tk-mutant-") as folder:
        copy = Path(folder) / mutant.package.name
        shutil.copytree(ROOT / mutant.package, copy, ignore=shutil.ignore_patterns("__pycache__"))
        for edit in mutant.edits:
            path = copy / edit.file
            path.write_text(path.read_text().replace(edit.old, edit.new))
        # PYTHONPATH comes before the editable installation, so the copy is what the test imports.
        done = subprocess.run(
            [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", "--show-capture=no", mutant.test],
            cwd=ROOT,
            env={**os.environ, "PYTHONPATH": folder},
            capture_output=True,
            text=True,
        )
    last = done.stdout.strip().splitlines()[-1] if done.stdout.strip() else ""
    # An error alone would be a fixture that could not start; what the test left open when it failed may come on top.
    noticed = done.returncode == 1 and re.fullmatch(r"1 failed(, [0-9]+ errors?)? in .*", last) is not None
    return noticed, done.stdout + done.stderr


def main() -> int:
    """`python -m tools.mutants`."""
    survivors = 0
    for mutant in MUTANTS:
        noticed = not missing(mutant) and run(mutant)[0]
        survivors += not noticed
        print(f"{'noticed' if noticed else 'SURVIVED':9} {mutant.name} ({mutant.test})", flush=True)
    return 1 if survivors else 0


if __name__ == "__main__":
    sys.exit(main())
