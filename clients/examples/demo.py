"""`make demo`: a LangGraph agent that loses its worker in the middle of a run, and finishes as if nothing had happened.

Told by the environment: INPUT (a text file, default README.md), ASK=1 (you approve), DATABASE=postgresql://... (four
processes on PostgreSQL), MODEL and BASE_URL (a live model; OPENAI_API_KEY if it needs one). Exit code 0 if everything
was as it must be, 1 if not.
"""

from __future__ import annotations

import shutil
import sys
import tempfile
from collections.abc import Sequence
from pathlib import Path

from reading import facts, report
from walkthrough.checks import mismatches
from walkthrough.options import Options, Unusable
from walkthrough.printing import tell
from walkthrough.processes import Trouble
from walkthrough.stage import Say, stage
from walkthrough.story import Approve, Told, play

from threadkeep.errors import ThreadkeepError
from threadkeep.runtime.v1.ticket_pb2 import Ticket

_STRIKES = {
    "stop": "the lease holder is stopped (SIGSTOP), and wakes up when the other has finished",
    "kill": "the lease holder is killed (SIGKILL)",
    "none": "nothing happens to the lease holder",
}


def main() -> int:
    """Runs the demo; gives the exit code."""
    say = Say()
    try:
        options = Options.from_environment()
    except Unusable as error:
        print(f"demo: {error}", file=sys.stderr)
        return 2
    folder = Path(tempfile.mkdtemp(prefix="threadkeep-demo-"))
    try:
        wrong = _run(options, folder, say)
    except (Trouble, ThreadkeepError) as error:
        print(f"\ndemo: {error}\nThe logs are in {folder}", file=sys.stderr)
        return 1
    if wrong:
        print(f"\n{len(wrong)} mismatches. The logs are in {folder}", file=sys.stderr)
        return 1
    shutil.rmtree(folder, ignore_errors=True)
    say("\nEverything was as it must be.")
    return 0


def _run(options: Options, folder: Path, say: Say) -> list[str]:
    expected = _expected(options.input)
    found: list[str] = []
    say.title("the stage")
    with stage(options, folder, say) as ready:
        for number, strike in enumerate(options.strikes, 1):
            say.title(f"run {number}: {_STRIKES[strike]}")
            told = play(ready, options.input, strike, _approval(options), say)
            wrong = mismatches(told, expected, is_live=options.is_live)
            tell(told, say)
            say.title(f"what run {number} shows")
            for line in _shown(told) if not wrong else [f"MISMATCH: {one}" for one in wrong]:
                say(line)
            found += wrong
    return found


def _expected(path: Path) -> dict[str, str]:
    """The facts that the report must hold, taken here and now."""
    sha256, size = facts.digest(path)
    lines, words, headings = facts.counts(path)
    text = report.render(
        path.name,
        sha256=sha256,
        size=size,
        lines=lines,
        words=words,
        headings=headings,
        commonest=facts.commonest(path),
    )
    return report.parse(text)


def _approval(options: Options) -> Approve:
    def by_script(_: Ticket) -> bool:
        return True

    def by_person(ticket: Ticket) -> bool:
        print(f"\nThe agent asks: {ticket.prompt.data.decode()}")
        return input("Approve? [y/n] ").strip().lower().startswith("y")

    return by_person if options.asks else by_script


def _shown(told: Told) -> Sequence[str]:
    lines = [
        f"every step's effect happened once: {len(told.lines)} tool steps, {len(told.lines)} ledger lines",
        f"the event sequence is dense: 1 to {told.events[-1].sequence}",
        "the report's facts are the file's",
    ]
    if told.struck is not None:
        lines.append(f"the late commit of {told.struck.worker_id} was refused: {', '.join(told.struck.refusals)}")
    return lines


if __name__ == "__main__":
    sys.exit(main())
